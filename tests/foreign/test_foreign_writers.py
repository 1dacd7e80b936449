"""Files as pyarrow, pandas, Polars, DuckDB and Arrow Java write them read right."""

from __future__ import annotations

import datetime as dt
import decimal
import struct
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.foreign.stage import write_random, write_stream

from streamfactory.arrowipc import target, vector
from streamfactory.backends.file.foreign.framing import field, table
from streamfactory.spi import CorruptData, FetchLimits, FormatRefused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WRITERS = [write_stream, write_random]
UTC = dt.UTC
NOW = FetchLimits(1_000_000, 1 << 30, 0.0)


def plain(rows: int) -> pa.RecordBatch:
    """A column of everything that has a plain type already."""
    numbers = range(rows)
    return pa.record_batch(
        {
            "i8": pa.array(numbers, pa.int8()),
            "u64": pa.array(numbers, pa.uint64()),
            "f16": pa.array([float(n) for n in numbers], pa.float16()),
            "text": pa.array([f"wörd {n}" if n % 3 else None for n in numbers]),
            "flag": pa.array([bool(n % 2) for n in numbers]),
            "bytes": pa.array([bytes([n]) for n in numbers]),
            "fixed": pa.array([bytes([n, n]) for n in numbers], pa.binary(2)),
            "day": pa.array(numbers, pa.date32()),
            "time": pa.array(numbers, pa.time64("us")),
            "at": pa.array(numbers, pa.timestamp("ns", "UTC")),
            "span": pa.array(numbers, pa.duration("s")),
            "list": pa.array([[n, None] if n % 2 else None for n in numbers]),
            "struct": pa.array([{"a": n, "b": [str(n)]} for n in numbers]),
            "map": pa.array(
                [[("k", n)] for n in numbers], pa.map_(pa.string(), pa.int64())
            ),
            "money": pa.array(map(decimal.Decimal, numbers), pa.decimal128(9, 3)),
            "nothing": pa.nulls(rows),
        }
    )


# --- pyarrow ----------------------------------------------------------------------


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("write", WRITERS)
def test_plain_types_come_as_they_are(
    write: Any, compression: str | None, tmp_path: Path, table_of: Callable[..., Any]
) -> None:
    parts = [plain(7), plain(100).slice(50), plain(9).slice(1, 0)]
    path = write(tmp_path / "a", *parts, compression=compression)
    assert table_of(path).equals(pa.Table.from_batches(parts))


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize(
    ("kind", "values", "wanted"),
    [
        (pa.large_string(), ["a", None], pa.string()),
        (pa.string_view(), ["a", None, "long enough for a buffer"], pa.string()),
        (pa.large_binary(), [b"a", None], pa.binary()),
        (pa.binary_view(), [b"a", None], pa.binary()),
        (pa.large_list(pa.large_string()), [["a"], None, []], pa.list_(pa.string())),
        (pa.list_view(pa.int64()), [[1], [2, 3], None, []], pa.list_(pa.int64())),
        (
            pa.list_view(pa.string_view()),
            [["a"], None, ["b", "c"]],
            pa.list_(pa.string()),
        ),
        (
            pa.list_(pa.large_string(), 2),
            [["a", "b"], ["c", "d"]],
            pa.list_(pa.string(), 2),
        ),
        (
            pa.struct([("l", pa.list_view(pa.int64()))]),
            [{"l": [1, 2]}, None, {"l": None}],
            pa.struct([("l", pa.list_(pa.int64()))]),
        ),
        (
            pa.map_(pa.large_string(), pa.list_view(pa.int64())),
            [[("a", [1])], None, [("b", [2, 3]), ("c", None)]],
            pa.map_(pa.string(), pa.list_(pa.int64())),
        ),
        (
            pa.decimal64(9, 2),
            [decimal.Decimal("1.25"), None, decimal.Decimal("-0.07")],
            pa.decimal128(9, 2),
        ),
        (
            pa.timestamp("ms", "Europe/Berlin"),
            [dt.datetime(2026, 1, 2, tzinfo=UTC), None],
            pa.timestamp("ms", "UTC"),
        ),
    ],
    ids=str,
)
def test_other_types_become_plain(
    write: Any,
    kind: pa.DataType,
    values: list[Any],
    wanted: pa.DataType,
    tmp_path: Path,
    table_of: Callable[..., Any],
) -> None:
    rows = pa.record_batch({"x": pa.array(values, kind)})
    found = table_of(write(tmp_path / "a", rows, rows))
    assert found.schema == pa.schema({"x": wanted})
    assert found["x"].to_pylist() == pa.array(values * 2, wanted).to_pylist()


def words(*values: str | None) -> pa.RecordBatch:
    return pa.record_batch({"w": pa.array(values).dictionary_encode()})


@pytest.mark.parametrize("deltas", [False, True])
def test_dictionaries_hold_for_the_batches_behind_them(
    deltas: bool, tmp_path: Path, values_of: Callable[..., list[Any]]
) -> None:
    parts = [words("a", "b"), words("a", "b", "c"), words("d", None), words("d", "e")]
    path = write_stream(tmp_path / "a", *parts, emit_dictionary_deltas=deltas)
    wanted = ["a", "b", "a", "b", "c", "d", None, "d", "e"]
    for start in range(len(wanted) + 1):
        assert values_of(path, start) == wanted[start:]


def test_jumping_back_takes_back_what_replaced_a_dictionary(
    tmp_path: Path, consumer_factory: Callable[..., Any]
) -> None:
    parts = [words(f"{n}a", f"{n}b") for n in range(30)]
    consumer = consumer_factory(write_stream(tmp_path / "a", *parts))
    for start in (58, 0, 31, 30, 2, 59, 1):
        rows = consumer.fetch_messages(start, start + 1, NOW).rows
        assert rows.column(0)[0].as_py() == f"{start // 2}{'ab'[start % 2]}"


def test_delta_dictionaries_of_a_random_access_file_are_one(
    tmp_path: Path, values_of: Callable[..., list[Any]]
) -> None:
    parts = [words("a"), words("a", "b"), words("a", "b", "c")]
    path = write_random(tmp_path / "a", *parts, emit_dictionary_deltas=True)
    assert values_of(path) == ["a", "a", "b", "a", "b", "c"]
    assert values_of(path, 5) == ["c"]


def test_nested_dictionaries_become_plain(
    tmp_path: Path, table_of: Callable[..., Any]
) -> None:
    inner = pa.array(["x", "y", None, "x"]).dictionary_encode()
    column = pa.StructArray.from_arrays(
        [pa.ListArray.from_arrays([0, 1, 3, 4], inner)], ["l"]
    )
    found = table_of(write_stream(tmp_path / "a", pa.record_batch({"s": column})))
    assert found["s"].to_pylist() == [{"l": ["x"]}, {"l": ["y", None]}, {"l": ["x"]}]


def test_old_format_is_read(tmp_path: Path, values_of: Callable[..., Any]) -> None:
    rows = pa.record_batch({"n": [1, 2, 3]})
    for write in WRITERS:
        path = write(tmp_path / "a", rows, use_legacy_format=True)
        assert values_of(path, 1) == [2, 3]


# --- pandas, Polars, DuckDB ---------------------------------------------------------


def test_pandas_feather_is_read(tmp_path: Path, table_of: Callable[..., Any]) -> None:
    frame = pd.DataFrame(
        {
            "n": [1, 2, 3],
            "s": ["a", None, "ü"],
            "c": pd.Categorical(["x", "y", "x"]),
            "t": pd.to_datetime(["2026-01-01", None, "2026-01-03"], utc=True),
        }
    )
    frame.to_feather(tmp_path / "a.feather")
    found = table_of(tmp_path / "a.feather")
    assert found.schema.metadata is None
    assert found.schema.types[:3] == [pa.int64(), pa.string(), pa.string()]
    assert found.column("s").to_pylist() == ["a", None, "ü"]
    assert found.column("c").to_pylist() == ["x", "y", "x"]
    assert found.column("t").null_count == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("level", ["oldest", "newest"])
def test_polars_is_read(
    stream: bool, level: str, tmp_path: Path, table_of: Callable[..., Any]
) -> None:
    columns = {
        "s": ["a", None, "more than twelve bytes"],
        "l": [["p", "q"], [], None],
        "d": [decimal.Decimal("1.20"), None, decimal.Decimal("3.40")],
        "r": [{"u": "a"}, {"u": None}, {"u": "c"}],
        "b": [b"1", None, b"3"],
        "t": [dt.datetime(2026, 1, 1, tzinfo=UTC), None, None],
    }
    frame = pl.DataFrame(columns).with_columns(
        pl.Series("c", ["x", "y", "x"], dtype=pl.Categorical),
        pl.Series("e", ["x", None, "x"], dtype=pl.Enum(["x", "y"])),
    )
    write = frame.write_ipc_stream if stream else frame.write_ipc
    write(tmp_path / "a", compat_level=getattr(pl.CompatLevel, level)())
    found = table_of(tmp_path / "a")
    wanted = {**columns, "c": ["x", "y", "x"], "e": ["x", None, "x"]}
    assert found.to_pydict() == wanted
    assert found.schema.field("s").type == pa.string()
    assert found.schema.field("l").type == pa.list_(pa.string())


@pytest.mark.parametrize("write", WRITERS)
def test_duckdb_results_are_read(
    write: Any, tmp_path: Path, table_of: Callable[..., Any]
) -> None:
    query = """
        SELECT i::INTEGER AS i, i::VARCHAR AS s, (i / 4)::DECIMAL(9, 2) AS d,
               [i, i + 1] AS l, {'a': i::VARCHAR} AS r, i::HUGEINT AS h,
               (CASE WHEN i % 2 = 0 THEN 'even' END)::ENUM ('even', 'odd') AS e
        FROM range(5000) AS t (i)
    """
    with duckdb.connect() as connection:
        result = connection.sql(query)
        reader = result.to_arrow_reader(1024)
        path = write(tmp_path / "a", *reader)
    found = table_of(path)
    assert found.num_rows == 5000
    assert found.slice(4998).to_pylist() == [
        {
            "i": 4998,
            "s": "4998",
            "d": decimal.Decimal("1249.50"),
            "l": [4998, 4999],
            "r": {"a": "4998"},
            "h": decimal.Decimal(4998),
            "e": "even",
        },
        {
            "i": 4999,
            "s": "4999",
            "d": decimal.Decimal("1249.75"),
            "l": [4999, 5000],
            "r": {"a": "4999"},
            "h": decimal.Decimal(4999),
            "e": None,
        },
    ]


# --- Arrow Java, as Hop uses it -------------------------------------------------------


def decimal_of(data: bytes | bytearray, schema: int) -> int:
    """Where the type of the decimal column stands in a flatbuffer."""
    begin, count = vector(data, field(data, schema, 1))
    columns = [target(data, place) for place in range(begin, begin + 4 * count, 4)]
    [column] = [c for c in columns if data[field(data, c, 2)] == 7]
    return table(data, column, 3)


def declared_by_hop(schema: pa.Schema, precision: int = 38) -> bytes:
    """A schema message whose decimal says 64 bits, and has any number of digits."""
    declared = [
        f.with_type(pa.decimal64(9, 2)) if pa.types.is_decimal(f.type) else f
        for f in schema
    ]
    message = bytearray(pa.schema(declared).serialize().to_pybytes())
    kind = decimal_of(message, table(message, target(message, 8), 2))
    struct.pack_into("<i", message, field(message, kind, 0), precision)
    return bytes(message)


def hop_stream(path: Path, parts: list[pa.RecordBatch], schema: bytes) -> Path:
    bodies = [part.serialize().to_pybytes() for part in parts]
    path.write_bytes(b"".join([schema, *bodies, b"\xff\xff\xff\xff\0\0\0\0"]))
    return path


def hop_random(path: Path, parts: list[pa.RecordBatch], schema: bytes) -> Path:
    """The same with a footer: another file's, with our places and type in it."""
    declared = pa.ipc.read_schema(pa.py_buffer(declared_by_hop(parts[0].schema, 9)))
    empty = pa.RecordBatch.from_pylist([], schema=declared)
    other = write_random(path, *[empty] * len(parts))
    data = other.read_bytes()
    (length,) = struct.unpack("<i", data[-10:-6])
    footer = bytearray(data[-10 - length : -10])
    kind = decimal_of(footer, table(footer, target(footer, 0), 1))
    meant = table(schema, target(schema, 8), 2)
    (precision,) = struct.unpack_from(
        "<i", schema, field(schema, decimal_of(schema, meant), 0)
    )
    struct.pack_into("<i", footer, field(footer, kind, 0), precision)
    begin, _ = vector(footer, field(footer, target(footer, 0), 3))
    body = b"ARROW1\0\0" + schema
    for index, part in enumerate(parts):
        message = part.serialize().to_pybytes()
        head = 8 + struct.unpack_from("<i", message, 4)[0]
        block = (len(body), head, len(message) - head)
        struct.pack_into("<qi4xq", footer, begin + 24 * index, *block)
        body += message
    path.write_bytes(body + b"\xff\xff\xff\xff\0\0\0\0" + footer + data[-10:])
    return path


def hop_rows(first: int, count: int, precision: int = 38) -> pa.RecordBatch:
    """The table of Hop's types: what each is written as."""
    numbers = range(first, first + count)
    stamp = dt.datetime(2026, 1, 1, tzinfo=UTC)
    return pa.record_batch(
        {
            "String": pa.array([f"s{n}" for n in numbers], pa.string()),
            "Boolean": pa.array([n % 2 == 0 for n in numbers], pa.bool_()),
            "Integer": pa.array(numbers, pa.int64()),
            "Number": pa.array([n / 2 for n in numbers], pa.float64()),
            "BigNumber": pa.array(
                [decimal.Decimal(n) / 100 if n % 3 else None for n in numbers],
                pa.decimal128(precision, 2),
            ),
            "Date": pa.array([stamp] * count, pa.timestamp("ms", "UTC")),
        }
    )


@pytest.mark.parametrize("precision", [9, 38])
@pytest.mark.parametrize("write", [hop_stream, hop_random])
def test_decimals_of_hop_have_their_values(
    write: Any, precision: int, tmp_path: Path, table_of: Callable[..., Any]
) -> None:
    """hop 15: declared 64 bits wide, stored in 16 bytes a value."""
    parts = [hop_rows(0, 50, precision), hop_rows(50, 1, precision)]
    declared = declared_by_hop(parts[0].schema, precision)
    assert table_of(write(tmp_path / "a", parts, declared)).equals(
        pa.Table.from_batches(parts)
    )


def test_empty_file_of_hop_has_its_schema(
    tmp_path: Path, table_of: Callable[..., Any]
) -> None:
    """hop 18: no row at all is a stream like any other."""
    schema = hop_rows(0, 0).schema
    found = table_of(hop_stream(tmp_path / "a", [], declared_by_hop(schema)))
    assert (found.num_rows, found.schema) == (0, schema)


@pytest.mark.parametrize("write", [hop_stream, hop_random])
def test_decimal_of_no_digits_is_reported(
    write: Any, tmp_path: Path, table_of: Callable[..., Any]
) -> None:
    """hop 15: a length that nobody specified goes into the type as -1."""
    rows = hop_rows(0, 3)
    path = write(tmp_path / "a", [rows], declared_by_hop(rows.schema, -1))
    with pytest.raises(CorruptData) as caught:
        table_of(path)
    assert str(path) in caught.value.what
    assert "precision" in caught.value.what.lower()


@pytest.mark.parametrize(
    ("kind", "unit"),
    [(pa.int8(), None), (pa.int16(), None), (pa.int32(), None)]
    + [(pa.timestamp(unit, "UTC"), unit) for unit in ("s", "us", "ns")],
    ids=str,
)
def test_types_that_hop_misread_have_their_values(
    kind: pa.DataType, unit: str | None, tmp_path: Path, table_of: Callable[..., Any]
) -> None:
    """hop 16: small integers, and times that are not in milliseconds."""
    rows = pa.record_batch({"x": pa.array([1, None, 120], kind)})
    found = table_of(write_random(tmp_path / "a", rows))
    assert found["x"].combine_chunks() == rows["x"]
    assert found.schema.field("x").type == kind


@pytest.mark.parametrize("length", [64, 65, 5000])
def test_long_text_needs_no_room_beforehand(
    length: int, tmp_path: Path, values_of: Callable[..., list[Any]]
) -> None:
    """hop 14: text longer than a column's buffer was expected to be."""
    values = ["x" * length] * 500
    rows = pa.record_batch({"s": values})
    assert values_of(write_stream(tmp_path / "a", rows)) == values


def test_text_that_is_not_utf8_is_reported(
    tmp_path: Path, values_of: Callable[..., list[Any]]
) -> None:
    """hop 17: text in the charset of some machine."""
    rows = pa.record_batch({"n": [1, 2], "s": pa.array(["aa", "ää"])})
    path = write_stream(tmp_path / "a", rows)
    path.write_bytes(
        path.read_bytes().replace("aaää".encode(), "aaää..".encode("cp1252"))
    )
    with pytest.raises(CorruptData) as caught:
        values_of(path)
    place = f"the file {str(path)!r} cannot be read: batch 0 at byte "
    assert caught.value.what.startswith(place)
    assert "column 's'" in caught.value.what


def test_random_access_reads_what_it_needs(
    tmp_path: Path, consumer_factory: Callable[..., Any]
) -> None:
    """hop 21: the footer leads to a row; no batch before it is looked at."""
    path = write_random(tmp_path / "a", *(hop_rows(n, 10) for n in range(0, 1000, 10)))
    with pa.memory_map(str(path)) as file:
        last = pa.ipc.open_file(file).get_batch(99)
    data = bytearray(path.read_bytes())
    # Whatever stands in the bodies before: reading it would be an error.
    body = b"".join(f"s{n}".encode() for n in range(10))
    at = data.index(body)
    data[at : at + len(body)] = b"\xff" * len(body)
    path.write_bytes(data)
    rows = consumer_factory(path).fetch_messages(995, None, NOW).rows
    assert rows.equals(last.slice(5))
    with pytest.raises(CorruptData):
        consumer_factory(path).fetch_messages(0, None, NOW)


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("name", ["stream", "file"])
def test_format_that_is_not_the_files_is_reported(
    write: Any, name: str, tmp_path: Path, values_of: Callable[..., list[Any]]
) -> None:
    path = write(tmp_path / "a", pa.record_batch({"n": [1]}))
    fits = (write is write_stream) == (name == "stream")
    if fits:
        assert values_of(path, format=name) == [1]
        return
    with pytest.raises(FormatRefused) as caught:
        values_of(path, format=name)
    assert str(path) in caught.value.what
    assert "`format`" in str(caught.value.remedy)
