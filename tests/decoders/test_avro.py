"""Avro: whole columns, row by row, and fastavro's own word on both."""

from __future__ import annotations

import io
import json
import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.decoders import decoding
from tests.proving.generated import cases

from streamfactory.decoders.avro import streamfactory_decoder
from streamfactory.decoders.avro.decoder import AvroDecoder, AvroEncoder
from streamfactory.decoders.avro.decoding import AvroBatchDecoder
from streamfactory.decoders.avro.harness import AvroHarness
from streamfactory.decoders.avro.reading import read_all
from streamfactory.decoders.avro.schemas import SchemaRefused, parse
from streamfactory.decoders.avro.wire import wire
from streamfactory.decoders.isolation import DecodedParts
from streamfactory.spi import (
    ConfigError,
    Decoded,
    SchemaMismatch,
    SchemaUnknown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def record(*types: Any) -> dict[str, Any]:
    fields = [{"name": f"f{at}", "type": kind} for at, kind in enumerate(types)]
    return {"type": "record", "name": "row", "fields": fields}


def decode(schema: Any, payloads: list[bytes], **chosen: str) -> Decoded:
    plugin = streamfactory_decoder()
    options = decoding.options(plugin, json.dumps(schema), **chosen)
    return decoding.decode(AvroDecoder(options, "topic"), payloads)


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(_copy(schema)), value)
    return out.getvalue()


def _copy(schema: Any) -> Any:
    return json.loads(json.dumps(schema))


def outcome(decoded: Decoded) -> list[tuple[str, Any]]:
    """For each message its row, or the code of what is bad."""
    rows = iter(decoded.rows.to_pylist())
    count = decoded.rows.num_rows + len(decoded.errors)
    bad = {error.message: error.code for error in decoded.errors}
    return [(bad[at], None) if at in bad else ("", next(rows)) for at in range(count)]


# --- one type after the other -------------------------------------------------------

U = UTC
TYPES: dict[str, tuple[Any, Any, Any, pa.DataType]] = {
    "boolean": ("boolean", True, True, pa.bool_()),
    "int": ("int", -(2**31), -(2**31), pa.int32()),
    "long": ("long", 2**63 - 1, 2**63 - 1, pa.int64()),
    "float": ("float", 1.5, 1.5, pa.float32()),
    "double": ("double", math.pi, math.pi, pa.float64()),
    "string": ("string", "é", "é", pa.string()),
    "bytes": ("bytes", b"\xff\0", b"\xff\0", pa.binary()),
    "fixed": (
        {"type": "fixed", "name": "f", "size": 3},
        b"\xff\0a",
        b"\xff\0a",
        pa.binary(3),
    ),
    "enum": (
        {"type": "enum", "name": "e", "symbols": ["A", "B"]},
        "B",
        "B",
        pa.string(),
    ),
    "array": (
        {"type": "array", "items": ["null", "int"]},
        [1, None],
        [1, None],
        pa.list_(pa.field("item", pa.int32())),
    ),
    "map": (
        {"type": "map", "values": "bytes"},
        {"k": b"\xff"},
        [("k", b"\xff")],
        pa.map_(pa.string(), pa.field("value", pa.binary(), nullable=False)),
    ),
    "record": (
        {"type": "record", "name": "r", "fields": [{"name": "x", "type": "int"}]},
        {"x": 3},
        {"x": 3},
        pa.struct([pa.field("x", pa.int32(), nullable=False)]),
    ),
    "empty record": (
        {"type": "record", "name": "r", "fields": []},
        {},
        {},
        pa.struct([]),
    ),
    "union": (
        ["null", "long", "string"],
        "a",
        {"member_long": None, "member_string": "a"},
        pa.struct([("member_long", pa.int64()), ("member_string", pa.string())]),
    ),
    "date": (
        {"type": "int", "logicalType": "date"},
        date(1969, 12, 31),
        date(1969, 12, 31),
        pa.date32(),
    ),
    "time-millis": (
        {"type": "int", "logicalType": "time-millis"},
        time(1, 2, 3, 4000),
        time(1, 2, 3, 4000),
        pa.time32("ms"),
    ),
    "time-micros": (
        {"type": "long", "logicalType": "time-micros"},
        time(1, 2, 3, 4),
        time(1, 2, 3, 4),
        pa.time64("us"),
    ),
    "timestamp-millis": (
        {"type": "long", "logicalType": "timestamp-millis"},
        datetime(2013, 1, 1, tzinfo=U),
        datetime(2013, 1, 1, tzinfo=U),
        pa.timestamp("ms", "UTC"),
    ),
    "timestamp-micros": (
        {"type": "long", "logicalType": "timestamp-micros"},
        datetime(1913, 1, 1, 0, 0, 0, 7, tzinfo=U),
        datetime(1913, 1, 1, 0, 0, 0, 7, tzinfo=U),
        pa.timestamp("us", "UTC"),
    ),
    "local-timestamp-micros": (
        {"type": "long", "logicalType": "local-timestamp-micros"},
        datetime(2013, 1, 1),  # noqa: DTZ001 - it has no zone
        datetime(2013, 1, 1),  # noqa: DTZ001
        pa.timestamp("us"),
    ),
    "decimal of bytes": (
        {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2},
        Decimal("-" + "9" * 36 + ".99"),
        Decimal("-" + "9" * 36 + ".99"),
        pa.decimal128(38, 2),
    ),
    "decimal of a fixed": (
        {
            "type": "fixed",
            "name": "d",
            "size": 5,
            "logicalType": "decimal",
            "precision": 9,
            "scale": 3,
        },
        Decimal("-1.230"),
        Decimal("-1.230"),
        pa.decimal128(9, 3),
    ),
    "wide decimal": (
        {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 0},
        Decimal(10**59),
        Decimal(10**59),
        pa.decimal256(60, 0),
    ),
    "uuid": (
        {"type": "string", "logicalType": "uuid"},
        "c6f7c5f4-5f25-4c4d-8a1f-3a4d1f1b1b1b",
        "c6f7c5f4-5f25-4c4d-8a1f-3a4d1f1b1b1b",
        pa.string(),
    ),
    "unknown logical type": ({"type": "int", "logicalType": "x"}, 3, 3, pa.int32()),
}


ODD = {"name": "f2", "type": {"type": "fixed", "name": "odd", "size": 1}}
"""A field whose type the decoder by column does not have."""
by_column_and_by_row = pytest.mark.parametrize(
    "more", [[], [ODD]], ids=["by column", "by row"]
)


@pytest.mark.parametrize("name", sorted(TYPES.keys() - {"union"}))
@by_column_and_by_row
def test_each_type_is_read_and_written(name: str, more: list[Any]) -> None:
    kind, value, expected, arrow = TYPES[name]
    schema = record(kind, ["null", _renamed(kind)])
    schema["fields"] += more
    rows = [
        {"f0": value, "f1": value, "f2": b"o"},
        {"f0": value, "f1": None, "f2": b"o"},
    ]
    decoded = read_and_written(schema, rows)
    assert decoded.schema.field("f0") == pa.field("f0", arrow, nullable=False)
    assert decoded.column("f0").to_pylist() == [expected, expected]
    assert decoded.column("f1").to_pylist() == [expected, None]


@by_column_and_by_row
def test_union_is_read_and_written(more: list[Any]) -> None:
    kind, value, expected, arrow = TYPES["union"]
    schema = record(kind, kind)
    schema["fields"] += more
    decoded = read_and_written(schema, [{"f0": value, "f1": value, "f2": b"o"}] * 2)
    assert decoded.schema.field("f0") == pa.field("f0", arrow)
    assert decoded.column("f0").to_pylist() == [expected, expected]


def read_and_written(schema: Any, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Decode messages of rows, encode what was decoded, and compare."""
    payloads = [written(schema, row) for row in rows]
    decoded = decode(schema, payloads)
    assert not decoded.errors
    encoder = AvroEncoder({"schema": json.dumps(schema)}, "topic")
    assert encoder.encode(decoded.rows).to_pylist() == payloads
    return decoded.rows


def _renamed(kind: Any) -> Any:
    """The same type under another name: a name may be defined once."""
    if not isinstance(kind, dict) or "name" not in kind:
        return kind
    return {**kind, "name": kind["name"] + "2"}


def test_bytes_and_decimals_are_read_in_whole_columns() -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    node = parse(json.dumps(record("bytes", decimal, ["null", "bytes"])))
    assert AvroBatchDecoder(node, node).columnar


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "fixed", "name": "f", "size": 3},
        ["int", "string"],
        {"type": "record", "name": "r", "fields": []},
    ],
)
def test_what_the_library_has_no_columns_for_is_read_row_by_row(kind: Any) -> None:
    assert wire(parse(json.dumps(record(kind)))) is None


def test_a_message_need_not_be_a_record() -> None:
    decoded = decode({"type": "array", "items": "long"}, [b"\x02\x02\x00", b"\x00"])
    assert decoded.rows.to_pylist() == [{"value": [1]}, {"value": []}]


def test_named_types_are_found_where_they_are_used_again() -> None:
    inner = {
        "type": "record",
        "name": "inner",
        "namespace": "a.b",
        "fields": [{"name": "x", "type": "long"}],
    }
    schema = record(
        inner, ["null", "a.b.inner"], {"type": "array", "items": "a.b.inner"}
    )
    row = {"f0": {"x": 1}, "f1": None, "f2": [{"x": 2}]}
    assert decode(schema, [written(schema, row)]).rows.to_pylist() == [row]


def test_times_are_numbers_where_that_is_asked_for() -> None:
    schema = record({"type": "long", "logicalType": "timestamp-millis"})
    decoded = decode(schema, [written(schema, {"f0": 5})], times_as_numbers="true")
    assert decoded.rows.schema.field("f0").type == pa.int64()
    assert decoded.rows.to_pylist() == [{"f0": 5}]


def test_leading_bytes_are_left_out() -> None:
    schema = record("long", "string")
    good = written(schema, {"f0": 7, "f1": "x"})
    payloads = [b"abc" + good, b"ab", b"xyz" + good, b"abc"]
    decoded = decode(schema, payloads, leading_bytes_to_strip="3")
    assert decoded.rows.to_pylist() == [{"f0": 7, "f1": "x"}] * 2
    assert decoded.source is not None
    assert decoded.source.to_pylist() == [0, 2]
    assert decoding.bad(decoded) == [(1, "framing"), (3, "malformed")]


# --- made-up schemas ----------------------------------------------------------------

SCALARS: Mapping[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=20),
    "string": st.text(st.characters(codec="utf-8"), max_size=20),
}


@st.composite
def types(draw: st.DrawFn, depth: int = 3) -> tuple[Any, st.SearchStrategy[Any]]:
    """A type, and values of it as fastavro reads and writes them."""
    kinds = [*SCALARS, "fixed", "enum"]
    if depth:
        kinds += ["array", "map", "record", "option", "union"]
    kind = draw(st.sampled_from(kinds))
    if kind in SCALARS:
        return kind, SCALARS[kind]
    name = f"n{draw(st.integers(0, 10**9))}"
    if kind == "fixed":
        size = draw(st.integers(1, 20))
        made = {"type": "fixed", "name": name, "size": size}
        return made, st.binary(min_size=size, max_size=size)
    if kind == "enum":
        symbols = ["A", "B", "C"]
        made = {"type": "enum", "name": name, "symbols": symbols}
        return made, st.sampled_from(symbols)
    if kind == "record":
        return draw(records(depth - 1, name))
    inner, values = draw(types(depth - 1).filter(lambda found: found[0] != "null"))
    if kind == "array":
        if parse(json.dumps(record(inner))).least == 0:
            inner, values = "long", SCALARS["long"]
        return {"type": "array", "items": inner}, st.lists(values, max_size=3)
    if kind == "map":
        keys = SCALARS["string"]
        return {"type": "map", "values": inner}, st.dictionaries(
            keys, values, max_size=3
        )
    if isinstance(inner, list):
        return inner, values
    if kind == "option":
        order = draw(st.permutations(["null", inner]))
        return list(order), st.none() | values
    other = "boolean" if inner != "boolean" else "string"
    # Tuples would be needed where values could be of either type: here they cannot.
    return [inner, other, "null"], st.none() | values | SCALARS[other]


@st.composite
def records(
    draw: st.DrawFn, depth: int = 3, name: str = "row"
) -> tuple[Any, st.SearchStrategy[Any]]:
    inner = draw(st.lists(types(depth), min_size=1, max_size=4))
    schema = record(*(kind for kind, _ in inner))
    schema["name"] = name
    values = {f"f{at}": strategy for at, (_, strategy) in enumerate(inner)}
    return schema, st.fixed_dictionaries(values)


def _is_valid(schema: Any) -> bool:
    try:
        parse(json.dumps(schema))
    except ValueError:
        return False  # the same name twice, by chance
    return True


def flat(value: Any) -> Any:
    """What stands for a union as its value, and for a map its entries."""
    if isinstance(value, dict):
        if value and all(key.startswith("member_") for key in value):
            there = [item for item in value.values() if item is not None]
            return flat(there[0]) if there else None
        return {key: flat(item) for key, item in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(item, tuple) for item in value):
            return {key: flat(item) for key, item in value}
        return [flat(item) for item in value] or None
    return value


def unioned(value: Any) -> Any:
    """What fastavro read, with empty lists and maps as `flat` has them."""
    if isinstance(value, dict):
        return {key: unioned(item) for key, item in value.items()} or None
    if isinstance(value, list):
        return [unioned(item) for item in value] or None
    return value


@settings(
    max_examples=cases(150), deadline=None, suppress_health_check=list(HealthCheck)
)
@given(made=records().filter(lambda found: _is_valid(found[0])), data=st.data())
def test_made_up_rows_are_read_as_fastavro_reads_them(
    made: tuple[Any, st.SearchStrategy[Any]], data: st.DataObject
) -> None:
    schema, values = made
    rows = data.draw(st.lists(values, min_size=1, max_size=4))
    payloads = [written(schema, row) for row in rows]
    decoded = decode(schema, payloads)
    assert not decoded.errors
    decoded.rows.validate(full=True)
    parsed = fastavro.parse_schema(_copy(schema))
    oracle = [
        fastavro.schemaless_reader(io.BytesIO(payload), parsed, None)
        for payload in payloads
    ]
    assert [flat(row) for row in decoded.rows.to_pylist()] == [
        unioned(row) for row in oracle
    ]
    encoder = AvroEncoder({"schema": json.dumps(schema)}, "topic")
    assert outcome(decode(schema, encoder.encode(decoded.rows).to_pylist())) == outcome(
        decoded
    )


@settings(
    max_examples=cases(200), deadline=None, suppress_health_check=list(HealthCheck)
)
@given(
    made=records(depth=2).filter(lambda found: _is_valid(found[0])),
    data=st.data(),
)
def test_both_ways_of_reading_agree_on_what_is_bad(
    made: tuple[Any, st.SearchStrategy[Any]], data: st.DataObject
) -> None:
    schema, values = made
    node = parse(json.dumps(schema))
    reading = AvroBatchDecoder(node, node)
    payloads = []
    for row in data.draw(st.lists(values, min_size=1, max_size=5)):
        changed = bytearray(written(schema, row))
        for _ in range(data.draw(st.integers(0, 2))):
            at = data.draw(st.integers(0, len(changed)))
            changed[at : at + data.draw(st.integers(0, 2))] = data.draw(
                st.binary(max_size=3)
            )
        payloads.append(bytes(changed))
    for payload in payloads:
        at_once = reading.batch(pa.array([payload], pa.binary()))
        refusal = reading.check(pa.array([payload], pa.binary()))
        assert (at_once is None) == (refusal is not None), payload.hex()
        for fields in (1, 2, 64):
            suspected = reading.suspects(pa.array([payload], pa.binary()), fields)
            assert refusal is not None or not len(suspected)
        if at_once is not None:
            alone = reading._made([read_all(reading._read, payload)])
            assert at_once.equals(alone) or _has_nan(at_once)


def _has_nan(rows: pa.RecordBatch) -> bool:
    return "nan" in str(rows.to_pylist())


def test_a_message_is_bad_in_company_as_it_is_alone() -> None:
    schema = record("long", "string", "int", ["null", "double"], "boolean")
    rng = np.random.default_rng(5)
    row = {"f0": 3, "f1": "text", "f2": -4, "f3": 1.5, "f4": True}
    payloads = []
    for at in range(2000):
        payload = bytearray(written(schema, {**row, "f0": at}))
        if at % 7 == 3:
            payload[rng.integers(len(payload))] = rng.integers(256)
        if at % 97 == 5:
            del payload[rng.integers(len(payload)) :]
        if at % 101 == 7:
            payload += bytes(rng.integers(256, size=3, dtype=np.uint8))
        payloads.append(bytes(payload))
    together = outcome(decode(schema, payloads))
    alone = [outcome(decode(schema, [payload]))[0] for payload in payloads]
    assert together == alone
    assert 20 < sum(code != "" for code, _ in together) < 400


# --- what is bad --------------------------------------------------------------------

BAD = {
    "text that is no UTF-8": ("string", b"\x02\xff"),
    "a length beyond the end": ("string", b"\x06ab"),
    "a negative length": ("string", b"\x03ab"),
    "the longest length": ("string", b"\xfe" + b"\xff" * 8 + b"\x01"),
    "an int of 33 bits": ("int", b"\xfe\xff\xff\xff\xff\x01"),
    "a number of eleven bytes": ("long", b"\x80" * 10 + b"\x01"),
    "a boolean of 2": ("boolean", b"\x02"),
    "an index of no symbol": (TYPES["enum"][0], b"\x04"),
    "a negative index of a symbol": (TYPES["enum"][0], b"\x01"),
    "an index of no branch": (["null", "long"], b"\x04"),
    "a negative index of a branch": (["null", "long"], b"\x01"),
    "a list of billions": (TYPES["array"][0], b"\xfe\xff\xff\xff\xff\x01\x00"),
    "a list of minus billions": (
        TYPES["array"][0],
        b"\xff\xff\xff\xff\xff\x01\x00\x00",
    ),
    "the least count": (TYPES["array"][0], b"\xff" * 9 + b"\x01\x00"),
    "a list in a list of billions": (
        {"type": "array", "items": {"type": "array", "items": "long"}},
        b"\x02\xfe\xff\xff\xff\xff\x01",
    ),
    "a map without end": (TYPES["map"][0], b"\x02\x02k\x02x"),
    "a fixed cut short": (TYPES["fixed"][0], b"ab"),
    "a decimal without bytes": (TYPES["decimal of bytes"][0], b"\x00"),
    "a decimal of 39 digits": (
        TYPES["decimal of bytes"][0],
        b"\x20" + (10**38).to_bytes(16, "big"),
    ),
    "a time of 25 hours": (TYPES["time-millis"][0], b"\x80\xa2\xd6\x55"),
}
BAD_MESSAGES: dict[str, Callable[[bytes], bytes]] = {
    "junk behind": lambda whole: whole + b"\0",
    "nothing": lambda _: b"",
}


@by_column_and_by_row
@pytest.mark.parametrize("name", BAD)
def test_bad_values_are_reported_and_their_neighbours_kept(
    name: str, more: list[Any]
) -> None:
    kind, payload = BAD[name]
    schema, good = record(kind, "string"), {"f0": _value(kind), "f1": "x", "f2": b"o"}
    schema["fields"] += more
    whole = written(schema, good)
    first = written(record(kind), {"f0": good["f0"]})
    check_every_third_is_bad(schema, [whole, payload + whole[len(first) :], whole])


@by_column_and_by_row
@pytest.mark.parametrize("name", BAD_MESSAGES)
def test_bad_messages_are_reported_and_their_neighbours_kept(
    name: str, more: list[Any]
) -> None:
    schema = record("long", "long")
    schema["fields"] += more
    whole = written(schema, {"f0": 1, "f1": 1, "f2": b"o"})
    check_every_third_is_bad(schema, [whole, BAD_MESSAGES[name](whole), whole])


def check_every_third_is_bad(schema: Any, three: list[bytes]) -> None:
    decoded = decode(schema, three * 40)
    chosen = [error.message for error in decoded.errors]
    assert chosen == list(range(1, 120, 3)), decoded.errors[:2]
    assert {error.code for error in decoded.errors} <= {"malformed", "range"}
    assert decoded.rows.num_rows == 80
    assert len({str(row) for row in decoded.rows.to_pylist()}) == 1


def _value(kind: Any) -> Any:
    for known, value, _, _ in TYPES.values():
        if known == kind:
            return value
    return 1 if kind == ["null", "long"] else [[1]]


def test_exactly_the_bad_ones_among_many_are_reported() -> None:
    schema = record("long", "string", ["null", "double"])
    good = [
        written(schema, {"f0": at, "f1": f"text {at}", "f2": 0.5})
        for at in range(50_000)
    ]
    rng = np.random.default_rng(1)
    bad = sorted(rng.choice(len(good), 50, replace=False).tolist())
    for at in bad:
        good[at] = [good[at][:-1], good[at] + b"\0", b"{}", b"", b"\xff" * 30][at % 5]
    decoded = decode(schema, good)
    assert [error.message for error in decoded.errors] == bad
    assert decoded.source is not None
    kept = [at for at in range(len(good)) if at not in set(bad)]
    assert decoded.source.to_pylist() == kept
    assert decoded.rows.column("f0").to_pylist() == kept


def test_no_value_is_in_an_error() -> None:
    schema = record("string", TYPES["enum"][0])
    payload = b"\x0cSECRET\x08"
    [error] = decode(schema, [payload]).errors
    assert "SECRET" not in error.what
    assert error.what == "an enum index is out of range"


# --- schemas that are refused -------------------------------------------------------

TREE = {
    "type": "record",
    "name": "tree",
    "fields": [{"name": "next", "type": ["null", "tree"]}],
}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (TREE, "type 'tree' is recursive"),
        (
            record({"type": "array", "items": "null"}),
            "the items of an array have no bytes",
        ),
        (
            record(
                {
                    "type": "array",
                    "items": {"type": "record", "name": "r", "fields": []},
                }
            ),
            "the items of an array have no bytes",
        ),
        ({"type": "wat"}, "not an Avro schema"),
        ({"type": "enum", "name": "e", "symbols": ["A", 1]}, "not an Avro"),
        ({"type": "enum", "name": "e", "symbols": 5}, "not an Avro schema"),
        ({"type": "fixed", "name": "f", "size": -1}, "the size of a fixed type"),
        ({"type": "fixed", "name": "f", "size": 2**40}, "the size of a fixed type"),
        ({"type": "fixed", "name": "f", "size": "3"}, "the size of a fixed type"),
        (
            {
                "type": "record",
                "name": "row",
                "fields": [{"name": "a", "type": "int", "aliases": [["b"]]}],
            },
            "a name is not a string",
        ),
        (
            {"type": "record", "name": "row", "fields": [{"name": [], "type": "int"}]},
            "a name is not a string",
        ),
        ([], "a union has no types"),
        (
            record(["int", "int"]),
            "two types of a union have the same name without namespace",
        ),
        (
            {
                "type": "record",
                "name": "r",
                "fields": [{"name": "a", "type": "int", "default": "x"}],
            },
            "Default value <x> must match schema type: int",
        ),
    ],
)
def test_a_schema_that_has_no_columns_is_refused_with_a_message(
    schema: Any, why: str
) -> None:
    option = next(o for o in streamfactory_decoder().options if o.key == "schema")
    with pytest.raises(ValueError, match="is not a schema for columns") as caught:
        option.parse(json.dumps(schema))
    assert why in str(caught.value)


def test_a_schema_nested_without_end_is_refused() -> None:
    deep = '{"type":"array","items":' * 20_000 + '"int"' + "}" * 20_000
    with pytest.raises(ValueError) as caught:
        parse(deep)
    assert "too deeply" in str(caught.value)


def test_names_that_stand_for_each_other_do_not_grow_without_end() -> None:
    fields: list[dict[str, Any]] = []
    previous: Any = "long"
    for at in range(20):
        inner: dict[str, Any] = {
            "type": "record",
            "name": f"r{at}",
            "fields": [{"name": "a", "type": previous}],
        }
        if at:
            inner["fields"] += [
                {"name": f"b{n}", "type": f"r{at - 1}"} for n in range(10)
            ]
        previous = inner
    fields.append({"name": "top", "type": previous})
    with pytest.raises(ValueError) as caught:
        parse(json.dumps({"type": "record", "name": "row", "fields": fields}))
    assert str(caught.value) == "the schema has more than 10000 types or 64 levels"


def test_no_schema_at_all_is_an_error_with_a_remedy() -> None:
    with pytest.raises(SchemaUnknown) as caught:
        AvroDecoder({}, "clicks")
    assert "the schema of topic 'clicks' is unknown" in str(caught.value)
    assert "decoder.prop.schema" in str(caught.value)


def test_a_file_holds_the_schema(tmp_path: Any) -> None:
    path = tmp_path / "row.avsc"
    path.write_text(json.dumps(record("long")))
    made = AvroDecoder({"schema.file": str(path)}, "topic")
    assert made.schema() == pa.schema([pa.field("f0", pa.int64(), nullable=False)])
    with pytest.raises(ConfigError) as caught:
        AvroDecoder({"schema.file": str(path), "schema": "{}"}, "topic")
    assert "both given" in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        AvroDecoder({"schema.file": str(tmp_path / "none")}, "topic")
    assert "cannot be read: No such file or directory" in str(caught.value)


# --- evolution ----------------------------------------------------------------------


def read_as(writer: Any, reader: Any, payloads: list[bytes]) -> Decoded:
    reading = AvroBatchDecoder(parse(json.dumps(writer)), parse(json.dumps(reader)))
    result = DecodedParts(reading.schema)
    reading.run(pa.array(payloads, pa.binary()), np.arange(len(payloads)), result)
    return result.decoded(len(payloads))


@pytest.mark.parametrize(
    ("have", "want", "value"),
    [
        ("int", "long", 5),
        ("int", "double", 5),
        ("long", "float", 2**24),
        ("float", "double", 1.5),
        ("string", "bytes", "é"),
        ("bytes", "string", "é".encode()),
        ("int", ["null", "long"], 5),
        (["null", "int"], ["null", "long"], 5),
        (["null", "int"], ["long", "null", "string"], None),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "double"}, [1]),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "long"}, {"k": 1}),
    ],
)
def test_a_value_is_read_as_the_readers_type(have: Any, want: Any, value: Any) -> None:
    payload = written(record(have), {"f0": value})
    decoded = read_as(record(have), record(want), [payload])
    assert not decoded.errors
    oracle = fastavro.schemaless_reader(
        io.BytesIO(payload),
        fastavro.parse_schema(record(have)),
        fastavro.parse_schema(record(want)),
    )
    assert [flat(row) for row in decoded.rows.to_pylist()] == [oracle]


def test_fields_come_go_and_change_their_place() -> None:
    writer = {
        "type": "record",
        "name": "row",
        "fields": [
            {"name": "gone", "type": "string"},
            {"name": "old", "type": "long"},
            {"name": "kept", "type": "string"},
        ],
    }
    reader = {
        "type": "record",
        "name": "row",
        "fields": [
            {"name": "kept", "type": "string"},
            {"name": "renamed", "aliases": ["old"], "type": "long"},
            {"name": "added", "type": "bytes", "default": "\u00ff"},
            {"name": "none", "type": ["null", "int"], "default": None},
            {"name": "tags", "type": {"type": "map", "values": "int"}, "default": {}},
        ],
    }
    row = {"gone": "x", "old": 7, "kept": "here"}
    node = AvroBatchDecoder(parse(json.dumps(writer)), parse(json.dumps(reader)))
    assert node.columnar
    decoded = read_as(writer, reader, [written(writer, row)] * 3)
    expected = {
        "kept": "here",
        "renamed": 7,
        "added": b"\xff",
        "none": None,
        "tags": [],
    }
    assert decoded.rows.to_pylist() == [expected] * 3


def test_a_symbol_that_the_reader_lacks_is_its_default_or_bad() -> None:
    writer = record({"type": "enum", "name": "e", "symbols": ["A", "B"]})
    lenient = record(
        {"type": "enum", "name": "e", "symbols": ["A", "X"], "default": "X"}
    )
    strict = record({"type": "enum", "name": "e", "symbols": ["A"]})
    payloads = [written(writer, {"f0": "A"}), written(writer, {"f0": "B"})]
    assert outcome(read_as(writer, lenient, payloads)) == [
        ("", {"f0": "A"}),
        ("", {"f0": "X"}),
    ]
    assert outcome(read_as(writer, strict, payloads)) == [
        ("", {"f0": "A"}),
        ("malformed", None),
    ]


def test_schemas_that_do_not_go_together_are_refused_with_a_message() -> None:
    with pytest.raises(ValueError) as caught:
        read_as(record("string"), record("long"), [])
    assert str(caught.value) == "the writer's type string cannot be read as long"
    with pytest.raises(ValueError) as caught:
        read_as(record(), record("long"), [])
    assert (
        str(caught.value)
        == "the writer's schema lacks field 'f0', which has no default"
    )


def test_the_default_of_an_enum_is_one_of_its_symbols() -> None:
    reader = record({"type": "enum", "name": "e", "symbols": ["A", "B"]})
    reader["fields"][0]["default"] = "B"
    decoded = read_as(record(), reader, [b""])
    assert decoded.rows.to_pylist() == [{"f0": "B"}]
    reader["fields"][0]["default"] = "C"
    with pytest.raises(ValueError, match="default"):
        read_as(record(), reader, [b""])


# --- the way back, and real data ----------------------------------------------------


def test_flights_go_there_and_back() -> None:
    [rows] = decoding.flights().to_batches()
    assert rows.num_rows == 336_776
    encoder = AvroEncoder({}, "topic")
    payloads = encoder.encode(rows)
    from streamfactory.decoders.avro.encoding import derived

    made = AvroDecoder({"schema": derived(rows.schema)}, "topic")
    decoded = decoding.decode(made, payloads)
    assert not decoded.errors
    assert decoded.source is None
    assert decoded.rows.equals(rows)
    assert decoded.rows.schema == rows.schema


def test_what_fastavro_reads_is_what_was_encoded() -> None:
    schema = record("long", ["null", "string"], TYPES["decimal of bytes"][0])
    rows = pa.record_batch(
        {
            "f0": [1, 2],
            "f1": ["é", None],
            "f2": pa.array([Decimal("1.25"), Decimal(-128)], pa.decimal128(38, 2)),
        }
    )
    payloads = AvroEncoder({"schema": json.dumps(schema)}, "topic").encode(rows)
    parsed = fastavro.parse_schema(_copy(schema))
    found = [
        fastavro.schemaless_reader(io.BytesIO(payload), parsed, None)
        for payload in payloads.to_pylist()
    ]
    assert found == [
        {"f0": 1, "f1": "é", "f2": Decimal("1.25")},
        {"f0": 2, "f1": None, "f2": Decimal("-128.00")},
    ]


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        (
            {"f0": ["text"]},
            "column 'f0' is string, declared bigint: text is not parsed",
        ),
        ({"f0": [None]}, "column 'f0' is not nullable, but has 1 nulls"),
        ({"f0": [1], "x": [1]}, "column 'x' is not in the declared schema"),
        ({}, "column 'f0' is missing"),
    ],
)
def test_rows_that_are_not_of_the_schema_are_refused(
    rows: dict[str, Any], what: str
) -> None:
    encoder = AvroEncoder({"schema": json.dumps(record("long"))}, "topic")
    with pytest.raises(SchemaMismatch) as caught:
        encoder.encode(pa.record_batch(rows))
    assert what in str(caught.value)


def test_the_kit_finds_nothing() -> None:
    assert decoding.complaints(streamfactory_decoder(), AvroHarness) == []


def test_rows_without_columns_are_messages_all_the_same() -> None:
    schema = json.dumps({"type": "record", "name": "row", "fields": []})
    rows = pa.RecordBatch.from_struct_array(pa.array([{}] * 3, pa.struct([])))
    found = AvroEncoder({"schema": schema}, "topic").encode(rows)
    assert found.to_pylist() == [b""] * 3


def test_bad_messages_are_reported_wherever_they_stand_in_a_long_batch() -> None:
    long = {"type": "record", "name": "row", "fields": [{"name": "n", "type": "long"}]}
    decoder = AvroDecoder({"schema": json.dumps(long)}, "topic")
    good = [bytes([at % 64 * 2]) for at in range(70_000)]
    for bad in ([0], [3, 20_000], [16_383, 16_384, 69_999]):
        payloads = list(good)
        for at, junk in zip(bad, (b"", b"\x80", good[1] * 2), strict=False):
            payloads[at] = junk
        decoded = decoding.decode(decoder, payloads)
        assert [error.message for error in decoded.errors] == bad
        kept = np.delete(np.arange(len(good)), bad)
        assert decoded.source is not None
        assert np.array_equal(decoded.source, kept)
        assert np.array_equal(decoded.rows.column("n"), kept % 64)


# --- decimals -------------------------------------------------------------------------


def decimal(precision: Any, scale: Any, **more: Any) -> dict[str, Any]:
    found = {"type": "bytes", "logicalType": "decimal"}
    return {**found, "precision": precision, "scale": scale, **more}


@pytest.mark.parametrize(
    ("kind", "arrow"),
    [
        (decimal(64, 127), pa.binary()),  # Oracle's NUMBER, as connectors write it
        (decimal(-1, 0), pa.binary()),
        (decimal(0, 0), pa.binary()),
        (decimal(4, -84), pa.binary()),
        (decimal("4", "2"), pa.binary()),
        (decimal(4.0, 2), pa.binary()),
        (decimal(4, None), pa.binary()),
        ({"type": "bytes", "logicalType": "decimal"}, pa.binary()),
        (decimal(9, 2, type="fixed", name="f", size=2), pa.binary(2)),
        (decimal(9, 2, type="long"), pa.int64()),
        (decimal(9, 2, type="string"), pa.string()),
        ({"type": "int", "logicalType": "timestamp-millis"}, pa.int32()),
        ({"type": "long", "logicalType": "date"}, pa.int64()),
    ],
)
@pytest.mark.parametrize("where", ["field", "option", "array", "record"])
def test_a_logical_type_that_is_invalid_is_ignored(
    kind: dict[str, Any], arrow: pa.DataType, where: str
) -> None:
    wrapped: dict[str, Any] = {
        "field": kind,
        "option": ["null", kind],
        "array": {"type": "array", "items": kind},
        "record": {
            "type": "record",
            "name": "q",
            "fields": [{"name": "a", "type": kind}],
        },
    }
    found = parse(json.dumps(record(wrapped[where]))).children[0].arrow
    while pa.types.is_nested(found):
        found = found.field(0).type
    assert found == arrow


def test_more_digits_than_arrow_has_are_refused() -> None:
    with pytest.raises(SchemaRefused, match="a decimal has 100 digits"):
        parse(json.dumps(record(decimal(100, 2))))


FIXED = decimal(9, 4, type="fixed", name="f", size=4)


@pytest.mark.parametrize(
    ("writer", "wanted"),
    [
        (decimal(5, 2), decimal(10, 2)),
        (decimal(5, 2), decimal(7, 4)),
        (decimal(5, 2), decimal(40, 2)),
        (decimal(5, 2), FIXED),
        (FIXED, decimal(9, 4)),
        (["null", decimal(5, 2)], ["null", decimal(9, 2)]),
        (decimal(5, 2), ["null", decimal(9, 2)]),
    ],
)
def test_decimals_are_read_as_ones_of_more_digits(writer: Any, wanted: Any) -> None:
    numbers = [Decimal("-999.99"), Decimal("0.01"), Decimal(0), Decimal("127.00")]
    payloads = [written(record(writer), {"f0": number}) for number in numbers]
    one, other = (parse(json.dumps(record(kind))) for kind in (writer, wanted))
    rows = AvroBatchDecoder(one, other).batch(pa.array(payloads, pa.binary()))
    assert rows is not None
    assert rows.column(0).to_pylist() == numbers


@pytest.mark.parametrize(
    "wanted",
    [
        *(decimal(4, 2), decimal(5, 1), decimal(6, 4), decimal(5, 3)),
        *("string", "bytes", "long", "double"),
    ],
)
def test_decimals_are_not_read_as_what_has_fewer_digits(wanted: Any) -> None:
    writer = parse(json.dumps(record(decimal(5, 2))))
    with pytest.raises(SchemaRefused, match="cannot be read as"):
        AvroBatchDecoder(writer, parse(json.dumps(record(wanted))))
