"""The decoder and encoder `csv`."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decoders import decoding
from tests.decoders.decoding import bad
from tests.proving.generated import cases

from streamfactory.conformance import DecoderSubject
from streamfactory.conformance.runner import Outcome, decoder_cases, run
from streamfactory.decoders.csv import streamfactory_decoder
from streamfactory.decoders.csv.decoder import CsvDecoder
from streamfactory.decoders.csv.encoder import CsvEncoder
from streamfactory.decoders.csv.harness import CsvHarness
from streamfactory.spi import (
    ConfigError,
    Decoded,
    SchemaMismatch,
    SchemaUnknown,
)
from streamfactory.spi.ddl import to_ddl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.conformance.case import Case
    from streamfactory.conformance.decoders import DecoderBench

SCHEMA = "id bigint, name string"
options = partial(decoding.options, streamfactory_decoder())


def decode(schema: str, *payloads: bytes, **chosen: str) -> Decoded:
    return decoding.decode(CsvDecoder(options(schema, **chosen), "t"), payloads)


def rows(schema: str, *payloads: bytes, **chosen: str) -> list[tuple[Any, ...]]:
    decoded = decode(schema, *payloads, **chosen)
    assert list(decoded.errors) == []
    return [tuple(row.values()) for row in decoded.rows.to_pylist()]


class HeadedHarness(CsvHarness):
    """Each message names its columns: only then it can have undeclared ones."""

    def options(self) -> dict[str, str]:
        return {**super().options(), "header.in.message": "true"}

    def message(self, numbers: Sequence[int]) -> bytes:
        return b"number,text,at\n" + super().message(numbers)

    def misfit(self, number: int) -> bytes:
        return b"number,text,at\n" + super().misfit(number)

    def undeclared(self, number: int) -> bytes:
        return f"number,more\n{number},x".encode()


@pytest.mark.parametrize("case", decoder_cases(), ids=lambda case: case.name)
def test_kit_proves_it(case: Case[DecoderBench]) -> None:
    headed = case.name == "undeclared_fields_are_reported_on_request"
    harness = HeadedHarness if headed else CsvHarness
    [result] = run(DecoderSubject(streamfactory_decoder(), harness), cases=[case])
    assert result.outcome is Outcome.PASSED, result.reason


def test_schema_has_to_be_declared() -> None:
    with pytest.raises(SchemaUnknown) as caught:
        CsvDecoder(options(), "clicks")
    assert str(caught.value) == (
        "the schema of 'clicks' is unknown: CSV does not contain it; "
        "declare it with the option schema"
    )


@pytest.mark.parametrize(
    "kind", ["struct<a:int>", "map<string,int>", "array<array<int>>"]
)
def test_what_a_field_cannot_hold_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="cannot be CSV: column 'x' has the type"):
        options(f"x {kind}")


def test_a_message_has_any_number_of_records() -> None:
    decoded = decode(SCHEMA, b"1,a\n2,b", b"", b"3,c\r\n", b"\n\n4,d\n\n5,e\r6,f")
    assert decoded.rows["id"].to_pylist() == [1, 2, 3, 4, 5, 6]
    assert decoded.source is not None
    assert decoded.source.to_pylist() == [0, 0, 2, 3, 3, 3]
    assert bad(decoded) == []


def test_line_ends_within_quotes_are_text() -> None:
    assert rows(SCHEMA, b'1,"a\nb"', b'2,"c\r\n""d"""\n3,"\n\n"') == [
        (1, "a\nb"),
        (2, 'c\r\n"d"'),
        (3, "\n\n"),
    ]


@pytest.mark.parametrize(
    ("chosen", "wrong", "right"),
    [
        ({}, b'"x"y,1', b'x"y"z,1'),
        ({}, b'1,2\n"x\n""" ,1', b'1,2\n"x\n""",1'),
        ({"escape.character": "\\"}, b'"x\\\\"y,1', b'"x\\"y",1'),
        ({"escape.character": "\\"}, b'\\"x,"y"z', b'\\"x"y,"z"'),
        ({"quote.character": "'", "delimiter": "^"}, b"'x'y^1", b"'x'^'y\"z'"),
        ({"ignore.surrounding.spaces": "true"}, b'"x" y,1', b' "x" ,1'),
    ],
)
def test_nothing_may_stand_behind_a_closing_quote(
    chosen: dict[str, str], wrong: bytes, right: bytes
) -> None:
    decoded = decode("a string, b string", right, wrong, right, **chosen)
    assert [(error.message, error.code) for error in decoded.errors] == [
        (1, "malformed")
    ]
    assert decoded.source is not None
    assert set(decoded.source.to_pylist()) == {0, 2}


def test_an_open_quote_takes_nothing_from_its_neighbours() -> None:
    payloads = [b"1,a", b'2,"b', b'3,c"', b'4,d",x', b"5,e", b'6,f,"', b"7,g\n8,h"]
    decoded = decode(SCHEMA, *payloads)
    assert bad(decoded) == [(1, "malformed"), (3, "malformed"), (5, "malformed")]
    assert decoded.rows["id"].to_pylist() == [1, 3, 5, 7, 8]
    assert decoded.rows["name"].to_pylist() == ["a", 'c"', "e", "g", "h"]


def test_a_message_with_one_bad_record_is_bad_as_a_whole() -> None:
    decoded = decode(SCHEMA, b"1,a\n2", b"3,c\nx,d", b"5,e\n6,f")
    assert bad(decoded) == [(0, "malformed"), (1, "value")]
    assert decoded.rows["id"].to_pylist() == [5, 6]


def test_every_bad_message_of_many_is_found() -> None:
    payloads = [b"%d,a" % index for index in range(20_000)]
    wrong = {7: b"x,a", 300: b"1", 301: b'1,"a', 5_000: b"1,2,3", 19_999: b'"'}
    for index, payload in wrong.items():
        payloads[index] = payload
    decoded = decode(SCHEMA, *payloads)
    assert [message for message, _ in bad(decoded)] == list(wrong)
    assert decoded.source is not None
    assert decoded.rows["id"].to_pylist() == decoded.source.to_pylist()


def test_nothing_is_null_and_quoted_nothing_is_text() -> None:
    assert rows(SCHEMA, b",", b'1,""') == [(None, None), (1, "")]
    assert rows(SCHEMA, b'NA,""', b'1,"NA"', b"1,", null_value="NA") == [
        (None, ""),
        (1, "NA"),
        (1, ""),
    ]


def test_numbers_are_decimal() -> None:
    decoded = decode(SCHEMA, b"0x10,a", b"16,b", b" 16,c", b"1e1,d", b"-1,e")
    assert bad(decoded) == [(0, "value"), (2, "value"), (3, "value")]
    assert decoded.rows["id"].to_pylist() == [16, -1]


def test_a_byte_order_mark_is_no_text_in_any_message() -> None:
    mark = "\ufeff".encode()
    assert rows(SCHEMA, b"1,a", mark + b"2,b", mark + b"3,c\n4,d") == [
        (1, "a"),
        (2, "b"),
        (3, "c"),
        (4, "d"),
    ]


def test_columns_have_the_order_of_the_header() -> None:
    assert rows(SCHEMA, b"a,x,1", header="name,other,id") == [(1, "a")]
    assert rows(SCHEMA, b"a", header="name") == [(None, "a")]


@pytest.mark.parametrize(
    ("chosen", "what"),
    [
        ({"header": "id,id"}, "the header has no column or a duplicate column"),
        ({"header": "id", "missing_fields": "error"}, "the header lacks column 'name'"),
        (
            {"header": "id,name,x", "unknown_fields": "error"},
            "the header has a column that is not in the schema",
        ),
    ],
)
def test_a_header_that_does_not_fit_is_refused(
    chosen: dict[str, str], what: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        CsvDecoder(options(SCHEMA, **chosen), "t")
    assert what in str(caught.value)


def test_headers_in_messages_name_their_columns() -> None:
    decoded = decode(
        SCHEMA,
        b"id,name\n1,a\n2,b",
        b'name,"id"\nc,3',
        b"id,name",
        b"",
        b"id,id\n4,5",
        b"id,name\n6,d",
        header_in_message="true",
    )
    assert bad(decoded) == [(3, "schema"), (4, "schema")]
    assert decoded.rows.to_pylist() == [
        {"id": 1, "name": "a"},
        {"id": 2, "name": "b"},
        {"id": 3, "name": "c"},
        {"id": 6, "name": "d"},
    ]
    assert decoded.source is not None
    assert decoded.source.to_pylist() == [0, 0, 1, 5]


def test_headers_are_left_out_by_option() -> None:
    assert rows(SCHEMA, b"x,y\n1,a", b"x,y\n2,b\n3,c", skip_header="true") == [
        (1, "a"),
        (2, "b"),
        (3, "c"),
    ]


# --- what Pinot says ------------------------------------------------------------------


def test_every_property_of_pinots_decoder_is_known() -> None:
    names = {
        name.lower()
        for option in streamfactory_decoder().options
        for name in (option.key, *option.aliases)
    }
    pinots = (
        "fileFormat header delimiter multiValueDelimiter commentMarker escapeCharacter "
        "quoteCharacter quoteMode nullStringValue skipHeader ignoreEmptyLines "
        "ignoreSurroundingSpaces recordSeparator"
    )
    assert {name for name in pinots.lower().split() if name not in names} == set()
    silent = {o.key for o in streamfactory_decoder().options if o.no_effect}
    assert silent == {"quote.mode", "record.separator"}


def test_delimiter_quote_and_escape_are_any_characters() -> None:
    chosen = {"delimiter": "\\t", "quote_character": "'", "escape_character": "\\\\"}
    assert rows(SCHEMA, b"1\t'a\tb'", rb"2	a\	b", **chosen) == [
        (1, "a\tb"),
        (2, "a\tb"),
    ]
    assert rows(SCHEMA, b'1,"a"', quote_character="") == [(1, '"a"')]


@pytest.mark.parametrize("text", ["", "ab", "é", "\\n"])
def test_what_is_no_character_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not one ASCII character"):
        options(SCHEMA, delimiter=text)


def test_an_escaped_null_within_quotes_is_refused() -> None:
    chosen = {"escape_character": "\\", "null_value": "\\N"}
    with pytest.raises(ConfigError) as caught:
        CsvDecoder(options(SCHEMA, **chosen), "t")
    assert str(caught.value).startswith(
        "decoder.prop.null.value begins with the escape character"
    )


def test_lists_are_within_a_field() -> None:
    schema = "id int, l array<int>, s array<string>"
    assert rows(schema, b"1,1;2,a", b'2,,""', b"3,4,b;;c") == [
        (1, [1, 2], ["a"]),
        (2, None, []),
        (3, [4], ["b", "", "c"]),
    ]
    assert rows(schema, b"1,1|2,a", multi_value_delimiter="|") == [(1, [1, 2], ["a"])]
    assert bad(decode(schema, b"1,1;x,a")) == [(0, "value")]


def test_comments_are_no_records_and_within_quotes_they_are_text() -> None:
    payloads = [b"# one", b"1,a", b'2,"b\n# c"\n# "two\n3,d\n#', b"4,#e"]
    found = rows(SCHEMA, *payloads, comment_marker="#")
    assert found == [(1, "a"), (2, "b\n# c"), (3, "d"), (4, "#e")]


def test_empty_lines_are_records_by_option() -> None:
    assert rows("name string", b"a\n\nb", b"") == [("a",), ("b",)]
    chosen = {"ignore_empty_lines": "false"}
    assert rows("name string", b"a\n\nb", b"", **chosen) == [
        ("a",),
        (None,),
        ("b",),
        (None,),
    ]
    assert rows(SCHEMA, b"", b"1,a", **chosen) == [(None, None), (1, "a")]


def test_spaces_around_fields_are_left_out_by_option() -> None:
    chosen = {"ignore_surrounding_spaces": "true"}
    payloads = [b' 1 , a b , " c , d " ', b"2,e,f"]
    assert rows("id int, x string, y string", *payloads, **chosen) == [
        (1, "a b", " c , d "),
        (2, "e", "f"),
    ]


def test_formats_of_pinot_say_what_is_not_said() -> None:
    assert rows(SCHEMA, rb"1	a\	b", rb"\N	\N", file_format="MYSQL") == [
        (1, "a\tb"),
        (None, None),
    ]
    schema = "a string, b string, c string, d string"
    assert rows(
        schema,
        rb"\N	\N	\N	N",
        rb"x\	\N	y	\\	\N",
        file_format="MYSQL",
    ) == [
        (None, None, None, "N"),
        ("x\tN", "y", "\\", None),
    ]
    assert rows(SCHEMA, b"1 \t a", file_format="TDF") == [(1, "a")]
    assert rows(SCHEMA, b"1;a", file_format="TDF", delimiter=";") == [(1, "a")]


# --- the way back ---------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
lists = st.lists(st.text("ab", min_size=1), max_size=3)
row = st.fixed_dictionaries(
    {
        "id": st.none() | st.integers(-(2**63), 2**63 - 1),
        "d": st.none() | st.floats(allow_nan=False),
        "s": st.none() | texts,
        "t": st.none() | st.datetimes(timezones=st.just(UTC)),
        "x": st.none() | st.binary(max_size=4),
        "l": st.none() | lists,
    }
)


@settings(max_examples=cases(150), deadline=None)
@given(
    st.lists(row, max_size=5),
    st.sampled_from(
        [
            {},
            {"delimiter": "|", "quote_character": "'"},
            {"escape_character": "\\"},
            {"null_value": "NULL"},
            {"comment_marker": "#"},
            {"header_in_message": "true"},
            {"skip_header": "true"},
            {"ignore_surrounding_spaces": "true"},
        ]
    ),
)
def test_rows_come_back_as_they_were(
    drawn: list[dict[str, Any]], chosen: dict[str, str]
) -> None:
    schema = "id bigint, d double, s string, t timestamp, x binary, l array<string>"
    parsed = options(schema, **chosen)
    decoder = CsvDecoder(parsed, "t")
    batch = pa.RecordBatch.from_pylist(drawn, schema=decoder.schema())
    decoded = decoding.decode(decoder, CsvEncoder(parsed, "t").encode(batch))
    assert list(decoded.errors) == []
    assert decoded.rows.to_pylist() == batch.to_pylist()


def test_what_cannot_be_distinguished_is_refused() -> None:
    encoder = CsvEncoder(options("l array<string>"), "t")
    for values in (["a;b"], [None], [""]):
        batch = pa.RecordBatch.from_pydict({"l": [values]})
        with pytest.raises(SchemaMismatch) as caught:
            encoder.encode(batch)
        assert caught.value.what == (
            "column 'l' has lists of null, of one empty text, or of texts that "
            "contain ';', which cannot be decoded again"
        )
    with pytest.raises(SchemaMismatch) as alone:
        encoder.encode(pa.RecordBatch.from_pydict({"x": [1, None]}))
    assert str(alone.value) == (
        "a single null would be an empty line, which is not a record; "
        "set decoder.prop.null.value"
    )


def test_without_quotes_what_needs_them_is_escaped_or_refused() -> None:
    encoder = CsvEncoder(options(SCHEMA, file_format="mysql"), "t")
    batch = pa.RecordBatch.from_pydict({"id": [1, None], "name": ["a\tb\\", None]})
    assert encoder.encode(batch).to_pylist() == [b"1\ta\\\tb\\\\", b"\\N\t\\N"]
    with pytest.raises(SchemaMismatch) as caught:
        encoder.encode(pa.RecordBatch.from_pydict({"name": ["a\nb"]}))
    assert str(caught.value) == (
        "column 'name' has a text that needs quotes; set decoder.prop.quote.character"
    )


def test_a_record_is_written_with_standard_quoting() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "id": [1, None],
            "s": ["a", 'say "x", y'],
            "t": pa.array(
                [datetime(2013, 1, 1, tzinfo=UTC), None], pa.timestamp("s", "UTC")
            ),
            "b": [True, False],
        }
    )
    assert CsvEncoder(options(SCHEMA), "t").encode(batch).to_pylist() == [
        b"1,a,2013-01-01T00:00:00Z,true",
        b',"say ""x"", y",,false',
    ]


# --- inferring ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "first"),
    [({"header": "i,d,t,s,n"}, b""), ({"header_in_message": "true"}, b"i,d,t,s,n\n")],
)
def test_a_schema_fits_the_good_messages_of_a_sample(
    chosen: dict[str, str], first: bytes
) -> None:
    payloads = [
        first + b"1,1,2013-01-01T05:00:00Z,a,",
        first + b"2,1.5,,1,",
        first + b"PLANTED",
    ]
    schema = CsvDecoder.infer(pa.array(payloads, pa.binary()), options(**chosen))
    assert to_ddl(schema) == "i bigint, d double, t timestamp, s string, n string"


def test_without_a_header_no_schema_is_answered() -> None:
    with pytest.raises(SchemaUnknown) as caught:
        CsvDecoder.infer(pa.array([b"1,a"]), options())
    assert str(caught.value) == (
        "the names of CSV columns are unknown without a header; "
        "set decoder.prop.schema or decoder.prop.header"
    )
