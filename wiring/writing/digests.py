"""A digest of rows' content that does not depend on their order or their batches.

Every row has a hash of 128 bits over the values of all its columns, and the digest is
the sum of these hashes. So rows may be written in any order, in any batches and by any
number of tasks, and the digests of the parts add up to the digest of the whole.
Everything is computed over whole columns with numpy.

The hash depends on values only: dictionary, run-end-encoded, view and large columns
equal the plain one, and a narrow integer equals the wide one. All NaN are equal; -0.0
differs from 0.0; the entries of a map count without their order. The hash detects
accidents; it is not cryptographic.

`ALGORITHM` names all of this. A change that affects a hash needs another name, because
sinks store digests and later versions compare them.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from streamfactory.conversion.arrays import list_parts, run_places, union_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Block = Callable[[np.ndarray, np.ndarray], np.ndarray]
    """Returns the hashes, (2, n), of consecutive elements, given their run numbers and
    their positions within the runs."""

ALGORITHM: Final = "content-1"
"""Name of the digest algorithm, which sinks store."""

MODULUS: Final = 2**128
"""Digests are added modulo this number."""

_ROWS: Final = 8192
"""Rows hashed at once, so that numpy's arrays fit a processor's cache."""
_ELEMENTS: Final = 32768
"""List elements, and 8-byte words of text, that are hashed at once."""
_SEEDS: Final = np.array([[0x243F6A8885A308D3], [0x13198A2E03707344]], np.uint64)
"""Initial values of the two halves of a hash: different digits of pi."""
_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)


def digest_columns(columns: Mapping[str, pa.Array]) -> int:
    """Return the digest of rows, below `MODULUS`; 0 for no rows.

    Args:
        columns: By name, all of one length; their order has no effect.
    """
    names, arrays = list(columns), list(columns.values())
    count = len(arrays[0]) if arrays else 0
    total = 0
    for at in range(0, count, _ROWS):
        rows = min(_ROWS, count - at)
        parts = (array.slice(at, rows) for array in arrays)
        high, low = _combined(names, parts, rows)
        total += (_sum(high) << 64) + _sum(low)
    return total % MODULUS


def _sum(hashes: np.ndarray) -> int:
    """Sum hashes exactly, with the carry."""
    low = int((hashes & np.uint64(0xFFFFFFFF)).sum())
    return (int((hashes >> np.uint64(32)).sum()) << 32) + low


def _mix(hashes: np.ndarray) -> np.ndarray:
    """The finalizer of splitmix64, in place: each bit depends on all before."""
    hashes ^= hashes >> np.uint64(30)
    hashes *= _FIRST
    hashes ^= hashes >> np.uint64(27)
    hashes *= _SECOND
    hashes ^= hashes >> np.uint64(31)
    return hashes


@lru_cache(maxsize=4096)
def _salt(text: str) -> np.ndarray:
    octets = hashlib.blake2b(text.encode(), digest_size=16).digest()
    return np.frombuffer(octets, "<u8").reshape(2, 1)


def _combined(
    names: Sequence[str], columns: Iterable[pa.Array], rows: int
) -> np.ndarray:
    """Combine the hashes of named values of rows or structs."""
    total = np.zeros((2, rows), np.uint64)
    seen: dict[str, int] = {}
    for name, column in zip(names, columns, strict=True):
        number = seen[name] = seen.get(name, -1) + 1
        total += _mix(_hash(column) + _salt(f"{name}\0{number}"))
    return _mix(total)


def _hash(column: pa.Array) -> np.ndarray:
    """The hash of each value, (2, n)."""
    hashes = _values(column)
    if column.null_count:
        missing = column.is_null().to_numpy(zero_copy_only=False)
        hashes[:, missing] = _salt("null")
    return hashes


def _values(column: pa.Array) -> np.ndarray:
    """Like `_hash`, but undefined for nulls."""
    kind, types = column.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _hash(column.storage)
    if types.is_null(kind):
        return np.zeros((2, len(column)), np.uint64)
    if types.is_dictionary(kind):
        return _of_dictionary(column)
    if types.is_run_end_encoded(kind):
        return _hash(column.values)[:, run_places(column)]
    if types.is_union(kind):
        return _of_union(column)
    if types.is_struct(kind):
        fields = [column.field(index) for index in range(kind.num_fields)]
        return _combined([field.name for field in kind], fields, len(column))
    if types.is_nested(kind):
        return _of_list(column)
    if types.is_decimal(kind) or types.is_interval(kind):
        return _of_octets(*_fixed(column, kind.bit_width // 8))
    if types.is_fixed_size_binary(kind):
        return _of_octets(*_fixed(column, kind.byte_width))
    if types.is_primitive(kind):
        return _mix(_numbers(column) + _SEEDS)
    return _of_octets(*_variable(column))


def _numbers(column: pa.Array) -> np.ndarray:
    """Return numbers and times of at most 64 bits as canonical 64 bits."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column, kind = column.cast(pa.uint8()), pa.uint8()
    signed = not pa.types.is_unsigned_integer(kind)
    floating = pa.types.is_floating(kind)
    letter = "f" if floating else "i" if signed else "u"
    given = _buffer(column, np.dtype(f"{letter}{kind.bit_width // 8}"), 1)
    if not floating:
        return given.astype(np.int64 if signed else np.uint64).view(np.uint64)
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        wide = given.astype(np.float64)
    wide[np.isnan(wide)] = np.nan
    return wide.view(np.uint64)


def _buffer(column: pa.Array, dtype: np.dtype[Any], each: int) -> np.ndarray:
    """The values of fixed width, ``each`` entries of ``dtype`` for one."""
    data = column.buffers()[1]
    count = len(column) * each
    if data is None or not count:
        return np.zeros(count, dtype)
    at = column.offset * each * dtype.itemsize
    return np.frombuffer(data, dtype, count, at)


def _fixed(column: pa.Array, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Octets, starts and lengths of values of one width."""
    octets = _buffer(column, np.dtype(np.uint8), width)
    lengths = np.full(len(column), width, np.int64)
    return octets, np.arange(len(column), dtype=np.int64) * width, lengths


def _variable(column: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Octets, starts and lengths of text and binary; a null is empty."""
    if not pa.types.is_large_binary(column.type):
        column = column.cast(pa.large_binary())
    offsets = np.zeros(1, np.int64)
    if len(column):
        offsets = np.frombuffer(
            column.buffers()[1], np.int64, len(column) + 1, column.offset * 8
        )
    lengths = np.diff(offsets)
    if column.null_count:
        lengths[column.is_null().to_numpy(zero_copy_only=False)] = 0
    data = column.buffers()[2]
    return np.frombuffer(data or b"", np.uint8), offsets[:-1], lengths


def _of_octets(
    octets: np.ndarray, starts: np.ndarray, lengths: np.ndarray
) -> np.ndarray:
    """Hash eight octets at a time; the last ones of a value are padded with zeros."""

    def block(rows: np.ndarray, within: np.ndarray) -> np.ndarray:
        skipped = within * 8
        places = starts[rows] + skipped
        base = int(places[0])
        window = np.zeros(int(places[-1]) - base + 8, np.uint8)
        there = octets[base : base + len(window)]
        window[: len(there)] = there
        unaligned: np.ndarray = np.ndarray(
            (len(window) - 7,), np.dtype("<u8"), window.data, strides=(1,)
        )
        missing = np.maximum(8 - (lengths[rows] - skipped), 0) * 8
        shift = missing.astype(np.uint64)
        words: np.ndarray = unaligned[places - base] << shift >> shift
        hashes: np.ndarray = words + _SEEDS
        return hashes

    hashes = _folded((lengths + 7) // 8, block, ordered=True)
    return _mix(hashes + lengths.astype(np.uint64))


def _of_list(column: pa.Array) -> np.ndarray:
    is_map = pa.types.is_map(column.type)
    lengths, values = list_parts(column)
    begins = np.cumsum(lengths) - lengths

    def block(rows: np.ndarray, within: np.ndarray) -> np.ndarray:
        return _hash(values.slice(int(begins[rows[0]] + within[0]), len(rows)))

    hashes = _folded(lengths, block, ordered=not is_map)
    return _mix(hashes + lengths.astype(np.uint64))


def _folded(lengths: np.ndarray, block: Block, *, ordered: bool) -> np.ndarray:
    """Return one hash per run of elements.

    Args:
        lengths: Elements of each run; the runs follow one another.
        block: The hashes of some elements.
        ordered: Whether the order of the elements counts.
    """
    total = np.zeros((2, len(lengths)), np.uint64)
    runs = np.flatnonzero(lengths)
    ends = np.cumsum(lengths[runs])
    begins = ends - lengths[runs]
    count = int(ends[-1]) if len(ends) else 0
    for begin in range(0, count, _ELEMENTS):
        end = min(begin + _ELEMENTS, count)
        low, high = np.searchsorted(ends, [begin, end - 1], side="right")
        here = slice(low, high + 1)
        starts = np.maximum(begins[here], begin)
        spans = np.minimum(ends[here], end) - starts
        within = np.arange(begin, end) - np.repeat(begins[here], spans)
        hashes = block(np.repeat(runs[here], spans), within)
        if ordered:
            hashes = hashes + (within.astype(np.uint64) + np.uint64(1)) * _STEP
        total[:, runs[here]] += np.add.reduceat(_mix(hashes), starts - begin, axis=1)
    return total


def _of_dictionary(column: pa.Array) -> np.ndarray:
    values = column.dictionary
    if not len(values):
        return np.zeros((2, len(column)), np.uint64)
    indices = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
    if len(values) > len(indices):  # of a large dictionary, only what is used
        used, indices = np.unique(indices, return_inverse=True)
        values = values.take(pa.array(used))
    hashes: np.ndarray = _hash(values)[:, indices]
    return hashes


def _of_union(column: pa.Array) -> np.ndarray:
    hashes = np.zeros((2, len(column)), np.uint64)
    for index, rows, values in union_parts(column):
        code = column.type.type_codes[index]
        hashes[:, rows] = _hash(values) + _salt(f"union\0{code}")
    return _mix(hashes)
