"""Values of partitions, as the transforms of Iceberg's specification make them.

Computed for whole columns: those of pyiceberg need an extension in Rust.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyiceberg.transforms import (
    BucketTransform,
    IdentityTransform,
    TruncateTransform,
    VoidTransform,
)
from pyiceberg.types import BinaryType, BooleanType, DecimalType, StringType
from pyiceberg.utils.decimal import decimal_to_bytes

from streamfactory.spi import Unsupported
from streamfactory.spi.computing import pc

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from numpy.typing import NDArray
    from pyiceberg.transforms import Transform
    from pyiceberg.types import IcebergType

    Computed: TypeAlias = Callable[[pa.Array], pa.Array]

_HASHED: Final = BucketTransform(1).transform(BinaryType(), bucket=False)
"""Returns the hash of bytes, or of text."""
_types: Final = pa.types
_UNITS: Final = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
"""Units of time of numpy, which count from 1970 on."""


def computed(transform: Transform[Any, Any], kind: pa.DataType) -> Computed:
    """What computes the values of a partition field from its column.

    Args:
        transform: Of the field.
        kind: Type of the column.

    Raises:
        Unsupported: misuse; the transform is unknown, or not of this type.
    """
    if isinstance(transform, VoidTransform):
        return lambda column: pa.nulls(len(column), pa.int32())
    if isinstance(transform, IdentityTransform) and _is_atom(kind):
        return lambda column: column
    unit = _UNITS.get(str(transform))
    if (
        unit is not None
        and _is_time(kind)
        and (unit != "h" or not _types.is_date(kind))
    ):
        return lambda column: _since_1970(column, unit)
    if isinstance(transform, BucketTransform) and _is_hashed(kind):
        return lambda column: _bucket(column, transform.num_buckets)
    if isinstance(transform, TruncateTransform):
        width = transform.width
        if _types.is_integer(kind):
            return lambda column: _truncated(column, width)
        if _types.is_string(kind):
            return lambda column: pc.utf8_slice_codeunits(column, 0, width)
    what = f"partitions by {transform} of a column of type {kind} are not written"
    raise Unsupported(what, remedy="write the table with Spark")


def texts(values: pa.Array) -> pa.Array:
    """Values of a partition field as text, which `value_of` parses."""
    kind = values.type
    if _types.is_string(kind):
        return values
    if _types.is_temporal(kind):
        values = _numbers(values)
    if _types.is_decimal(kind):
        found = values.dictionary_encode()
        plain = [format(value, "f") for value in found.dictionary.to_pylist()]
        return pa.array(plain, pa.string()).take(found.indices)
    return values.cast(pa.string())


def value_of(text: str | None, kind: IcebergType) -> Any:
    """The value of a partition field, as manifests have it.

    Args:
        text: From `texts`.
        kind: Type of the values of the field.
    """
    if text is None or isinstance(kind, StringType):
        return text
    if isinstance(kind, BooleanType):
        return text == "true"
    return Decimal(text) if isinstance(kind, DecimalType) else int(text)


def _is_time(kind: pa.DataType) -> bool:
    return bool(_types.is_date32(kind) or _types.is_timestamp(kind))


def _is_atom(kind: pa.DataType) -> bool:
    plain = _types.is_integer(kind) or _types.is_string(kind) or _types.is_boolean(kind)
    return bool(plain or _types.is_decimal(kind) or _is_time(kind))


def _is_hashed(kind: pa.DataType) -> bool:
    return bool((_is_atom(kind) and not _types.is_boolean(kind)) or _is_bytes(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(_types.is_binary(kind) or _types.is_fixed_size_binary(kind))


def _numbers(column: pa.Array) -> pa.Array:
    """Dates and times as what they count since 1970."""
    return column.cast(pa.int32() if _types.is_date32(column.type) else pa.int64())


def _longs(column: pa.Array) -> NDArray[np.int64]:
    """Numbers, dates and times; 0 for null."""
    numbers = column if _types.is_integer(column.type) else _numbers(column)
    found: NDArray[np.int64] = numbers.cast(pa.int64()).fill_null(0).to_numpy()
    return found


def _with_nulls(values: NDArray[Any], kind: pa.DataType, column: pa.Array) -> pa.Array:
    null = column.is_null().to_numpy(zero_copy_only=False)
    return pa.array(values, mask=null).cast(kind)


def _since_1970(column: pa.Array, unit: str) -> pa.Array:
    own = "D" if _types.is_date32(column.type) else "us"
    counted = _longs(column).view(f"M8[{own}]").astype(f"M8[{unit}]").astype(np.int64)
    return _with_nulls(counted, pa.int32(), column)


def _truncated(column: pa.Array, width: int) -> pa.Array:
    numbers = _longs(column)
    return _with_nulls(numbers - numbers % width, column.type, column)


def _bucket(column: pa.Array, count: int) -> pa.Array:
    kind = column.type
    if _types.is_decimal(kind) or _types.is_string(kind) or _is_bytes(kind):
        # Each value once: others than numbers are hashed one by one.
        found = column.dictionary_encode()
        hashes = [_hash(value) for value in found.dictionary.to_pylist()]
        buckets = (np.array(hashes, np.int64) & 0x7FFFFFFF) % count
        return pa.array(buckets, pa.int32()).take(found.indices)
    hashed = _murmur3(_longs(column)).astype(np.int64) & 0x7FFFFFFF
    return _with_nulls(hashed % count, pa.int32(), column)


def _hash(value: Any) -> int:
    content = decimal_to_bytes(value) if isinstance(value, Decimal) else value
    found = _HASHED(content)
    assert found is not None
    return found


def _murmur3(longs: NDArray[np.int64]) -> NDArray[np.uint32]:
    """MurmurHash3 (x86, 32 bits, seed 0) of the bytes of each number."""
    bits = longs.view(np.uint64)
    state = np.zeros(len(longs), np.uint32)
    for word in (bits & np.uint64(0xFFFFFFFF), bits >> np.uint64(32)):
        mixed = _rotated(word.astype(np.uint32) * np.uint32(0xCC9E2D51), 15)
        state = _rotated(state ^ (mixed * np.uint32(0x1B873593)), 13)
        state = state * np.uint32(5) + np.uint32(0xE6546B64)
    state ^= np.uint32(8)
    state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return state ^ (state >> np.uint32(16))


def _rotated(words: NDArray[np.uint32], by: int) -> NDArray[np.uint32]:
    return (words << np.uint32(by)) | (words >> np.uint32(32 - by))
