"""D4 below the top level: what is refused or kept as a column is so at every depth."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.reading.schema_pairs import (
    ACCEPTED,
    DEPTHS,
    MICROS,
    NOON,
    REFUSED,
    ZONED,
    tried,
    try_depth,
    try_values,
)

from streamfactory.conversion.conform import Conformer, conform
from streamfactory.spi import SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Callable

PAIRS = 200
"""Pairs of types converted as columns; of each depth a fifth: 480 in all."""

# --- generated pairs ------------------------------------------------------------------


def test_an_accepted_value_of_any_pair_of_types_is_equal_to_itself(
    record_property: Callable[[str, object], None],
) -> None:
    counts = tried(try_values, PAIRS, 0)
    record_property("schema_pairs", dict(counts))
    assert counts.total() >= PAIRS
    # Either alone would show nothing.
    assert min(counts[ACCEPTED], counts[REFUSED]) >= PAIRS // 10, counts


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_refusal_of_a_column_is_one_at_every_depth_and_the_other_way_round(
    depth: str, record_property: Callable[[str, object], None]
) -> None:
    counts = tried(partial(try_depth, depth), PAIRS // 5, 0)
    record_property("schema_pairs", dict(counts))
    assert counts.total() >= PAIRS // 5
    assert counts[ACCEPTED], counts
    assert counts[REFUSED], counts


# --- examples -------------------------------------------------------------------------

AB = pa.struct([("a", pa.int64()), ("b", pa.int64())])
A = pa.struct([("a", pa.int64())])
NESTS: dict[str, tuple[Callable[[pa.DataType], pa.DataType], Callable[[Any], Any], str]]
NESTS = {
    "struct": (lambda kind: kind, lambda value: value, "x"),
    "struct of struct": (
        lambda kind: pa.struct([("o", kind)]),
        lambda value: {"o": value},
        "x.o",
    ),
    "list": (pa.list_, lambda value: [value], "x.item"),
    "large list": (pa.large_list, lambda value: [value], "x.item"),
    "list view": (pa.list_view, lambda value: [value], "x.item"),
    "fixed-size list": (lambda k: pa.list_(k, 1), lambda value: [value], "x.item"),
    "map": (
        lambda kind: pa.map_(pa.string(), kind),
        lambda value: [("k", value)],
        "x.value",
    ),
}


def one(value: Any, kind: pa.DataType) -> pa.RecordBatch:
    return pa.record_batch({"x": pa.array([value, None], kind)})


@pytest.mark.parametrize("nest", NESTS)
@pytest.mark.parametrize("name", ["b", "A"])
def test_an_unknown_child_is_refused_by_its_dotted_path(nest: str, name: str) -> None:
    kind, value, path = NESTS[nest]
    given_ = pa.struct([("a", pa.int64()), (name, pa.int64())])
    with pytest.raises(SchemaMismatch) as caught:
        conform(one(value({"a": 1, name: 9}), kind(given_)), pa.schema({"x": kind(A)}))
    assert caught.value.what == f"column '{path}.{name}' is not in the declared schema"


@pytest.mark.parametrize("nest", NESTS)
def test_an_unknown_child_can_be_dropped(nest: str) -> None:
    kind, value, _ = NESTS[nest]
    rows = one(value({"a": 1, "b": 9}), kind(AB))
    found = Conformer(pa.schema({"x": kind(A)}), drops=True).conform(rows)
    assert found.column(0).to_pylist() == [value({"a": 1}), None]


@pytest.mark.parametrize("nest", NESTS)
def test_a_missing_child_is_null_where_it_may_be(nest: str) -> None:
    kind, value, path = NESTS[nest]
    rows = one(value({"a": 1}), kind(A))
    found = conform(rows, pa.schema({"x": kind(AB)}))
    assert found.column(0).to_pylist() == [value({"a": 1, "b": None}), None]
    strict = pa.struct([("a", pa.int64()), pa.field("b", pa.int64(), nullable=False)])
    with pytest.raises(SchemaMismatch) as caught:
        conform(rows, pa.schema({"x": kind(strict)}))
    assert caught.value.what == f"column '{path}.b' is missing, but not nullable"


@pytest.mark.parametrize("nest", NESTS)
def test_children_in_another_order_are_the_same_children(nest: str) -> None:
    kind, value, _ = NESTS[nest]
    swapped = pa.struct([("b", pa.int64()), ("a", pa.int64())])
    rows = one(value({"b": 2, "a": 1}), kind(swapped))
    found = conform(rows, pa.schema({"x": kind(AB)}))
    assert found.column(0).to_pylist() == [value({"a": 1, "b": 2}), None]


@pytest.mark.parametrize("nest", NESTS)
@pytest.mark.parametrize("have", [pa.int64(), pa.int32()])
def test_a_null_child_that_may_not_be_null_is_refused(
    nest: str, have: pa.DataType
) -> None:
    kind, value, path = NESTS[nest]
    given_ = pa.struct([pa.field("a", have, nullable=have != pa.int64())])
    strict = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    wanted = pa.schema({"x": kind(strict)})
    with pytest.raises(SchemaMismatch) as caught:
        conform(one(value({"a": None}), kind(given_)), wanted)
    assert caught.value.what == f"column '{path}.a' is not nullable, but has 1 nulls"
    # That of a null parent is no value.
    assert conform(one(None, kind(given_)), wanted).column(0).to_pylist() == [None] * 2


def test_two_children_of_one_name_are_refused() -> None:
    twice = pa.StructArray.from_arrays([pa.array([1])] * 2, names=["a", "a"])
    with pytest.raises(SchemaMismatch) as caught:
        conform(pa.record_batch({"x": twice}), pa.schema({"x": A}))
    assert caught.value.what == "the rows have 2 columns named 'x.a'"


@pytest.mark.parametrize(
    ("values", "have", "want", "what"),
    [
        (
            [[NOON]],
            pa.list_(MICROS),
            pa.list_(ZONED),
            (
                "column 'x.item' is timestamp_ntz, declared timestamp: "
                "a timestamp without time zone is not in UTC"
            ),
        ),
        (
            [{"t": NOON}],
            pa.struct([("t", MICROS)]),
            pa.struct([("t", ZONED)]),
            (
                "column 'x.t' is timestamp_ntz, declared timestamp: "
                "a timestamp without time zone is not in UTC"
            ),
        ),
        (
            [[0.5], [0.1]],
            pa.list_(pa.float64()),
            pa.list_(pa.float32()),
            "column 'x.item' is double, declared float: some values have more digits",
        ),
        (
            [[("k", 0.1)]],
            pa.map_(pa.string(), pa.float64()),
            pa.map_(pa.string(), pa.float32()),
            "column 'x.value' is double, declared float: some values have more digits",
        ),
        (
            [[("k", 1)]],
            pa.map_(pa.string(), pa.int64()),
            pa.map_(pa.int64(), pa.int64()),
            "column 'x.key' is string, declared bigint: text is not parsed",
        ),
        (
            [[1, 2, 3]],
            pa.list_(pa.int64()),
            pa.list_(pa.int64(), 2),
            (
                "column 'x' is array<bigint>, declared fixed_size_list"
                "<item: int64>[2]:"
                " some lists do not have 2 values"
            ),
        ),
    ],
)
def test_a_refused_value_within_is_named_by_its_dotted_path(
    values: list[Any], have: pa.DataType, want: pa.DataType, what: str
) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        conform(pa.record_batch({"x": pa.array(values, have)}), pa.schema({"x": want}))
    assert caught.value.what == what


def test_what_is_stored_below_a_null_is_no_value() -> None:
    numbers = pa.array([1, 300])
    struct = pa.StructArray.from_arrays(
        [numbers], names=["a"], mask=pa.array([False, True])
    )
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()), numbers, mask=pa.array([False, True])
    )
    small = pa.struct([("a", pa.int8())])
    rows = pa.record_batch([struct, lists], names=["x", "y"])
    found = conform(rows, pa.schema({"x": small, "y": pa.list_(pa.int8())}))
    assert found.to_pydict() == {"x": [{"a": 1}, None], "y": [[1], None]}
