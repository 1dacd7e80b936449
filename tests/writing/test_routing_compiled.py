"""The compiled core routes as the Python code does, which routes as Java does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfactory.compiled import core as loading
from streamfactory.wiring.writing.routing import ROUTING, Router, plain, unpack

if TYPE_CHECKING:
    from streamfactory.compiled.core import Core

INTEGERS = [pa.int8(), pa.uint8(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()]
TEXTS = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]
COUNTS = st.sampled_from([1, 2, 7, 97, 5_000])


def bounds(kind: pa.DataType) -> tuple[int, int]:
    found = np.iinfo(kind.to_pandas_dtype())
    return int(found.min), int(found.max)


def columns_of(kind: pa.DataType) -> st.SearchStrategy[list[Any]]:
    if pa.types.is_integer(kind):
        return st.lists(st.none() | st.integers(*bounds(kind)), min_size=1)
    if kind in (pa.string(), pa.large_string()):
        return st.lists(st.none() | st.text(max_size=30), min_size=1)
    return st.lists(st.none() | st.binary(max_size=30), min_size=1)


KEYS = st.sampled_from([*INTEGERS, *TEXTS]).flatmap(
    lambda kind: columns_of(kind).map(lambda values: pa.array(values, kind))
)


def routed(key: pa.Array, count: int, *more: str) -> Any:
    """Where each row goes, in the order of rows that go there, and its key."""
    numbers = pa.array(range(len(key)))
    rows = pa.record_batch({"n": numbers, "key": key, "other": numbers})
    router = Router(lambda _: count, 3, ["key", *more])
    parcel = unpack(rows, ROUTING)
    found = router.key_of(parcel)
    assert found is not None
    octets = plain(found)
    assert octets.type == pa.binary()
    return (
        [
            (out.partition, out.rows.column("n").to_pylist())
            for out in router.route(parcel, found)
        ],
        router.partitions(parcel, len(key)).to_pylist(),
        octets.to_pylist(),
    )


@given(KEYS, COUNTS, st.integers(0, 3), st.booleans())
def test_generated_keys_are_routed_alike(
    built_core: Core, key: pa.Array, count: int, first: int, encoded: bool
) -> None:
    key = key.slice(min(first, len(key) - 1))
    key = key.dictionary_encode() if encoded else key
    for more in ((), ("other",)):
        by_python = routed(key, count, *more)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loading, "load", lambda: built_core)
            assert routed(key, count, *more) == by_python


@pytest.mark.parametrize("distinct", [1_000, 2**40])
@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_large_batches_are_routed_alike(
    kind: pa.DataType, distinct: int, built_core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = pa.array(np.random.default_rng(0).integers(0, distinct, 20_000)).cast(kind)
    by_python = routed(key, 8)
    monkeypatch.setattr(loading, "load", lambda: built_core)
    assert routed(key, 8) == by_python
    assert len(by_python[0]) == 8


JAVAS = [(b"21", -973932308), (b"foobar", -790332482), (b"abc", 479470107)]


@pytest.mark.parametrize(("key", "hashed"), [*JAVAS, (21, -973932308)])
def test_keys_go_where_java_puts_them(
    key: bytes | int, hashed: int, compiled: Core
) -> None:
    column = pa.array([key])
    kind = str(column.type)
    found = compiled.partitions(kind, column.buffers(), 0, 1, 1009, 0)
    assert int.from_bytes(found, "little") == (hashed & 0x7FFFFFFF) % 1009


def test_buffers_that_do_not_fit_are_an_error(compiled: Core) -> None:
    numbers, texts = pa.array([1, 2]), pa.array([b"a", b"b"])
    bits = pa.array([1, None]).buffers()[0]
    lying = pa.array([0, 1, 9], pa.int32()).buffers()[1]
    cases: list[tuple[str, list[pa.Buffer | None], int, int]] = [
        ("int64", numbers.buffers(), 0, 2**40),
        ("int64", numbers.buffers(), 2**63, 2**63),
        ("int64", [], 0, 1),
        ("int64", [bits.slice(0, 0), numbers.buffers()[1]], 0, 1),
        ("binary", [None, lying, texts.buffers()[2]], 0, 2),
        ("binary", texts.buffers()[:2], 0, 2),
        ("large_binary", [None, numbers.buffers()[1].slice(0, 8), None], 0, 1),
    ]
    for kind, buffers, first, rows in cases:
        with pytest.raises(ValueError, match="do not fit"):
            compiled.partitions(kind, buffers, first, rows, 8, 0)
    with pytest.raises(ValueError, match="no partitions"):
        compiled.partitions("int64", numbers.buffers(), 0, 2, 0, 0)
    with pytest.raises(ValueError, match="do not fit"):
        compiled.split(pa.array([-1], pa.int32()).buffers()[1])
