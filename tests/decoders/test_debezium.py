"""Change events of PostgreSQL and MySQL, decoded to rows with their kind of change."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.decoders.debezium_events import (
    COMMITTED,
    CONNECT,
    DEBEZIUM,
    MYSQL,
    PROCESSED,
    column,
    decimal,
    event,
    payload,
    with_schema,
)
from tests.decoders.decoding import bad, complaints, decode, options, sources

from streamfactory.decoders.debezium import streamfactory_decoder
from streamfactory.decoders.debezium.decoder import DebeziumDecoder
from streamfactory.decoders.debezium.harness import DebeziumHarness
from streamfactory.spi import ConfigError, DecodeContext, Partition, SchemaUnknown
from streamfactory.spi.arrowjson import to_arrow_json

PLUGIN = streamfactory_decoder()
GOODS = "id bigint not null, name string"
OLD, NEW = {"id": 1, "name": "old"}, {"id": 1, "name": "new"}
PLACEHOLDER = "__debezium_unavailable_value"
TIMES = pa.schema(
    [
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("zoned", pa.timestamp("us", tz="UTC")),
        ("hour", pa.time64("us")),
    ]
)


def decoder(schema: str | pa.Schema = GOODS, **given: Any) -> DebeziumDecoder:
    text = schema if isinstance(schema, str) else to_arrow_json(schema)
    return DebeziumDecoder(options(PLUGIN, text, **given), "goods")


def one(schema: str | pa.Schema, message: bytes, **given: Any) -> dict[str, Any]:
    decoded = decode(decoder(schema, **given), [message])
    assert decoded.errors == []
    [row] = decoded.rows.to_pylist()
    return dict(row)


def typed(kind: pa.DataType | str, value: Any, *described: Any, **more: Any) -> Any:
    """The value of one column whose Connect schema the message contains."""
    schema = f"x {kind}" if isinstance(kind, str) else pa.schema([("x", kind)])
    found = payload("c", after={"x": value})
    return one(schema, with_schema([column("x", *described, **more)], found))["x"]


def test_the_kit_passes() -> None:
    assert complaints(PLUGIN, DebeziumHarness) == []


def test_every_operation_has_its_kind_of_change() -> None:
    messages = [
        event("r", after=OLD),
        event("c", after=OLD),
        event("u", before=OLD, after=NEW),
        event("u", after=NEW),
        event("d", before=NEW),
    ]
    decoded = decode(decoder(), messages)
    found = zip(
        sources(decoded),
        decoded.rows["_change"].to_pylist(),
        decoded.rows["name"].to_pylist(),
        strict=True,
    )
    assert list(found) == [
        (0, "insert", "old"),
        (1, "insert", "old"),
        (2, "update_before", "old"),
        (2, "update_after", "new"),
        (3, "update_after", "new"),
        (4, "delete", "new"),
    ]


def test_the_finest_time_of_the_source_is_the_time_of_the_commit() -> None:
    schema = f"{GOODS}, _change string, _commit_time timestamp, _ts timestamp"
    row = one(schema, event("c", after=OLD))
    base = datetime(1970, 1, 1, tzinfo=UTC)
    assert row["_commit_time"] == base + timedelta(milliseconds=COMMITTED)
    assert row["_ts"] == base + timedelta(milliseconds=PROCESSED)
    row = one(schema, event("c", after=OLD, source=MYSQL))
    wanted = base + timedelta(milliseconds=COMMITTED, microseconds=456)
    assert row["_commit_time"] == wanted


def test_declared_fields_of_the_source_and_the_operation_are_columns() -> None:
    source = "_source struct<lsn: bigint, file: string, pos: bigint>, _op string"
    row = one(f"{GOODS}, {source}", event("r", after=OLD))
    assert row["_source"] == {"lsn": 24_023_128, "file": None, "pos": None}
    assert row["_op"] == "r"
    row = one(f"{GOODS}, {source}", event("r", after=OLD, source=MYSQL))
    assert row["_source"] == {"lsn": None, "file": "mysql-bin.000003", "pos": 484}
    assert one(f"{GOODS}, {source}", event("r", after=OLD, source=None))["_source"]


def test_change_columns_are_appended_where_the_schema_lacks_them() -> None:
    assert decoder().schema().names == ["id", "name", "_change", "_commit_time"]
    assert decoder(f"_change string, {GOODS}").schema().names[0] == "_change"
    assert len(decoder(f"{GOODS}, _change string").schema()) == 3


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        ("id bigint, _change int", "'_change' is not of type string"),
        ("id bigint, _source string", "not a struct"),
        ("_change string", "no column of the table"),
    ],
)
def test_schemas_that_are_none_of_changes_are_refused(schema: str, what: str) -> None:
    option = next(one for one in PLUGIN.options if one.key == "schema")
    assert option.validator is not None
    assert what in (option.validator(schema) or "")


def test_json_without_declared_schema_is_refused() -> None:
    with pytest.raises(SchemaUnknown):
        DebeziumDecoder(options(PLUGIN), "goods")


def test_avro_without_registry_is_refused() -> None:
    with pytest.raises(ConfigError, match="requires a Schema Registry"):
        decoder(format="avro")


def test_incomplete_rows_of_deletes_may_lack_what_may_not_be_null() -> None:
    """As of a table with the default replica identity."""
    schema = "id bigint not null, name string not null"
    row = one(schema, event("d", before={"id": 1, "name": None}))
    assert (row["id"], row["name"]) == (1, None)
    messages = [event("c", after={"id": 2}), event("u", after={"id": 3, "name": None})]
    assert bad(decode(decoder(schema), messages)) == [(0, "null"), (1, "null")]


def test_an_update_with_one_bad_state_has_no_row() -> None:
    message = event("u", before={"id": "x"}, after=NEW)
    decoded = decode(
        decoder(), [event("c", after=OLD), message, event("d", before=NEW)]
    )
    assert bad(decoded) == [(1, "schema")]
    assert sources(decoded) == [0, 2]


def test_a_truncated_table_is_bad_or_skipped_or_a_row() -> None:
    messages = [event("c", after=OLD), event("t"), event("c", after=NEW)]
    assert bad(decode(decoder(), messages)) == [(1, "truncate")]
    decoded = decode(decoder(truncate="skip"), messages)
    assert (decoded.errors, sources(decoded)) == ([], [0, 2])
    rows = decode(decoder(truncate="row"), messages).rows.to_pylist()
    assert [row["_change"] for row in rows] == ["insert", "truncate", "insert"]
    assert (rows[1]["id"], rows[1]["name"]) == (None, None)
    assert rows[1]["_commit_time"] == rows[0]["_commit_time"]


@pytest.mark.parametrize("wrapped", [False, True])
def test_values_that_were_not_logged_are_not_taken_for_text(wrapped: bool) -> None:
    after = {"id": 1, "name": PLACEHOLDER}
    columns = [column("id", "int64"), column("name", "string")]
    message = event("u", after=after)
    if wrapped:
        message = with_schema(columns, payload("u", after=after))
    decoded = decode(decoder(), [message])
    assert bad(decoded) == [(0, "unavailable")]
    assert "'name'" in decoded.errors[0].what
    given = {"unavailable_values": "null"}
    assert one(GOODS, message, **given)["name"] is None
    raw = base64.b64encode(PLACEHOLDER.encode()).decode()
    message = event("u", after={"id": 1, "name": raw})
    assert one("id bigint, name binary", message, **given)["name"] is None


def test_columns_come_and_go_in_a_stream() -> None:
    messages = [
        event("c", after={"id": 1}),
        event("c", after={"id": 2, "name": "n", "added": True}),
    ]
    values = pa.array(messages, pa.binary())
    context = DecodeContext(Partition("goods", 0), undeclared=True)
    decoded = decoder().decode(values, context)
    assert decoded.rows["name"].to_pylist() == [None, "n"]
    assert [misfit.rows.to_pylist() for misfit in decoded.misfits] == [[1]]


def test_a_schema_that_changes_in_a_stream_is_followed() -> None:
    """The same number counts milliseconds, then microseconds."""
    wanted = datetime.fromisoformat("2023-11-14T22:13:20")
    schemas = [f"{DEBEZIUM}.time.Timestamp", f"{DEBEZIUM}.time.MicroTimestamp"]
    messages = [
        with_schema([column("x", "int64", name)], payload("c", after={"x": number}))
        for name, number in zip(
            schemas, [1_700_000_000_000, 1_700_000_000_000_000], strict=True
        )
    ]
    kind = pa.schema([("x", pa.timestamp("us"))])
    decoded = decode(decoder(kind), [*messages, *messages[::-1]])
    assert decoded.rows["x"].to_pylist() == [wanted] * 4
    assert decoded.errors == []


def test_a_schema_of_something_else_makes_its_messages_bad() -> None:
    good = with_schema([column("id", "int64")], payload("c", after={"id": 1}))
    odd = json.dumps(
        {"schema": {"type": "struct"}, "payload": payload("c", after={"id": 1})}
    )
    broken = good.replace(b'"after", "fields": [', b'"after", "fields": [1, ')
    assert broken != good
    decoded = decode(decoder(), [good, odd.encode(), broken, good])
    assert bad(decoded) == [(1, "schema"), (2, "schema")]
    assert decoded.rows["id"].to_pylist() == [1, 1]


# --- encodings ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "described", "wanted"),
    [
        ("date", 19_675, ("int32", f"{DEBEZIUM}.time.Date"), date(2023, 11, 14)),
        ("date", -1, ("int32", f"{CONNECT}.Date"), date(1969, 12, 31)),
        ("int", 19_675, ("int32", f"{DEBEZIUM}.time.Date"), 19_675),
        (
            "date",
            "2017-09-15Z",
            ("string", f"{DEBEZIUM}.time.IsoDate"),
            date(2017, 9, 15),
        ),
        (
            pa.time32("ms"),
            37_000_500,
            ("int32", f"{DEBEZIUM}.time.Time"),
            time(10, 16, 40, 500_000),
        ),
        (
            pa.time64("us"),
            37_000_500,
            ("int32", f"{CONNECT}.Time"),
            time(10, 16, 40, 500_000),
        ),
        (
            pa.time64("us"),
            37_000_000_005,
            ("int64", f"{DEBEZIUM}.time.MicroTime"),
            time(10, 16, 40, 5),
        ),
        (
            pa.time64("us"),
            37_000_000_005_000,
            ("int64", f"{DEBEZIUM}.time.NanoTime"),
            time(10, 16, 40, 5),
        ),
        (
            pa.time64("us"),
            "10:33:23.000005Z",
            ("string", f"{DEBEZIUM}.time.ZonedTime"),
            time(10, 33, 23, 5),
        ),
        (
            pa.duration("us"),
            -90_000_000_000,
            ("int64", f"{DEBEZIUM}.time.MicroTime"),
            timedelta(hours=-25),
        ),
        (
            "timestamp_ntz",
            1_700_000_000_123,
            ("int64", f"{DEBEZIUM}.time.Timestamp"),
            datetime.fromisoformat("2023-11-14T22:13:20.123000"),
        ),
        (
            "timestamp_ntz",
            1_700_000_000_123,
            ("int64", f"{CONNECT}.Timestamp"),
            datetime.fromisoformat("2023-11-14T22:13:20.123000"),
        ),
        (
            "timestamp",
            1_700_000_000_123_456,
            ("int64", f"{DEBEZIUM}.time.MicroTimestamp"),
            datetime(2023, 11, 14, 22, 13, 20, 123_456, UTC),
        ),
        (
            "timestamp_ntz",
            1_700_000_000_123_456_000,
            ("int64", f"{DEBEZIUM}.time.NanoTimestamp"),
            datetime.fromisoformat("2023-11-14T22:13:20.123456"),
        ),
        (
            "timestamp",
            "2023-11-14T22:13:20.123456Z",
            ("string", f"{DEBEZIUM}.time.ZonedTimestamp"),
            datetime(2023, 11, 14, 22, 13, 20, 123_456, UTC),
        ),
        (
            "timestamp_ntz",
            "2023-11-14T22:13:20Z",
            ("string", f"{DEBEZIUM}.time.IsoTimestamp"),
            datetime.fromisoformat("2023-11-14T22:13:20"),
        ),
        ("int", 2024, ("int32", f"{DEBEZIUM}.time.Year"), 2024),
        (
            pa.duration("us"),
            5_000_000,
            ("int64", f"{DEBEZIUM}.time.MicroDuration"),
            timedelta(seconds=5),
        ),
        (
            "string",
            "P1Y2M3DT4H5M6.78S",
            ("string", f"{DEBEZIUM}.time.Interval"),
            "P1Y2M3DT4H5M6.78S",
        ),
        ("string", '{"a":1}', ("string", f"{DEBEZIUM}.data.Json"), '{"a":1}'),
        ("binary", "qg==", ("bytes", f"{DEBEZIUM}.data.Bits"), b"\xaa"),
        (
            pa.duration("ns"),
            5_000,
            ("int64", f"{DEBEZIUM}.time.NanoDuration"),
            timedelta(microseconds=5),
        ),
        (
            pa.time64("us"),
            "10:33:23Z",
            ("string", f"{DEBEZIUM}.time.IsoTime"),
            time(10, 33, 23),
        ),
        ("string", "new", ("string", f"{DEBEZIUM}.data.Enum"), "new"),
        ("string", "a,b", ("string", f"{DEBEZIUM}.data.EnumSet"), "a,b"),
        ("string", "<a/>", ("string", f"{DEBEZIUM}.data.Xml"), "<a/>"),
        ("string", "Top.Science", ("string", f"{DEBEZIUM}.data.Ltree"), "Top.Science"),
        ("string", "'a':1", ("string", f"{DEBEZIUM}.data.Tsvector"), "'a':1"),
        (
            "string",
            "0e7b1bd6-1f8d-4ad6-b7b5-9f3f4d2e9f00",
            ("string", f"{DEBEZIUM}.data.Uuid"),
            "0e7b1bd6-1f8d-4ad6-b7b5-9f3f4d2e9f00",
        ),
        (
            pa.binary(16),
            "0e7b1bd6-1f8d-4ad6-b7b5-9f3f4d2e9f00",
            ("string", f"{DEBEZIUM}.data.Uuid"),
            bytes.fromhex("0e7b1bd61f8d4ad6b7b59f3f4d2e9f00"),
        ),
        ("string", "[2020-01-01,2020-02-01)", ("string",), "[2020-01-01,2020-02-01)"),
        ("string", "[1,4)", ("string",), "[1,4)"),
        ("double", 12.5, ("double",), 12.5),
        ("decimal(10,2)", "12.34", ("string",), Decimal("12.34")),
    ],
)
def test_values_have_the_meaning_of_their_schema(
    kind: str | pa.DataType, value: Any, described: tuple[str, ...], wanted: Any
) -> None:
    assert typed(kind, value, *described) == wanted


LEAP = {"year": 2024, "month": 2, "day": 29, "specialValue": None}
CLOCK = {"hour": 10, "minute": 16, "second": 40, "nanos": 5_000, "precision": 6}


@pytest.mark.parametrize(
    ("kind", "value", "name", "wanted"),
    [
        (pa.date32(), LEAP, "Date", date(2024, 2, 29)),
        (pa.time64("us"), CLOCK, "Time", time(10, 16, 40, 5)),
        (
            pa.timestamp("us"),
            LEAP | CLOCK | {"year": 1},
            "Timestamp",
            None,  # no leap year
        ),
        (
            pa.timestamp("us"),
            LEAP | CLOCK,
            "Timestamp",
            datetime.fromisoformat("2024-02-29T10:16:40.000005"),
        ),
        (
            pa.timestamp("us", "UTC"),
            LEAP | CLOCK | {"offsetSeconds": 7200, "zoneId": "Europe/Vienna"},
            "ZonedTimestamp",
            datetime(2024, 2, 29, 8, 16, 40, 5, UTC),
        ),
        (
            pa.time64("us"),
            CLOCK | {"offsetSeconds": 0},
            "ZonedTime",
            time(10, 16, 40, 5),
        ),
        (pa.time64("us"), CLOCK | {"offsetSeconds": 1}, "ZonedTime", None),
        (pa.time32("ms"), CLOCK, "Time", None),
        (pa.time32("ms"), CLOCK | {"nanos": 10**9}, "Time", None),
        (pa.time64("us"), CLOCK | {"hour": None}, "Time", None),
        (pa.date32(), LEAP | {"specialValue": "POSITIVE_INFINITY"}, "Date", None),
        (pa.date32(), {"specialValue": "NEGATIVE_INFINITY"}, "Date", None),
    ],
)
def test_structured_times_are_those_of_their_parts(
    kind: pa.DataType, value: Any, name: str, wanted: Any
) -> None:
    schema = pa.schema([("x", kind)])
    found = [payload("c", after={"x": one}) for one in (value, None)]
    described = column("x", "struct", f"{DEBEZIUM}.time.Structured{name}")
    modes = {"time.precision.mode": "structured"}
    for messages, given in (
        ([with_schema([described], one) for one in found], {}),
        ([json.dumps(one).encode() for one in found], modes),
    ):
        decoded = decode(decoder(schema, **given), messages)
        values = decoded.rows["x"].to_pylist()
        assert values == ([None] if wanted is None else [wanted, None])
        assert bad(decoded) == ([(0, "value")] if wanted is None else [])


def test_shapes_without_wkb_are_structs() -> None:
    circle = {"center": {"x": 1.0, "y": 2.0, "wkb": None, "srid": None}, "radius": 3.0}
    kind = "struct<center struct<x double, y double>, radius double>"
    name = f"{DEBEZIUM}.data.geometry.Circle"
    wanted = {"center": {"x": 1.0, "y": 2.0}, "radius": 3.0}
    assert typed(kind, circle, "struct", name) == wanted
    line = {"a": 1.0, "b": 2.0, "c": 3.0}
    kind = "struct<a double, b double, c double>"
    assert typed(kind, line, "struct", f"{DEBEZIUM}.data.geometry.Line") == line


def test_precise_decimals_have_the_scale_of_their_schema() -> None:
    scale: dict[str, Any] = {
        "parameters": {"scale": "2", "connect.decimal.precision": "10"}
    }
    described = ("bytes", f"{CONNECT}.Decimal")
    number = decimal(123_456)
    assert typed("decimal(10,2)", number, *described, **scale) == Decimal("1234.56")
    assert typed("decimal(12,4)", number, *described, **scale) == Decimal("1234.56")
    assert typed("double", number, *described, **scale) == 1234.56
    number = decimal(-1)
    assert typed("decimal(10,2)", number, *described, **scale) == Decimal("-0.01")
    found = payload("c", after={"x": decimal(123_456)})
    message = with_schema([column("x", *described, **scale)], found)
    decoded = decode(decoder("x decimal(10,1)"), [message])
    assert bad(decoded) == [(0, "value")], "a digit would be lost"


def test_decimals_of_variable_scale_have_their_own() -> None:
    columns = [column("x", "struct", f"{DEBEZIUM}.data.VariableScaleDecimal")]
    values = [
        {"scale": 3, "value": decimal(1500)},
        None,
        {"scale": 0, "value": decimal(7)},
        {"scale": 3, "value": decimal(-250)},
        {"scale": -2, "value": decimal(15)},
        {"value": decimal(1)},
        {"scale": -77, "value": decimal(1)},
    ]
    messages = [with_schema(columns, payload("c", after={"x": v})) for v in values]
    decoded = decode(decoder("x decimal(12,3)"), messages)
    assert decoded.rows["x"].to_pylist() == [
        Decimal("1.500"),
        None,
        Decimal("7.000"),
        Decimal("-0.250"),
        Decimal("1500.000"),
    ]
    assert bad(decoded) == [(5, "value"), (6, "value")]


def test_decimals_of_variable_scale_without_schema_are_named() -> None:
    message = event("c", after={"x": {"scale": -1, "value": decimal(2)}, "y": "AQ=="})
    schema = "x decimal(12,3), y decimal(3,0)"
    row = one(schema, message, variable_scale_columns="x")
    assert (row["x"], row["y"]) == (Decimal("20.000"), Decimal(1))
    assert bad(decode(decoder(schema), [message])) == [(0, "schema")]


def test_decimals_may_have_a_negative_scale() -> None:
    described: Any = ("bytes", f"{CONNECT}.Decimal")
    scale = {"parameters": {"scale": "-2"}}
    for kind, wanted in (
        ("decimal(10,0)", Decimal(1500)),
        ("decimal(12,2)", Decimal("1500.00")),
        ("double", 1500.0),
        ("bigint", 1500),
    ):
        assert typed(kind, decimal(15), *described, **scale) == wanted


@pytest.mark.parametrize(
    ("mode", "text"),
    [("base64", "+/8="), ("base64-url-safe", "-_8="), ("hex", "fbFF")],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_texts_are_bytes_by_the_mode_of_the_connector_only(
    mode: str, text: str, wrapped: bool
) -> None:
    after = {"x": text}
    message = event("c", after=after)
    if wrapped:
        message = with_schema([column("x", "string")], payload("c", after=after))
    given = {"binary_handling_mode": mode}
    assert one("x binary", message, **given)["x"] == b"\xfb\xff"
    odd = [message.replace(text.encode(), b"????")]
    assert bad(decode(decoder("x binary", **given), odd)) == [(0, "value")]
    if wrapped:
        assert bad(decode(decoder("x binary"), [message])) == [(0, "value")]
        assert one("x string", message)["x"] == text


def test_bytes_are_the_text_of_their_column_and_not_base64() -> None:
    raw = base64.b64encode(b"text").decode()
    assert typed("string", raw, "bytes") == "text"
    odd = with_schema([column("x", "bytes")], payload("c", after={"x": "/w=="}))
    assert bad(decode(decoder("x string"), [odd])) == [(0, "value")]


def test_geometries_are_structs_or_their_bytes() -> None:
    wkb = base64.b64encode(b"\x01\x01").decode()
    point = {"x": 1.5, "y": 2.5, "wkb": wkb, "srid": 4326}
    described = ("struct", f"{DEBEZIUM}.data.geometry.Point")
    kind = "struct<x: double, y: double, wkb: binary, srid: int>"
    assert typed(kind, point, *described) == {**point, "wkb": b"\x01\x01"}
    assert typed("binary", point, *described) == b"\x01\x01"
    described = ("struct", f"{DEBEZIUM}.data.geometry.Geography")
    assert typed("binary", point, *described) == b"\x01\x01"
    described = ("struct", f"{DEBEZIUM}.data.geometry.Geometry")
    shape = {"wkb": wkb, "srid": None}
    kind = "struct<wkb: binary, srid: int>"
    assert typed(kind, shape, *described) == {"wkb": b"\x01\x01", "srid": None}


def test_lists_have_the_meaning_of_their_items() -> None:
    floats = {"items": {"type": "float"}}
    vector = ("array", f"{DEBEZIUM}.data.FloatVector")
    assert typed("array<float>", [1.5, 2.0], *vector, **floats) == [1.5, 2.0]
    sparse = {"dimensions": 5, "vector": [[0, 1.5], [3, 2.0]]}
    kind = "struct<dimensions: smallint, vector: map<smallint, double>>"
    found = typed(kind, sparse, "struct", f"{DEBEZIUM}.data.SparseDoubleVector")
    assert found == {"dimensions": 5, "vector": [(0, 1.5), (3, 2.0)]}
    items = {"items": {"type": "int32", "name": f"{DEBEZIUM}.time.Date"}}
    found = typed("array<date>", [0, None, 1], "array", **items)
    assert found == [date(1970, 1, 1), None, date(1970, 1, 2)]
    assert typed("array<date>", None, "array", **items) is None


@pytest.mark.parametrize(
    ("mode", "unit", "values"),
    [
        ("adaptive", "millis", (19_675, 1_700_000_000_000, 37_000_000_000)),
        (
            "adaptive_time_microseconds",
            "micros",
            (19_675, 1_700_000_000_000_000, 37_000_000_000),
        ),
        ("connect", None, (19_675, 1_700_000_000_000, 37_000_000)),
        ("microseconds", None, (19_675, 1_700_000_000_000_000, 37_000_000_000)),
        ("nanoseconds", None, (19_675, 1_700_000_000_000_000_000, 37_000_000_000_000)),
        ("isostring", None, ("2023-11-14Z", "2023-11-14T22:13:20Z", "10:16:40Z")),
    ],
)
def test_modes_give_meaning_to_times_without_schema(
    mode: str, unit: str | None, values: tuple[Any, ...]
) -> None:
    given = {"time_precision_mode": mode} | ({"timestamp_unit": unit} if unit else {})
    after = dict(zip(("day", "at", "hour"), values, strict=True))
    after["zoned"] = "2023-11-14T22:13:20Z"
    row = one(TIMES, event("c", after=after), **given)
    assert row["day"] == date(2023, 11, 14)
    assert row["at"] == datetime.fromisoformat("2023-11-14T22:13:20")
    assert row["zoned"] == row["at"].replace(tzinfo=UTC)
    assert row["hour"] == time(10, 16, 40)


def test_numbers_of_unknown_unit_are_not_guessed() -> None:
    message = event("c", after={"at": 1_700_000_000_000})
    decoded = decode(decoder("at timestamp_ntz"), [message])
    assert bad(decoded) == [(0, "schema")]


@pytest.mark.parametrize(
    ("mode", "value"),
    [("precise", decimal(1234)), ("string", "12.34"), ("double", 12.34)],
)
def test_modes_give_meaning_to_decimals_without_schema(mode: str, value: Any) -> None:
    message = event("c", after={"price": value})
    row = one("price decimal(10,2)", message, decimal_handling_mode=mode)
    assert row["price"] == Decimal("12.34")


@pytest.mark.parametrize("column_value", [86_400_000_000, -1])
def test_a_time_beyond_the_day_is_bad(column_value: int) -> None:
    name = f"{DEBEZIUM}.time.MicroTime"
    found = payload("c", after={"x": column_value})
    schema = pa.schema([("x", pa.time64("us"))])
    decoded = decode(
        decoder(schema), [with_schema([column("x", "int64", name)], found)]
    )
    assert bad(decoded) == [(0, "value")]
