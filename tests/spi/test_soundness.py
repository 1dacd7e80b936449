"""Batches of others: whatever lies outside of its buffers is refused before any use."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest
from tests.everytype import EVERY_TYPE

from streamfactory.spi import (
    BatchValidator,
    CorruptData,
    MessageTooLarge,
    SchemaMismatch,
)
from streamfactory.spi.soundness import UNPACKED_BYTES, can_rescale

LARGE: Final = 3000
"""Rows of a batch that is checked column by column."""


def ints(*values: int, form: str = "i") -> bytes:
    return struct.pack(f"<{len(values)}{form}", *values)


def read(array: pa.Array, before: bytes = b"", after: bytes = b"") -> pa.RecordBatch:
    """A batch of one column as it is read, with other bytes in one place of it."""
    rows = pa.record_batch({"c": array})
    message = rows.serialize().to_pybytes()
    if before:
        assert message.count(before) == 1
        assert len(before) == len(after)
        message = message.replace(before, after)
    return pa.ipc.read_record_batch(pa.py_buffer(message), rows.schema)


def refused(rows: pa.RecordBatch) -> str:
    with pytest.raises(CorruptData) as caught:
        BatchValidator(rows.schema).validate(rows)
    assert "'c" in caught.value.what
    return caught.value.what


def many(values: list[Any], kind: pa.DataType) -> pa.Array:
    """The values at the beginning of a long column."""
    return pa.array(values + [values[0]] * (LARGE - len(values)), kind)


def few(values: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, kind)


TEXT = ["one", "three", "eleven"]
LONG = ["a long text that is not inline", "b is another one of the same kind"]
LISTS = [[11, 12, 13], [14], [15, 16]]
DAMAGED: dict[str, tuple[list[Any], pa.DataType, bytes, bytes]] = {
    "a text ends far away": (TEXT, pa.string(), ints(0, 3, 8), ints(0, 3, 2**30)),
    "a text ends before it": (TEXT, pa.string(), ints(0, 3, 8), ints(0, 9, 8)),
    "a text begins before all": (TEXT, pa.string(), ints(0, 3, 8), ints(-9, 3, 8)),
    "a text is not UTF-8": (TEXT, pa.string(), b"onethree", b"on\xffthree"),
    "large text ends far away": (
        TEXT,
        pa.large_string(),
        ints(0, 3, 8, form="q"),
        ints(0, 2**40, 8, form="q"),
    ),
    "bytes end before they begin": (
        [text.encode() for text in TEXT],
        pa.binary(),
        ints(0, 3, 8),
        ints(0, 9, 8),
    ),
    "a list ends far away": (
        LISTS,
        pa.list_(pa.int16()),
        ints(0, 3, 4),
        ints(0, 3, 2**20),
    ),
    "a text within a list ends far away": (
        [["one", "three"], ["eleven"]],
        pa.list_(pa.string()),
        ints(0, 3, 8),
        ints(0, 3, 2**30),
    ),
    "a text within a struct ends far away": (
        [{"a": text} for text in TEXT],
        pa.struct([("a", pa.string())]),
        ints(0, 3, 8),
        ints(0, 3, 2**30),
    ),
    "a list view begins before all": (
        LISTS,
        pa.list_view(pa.int16()),
        ints(0, 3, 4),
        ints(0, -3, 4),
    ),
    "a map ends far away": (
        [[("k", 1)], [("l", 2), ("m", 3)]],
        pa.map_(pa.string(), pa.int64()),
        ints(0, 1, 3),
        ints(0, 2**20, 3),
    ),
    "a text view has another prefix": (
        LONG,
        pa.string_view(),
        ints(30) + b"a lo",
        ints(30) + b"x lo",
    ),
    "a text view is of no length": (
        LONG,
        pa.string_view(),
        ints(30) + b"a lo",
        ints(-1) + b"a lo",
    ),
    "a text view is of another buffer": (
        LONG,
        pa.string_view(),
        b"b is" + ints(0, 30),
        b"b is" + ints(7, 30),
    ),
    "a union has no such type": (
        [0, 1, 0, 1, 1, 0, 1, 0],
        pa.int8(),
        bytes([0, 1, 0, 1, 1, 0, 1, 0]),
        bytes([0, 1, 0, 1, 1, 0, 1, 9]),
    ),
    "a union goes beyond its values": (
        [0, 1, 0, 1, 1, 0, 1, 0],
        pa.int8(),
        ints(0, 1, 2, 3, 4, 5),
        ints(0, 1, 2, 3, 99, 5),
    ),
    "an index is beyond the words": (
        [0, 1, 2, 0, 2, 1, 1, 2],
        pa.int8(),
        bytes([0, 1, 2, 0, 2, 1, 1, 2]),
        bytes([0, 1, 2, 0, 2, 1, 1, 99]),
    ),
    "a time is beyond its day": (
        [77777, 1],
        pa.time32("s"),
        ints(77777),
        ints(86400),
    ),
    "a time is before its day": (
        [77777, 1],
        pa.time64("us"),
        ints(77777, form="q"),
        ints(-1, form="q"),
    ),
    "a date is not a whole day": (
        [86_400_000 * 3, 0],
        pa.date64(),
        ints(86_400_000 * 3, form="q"),
        ints(86_400_001, form="q"),
    ),
    "a decimal has more digits": (
        [Decimal("1.23")],
        pa.decimal128(3, 2),
        ints(123, 0, form="q"),
        ints(0, 1, form="q"),
    ),
    "a short decimal has more digits": (
        [Decimal("777.77")],
        pa.decimal32(5, 2),
        ints(77777),
        ints(177777),
    ),
}


@pytest.mark.parametrize("make", [few, many])
@pytest.mark.parametrize("case", DAMAGED)
def test_a_value_outside_of_its_buffers_or_its_type_is_refused(
    case: str, make: Any
) -> None:
    values, kind, before, after = DAMAGED[case]
    column = make(values, kind)
    if "index" in case:
        column = pa.DictionaryArray.from_arrays(column, TEXT)
    if "union" in case:
        parts = [pa.array([n] * len(column)) for n in (7, 8)]
        places = pa.array(range(len(column)), pa.int32())
        column = pa.UnionArray.from_dense(column, places, parts)
    refused(read_with_words(column, before, after))


def read_with_words(column: pa.Array, before: bytes, after: bytes) -> pa.RecordBatch:
    """As `read`, with the first place only; dictionaries need a stream."""
    rows = pa.record_batch({"c": column})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    data = sink.getvalue().to_pybytes()
    assert before in data
    at = data.rindex(before) if "dictionary" in str(column.type) else data.index(before)
    data = data[:at] + after + data[at + len(after) :]
    return pa.ipc.open_stream(pa.py_buffer(data)).read_next_batch()


RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([2, 5, 7], pa.int32()), TEXT)


@pytest.mark.parametrize(
    "ends", [(2, 2, 7), (5, 2, 7), (0, 5, 7), (-5, 5, 7), (2, 5, 6), (2, 9, 7)]
)
@pytest.mark.parametrize("nested", [False, True])
def test_run_ends_that_do_not_rise_are_refused(
    ends: tuple[int, ...], nested: bool
) -> None:
    column: pa.Array = RUNS
    if nested:
        column = pa.StructArray.from_arrays([RUNS], names=["r"])
    refused(read(column, ints(2, 5, 7), ints(*ends)))


def views(of_null: tuple[int, int, int, int], kind: pa.DataType) -> pa.Array:
    """One short text, a null with that view, one long text."""
    parts = [struct.pack("<i12s", 1, b"a"), struct.pack("<4i", *of_null)]
    parts.append(struct.pack("<i4sii", 20, b"xxxx", 0, 0))
    buffers = [pa.py_buffer(b"\x05"), pa.py_buffer(b"".join(parts))]
    return pa.Array.from_buffers(kind, 3, [*buffers, pa.py_buffer(b"x" * 20)])


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view()], ids=str)
@pytest.mark.parametrize(
    "of_null",
    [(-(2**31), 0, 0, 0), (20, 0, 9999, 0), (20, 0, -1, 0), (20, 0, 0, 1)],
    ids=["length", "buffer", "no-buffer", "offset"],
)
def test_views_of_nulls_are_checked_too(
    of_null: tuple[int, int, int, int], kind: pa.DataType
) -> None:
    """Arrow's casts and comparisons follow them, into memory that is not theirs."""
    array = views(of_null, kind)
    array.validate(full=True)  # it is sound, for Arrow
    nested = pa.StructArray.from_arrays([array], ["inner"])
    for column in (array, nested, array.slice(1)):
        rows = pa.record_batch({"a": column})
        with pytest.raises(CorruptData, match="column 'a': the view of a null"):
            BatchValidator(rows.schema).validate(rows)
        with pytest.raises(CorruptData):
            BatchValidator(rows.schema).validate_all([rows, rows])


@pytest.mark.parametrize("of_null", [(0, 0, 0, 0), (3, 7, 7, 7), (20, 0, 0, 0)])
def test_harmless_views_of_nulls_pass(
    of_null: tuple[int, int, int, int],
) -> None:
    for column in (array := views(of_null, pa.string_view()), array.slice(2)):
        rows = pa.record_batch({"a": column})
        BatchValidator(rows.schema).validate(rows)


@pytest.mark.parametrize("rows", [5, LARGE])
@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.binary(), pa.bool_()])
def test_a_number_of_nulls_that_the_bitmap_has_not_is_refused(
    kind: pa.DataType, rows: int
) -> None:
    column = pa.nulls(rows, kind)
    message = bytearray(pa.record_batch({"c": column}).serialize())
    node = ints(rows, rows, form="q")
    at = message.index(node)
    message[at : at + 16] = ints(rows, rows - 1, form="q")
    schema = pa.schema({"c": kind})
    refused(pa.ipc.read_record_batch(pa.py_buffer(bytes(message)), schema))


@pytest.mark.parametrize("column", EVERY_TYPE.values(), ids=EVERY_TYPE)
def test_sound_columns_of_every_type_pass_long_short_and_sliced(
    column: pa.Array,
) -> None:
    long = pa.concat_arrays([column] * (LARGE // len(column) + 1))
    if long.nbytes > 2**24:
        long = long[: len(column)]
    for array in (column, column[1:1], column[1:4], long, long[7:]):
        rows = pa.record_batch({"c": array})
        validator = BatchValidator(rows.schema)
        validator.validate(rows)
        parts = list(validator.split(rows, 1))
        assert sum(part.num_rows for part in parts) == len(array)
        assert list(validator.split(rows)) == [rows]


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        (
            pa.schema({"d": pa.decimal128(20, 536870915)}),
            "column 'd': decimal128(20, 536870915) has a precision or scale beyond 38",
        ),
        (
            pa.schema({"d": pa.list_(pa.decimal64(18, 19))}),
            "column 'd.item': decimal64(18, 19) has a precision or scale beyond 18",
        ),
        (
            pa.schema({"d": pa.decimal256(76, -77)}),
            "column 'd': decimal256(76, -77) has a precision or scale beyond 76",
        ),
        (
            pa.schema([("a", pa.int8()), ("a", pa.int8())]),
            "the schema has several columns named 'a'",
        ),
    ],
)
def test_schemas_that_streams_do_not_carry_are_refused_by_name(
    schema: pa.Schema, complaint: str
) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        BatchValidator(schema)
    assert caught.value.what.startswith(complaint)


@pytest.mark.parametrize(
    ("schema", "before", "complaint"),
    [
        (pa.schema({"naïve": pa.int8()}), "ï", "the name of column number 0"),
        (
            pa.schema({"s": pa.struct([("naïve", pa.int8())])}),
            "ï",
            "the name of column 's', child 0",
        ),
        (
            pa.schema({"t": pa.timestamp("s", "ÄÖ")}),
            "ÄÖ",
            "column 't': timestamp has a time zone",
        ),
    ],
)
def test_names_and_zones_that_are_not_text_are_refused(
    schema: pa.Schema, before: str, complaint: str
) -> None:
    data = schema.serialize().to_pybytes()
    damaged = data.replace(before.encode(), b"\xff" * len(before.encode()))
    assert damaged != data
    with pytest.raises(SchemaMismatch) as caught:
        BatchValidator(pa.ipc.read_schema(pa.py_buffer(damaged)))
    assert caught.value.what.startswith(f"{complaint} ")


def test_a_null_type_that_is_not_nullable_is_refused() -> None:
    data = bytearray(pa.schema({"n": pa.null()}).serialize())
    for place in range(len(data)):  # the flag is one of the bytes that are 1
        if data[place] != 1:
            continue
        changed = bytes(data[:place] + b"\0" + data[place + 1 :])
        try:
            schema = pa.ipc.read_schema(pa.py_buffer(changed))
        except (pa.ArrowException, OSError):
            continue
        if len(schema) and schema.field(0).type == pa.null():
            if schema.field(0).nullable:
                continue
            with pytest.raises(SchemaMismatch, match="'n': null is declared not"):
                BatchValidator(schema)
            return
    pytest.fail("no byte is the flag")


def test_a_schema_of_too_many_levels_is_refused() -> None:
    kind: pa.DataType = pa.int8()
    for _ in range(64):
        kind = pa.list_(kind)
    with pytest.raises(SchemaMismatch, match="more than 64 levels"):
        BatchValidator(pa.schema({"c": kind}))


def test_a_batch_of_another_schema_is_refused() -> None:
    validator = BatchValidator(pa.schema({"c": pa.int8()}))
    with pytest.raises(SchemaMismatch, match="another schema"):
        validator.validate(pa.record_batch({"c": ["text"]}))


# --- nulls where none may be ---------------------------------------------------------


INNER = pa.field("a", pa.int32(), nullable=False)
STRUCT = pa.struct([INNER])


def struct_of(values: list[Any], mask: list[bool] | None = None) -> pa.Array:
    return pa.StructArray.from_arrays(
        [pa.array(values, pa.int32())],
        fields=[INNER],
        mask=None if mask is None else pa.array(mask),
    )


@pytest.mark.parametrize(
    ("column", "path"),
    [
        (pa.array([1, None]), "c"),
        (pa.array(["a", None]).dictionary_encode(), "c"),
        (
            pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None])),
            "c",
        ),
        (
            pa.RunEndEncodedArray.from_arrays(
                pa.array([1, 2], pa.int32()), pa.array(["a", None])
            ),
            "c",
        ),
        (struct_of([1, None]), "c.a"),
        (
            pa.ListArray.from_arrays(
                pa.array([0, 1, 2], pa.int32()), struct_of([1, None])
            ),
            "c.item.a",
        ),
    ],
)
def test_nulls_that_the_schema_excludes_are_refused(
    column: pa.Array, path: str
) -> None:
    schema = pa.schema([pa.field("c", column.type, nullable=False)])
    rows = pa.RecordBatch.from_arrays([column], schema=schema)
    what = refused(rows)
    assert what == f"column {path!r} is declared not nullable, but has nulls"


def union_of(codes: list[int], offsets: list[int] | None = None) -> pa.Array:
    """A union of whole numbers that are not nullable and text."""
    kinds = pa.array(codes, pa.int8())
    fields = [pa.field("n", pa.int32(), nullable=False), pa.field("t", pa.string())]
    parts = [pa.array([1, None], pa.int32()), pa.array(["a", None])]
    if offsets is None:
        return pa.Array.from_buffers(
            pa.sparse_union(fields), 2, [None, kinds.buffers()[1]], children=parts
        )
    places = pa.array(offsets, pa.int32()).buffers()[1]
    return pa.Array.from_buffers(
        pa.dense_union(fields), 2, [None, kinds.buffers()[1], places], children=parts
    )


@pytest.mark.parametrize("column", [union_of([1, 0]), union_of([1, 0], [0, 1])])
def test_nulls_that_a_union_excludes_are_refused(column: pa.Array) -> None:
    what = refused(pa.record_batch({"c": column}))
    assert what == "column 'c.n' is declared not nullable, but has nulls"


@pytest.mark.parametrize(
    "column",
    [
        union_of([0, 1]),
        union_of([1, 0], [1, 0]),
        struct_of([1, None], [False, True]),
        pa.ListArray.from_arrays(
            pa.array([0, 1, None, 2], pa.int32()), struct_of([1, None, 2])
        )[0:1],
        pa.FixedSizeListArray.from_arrays(
            struct_of([1, None]), 1, mask=pa.array([False, True])
        ),
        pa.ListViewArray.from_arrays(
            pa.array([0, 2], pa.int32()),
            pa.array([1, 1], pa.int32()),
            struct_of([1, None, 3]),
        ),
        pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array(["a", None])),
    ],
)
def test_nulls_that_no_row_has_are_allowed(column: pa.Array) -> None:
    has_nulls = True in column.is_null().to_pylist()
    schema = pa.schema([pa.field("c", column.type, nullable=has_nulls)])
    rows = pa.RecordBatch.from_arrays([column], schema=schema)
    BatchValidator(schema).validate(rows)


# --- dictionaries that stay ----------------------------------------------------------


def test_words_are_checked_again_when_they_change() -> None:
    words = pa.array([f"word {n}" for n in range(100)])
    bad = pa.Array.from_buffers(
        pa.string(), 100, [None, words.buffers()[1], pa.py_buffer(b"\xff" * 1000)]
    )
    indices = pa.array(range(100), pa.int32())
    good = pa.record_batch({"c": pa.DictionaryArray.from_arrays(indices, words)})
    validator = BatchValidator(good.schema)
    for _ in range(2):
        validator.validate(good)
    with pytest.raises(CorruptData, match=r"column 'c'.*UTF8"):
        validator.validate(
            pa.record_batch({"c": pa.DictionaryArray.from_arrays(indices, bad)})
        )


@pytest.mark.parametrize("index", [-1, 100, 2**30])
def test_indices_are_checked_also_where_the_words_are_known(index: int) -> None:
    words = pa.array([f"word {n}" for n in range(100)])

    def rows(last: int) -> pa.RecordBatch:
        numbers = pa.array([*range(99), last], pa.int32())
        column = pa.DictionaryArray.from_arrays(numbers, words, safe=False)
        return pa.record_batch({"c": column})

    validator = BatchValidator(rows(99).schema)
    validator.validate(rows(99))
    with pytest.raises(CorruptData, match="column 'c'"):
        validator.validate(rows(index))


# --- what batches become -------------------------------------------------------------


def dictionary_of_one_long_word() -> pa.Array:
    indices = pa.array([0] * 100_000, pa.int8())
    return pa.DictionaryArray.from_arrays(indices, ["x" * 20_000])


def views_of_one_text() -> pa.Array:
    views = struct.pack("<i4sii", 20_000, b"xxxx", 0, 0) * 100_000
    text = pa.py_buffer(b"x" * 20_000)
    buffers = [None, pa.py_buffer(views), text]
    return pa.Array.from_buffers(pa.string_view(), 100_000, buffers)


def list_views_of_one_list() -> pa.Array:
    count = 20_000
    return pa.ListViewArray.from_arrays(
        pa.array([0] * count, pa.int32()),
        pa.array([12_500] * count, pa.int32()),
        pa.array([0] * 12_500),
    )


def runs_of_one_text() -> pa.Array:
    ends = pa.array([100_000], pa.int32())
    return pa.RunEndEncodedArray.from_arrays(ends, ["x" * 20_000])


@pytest.mark.parametrize(
    "make",
    [
        dictionary_of_one_long_word,
        views_of_one_text,
        list_views_of_one_list,
        runs_of_one_text,
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_what_becomes_very_large_is_cut_in_slices(make: Any, nested: bool) -> None:
    column = make()
    if nested:
        column = pa.StructArray.from_arrays([column], names=["inner"])
    rows = pa.record_batch({"n": pa.array(range(len(column))), "c": column})
    validator = BatchValidator(rows.schema)
    validator.validate(rows)
    total = validator.unpacked_bytes(rows)
    assert 2 * 10**9 <= total <= 2.1 * 10**9
    parts = list(validator.split(rows, 10**8))
    assert len(parts) == -(-total // 10**8)
    assert all(validator.unpacked_bytes(part) <= 10**8 for part in parts)
    assert pa.Table.from_batches(parts)["n"].to_pylist() == list(range(len(column)))


@pytest.mark.parametrize("rows", [2**30, 2**31 - 1])
def test_rows_without_bytes_are_measured_without_memory(rows: int) -> None:
    column = pa.Array.from_buffers(pa.null(), rows, [None])
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([rows], pa.int32()), [7])
    batch = pa.record_batch({"n": column, "r": runs})
    validator = BatchValidator(batch.schema)
    validator.validate(batch)
    parts = validator.split(batch)
    assert next(parts).num_rows == pytest.approx(UNPACKED_BYTES / 9, rel=0.01)


def test_a_row_that_becomes_too_large_is_refused_with_its_column() -> None:
    inner = list_views_of_one_list()
    column = pa.ListArray.from_arrays(pa.array([0, 20_000], pa.int32()), inner)
    rows = pa.record_batch({"n": dictionary_of_one_long_word()[:1], "c": column})
    validator = BatchValidator(rows.schema)
    validator.validate(rows)
    with pytest.raises(MessageTooLarge, match="column 'c': one row unpacks to 20001"):
        list(validator.split(rows))


def test_a_long_value_is_no_larger_than_its_message() -> None:
    column = pa.array(["x" * 10**6, "y"]).dictionary_encode()
    rows = pa.record_batch({"c": column})
    parts = list(BatchValidator(rows.schema).split(rows, 1000))
    assert [part.num_rows for part in parts] == [1, 1]


@pytest.mark.parametrize(
    ("have", "want", "possible"),
    [
        (pa.decimal128(20, 2), pa.decimal128(38, 30), True),
        (pa.decimal128(38, -20), pa.decimal128(38, 19), False),
        (pa.decimal128(38, 38), pa.decimal256(76, 0), True),
        (pa.decimal256(76, -76), pa.decimal256(76, 1), False),
        (pa.decimal32(9, 2), pa.decimal128(38, 18), True),
    ],
)
def test_decimals_whose_scales_are_far_apart_are_not_cast(
    have: pa.DataType, want: pa.DataType, possible: bool
) -> None:
    assert can_rescale(have, want) == possible
