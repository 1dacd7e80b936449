"""Text of `publish`: the decoders make its rows, so every rule is theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.decoders import test_csv, test_json
from tests.decoders.decoding import CONTEXT, options
from tests.everytype import EVERY_TYPE

from streamfactory.conversion.conform import conform
from streamfactory.decoders import csv, json
from streamfactory.engines.search.outputs import json_lines
from streamfactory.spi import DecodeError, Decoder, FormatRefused, SchemaMismatch
from streamfactory.spi.arrowjson import parse_schema
from streamfactory.spi.ddl import to_ddl
from streamfactory.transfer.inputs import Input, InputOptions, open_input
from streamfactory.wiring.core.values import encode_base64, plain_values

if TYPE_CHECKING:
    from pathlib import Path

Open = Callable[..., Input]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    with ExitStack() as last:

        def make(name: str, content: bytes, block_size: int = 2**20) -> Input:
            path = tmp_path / name
            path.write_bytes(content)
            one = open_input(str(path), options=InputOptions(block_size=block_size))
            last.callback(one.close)
            return one

        yield make


def rows_of(
    one: Input, schema: str | pa.Schema | None = None, most: int = 2**20
) -> list[Any]:
    """All rows, of declared types or of guessed ones."""
    if isinstance(schema, str):
        schema = parse_schema(schema)
    if schema is not None:
        one.expect(schema)
    assert one.columns(5.0) is not None
    found: list[Any] = []
    while not one.finished:
        rows = one.read(5.0, most)
        if rows is not None:
            columns = rows.schema if schema is None else schema
            found += conform(rows, columns).to_pylist()
    one.close()
    return found


def guessed(one: Input) -> str:
    found = one.columns(5.0)
    assert found is not None
    return to_ddl(found)


# --- every case of the decoders -------------------------------------------------------


def cases_of(module: Any) -> list[tuple[str, list[bytes]]]:
    """Schemas and messages of a decoder's own tests: those of their `decode` calls."""
    found: list[tuple[str, list[bytes]]] = []
    kept = module.decode

    def record(schema: str, *payloads: bytes, **chosen: str) -> Any:
        if not chosen and len(payloads) < 50:
            found.append((schema, list(payloads)))
        return kept(schema, *payloads, **chosen)

    module.decode = record
    try:
        for name, test in list(vars(module).items()):
            if not name.startswith("test_") or hasattr(test, "hypothesis"):
                continue
            if not test.__code__.co_argcount:
                test()
        for mark in getattr(test_json.test_each_type_has_one_meaning, "pytestmark", ()):
            if module is test_json:
                found += [
                    (f"x {kind}", [b'{"x": %s}' % text.encode()])
                    for kind, text, _ in mark.args[1]
                ]
    finally:
        module.decode = kept
    return found


@pytest.mark.parametrize(
    ("plugin", "module", "name"),
    [
        (csv.streamfactory_decoder(), test_csv, "a.csv"),
        (json.streamfactory_decoder(), test_json, "a.jsonl"),
    ],
)
def test_every_message_of_the_decoders_tests_is_published_as_they_decode_it(
    plugin: Decoder, module: Any, name: str, opened: Open
) -> None:
    tried = 0
    for schema, payloads in cases_of(module):
        columns = parse_schema(schema)
        assert plugin.decoder is not None
        decoder = plugin.decoder(options(plugin, schema, **_strict(plugin)), "t")
        for payload in payloads:
            if not payload.strip() or (name == "a.jsonl" and b"\n" in payload):
                continue
            decoded = decoder.decode(pa.array([payload], pa.binary()), CONTEXT)
            header = ",".join(columns.names).encode() + b"\n"
            one = opened(name, payload if name == "a.jsonl" else header + payload)
            tried += 1
            try:
                found = rows_of(one, schema)
            except (DecodeError, SchemaMismatch):
                assert decoded.errors, (schema, payload)
                continue
            assert not decoded.errors, (schema, payload)
            assert repr(found) == repr(decoded.rows.to_pylist()), (schema, payload)
    assert tried >= 30


def _strict(plugin: Decoder) -> dict[str, str]:
    return {"unknown_fields": "error"} if plugin.name == "json" else {}


# --- CSV ------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [5, 7, 2**20])
@pytest.mark.parametrize(
    "content",
    [
        b"a,b\r1,x\r2,y\r",
        b"a,b\r1,x\r\n2,y\r\n",
        b"a,b\n1,x\r2,y",
        b"a,b\r\n1,x\n2,y\r",
    ],
)
def test_records_end_with_any_line_end(
    content: bytes, block: int, opened: Open
) -> None:
    found = rows_of(opened("a.csv", content, block), "a int, b string", 1)
    assert found == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


def test_line_ends_within_quotes_are_text_in_spite_of_a_bare_quote(
    opened: Open,
) -> None:
    content = b'a,b\n1,5" pipe\n2,"x\ny"\n3,"p""q\r"\n'
    assert rows_of(opened("a.csv", content, 4), "a int, b string", 1) == [
        {"a": 1, "b": '5" pipe'},
        {"a": 2, "b": "x\ny"},
        {"a": 3, "b": 'p"q\r'},
    ]


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b'a,b\n1,"x"y\n', r"a\.csv, line 2, row 1, .* behind its closing quote"),
        (b'a,b\n1,"x\n"\n2,"y" \n', r"a\.csv, line 4, row 2, .* behind its closing"),
        (b'a,"b"c\n1,x\n', r"a\.csv has no header: ',' expected after '\"'"),
    ],
)
def test_nothing_may_stand_behind_a_closing_quote(
    content: bytes, place: str, opened: Open
) -> None:
    with pytest.raises((DecodeError, FormatRefused), match=place):
        rows_of(opened("a.csv", content), "a int, b string")


def test_nothing_is_null_and_quoted_nothing_is_text(opened: Open) -> None:
    found = rows_of(opened("a.csv", b'a,b\n1,\n2,""\n3,NA\n4,null\n'))
    assert [row["b"] for row in found] == [None, "", "NA", "null"]


@pytest.mark.parametrize("text", ['"NA"', "NA", "1e400", "-1e400", '""'])
def test_a_text_that_is_no_double_is_refused(text: str, opened: Open) -> None:
    content = f"id,x\n1,nan\n2,{text}\n".encode()
    place = r"a\.csv, line 3, row 2, bytes \d+ to \d+: column 'x' does not contain a "
    with pytest.raises(DecodeError, match=place):
        rows_of(opened("a.csv", content), "id int, x double")


@pytest.mark.parametrize(
    ("name", "content"), [("a.csv", b"x\n1e39\n"), ("a.jsonl", b'{"x":1e39}\n')]
)
def test_a_number_beyond_a_float_is_refused(
    name: str, content: bytes, opened: Open
) -> None:
    with pytest.raises(DecodeError, match="'x' does not contain a valid float"):
        rows_of(opened(name, content), "x float")


# --- JSON lines -----------------------------------------------------------------------


@pytest.mark.parametrize("content", [b'{"a":1}\nnull\n{"a":2}\n', b'null\n{"a":2}\n'])
@pytest.mark.parametrize("schema", [None, "a int"])
def test_a_line_of_null_is_refused_wherever_it_is(
    content: bytes, schema: str | None, opened: Open
) -> None:
    with pytest.raises((DecodeError, FormatRefused), match="a record is null"):
        rows_of(opened("a.jsonl", content), schema)


def test_blank_lines_and_a_byte_order_mark_are_no_records(opened: Open) -> None:
    content = b'\xef\xbb\xbf\n{"a":1}\r\n  \r\n\n {"a":2}'
    assert rows_of(opened("a.jsonl", content, 4), "a int") == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    ("record", "what"),
    [
        ('{"o":{"a":1,"b":2}}', "row 2, bytes 0 to 20: column 'o.b' is not in"),
        ('{"x":1}', "column 'x' is not in the declared schema"),
        ('{"l":[{"c":1},{"a":1}]}', "column 'l.item.a' is not in"),
        ('{"o":{"a":1.5}}', "a record does not fit the schema"),
    ],
)
def test_a_field_that_the_schema_lacks_is_named_by_its_path(
    record: str, what: str, opened: Open
) -> None:
    schema = "o struct<a: int>, l array<struct<c: int>>, m map<string,int>"
    content = '{"o":{"a":0}}\n' + record + "\n"
    with pytest.raises((DecodeError, SchemaMismatch)) as caught:
        rows_of(opened("a.jsonl", content.encode()), schema)
    assert what.replace("bytes 0 to 20", "bytes 14 to 34") in caught.value.what


# --- guesses --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-20", "0"], "bigint"),
        (["01220", "94107"], "string"),
        (["+49", "49"], "string"),
        (["0x1F", "10"], "string"),
        (["9223372036854775808", "1"], "decimal(20,0)"),
        (["123456789012345678901", "1"], "string"),
        (["1.5", "2", "0.30000000000000004"], "double"),
        (["0.1234567890123456789"], "string"),
        (["nan", "inf"], "string"),
        (["1.5", "nan"], "double"),
        (["true", "false"], "boolean"),
        (["2024-06-01"], "date"),
        (["2024-06-01T00:00:00+02:00"], "timestamp"),
        (["2024-06-01T00:00:00"], "timestamp_ntz"),
        (["2024-06-01", "2024-06-01T00:00:00"], "timestamp_ntz"),
        (["05:00:00"], "string"),
        ([""], "string"),
    ],
)
def test_a_guessed_type_keeps_every_text(
    values: list[str], kind: str, opened: Open
) -> None:
    content = "k,v\n" + "".join(f"x,{value}\n" for value in values)
    assert guessed(opened("a.csv", content.encode())) == f"k string, v {kind}"


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["9223372036854775807"], "bigint"),
        (["9223372036854775808", "1"], "decimal(20,0)"),
        (["1.5", "2"], "double"),
        (['"2024-06-01"'], "date"),
        (['"2024-06-01T00:00:00+02:00"'], "timestamp"),
        (['"2024-06-01T00:00:00"'], "timestamp_ntz"),
        (['"05:00:00"', "null"], "string"),
        (["null"], "string"),
        (['{"a":[1]}'], "struct<a:array<bigint>>"),
    ],
)
def test_a_guessed_type_keeps_every_value_of_json(
    values: list[str], kind: str, opened: Open
) -> None:
    lines = "".join(f'{{"k":"x","v":{value}}}\n' for value in values)
    assert guessed(opened("a.jsonl", lines.encode())) == f"k string, v {kind}"


@pytest.mark.parametrize(
    ("name", "first", "late", "schema"),
    [
        ("a.csv", b"id,v\n1,1\n", b"2,1.5\n", "id bigint, v double"),
        ("a.csv", b"id,v\n1,1\n", b"2,007\n", "id bigint, v string"),
        (
            "a.csv",
            b"id,v\n1,2024-01-01\n",
            b"2,2024-01-01T05:00:00\n",
            "id bigint, v timestamp_ntz",
        ),
        ("a.jsonl", b'{"id":1}\n', b'{"id":2,"late":"x"}\n', "id bigint, late string"),
        ("a.jsonl", b'{"v":1}\n', b'{"v":1.5}\n', "v double"),
        (
            "a.jsonl",
            b'{"o":{"a":1}}\n',
            b'{"o":{"a":1,"b":2}}\n',
            "o struct<a:bigint,b:bigint>",
        ),
    ],
)
def test_a_later_row_that_does_not_fit_the_guess_names_the_schema_that_would(
    name: str, first: bytes, late: bytes, schema: str, opened: Open
) -> None:
    one = opened(name, first + late, len(first))
    with pytest.raises((DecodeError, SchemaMismatch), match="row 2, bytes") as caught:
        rows_of(one)
    assert f"schema='{schema}'" in str(caught.value.remedy)
    assert len(rows_of(opened(name, first + late), schema)) == 2


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.binary_view(), '"YWI="', b"ab"),
        (pa.string_view(), '"ab"', "ab"),
        (pa.decimal32(5, 2), "1.25", Decimal("1.25")),
        (pa.decimal64(5, 2), "1.25", Decimal("1.25")),
        (pa.dictionary(pa.int8(), pa.string()), '"ab"', "ab"),
        (pa.list_(pa.binary_view()), '["YWI="]', [b"ab"]),
        (pa.struct([("b", pa.binary_view())]), '{"b": "YWI="}', {"b": b"ab"}),
        (pa.map_(pa.string_view(), pa.int64()), '{"ab": 1}', [("ab", 1)]),
    ],
    ids=str,
)
def test_types_without_text_are_read_as_types_that_have_it(
    opened: Open, kind: pa.DataType, text: str, value: object
) -> None:
    one = opened("rows.json", f'{{"v": {text}}}'.encode())
    assert rows_of(one, pa.schema([pa.field("v", kind)])) == [{"v": value}]


# --- what `tail --json` prints --------------------------------------------------------

KEPT = sorted(
    name
    for name in EVERY_TYPE
    if not any(word in name for word in ("union", "interval", "struct,", "null"))
)
"""Types whose values are published again as they were; the others are refused."""


def printed_again(column: pa.Array, opened: Open) -> pa.Array:
    """Publish the lines that `tail --json` prints of a column."""
    rows = pa.RecordBatch.from_arrays([column], names=["x"])
    one = opened("a.jsonl", "\n".join([*json_lines(rows), ""]).encode())
    wanted = rows.schema
    one.expect(wanted)
    found = []
    while not one.finished:
        part = one.read(1.0, 1000)
        if part is not None:
            found.append(conform(part, wanted).column(0))
    return pa.concat_arrays(found)


@pytest.mark.parametrize("name", KEPT)
def test_printed_values_are_published_again_as_they_were_or_are_refused(
    name: str, opened: Open
) -> None:
    column, kept = EVERY_TYPE[name], 0
    for row in range(len(column)):
        value = column.slice(row, 1)
        try:
            found = printed_again(value, opened)
        except (DecodeError, SchemaMismatch):
            continue  # years that text of four digits does not have
        assert plain_values(found, encode_base64) == plain_values(value, encode_base64)
        kept += 1
    assert kept >= len(column) - 2


@pytest.mark.parametrize(
    "name", sorted({*EVERY_TYPE} - {*KEPT} - {"dictionary, null inside"})
)
def test_types_without_text_are_refused(name: str, opened: Open) -> None:
    with pytest.raises(SchemaMismatch):
        printed_again(EVERY_TYPE[name], opened)


@pytest.mark.parametrize(
    "text",
    ["P", "PT", "P1DT", "1D", "P1Y", "PT1.5H", "P-1D", "PT0.0001S", "P999999999999D"],
)
def test_a_text_that_is_no_duration_of_the_unit_is_refused(
    text: str, opened: Open
) -> None:
    one = opened("a.jsonl", f'{{"x":"{text}"}}\n'.encode())
    one.expect(pa.schema([("x", pa.duration("ms"))]))
    with pytest.raises(DecodeError):
        one.read(1.0, 10)
