"""Random filters: what planning leaves out is what the filter would have dropped."""

from __future__ import annotations

import functools
import operator
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.proving.generated import cases

import streamfactory
from streamfactory import engines

STREAM = {
    "streamType": "memory",
    "stream.memory.topic.name": "clicks",
    "stream.memory.store": "random filters",
    "stream.memory.partitions": "3",
    "metadata.columns": "true",
}
COMPARE = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
NUMBERS = st.integers(-2, 42)
COLUMNS = st.sampled_from(["_offset", "_partition", "id"])


@pytest.fixture(scope="module")
def everything() -> pa.Table:
    """All rows; ids are null at times."""
    numbers = range(120)
    table = pa.table(
        {
            "id": [None if n % 11 == 0 else n % 40 for n in numbers],
            "_partition": pa.array([n % 3 for n in numbers], pa.int32()),
        }
    )
    with streamfactory.open_sink(STREAM) as sink:
        sink.put(table, writer_id="filler", epoch=0)
    return engines.arrow.dataset(STREAM).to_table()


def trees(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def branches(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        pairs = st.tuples(st.sampled_from([operator.and_, operator.or_]), inner, inner)
        return pairs.map(lambda p: p[0](p[1], p[2])) | inner.map(operator.invert)

    return st.recursive(leaves, branches, max_leaves=6)


def leaves(
    column: Any, literal: Any, any_of: Any, between: Any
) -> st.SearchStrategy[Any]:
    """Of expressions that an engine builds in its own way."""
    compared = st.builds(
        lambda compare, one, other, *, turned: (
            compare(other, one) if turned else compare(one, other)
        ),
        st.sampled_from(COMPARE),
        COLUMNS.map(column),
        (NUMBERS | st.floats(-2, 42).map(lambda x: round(x, 1))).map(literal),
        turned=st.booleans(),
    )
    several = st.lists(NUMBERS, min_size=1, max_size=4)
    chosen = st.builds(any_of, COLUMNS.map(column), several)
    ranged = st.builds(between, COLUMNS.map(column), NUMBERS, NUMBERS)
    null = COLUMNS.map(lambda name: column(name).is_null())
    return compared | chosen | ranged | null


def polars_column(name: str) -> pl.Expr:
    # `pl.col` has every attribute that Hypothesis asks it for.
    return pl.col(name)


ARROW = trees(
    leaves(
        ds.field,
        ds.scalar,
        lambda field, values: field.isin(values),
        lambda field, low, high: (field >= low) & (field <= high),
    )
)
POLARS = trees(
    leaves(
        polars_column,
        pl.lit,
        lambda column, values: column.is_in(values),
        lambda column, low, high: column.is_between(low, high),
    )
)
RANDOM = functools.partial(
    settings,
    max_examples=cases(150),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@RANDOM()
@given(wanted=ARROW)
def test_a_dataset_finds_what_the_filter_matches(
    everything: pa.Table, wanted: ds.Expression
) -> None:
    found = engines.arrow.dataset(STREAM).to_table(filter=wanted)
    order = [("_partition", "ascending"), ("_offset", "ascending")]
    assert found.sort_by(order).equals(everything.filter(wanted).sort_by(order))


@pytest.mark.long("many random predicates")
@RANDOM()
@given(wanted=POLARS)
def test_polars_finds_what_the_predicate_matches(
    everything: pa.Table, wanted: pl.Expr
) -> None:
    found = engines.polars.scan(STREAM).filter(wanted).collect()
    whole = pl.from_arrow(everything)
    assert isinstance(whole, pl.DataFrame)
    order = ["_partition", "_offset"]
    assert found.sort(order).equals(whole.filter(wanted).sort(order))
