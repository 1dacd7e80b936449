"""Schemas in Arrow's JSON form, both ways."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfactory.spi.arrowjson import parse_arrow_json, parse_schema, to_arrow_json

LEAVES = [
    *(pa.bool_(), pa.string(), pa.large_string(), pa.binary()),
    *(pa.large_binary(), pa.binary(3), pa.float16(), pa.float32(), pa.float64()),
    *(pa.int8(), pa.uint8(), pa.int32(), pa.uint64(), pa.date32(), pa.date64()),
    *(pa.time32("s"), pa.time64("ns"), pa.timestamp("ms"), pa.duration("us")),
    *(pa.timestamp("ns", tz="UTC"), pa.decimal128(20, 3), pa.decimal256(50, 9)),
]


def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    field = st.builds(pa.field, st.text(max_size=5), inner, nullable=st.booleans())
    lists = [pa.list_, pa.large_list, lambda f: pa.list_(f, 2)]
    return st.one_of(
        *(field.map(made) for made in lists),
        st.lists(field, max_size=3).map(pa.struct),
        st.builds(pa.map_, inner, inner),
    )


types = st.recursive(st.sampled_from(LEAVES), nested, max_leaves=5)


@given(st.dictionaries(st.text(max_size=5), types, max_size=4), st.booleans())
def test_a_schema_comes_back_from_its_text(
    columns: dict[str, pa.DataType], null: bool
) -> None:
    schema = pa.schema([pa.field(n, t, nullable=null) for n, t in columns.items()])
    assert parse_arrow_json(to_arrow_json(schema)).equals(schema)


def test_either_form_is_read() -> None:
    schema = pa.schema([("id", pa.int64())])
    assert parse_schema("id bigint") == schema
    assert parse_schema(" " + to_arrow_json(schema)) == schema


ID = {"name": "id", "nullable": True, "children": []}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "is not JSON: Expecting property name enclosed in double quotes: "),
        ("[]", "is not a schema: expected an object with a list of 'fields'"),
        (
            '{"fields": 1}',
            "is not a schema: expected an object with a list of 'fields'",
        ),
        (
            '{"fields": [{}]}',
            "is not a schema: a field has no name, or 'nullable' is not a",
        ),
        (
            json.dumps({"fields": [{**ID, "type": {"name": {}}}]}),
            "has column 'id' of an unknown type",
        ),
        (
            json.dumps({"fields": [{**ID, "type": {"name": "uuid"}}]}),
            "has column 'id' of an unknown type",
        ),
        (
            json.dumps({"fields": [{**ID, "type": {"name": "int", "bitWidth": 7}}]}),
            "has column 'id', whose type 'int' is not complete",
        ),
        (
            json.dumps({"fields": [{**ID, "type": {"name": "utf8"}}] * 2}),
            "has column 'id' twice",
        ),
        ('{"fields":' + "[" * 100_000, "is nested too deeply"),
    ],
)
def test_what_is_no_schema_is_refused_with_a_message(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=r"^(is|has) ") as caught:
        parse_arrow_json(text)
    assert str(caught.value).startswith(what)


@pytest.mark.parametrize(
    "kind", [pa.dictionary(pa.int8(), pa.string()), pa.string_view()]
)
def test_a_type_without_a_name_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(ValueError, match="has no JSON form") as caught:
        to_arrow_json(pa.schema([("x", kind)]))
    assert str(caught.value) == f"type {kind} has no JSON form"


def test_nothing_but_null_has_a_name() -> None:
    schema = pa.schema([("nothing", pa.null())])
    assert parse_arrow_json(to_arrow_json(schema)).equals(schema)
