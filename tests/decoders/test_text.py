"""The decoder and encoder `text`."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.decoders import decoding

from streamfactory.conformance import DecoderSubject
from streamfactory.conformance.runner import Outcome, decoder_cases, run
from streamfactory.decoders.text import streamfactory_decoder
from streamfactory.decoders.text.decoder import TextDecoder
from streamfactory.decoders.text.encoder import TextEncoder
from streamfactory.decoders.text.harness import TextHarness
from streamfactory.spi import (
    ConfigError,
    Decoded,
    SchemaMismatch,
    SchemaUnknown,
)
from streamfactory.spi.ddl import to_ddl

if TYPE_CHECKING:
    from streamfactory.conformance.case import Case
    from streamfactory.conformance.decoders import DecoderBench

LINE = r"(?P<host>\S+) (?P<status>[0-9]*)"
options = partial(decoding.options, streamfactory_decoder())


def decode(*payloads: bytes, **settings: str) -> Decoded:
    return decoding.decode(TextDecoder(options(**settings), "t"), payloads)


@pytest.mark.parametrize("case", decoder_cases(), ids=lambda case: case.name)
def test_kit_proves_it(case: Case[DecoderBench]) -> None:
    [result] = run(DecoderSubject(streamfactory_decoder(), TextHarness), cases=[case])
    lacking = {
        "messages_have_any_number_of_rows",
        "undeclared_fields_are_reported_on_request",  # text has the pattern's, or none
    }
    expected = Outcome.SKIPPED if case.name in lacking else Outcome.PASSED
    assert result.outcome is expected, result.reason


def test_without_a_pattern_a_message_is_a_value() -> None:
    decoded = decode("é\n".encode(), b"", b"\xff")
    assert decoded.rows.to_pylist() == [{"value": "é\n"}, {"value": ""}]
    assert [(e.message, e.code) for e in decoded.errors] == [(2, "encoding")]


def test_groups_are_columns_cast_to_the_schema() -> None:
    decoded = decode(b"a 200", b"b ", pattern=LINE, schema="status int, host string")
    assert decoded.rows.to_pylist() == [
        {"status": 200, "host": "a"},
        {"status": None, "host": "b"},
    ]


def test_groups_are_text_where_no_schema_is_declared() -> None:
    assert decode(b"a 200", pattern=LINE).rows.to_pylist() == [
        {"host": "a", "status": "200"}
    ]


def test_a_pattern_matches_the_whole_message_unless_it_searches() -> None:
    payloads = (b"a 200", b"a 200 ", b" a 200", b"a 200\n", b"x\na 200")
    whole = decode(*payloads, pattern=LINE)
    assert [(e.message, e.code) for e in whole.errors] == [
        (index, "no_match") for index in (1, 2, 3, 4)
    ]
    assert list(decode(*payloads, pattern=LINE, search="true").errors) == []


def test_alternatives_are_within_the_whole() -> None:
    decoded = decode(b"a", b"b", b"ab", pattern="(?P<x>a)|b", null_value="")
    assert [e.message for e in decoded.errors] == [2]
    assert decoded.rows.to_pylist() == [{"x": "a"}, {"x": None}]


def test_a_value_that_does_not_cast_is_reported_with_its_column() -> None:
    decoded = decode(
        b"a 200", b"PLANTED 999999", pattern=LINE, schema="status smallint"
    )
    [error] = decoded.errors
    assert (error.message, error.code) == (1, "value")
    assert error.what == "column 'status' does not contain a valid smallint"
    assert decoded.rows.to_pylist() == [{"status": 200}]


def test_time_grows_with_the_text_only() -> None:
    payload = b"a" * 100_000 + b"!"
    started = time.process_time()
    decoded = decode(payload, pattern="(?P<x>(?:a*)*(?:a*)*b)")
    assert time.process_time() - started < 10
    assert [e.code for e in decoded.errors] == ["no_match"]


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        ("(", "is not an RE2 regular expression with named groups: "),
        (r"(?P<a>x)(?=y)", "is not an RE2 regular expression with named groups: "),
        ("abc", "has no named group (?P<name>...), or two with the same name"),
        ("(a)", "is not an RE2 regular expression with named groups: "),
    ],
)
def test_what_is_no_pattern_is_refused(pattern: str, what: str) -> None:
    with pytest.raises(ValueError, match=r"^(is|has) ") as caught:
        options(pattern=pattern)
    assert str(caught.value).startswith(what)


def test_schema_and_pattern_that_differ_are_refused_where_that_is_said() -> None:
    settings = {"pattern": LINE, "schema": "host string, other int"}
    assert decode(b"a 1", **settings).rows.to_pylist() == [{"host": "a", "other": None}]
    with pytest.raises(ConfigError) as missing:
        TextDecoder(options(**settings, missing_fields="error"), "t")
    assert "no group for column 'other'" in str(missing.value)
    with pytest.raises(ConfigError) as unknown:
        TextDecoder(options(**settings, unknown_fields="error"), "t")
    assert "no column for group 'status'" in str(unknown.value)


# --- the way back ---------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.lists(texts))
def test_values_come_back_as_they_were(values: list[str]) -> None:
    batch = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.string())})
    encoded = TextEncoder(options(), "t").encode(batch)
    assert decoding.decode(TextDecoder(options(), "t"), encoded).rows.equals(batch)


def test_rows_are_written_by_the_template() -> None:
    settings = {
        "pattern": LINE,
        "template": "{host} {status}",
        "schema": "status int, host string",
    }
    batch = pa.RecordBatch.from_pydict({"status": [200, None], "host": ["a", "b"]})
    encoded = TextEncoder(options(**settings), "t").encode(batch)
    assert encoded.to_pylist() == [b"a 200", b"b "]


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        (
            {"host": ["a b"], "status": ["1"]},
            "the pattern does not decode what the template encodes",
        ),
        (
            {"host": ["a"], "status": [""]},
            "column 'status' contains '', which is the text of null",
        ),
        (
            {"host": ["a"]},
            "column 'status' is not in both the rows and the template",
        ),
    ],
)
def test_what_would_not_come_back_is_refused(
    columns: dict[str, list[str]], what: str
) -> None:
    encoder = TextEncoder(options(pattern=LINE, template="{host} {status}"), "t")
    with pytest.raises(SchemaMismatch) as caught:
        encoder.encode(pa.RecordBatch.from_pydict(columns))
    assert caught.value.what == what


def test_several_columns_need_a_template_and_null_is_no_text() -> None:
    encoder = TextEncoder(options(), "t")
    with pytest.raises(SchemaMismatch) as several:
        encoder.encode(pa.RecordBatch.from_pydict({"a": [1], "b": [2]}))
    assert str(several.value) == (
        "the rows have 2 columns, and no template is set; set decoder.prop.template"
    )
    with pytest.raises(SchemaMismatch) as null:
        encoder.encode(pa.RecordBatch.from_pydict({"a": ["x", None]}))
    assert null.value.what == "column 'a' has nulls, which have no text form"


# --- inferring ------------------------------------------------------------------------


def test_a_schema_fits_the_messages_that_match() -> None:
    sample = pa.array([b"a 200", b"b ", b"PLANTED"], pa.binary())
    schema = TextDecoder.infer(sample, options(pattern=LINE))
    assert to_ddl(schema) == "host string, status bigint"
    with pytest.raises(SchemaUnknown) as caught:
        TextDecoder.infer(sample.slice(2), options(pattern=LINE))
    assert str(caught.value) == (
        "none of 1 messages matches the pattern; declare the schema"
    )
