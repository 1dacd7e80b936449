"""Generated pairs of types, and what conversion does with values of each pair (D4).

For the tests, which try hundreds of pairs, and ``make prove PATHS=schemas``, which
tries 1,000 times N.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from tests.proving.verdict import Verdict

from streamfactory.conversion.conform import conform
from streamfactory.spi import SchemaMismatch

if TYPE_CHECKING:
    from pathlib import Path

ROUND: Final = 1000
"""Pairs of one round of ``make prove``."""
ACCEPTED: Final = "accepted"
REFUSED: Final = "refused"
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC).replace(tzinfo=None)
MICROS, ZONED = pa.timestamp("us"), pa.timestamp("us", tz="UTC")
LEAVES: dict[pa.DataType, list[Any]] = {
    pa.null(): [],
    pa.bool_(): [True, False],
    pa.int8(): [0, 1, -128, 127],
    pa.int64(): [0, 300, -(2**63), 2**63 - 1, 2**53 + 1],
    pa.uint64(): [0, 2**64 - 1, 127],
    pa.float16(): [0.0, 1.5, 2048.0, float("nan"), float("inf")],
    pa.float32(): [0.0, -0.0, 1.5, 2.0**24, 3.0e38, float("nan")],
    pa.float64(): [0.0, 0.1, 1.5, 2.0**63, 1e300, float("-inf"), float("nan")],
    pa.decimal128(5, 2): [Decimal("1.10"), Decimal("-3.00"), Decimal("999.99")],
    pa.decimal128(21, 0): [Decimal(0), Decimal(10**20)],
    pa.decimal256(40, 4): [Decimal("0.0001"), Decimal(7), Decimal(2) ** 116],
    pa.decimal128(38, 38): [Decimal("0.1"), Decimal(0)],
    pa.decimal32(9, 2): [Decimal("1.10"), Decimal(7)],
    pa.string(): ["", "a", "7", "ü", "2024-05-01"],
    pa.large_string(): ["a", "true"],
    pa.string_view(): ["a", "x" * 20],
    pa.binary(): [b"", b"a", b"\xff", b"7"],
    pa.binary(2): [b"ab", b"\xff\x00"],
    pa.date32(): [date(2024, 5, 1), date(9999, 12, 31), date(1, 1, 1)],
    pa.date64(): [date(2024, 5, 1), date(1969, 12, 31)],
    pa.time32("s"): [time(5), time(23, 59, 59)],
    pa.time64("us"): [time(5), time(1, 2, 3, 4)],
    pa.timestamp("s"): [NOON, datetime(9999, 12, 31, tzinfo=UTC)],
    MICROS: [NOON, datetime(2024, 5, 1, tzinfo=UTC).replace(tzinfo=None)],
    ZONED: [NOON.replace(tzinfo=UTC)],
    pa.timestamp("ms", tz="Europe/Vienna"): [NOON.replace(tzinfo=UTC)],
    pa.duration("s"): [timedelta(1), timedelta(days=200_000)],
    pa.duration("us"): [timedelta(0), timedelta(microseconds=1)],
}
LEAF_TYPES = list(LEAVES)
NAMES = ["a", "b", "A"]


# --- generated types and arrays -------------------------------------------------------


def kinds(depth: int = 2) -> st.SearchStrategy[pa.DataType]:
    """Types of all sorts."""
    leaves = st.sampled_from(LEAF_TYPES)
    if not depth:
        return leaves
    inner = kinds(depth - 1)
    words = st.sampled_from([pa.string(), pa.int64(), pa.float64(), MICROS])
    return st.one_of(
        leaves,
        inner.map(pa.list_),
        inner.map(pa.large_list),
        inner.map(pa.list_view),
        inner.map(lambda kind: pa.list_(kind, 2)),
        st.builds(pa.map_, st.sampled_from([pa.string(), pa.int8()]), inner),
        structs(inner),
        structs(inner),
        words.map(lambda kind: pa.dictionary(pa.int8(), kind)),
        words.map(lambda kind: pa.run_end_encoded(pa.int32(), kind)),
        st.lists(inner, min_size=1, max_size=2).map(
            lambda some: pa.dense_union(list(map(pa.field, NAMES, some)))
        ),
    )


def structs(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    fields = st.builds(
        lambda name, kind, nullable: pa.field(
            name, kind, nullable=nullable or pa.types.is_null(kind)
        ),
        st.sampled_from(NAMES),
        inner,
        st.sampled_from([True, True, True, False]),
    )
    return st.lists(fields, max_size=3, unique_by=lambda f: f.name).map(pa.struct)


@st.composite
def neighbours(draw: Any, kind: pa.DataType) -> pa.DataType:
    """A type that differs from another somewhere, or nowhere."""
    types = pa.types
    if types.is_struct(kind):
        fields = [f.with_type(draw(neighbours(f.type))) for f in kind]
        fields = [f.with_nullable(draw(st.booleans()) or f.nullable) for f in fields]
        fields = draw(st.permutations(fields))
        change = draw(st.integers(0, 5))
        if change == 0:
            fields = fields[1:]
        if change == 1:
            fields = [f for f in fields if f.name != "b"] + [pa.field("b", pa.int8())]
        return pa.struct(fields)
    if types.is_map(kind):
        return pa.map_(kind.key_type, draw(neighbours(kind.item_type)))
    if types.is_union(kind):
        fields = [f.with_type(draw(neighbours(f.type))) for f in kind]
        make = draw(st.sampled_from([pa.dense_union, pa.sparse_union]))
        return make(fields)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        value = draw(neighbours(kind.value_type))
        if not types.is_nested(value):
            return draw(
                st.sampled_from(
                    [
                        value,
                        pa.dictionary(pa.int16(), value),
                        pa.run_end_encoded(pa.int16(), value),
                    ]
                )
            )
        return value
    if types.is_nested(kind):
        value = draw(neighbours(kind.value_type))
        make = [pa.list_, pa.large_list, pa.list_view, lambda v: pa.list_(v, 2)]
        return draw(st.sampled_from(make))(value)
    if draw(st.booleans()):
        return kind
    return draw(st.sampled_from(LEAF_TYPES))


@st.composite
def arrays(draw: Any, kind: pa.DataType, count: int) -> pa.Array:
    """An array with values below the nulls of parents, and with gaps."""
    types = pa.types
    # pyarrow before 26 does not count runs among the nested types.
    encoded = types.is_dictionary(kind) or types.is_run_end_encoded(kind)
    if not types.is_nested(kind) and not encoded:
        values = st.sampled_from([*LEAVES[kind], None])
        return pa.array(draw(st.lists(values, min_size=count, max_size=count)), kind)
    mask = np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)), bool)
    nulls = pa.array(mask) if mask.any() else None
    if types.is_struct(kind):
        if not kind.num_fields:
            return pa.array([None if null else {} for null in mask], kind)
        children = [draw(arrays(field.type, count)) for field in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=nulls)
    if types.is_dictionary(kind):
        words = draw(arrays(kind.value_type, 3))
        index = pa.array(
            draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
        )
        return pa.DictionaryArray.from_arrays(index.cast(pa.int8()), words)
    if types.is_run_end_encoded(kind):
        until = pa.array(range(2, count + 2, 2), pa.int32())
        runs = draw(arrays(kind.value_type, len(until)))
        made = pa.RunEndEncodedArray.from_arrays(until, runs)
        return made.slice(0, count)
    if types.is_union(kind):
        codes = draw(
            st.lists(
                st.integers(0, kind.num_fields - 1), min_size=count, max_size=count
            )
        )
        children = [draw(arrays(field.type, count)) for field in kind]
        places = pa.array(range(count), pa.int32())
        names = [field.name for field in kind]
        return pa.UnionArray.from_dense(
            pa.array(codes, pa.int8()), places, children, names
        )
    if types.is_fixed_size_list(kind):
        values = draw(arrays(kind.value_type, 2 * count))
        return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=nulls)
    lengths = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    ends = np.cumsum([1, *lengths])  # the first value belongs to no list
    if types.is_map(kind):
        keys = pa.array(range(int(ends[-1]))).cast(pa.int8())
        if types.is_string(kind.key_type):
            keys = keys.cast(pa.string())
        items = draw(arrays(kind.item_type, len(keys)))
        offsets = pa.array(ends, pa.int32())
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=nulls)
    values = draw(arrays(kind.value_type, int(ends[-1]) + 1))
    if types.is_list_view(kind):
        starts, sizes = pa.array(ends[:-1], pa.int32()), pa.array(lengths, pa.int32())
        return pa.ListViewArray.from_arrays(
            starts, sizes, values, type=kind, mask=nulls
        )
    large = types.is_large_list(kind)
    offsets = pa.array(ends, pa.int64() if large else pa.int32())
    make = pa.LargeListArray if large else pa.ListArray
    return make.from_arrays(offsets, values, type=kind, mask=nulls)


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are equal, if absent children are null."""
    if isinstance(one, dict) and isinstance(other, dict):
        return all(is_same(one.get(k), other.get(k)) for k in {*one, *other})
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, (int, float, Decimal)):
        if one != one or other != other:
            return one != one and other != other
        return type(other) in (int, float, Decimal) and one == other
    if isinstance(one, (str, bytes)) and isinstance(other, (str, bytes)):
        return octets(one) == octets(other)
    if isinstance(one, date) and isinstance(other, date):
        return moment(one) == moment(other)
    return bool(one == other and (one is None) == (other is None))


def octets(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def moment(value: date) -> datetime:
    if not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


# --- properties -----------------------------------------------------------------------


def try_values(data: Any) -> str:
    """Convert values of one pair: what is accepted is equal to itself."""
    have = data.draw(kinds())
    want = data.draw(st.one_of(neighbours(have), kinds()))
    array = data.draw(arrays(have, 5)).slice(data.draw(st.integers(0, 2)), 3)
    schema = pa.schema([("x", want)])
    try:
        found = conform(pa.record_batch([array], names=["x"]), schema)
    except SchemaMismatch:
        return REFUSED
    found.validate(full=True)
    assert found.schema.equals(schema)
    values = found.column(0).to_pylist()
    assert is_same(array.to_pylist(), values), (array.to_pylist(), values)
    return ACCEPTED


def outcome(array: pa.Array, want: pa.DataType) -> pa.Array | str:
    """The converted array, or the reason of the refusal."""
    rows = pa.record_batch([array], names=["x"])
    try:
        return conform(rows, pa.schema([("x", want)])).column(0)
    except SchemaMismatch as refusal:
        return refusal.what


Depth = tuple[Callable[[pa.DataType], pa.DataType], Callable[[pa.Array], pa.Array], str]


def edges(array: pa.Array, step: int = 1) -> range:
    return range(0, len(array) + 1, step)


DEPTHS: dict[str, Depth] = {
    "struct": (
        lambda kind: pa.struct([("o", kind)]),
        lambda array: pa.StructArray.from_arrays([array], names=["o"]),
        "x.o",
    ),
    "list": (
        pa.list_,
        lambda array: pa.ListArray.from_arrays(
            pa.array(edges(array, 2), pa.int32()), array
        ),
        "x.item",
    ),
    "large list": (
        pa.large_list,
        lambda array: pa.LargeListArray.from_arrays(pa.array(edges(array, 2)), array),
        "x.item",
    ),
    "fixed-size list": (
        lambda kind: pa.list_(kind, 2),
        lambda array: pa.FixedSizeListArray.from_arrays(array, 2),
        "x.item",
    ),
    "list view": (
        pa.list_view,
        lambda array: pa.ListViewArray.from_arrays(
            pa.array(edges(array, 2)[:-1], pa.int32()),
            pa.array([2] * (len(array) // 2), pa.int32()),
            array,
        ),
        "x.item",
    ),
    "map": (
        lambda kind: pa.map_(pa.string(), kind),
        lambda array: pa.MapArray.from_arrays(
            pa.array(edges(array), pa.int32()), pa.array(["k"] * len(array)), array
        ),
        "x.value",
    ),
    "union": (
        lambda kind: pa.dense_union([pa.field("u", kind)]),
        lambda array: pa.UnionArray.from_dense(
            pa.array([0] * len(array), pa.int8()),
            pa.array(range(len(array)), pa.int32()),
            [array],
            ["u"],
        ),
        "x.u",
    ),
}


def try_depth(depth: str, data: Any) -> str:
    """Convert values of one pair as a column, and within another: both are the same."""
    nest, wrap, path = DEPTHS[depth]
    have = data.draw(kinds(1))
    want = data.draw(st.one_of(neighbours(have), st.sampled_from(LEAF_TYPES)))
    array = data.draw(arrays(have, 4))
    alone = outcome(array, want)
    inside = outcome(wrap(array), nest(want))
    if isinstance(alone, str):
        assert alone.replace("'x", f"'{path}") == inside
        return REFUSED
    assert not isinstance(inside, str), inside
    assert is_same(wrap(alone).to_pylist(), inside.to_pylist())
    return ACCEPTED


def tried(attempt: Callable[[Any], str], pairs: int, number: int) -> Counter[str]:
    """Try so many generated pairs; returns how many were accepted and refused.

    Args:
        attempt: Tries the pair that it draws.
        pairs: Pairs to generate.
        number: The seed: the same one makes the same pairs.

    Raises:
        AssertionError: A pair breaks a property; the message has a smallest one.
    """
    counts: Counter[str] = Counter()

    @seed(number)
    @settings(
        max_examples=pairs,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def check(data: Any) -> None:
        counts[attempt(data)] += 1

    check()
    return counts


def prove(rounds: int, number: int, place: Path) -> Verdict:
    """Try 1,000 pairs a round; half of them are converted at a depth as well."""
    half = rounds * ROUND // 2
    attempts: dict[str, tuple[Callable[[Any], str], int]] = {
        "column": (try_values, half)
    }
    for depth in DEPTHS:
        attempts[depth] = partial(try_depth, depth), half // len(DEPTHS)
    verdict = Verdict()
    for name, (attempt, pairs) in attempts.items():
        try:
            counts = tried(attempt, pairs, number)
        except (AssertionError, BaseExceptionGroup) as error:
            verdict.findings += 1
            verdict.inputs += pairs
            verdict.notes.append(f"{name}: {error}")
            continue
        verdict.inputs += counts.total()
        parts = [f"{counts[kind]} {kind}" for kind in (ACCEPTED, REFUSED)]
        verdict.notes.append(f"{name}: {counts.total()} pairs, {', '.join(parts)}")
    return verdict
