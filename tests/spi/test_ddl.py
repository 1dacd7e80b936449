"""Schemas as Spark's DDL, both ways."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfactory.spi.ddl import parse_ddl, to_ddl

SIMPLE = [
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.timestamp("us", tz="UTC"),
    pa.timestamp("us"),
    pa.decimal128(38, 10),
]
names = st.text(min_size=1, max_size=6)
unique_names = st.lists(names, min_size=1, max_size=4, unique=True)


def _struct(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.builds(
        lambda found, kind, null: pa.struct(
            [pa.field(name, kind, nullable=null) for name in found]
        ),
        unique_names,
        types,
        st.booleans(),
    )


types = st.recursive(
    st.sampled_from(SIMPLE),
    lambda inner: (
        inner.map(pa.list_) | st.builds(pa.map_, inner, inner) | _struct(inner)
    ),
    max_leaves=6,
)


@given(unique_names, types, st.booleans())
def test_a_schema_comes_back_from_its_text(
    columns: list[str], kind: pa.DataType, null: bool
) -> None:
    schema = pa.schema([pa.field(name, kind, nullable=null) for name in columns])
    assert parse_ddl(to_ddl(schema)).equals(schema)


def test_the_text_is_sparks() -> None:
    text = (
        "id bigint not null, `a b` string, tags array<string>, "
        "at timestamp, price decimal(10,2), "
        "counts map<string,int>, place struct<lat:double not null,`l``n`:double>"
    )
    assert to_ddl(parse_ddl(text)) == text


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("ID BIGINT NOT NULL", "ID bigint not null"),
        ("id: long", "id bigint"),
        ("  a   int  ,\n b\tshort ", "a int, b smallint"),
        ("a decimal", "a decimal(10,0)"),
        ("a decimal(5)", "a decimal(5,0)"),
        ("s STRUCT<a INT, b: STRING>", "s struct<a:int,b:string>"),
        ("struct struct<array:array<int>>", "struct struct<array:array<int>>"),
    ],
)
def test_other_spellings_mean_the_same(text: str, same: str) -> None:
    assert to_ddl(parse_ddl(text)) == same


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is not a schema: found the end, expected a column name"),
        ("  ", "is not a schema: found the end, expected a column name"),
        ("id", "is not a schema: found the end, expected a type"),
        ("id bigint,", "is not a schema: found the end, expected a column name"),
        (
            "id bigint name string",
            "is not a schema: found 'name', expected a comma",
        ),
        ("id bigit", "is not a schema: found 'bigit', expected a type"),
        ("id bigint not", "is not a schema: found the end, expected null"),
        ("1 bigint", "is not a schema: found '1', expected a column name"),
        ("id bigint, id int", "has column 'id' twice"),
        ("a array<int", "is not a schema: found the end, expected '>'"),
        ("a map<int>", "is not a schema: found '>', expected ','"),
        (
            "a decimal(0,0)",
            (
                "has decimal(0,0): the precision is at most 38, the "
                "scale at most the precision"
            ),
        ),
        (
            "a decimal(39,0)",
            (
                "has decimal(39,0): the precision is at most 38, the "
                "scale at most the precision"
            ),
        ),
        (
            "a decimal(3,4)",
            (
                "has decimal(3,4): the precision is at most 38, the "
                "scale at most the precision"
            ),
        ),
        (
            "a decimal(" + "9" * 30 + ")",
            f"is not a schema: found '{'9' * 30}', expected a number",
        ),
        (
            "a decimal(\u0661)",
            "cannot be read at '\u0661)'",
        ),
        ("a int; drop", "cannot be read at '; drop'"),
        ("`a int", "cannot be read at '`a int'"),
        ("a " + "array<" * 5000 + "int", "is nested too deeply"),
    ],
)
def test_what_is_no_schema_reports_where(text: str, complaint: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_ddl(text)
    assert str(caught.value) == complaint


@pytest.mark.parametrize("kind", [pa.uint8(), pa.large_string(), pa.timestamp("s")])
def test_a_type_without_a_name_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(ValueError) as caught:
        to_ddl(pa.schema([pa.field("a", kind)]))
    assert str(caught.value) == f"type {kind} has no DDL name"
