"""The decoder and encoder `json`."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decoders import decoding
from tests.proving.generated import cases

from streamfactory.conformance import DecoderSubject
from streamfactory.conformance.runner import Outcome, decoder_cases, run
from streamfactory.decoders.json import streamfactory_decoder
from streamfactory.decoders.json.decoder import JsonDecoder
from streamfactory.decoders.json.encoder import JsonEncoder
from streamfactory.decoders.json.harness import JsonHarness
from streamfactory.spi import (
    Decoded,
    SchemaMismatch,
    SchemaUnknown,
)
from streamfactory.spi.arrowjson import to_arrow_json
from streamfactory.spi.ddl import to_ddl

if TYPE_CHECKING:
    from streamfactory.conformance.case import Case
    from streamfactory.conformance.decoders import DecoderBench

pytestmark = pytest.mark.usefixtures("way")
"""Each test runs without the compiled core, and with it."""

FIVE = datetime(2013, 1, 1, 5, tzinfo=UTC)
UNFIT = "the message does not fit the schema"
options = partial(decoding.options, streamfactory_decoder())


def decode(schema: str, *payloads: bytes, **chosen: str) -> Decoded:
    return decoding.decode(JsonDecoder(options(schema, **chosen), "t"), payloads)


def value(schema: str, text: str, **chosen: str) -> Any:
    """The value of the only column, or the code of the error."""
    decoded = decode(schema, text.encode(), **chosen)
    if decoded.errors:
        [error] = decoded.errors
        return error.code
    [row] = decoded.rows.to_pylist()
    [found] = row.values()
    return found


def whats(decoded: Decoded) -> list[tuple[int, str, str]]:
    return [(error.message, error.code, error.what) for error in decoded.errors]


@pytest.mark.parametrize("case", decoder_cases(), ids=lambda case: case.name)
def test_kit_proves_it(case: Case[DecoderBench]) -> None:
    [result] = run(DecoderSubject(streamfactory_decoder(), JsonHarness), cases=[case])
    several = case.name == "messages_have_any_number_of_rows"
    expected = Outcome.SKIPPED if several else Outcome.PASSED
    assert result.outcome is expected, result.reason


def test_schema_has_to_be_declared() -> None:
    with pytest.raises(SchemaUnknown) as caught:
        JsonDecoder(options(), "clicks")
    assert str(caught.value) == (
        "the schema of 'clicks' is unknown: JSON does not contain it; "
        "declare it with the option schema"
    )


def test_types_that_json_lacks_are_refused_with_their_column() -> None:
    text = to_arrow_json(pa.schema([("id", pa.int64()), ("d", pa.null())]))
    with pytest.raises(ValueError, match="cannot be JSON") as caught:
        options(text)
    assert str(caught.value) == (
        "cannot be JSON: column 'd' has the type null, which has no text"
    )


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb"])
def test_names_that_msgspec_does_not_take_are_refused(name: str) -> None:
    inner = pa.struct([(name, pa.int8())])
    text = to_arrow_json(pa.schema([("x", pa.list_(inner))]))
    with pytest.raises(ValueError, match="cannot be JSON") as caught:
        options(text)
    assert str(caught.value) == (
        f"cannot be JSON: field {name!r} has a quote, backslash or control character"
    )


def test_pinots_binary_forms_are_refused_and_its_text_is_taken() -> None:
    [option] = [o for o in streamfactory_decoder().options if o.key == "json.format"]
    assert option.aliases == ("jsonFormat",)
    assert option.parse("TEXT") == "text"
    with pytest.raises(ValueError, match="smile") as caught:
        option.parse("SMILE")
    assert str(caught.value) == "is not supported (smile): only text is"


@pytest.mark.parametrize(
    ("kind", "text", "found"),
    [
        ("bigint", "9223372036854775807", 2**63 - 1),
        ("bigint", "9223372036854775808", "schema"),
        ("bigint", "1.0", "schema"),
        ("bigint", '"1"', "schema"),
        ("bigint", "true", "schema"),
        ("bigint", "9" * 5000, "schema"),
        ("tinyint", "127", 127),
        ("tinyint", "128", "value"),
        ("double", "1", 1.0),
        ("double", "NaN", "malformed"),
        ("double", "1e400", "schema"),
        ("float", "3.5e38", "value"),
        ("float", "0.1", 0.10000000149011612),
        ("decimal(5,2)", "1.25", Decimal("1.25")),
        ("decimal(5,2)", '"1.25"', Decimal("1.25")),
        ("decimal(5,2)", "1.255", "value"),
        ("decimal(5,2)", "1234.5", "value"),
        ("decimal(5,2)", "true", "value"),
        ("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
        ("boolean", "1", "schema"),
        ("string", "1", "schema"),
        ("string", r'"\ud83d\ude00"', "\U0001f600"),
        ("string", r'"\ud83d"', "malformed"),
        ("date", '"2013-02-28"', date(2013, 2, 28)),
        ("date", '"2013-02-29"', "value"),
        ("timestamp", '"2013-01-01T05:00:00.5Z"', FIVE.replace(microsecond=500_000)),
        ("timestamp", '"2013-01-01T07:00:00+02:00"', FIVE),
        ("timestamp", '"2013-01-01T05:00:00"', "value"),
        ("timestamp", "1", "schema"),
        ("timestamp_ntz", '"2013-01-01T05:00:00"', FIVE.replace(tzinfo=None)),
        ("timestamp_ntz", '"2013-01-01T05:00:00Z"', "value"),
        ("binary", '"aGk="', b"hi"),
        ("binary", '"aGk"', "value"),
        ("binary", '"aGl="', "value"),
        ("binary", '""', b""),
        ("array<int>", "[1,null]", [1, None]),
        ("array<int>", "[2147483648]", "value"),
        ("map<string,int>", '{"a":1,"b":null}', [("a", 1), ("b", None)]),
        ("map<int,string>", '{"1":"a"}', [(1, "a")]),
        ("map<int,string>", '{"x":"a"}', "value"),
        ("struct<a:int,b:array<double>>", '{"b":[1]}', {"a": None, "b": [1.0]}),
        ("struct<a:int not null>", "null", None),
        ("struct<a:int not null>", "{}", "null"),
        ("array<struct<a:int not null>>", '[{"a":1},{}]', "null"),
    ],
)  # fmt: skip
def test_each_type_has_one_meaning(kind: str, text: str, found: Any) -> None:
    assert value(f"x {kind}", f'{{"x":{text}}}') == found


def test_unsigned_numbers_of_64_bits_are_whole() -> None:
    schema = to_arrow_json(pa.schema([("x", pa.uint64())]))
    assert value(schema, '{"x":18446744073709551615}') == 2**64 - 1
    assert value(schema, '{"x":18446744073709551616}') == "value"
    assert value(schema, '{"x":-1}') == "value"


def test_numbers_in_quotes_are_numbers_by_option() -> None:
    chosen = {"numbers_as_text": "true"}
    assert value("x int", '{"x":"12"}', **chosen) == 12
    assert value("x int", '{"x":12}', **chosen) == 12
    assert value("x int", '{"x":"1.5"}', **chosen) == "value"
    assert value("x int", '{"x":"0x1F"}', **chosen) == "value"
    assert value("x double", '{"x":"1.5"}', **chosen) == 1.5
    assert value("x double", '{"x":"1e400"}', **chosen) == "value"


@pytest.mark.parametrize("chosen", [{}, {"numbers_as_text": "true"}])
def test_numbers_that_json_lacks_are_texts(chosen: dict[str, str]) -> None:
    for kind in ("double", "float"):
        found = value(f"x {kind}", '{"x":"NaN"}', **chosen)
        assert found != found
        assert value(f"x {kind}", '{"x":"Infinity"}', **chosen) == math.inf
        assert value(f"x {kind}", '{"x":"-Infinity"}', **chosen) == -math.inf
    assert value("x double", '{"x":NaN}', **chosen) == "malformed"


def test_maps_are_objects_or_arrays_of_keys_and_values() -> None:
    assert value("x map<string,int>", '{"x":{"a":1}}') == [("a", 1)]
    assert value("x map<string,int>", '{"x":[["a",1],["b",null]]}') == [
        ("a", 1),
        ("b", None),
    ]
    assert value("x map<int,string>", '{"x":[[1,"a"]]}') == [(1, "a")]
    assert value("x map<int,string>", '{"x":[["a","a"]]}') == "value"
    assert value("x map<string,int>", '{"x":[["a"]]}') == "schema"


@pytest.mark.parametrize(
    ("unit", "number"),
    [
        ("seconds", 1356998400),
        ("millis", 1356998400000),
        ("micros", 1356998400000000),
        ("nanos", 1356998400000000000),
    ],
)
def test_times_are_numbers_where_their_unit_is_said(unit: str, number: int) -> None:
    chosen = {"timestamp_unit": unit}
    expected = datetime(2013, 1, 1, tzinfo=UTC)
    assert value("x timestamp", f'{{"x":{number}}}', **chosen) == expected
    assert value("x timestamp", '{"x":"2013-01-01T00:00:00Z"}', **chosen) == expected
    assert value("x timestamp", '{"x":1.5}', **chosen) == "schema"


def test_a_time_that_its_column_cannot_hold_is_bad() -> None:
    assert value("x timestamp", '{"x":1}', timestamp_unit="nanos") == "value"
    largest = 2**63 - 1
    assert value("x timestamp", f'{{"x":{largest}}}', timestamp_unit="seconds") == (
        "value"
    )


def test_fields_are_ignored_null_or_errors_as_it_is_said() -> None:
    payload = b'{"a":1,"PLANTED":2}'
    assert decode("a int, b int", payload).rows.to_pylist() == [{"a": 1, "b": None}]
    assert whats(decode("a int, b int", payload, unknown_fields="error")) == [
        (0, "schema", "it has a field that is not in the schema")
    ]
    assert whats(decode("a int, b int", payload, missing_fields="error")) == [
        (0, "schema", f"{UNFIT}: object missing required field `b`")
    ]


def test_the_last_of_repeated_keys_counts() -> None:
    assert value("x int", '{"x":1,"x":2}') == 2


def test_bad_messages_are_reported_with_their_column_and_not_their_value() -> None:
    decoded = decode(
        "a int not null, r struct<b:date>",
        b'{"a":"PLANTED"}',
        b'{"a":1}',
        b'{"a":1,"r":{"b":"PLANTED"}}',
        b"PLANTED",
        b'{"r":{}}',
        b"\xff",
    )
    assert whats(decoded) == [
        (0, "schema", f"{UNFIT}: expected `integer | null`, got `string` - at `$.a`"),
        (2, "value", "column 'r.b' does not contain a valid date"),
        (3, "malformed", "the message is not JSON"),
        (4, "null", "column 'a' is null but not nullable"),
        (5, "encoding", "the message is not UTF-8"),
    ]  # fmt: skip
    assert decoded.source is not None
    assert decoded.source.to_pylist() == [1]


@pytest.mark.parametrize("size", [10, 30_000])
def test_an_empty_message_and_one_of_two_objects_shift_nothing(size: int) -> None:
    payloads = [b'{"x":%d}' % index for index in range(size)]
    payloads[3] = b""
    payloads[7] = b'{"x":7}{"x":7}'
    payloads[8] = b'{"x":"}'
    payloads[9] = b'{","x":9}'
    decoded = decode("x bigint", *payloads)
    assert [error.message for error in decoded.errors] == [3, 7, 8, 9]
    assert decoded.source is not None
    assert decoded.rows["x"].to_pylist() == decoded.source.to_pylist()
    assert len(decoded.source) == size - 4


def test_every_bad_message_of_many_is_found() -> None:
    payloads = [b'{"x":%d}' % index for index in range(30_000)]
    bad = list(range(5, 30_000, 997))
    for index in bad:
        payloads[index] = b'{"x":oops}' if index % 2 else b'{"x":"1"}'
    decoded = decode("x bigint", *payloads)
    assert [error.message for error in decoded.errors] == bad


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_depth_has_one_limit_wherever_it_is(opening: str) -> None:
    closing = {"[": "]", '{"a":': "}"}[opening]
    inner = "" if opening == "[" else "1"

    def message(depth: int) -> bytes:
        nested = opening * (depth - 1) + inner + closing * (depth - 1)
        return f'{{"x":1,"u":{nested}}}'.encode()

    assert whats(decode("x int", message(256))) == []
    assert [code for _, code, _ in whats(decode("x int", message(257)))] == ["too_deep"]
    deep = decode("x int", b'{"x":1}', message(100_000), b'{"x":2}')
    assert [error.message for error in deep.errors] == [1]
    assert deep.rows["x"].to_pylist() == [1, 2]


def test_brackets_within_texts_are_not_deep() -> None:
    payload = json.dumps({"x": 1, "u": '["' * 1000}).encode()
    assert whats(decode("x int", payload)) == []


# --- the way back ---------------------------------------------------------------------

FEW = datetime(1900, 1, 1), datetime(2100, 1, 1)  # noqa: DTZ001


def whole_seconds(time: datetime) -> datetime:
    return time.replace(microsecond=0, tzinfo=UTC)


LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float32(), st.floats(width=32, allow_nan=False, allow_infinity=False)),
    (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    (pa.string(), st.text(max_size=8)),
    (pa.large_string(), st.text(max_size=8)),
    (pa.binary(), st.binary(max_size=8)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    (pa.timestamp("us"), st.datetimes()),
    (pa.date64(), st.dates()),
    (pa.time64("us"), st.times()),
    (pa.time64("ns"), st.times()),
    (pa.time32("s"), st.times().map(lambda t: t.replace(microsecond=0))),
    (pa.timestamp("s", "UTC"), st.datetimes().map(whole_seconds)),
    (
        pa.timestamp("ms", "America/New_York"),
        st.datetimes(FEW[0], FEW[1]).map(whole_seconds),
    ),
    (pa.float16(), st.floats(width=16, allow_nan=False, allow_infinity=False)),
    (pa.uint8(), st.integers(0, 255)),
    (pa.large_binary(), st.binary(max_size=8)),
    (pa.decimal256(50, 2), st.decimals(-(10**40), 10**40, places=2)),
    (pa.decimal128(20, 4), st.decimals(-(10**15), 10**15, places=4)),
]
names = st.text(
    st.characters(exclude_characters='"\\', exclude_categories=["Cc", "Cs"]),
    max_size=5,
)
Typed = tuple[pa.DataType, st.SearchStrategy[Any]]


def nested(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    def listed(one: Typed) -> Typed:
        return pa.list_(one[0]), st.lists(st.none() | one[1], max_size=3)

    def mapped(one: Typed) -> Typed:
        keys = st.text(max_size=4)
        items = st.dictionaries(keys, st.none() | one[1], max_size=3)
        return pa.map_(pa.string(), one[0]), items.map(lambda d: list(d.items()))

    def struct(members: dict[str, Typed]) -> Typed:
        kind = pa.struct([(name, one[0]) for name, one in members.items()])
        parts = {name: st.none() | one[1] for name, one in members.items()}
        return kind, st.fixed_dictionaries(parts)

    members = st.dictionaries(names, inner, min_size=1, max_size=3)
    return inner.map(listed) | inner.map(mapped) | members.map(struct)


typed = st.recursive(st.sampled_from(LEAVES), nested, max_leaves=4)


@settings(max_examples=cases(150), deadline=None)
@given(st.data())
def test_rows_come_back_as_they_were(data: st.DataObject) -> None:
    columns = data.draw(st.dictionaries(names, typed, min_size=1, max_size=3))
    schema = pa.schema([(name, one[0]) for name, one in columns.items()])
    row = st.fixed_dictionaries({n: st.none() | one[1] for n, one in columns.items()})
    drawn = data.draw(st.lists(row, max_size=4))
    rows = pa.RecordBatch.from_pylist(drawn, schema=schema)
    parsed = options(to_arrow_json(schema))
    encoded = JsonEncoder(parsed, "t").encode(rows)
    for text in encoded.to_pylist():
        assert set(json.loads(text)) == set(schema.names)
    decoded = decoding.decode(JsonDecoder(parsed, "t"), encoded)
    assert list(decoded.errors) == []
    assert repr(decoded.rows.to_pylist()) == repr(rows.to_pylist())


def test_what_json_cannot_say_is_refused_with_its_column() -> None:
    encoder = JsonEncoder(options("x double"), "t")
    rows = pa.RecordBatch.from_pydict({"x": [1.0, float("nan")]})
    with pytest.raises(SchemaMismatch) as caught:
        encoder.encode(rows)
    assert str(caught.value) == (
        "column 'x' contains NaN or an infinity, which JSON cannot represent; "
        "replace it by null, or use another format"
    )
    far = pa.array([2**62], pa.timestamp("us", "UTC"))
    with pytest.raises(SchemaMismatch) as years:
        encoder.encode(pa.RecordBatch.from_pydict({"x": far}))
    assert years.value.what == "column 'x' has years outside of 1 to 9999"


# --- inferring ------------------------------------------------------------------------


def inferred(*payloads: bytes) -> str:
    schema = JsonDecoder.infer(pa.array(payloads, pa.binary()), options())
    return to_ddl(schema)


def test_integers_of_more_digits_than_a_type_keeps_are_not_guessed() -> None:
    long = "9" * 39
    for message in (f'{{"n":{long}}}', f'{{"r":{{"n":[1, -{long} ]}}}}'):
        with pytest.raises(SchemaUnknown, match="more than 38 digits"):
            inferred(message.encode())
    assert inferred(f'{{"n":{long[1:]}}}'.encode()) == "n decimal(38,0)"
    assert inferred(f'{{"n":1e60,"t":"{long}"}}'.encode()) == "n double, t string"
    for text in (f"[{long}]", rf"\"id\": {long}, x"):
        assert inferred(f'{{"t":"{text}"}}'.encode()) == "t string"


def test_a_schema_fits_the_good_messages_of_a_sample() -> None:
    text = inferred(
        b'{"i": 1, "d": 1, "s": "a", "r": {"x": [1.5, null]}}',
        b'{"d": 2.5, "at": "2013-01-01T05:00:00Z",\n "n": null, "b": true}',
        *(b"", b"null", b"[1]", b"{}", b"PLANTED", b"\xff", b'{"i":' + b"[" * 100_000),
    )
    assert text == (
        "i bigint, d double, s string, r struct<x:array<double>>, "
        "at timestamp, n string, b boolean"
    )


def test_times_are_of_the_type_that_decodes_them() -> None:
    def message(text: str) -> bytes:
        return json.dumps({"r": {"at": text}}).encode()

    zoned, bare = message("2013-01-01T05:00:00Z"), message("2013-01-01T05:00:00")
    assert inferred(zoned) == "r struct<at:timestamp>"
    assert inferred(bare) == "r struct<at:timestamp_ntz>"
    assert inferred(zoned, bare) == "r struct<at:string>"


_NO_OBJECT = (
    "a JSON object with a field, or they have numbers beyond the largest double"
)


@pytest.mark.parametrize(
    ("payloads", "what"),
    [
        (
            [b"PLANTED", b"{}"],
            f"none of 2 messages is {_NO_OBJECT}",
        ),
        (
            [b'{"a": 1e400}'],
            f"none of 1 messages is {_NO_OBJECT}",
        ),
        (
            [b'{"a": 1}', b'{"a": "PLANTED"}'],
            "2 messages have a field with values of different types",
        ),
    ],
)
def test_without_a_schema_that_fits_none_is_answered(
    payloads: list[bytes], what: str
) -> None:
    with pytest.raises(SchemaUnknown) as caught:
        inferred(*payloads)
    assert str(caught.value) == f"{what}; declare the schema"
