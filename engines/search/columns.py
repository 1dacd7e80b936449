"""Converts columns of any type to columns that a SQL engine can search.

The type of the result depends on the type of the column only. Binary values are text,
as the pages show them; types that the engine lacks are text in JSON.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from streamfactory.conversion.arrays import is_list_or_fixed, list_parts
from streamfactory.spi.computing import pc
from streamfactory.wiring.core.values import plain_values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Mask = Callable[[str], str]

_EARLIEST, _LATEST = -62_135_596_800, 253_402_300_799
"""Seconds of the years 1 to 9999: an engine refuses a batch with times beyond."""
_SECOND: Final = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
_SEPARATOR: Final = "\n\0\n"
_SHORT: Final = {
    "topic": "_topic",
    "partition": "_partition",
    "offset": "_offset",
    "timestamp": "_timestamp",
    "key": "_key",
    "headers": "_headers",
}
"""Names for metadata columns where a stream has no such column."""


def octets_text(value: bytes) -> str:
    """Binary as the text that it is, else as hexadecimal digits."""
    if not value:
        return ""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return "0x" + value.hex()


def search_names(names: Sequence[str]) -> dict[str, int]:
    """The names that an expression may use, each with the index of its column.

    Engines do not distinguish upper and lower case: of two such names, the second one
    has a number.
    """
    found: dict[str, int] = {}
    used: set[str] = set()
    for index, name in enumerate(names):
        unique, number = name, 2
        while unique.lower() in used:
            unique, number = f"{name}_{number}", number + 1
        found[unique] = index
        used.add(unique.lower())
    for short, name in _SHORT.items():
        if name in found and short not in used:
            found[short] = found[name]
    return found


def searchable(column: pa.Array) -> pa.Array:
    """A column as an engine can search it: same length, nulls where it has nulls."""
    kind, types = column.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return (
            json_text(column) if isinstance(kind, pa.UuidType) else _of_storage(column)
        )
    if types.is_dictionary(kind):
        return searchable(column.dictionary_decode())
    if types.is_run_end_encoded(kind):
        return searchable(pc.run_end_decode(column))
    if types.is_struct(kind) and kind.num_fields:
        return _of_struct(column)
    if types.is_nested(kind):
        return _of_list(column) if has_items(kind) else json_text(column)
    return _of_scalars(column)


def has_items(kind: pa.DataType) -> bool:
    """Whether values are lists, or maps, which are lists of entries."""
    return is_list_or_fixed(kind) or bool(pa.types.is_map(kind))


def hidden(original: pa.Array, converted: pa.Array, mask: Mask) -> pa.Array:
    """A converted column without what the pages mask in it.

    Text is masked as it is shown; a value of another type that has something to mask
    is null. A search then says nothing about it.

    Args:
        original: The column.
        converted: The result of `searchable`.
        mask: Masks what is secret in a text.
    """
    if pa.types.is_string(converted.type):
        return _masked_text(converted, mask)
    if not _touched(converted, mask):
        return converted
    texts = [json.dumps(one) for one in plain_values(original, octets_text)]
    clean = pa.array([None if mask(one) != one else at for at, one in enumerate(texts)])
    return converted.take(clean.cast(pa.int64()))


# --- conversion -----------------------------------------------------------------


def _of_storage(column: pa.ExtensionArray) -> pa.Array:
    storage = column.storage
    return searchable(storage)


def _of_scalars(column: pa.Array) -> pa.Array:
    kind, types = column.type, pa.types
    if types.is_string(kind):
        return _sound_text(column)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return _sound_text(column.cast(pa.string()))
    if types.is_float16(kind):
        return column.cast(pa.float32())
    if types.is_timestamp(kind):
        return _of_times(column)
    if (
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_binary_view(kind)
    ):
        return _of_binary(column)
    if types.is_decimal(kind) and (kind.bit_width > 128 or kind.scale < 0):
        return column.cast(pa.string())
    simple = types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)
    if (
        simple
        or types.is_null(kind)
        or types.is_time(kind)
        or types.is_decimal128(kind)
    ):
        return column
    if types.is_date32(kind):
        return column
    return json_text(column)


def _sound_text(column: pa.Array) -> pa.Array:
    """Text; bytes of it that are not UTF-8 are escaped."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return json_text(column)
    return column


def _of_binary(column: pa.Array) -> pa.Array:
    binary = column.cast(pa.binary())
    try:
        return binary.cast(pa.string())
    except pa.ArrowInvalid:  # not all are UTF-8
        values = [
            None if one is None else octets_text(one) for one in binary.to_pylist()
        ]
        return pa.array(values, pa.string())


def _of_times(column: pa.Array) -> pa.Array:
    """Times in microseconds; null outside of the years 1 to 9999."""
    unit = column.type.unit
    numbers = column.view(pa.int64())
    size = _SECOND[unit]
    if unit != "ns":
        inside = pc.and_(
            pc.greater_equal(numbers, _EARLIEST * size),
            pc.less_equal(numbers, _LATEST * size),
        )
        numbers = pc.if_else(inside, numbers, pa.scalar(None, pa.int64()))
    zoned = numbers.view(pa.timestamp(unit))
    micros = zoned.cast(pa.timestamp("us"), safe=False)
    return micros if column.type.tz is None else micros.cast(pa.timestamp("us", "UTC"))


def _of_struct(column: pa.Array) -> pa.Array:
    # `flatten` gives children the nulls of their parent; `field` does not.
    children = [searchable(child) for child in column.flatten()]
    names = list(search_names([field.name for field in column.type]))
    return pa.StructArray.from_arrays(
        children, names[: len(children)], mask=column.is_null()
    )


def _of_list(column: pa.Array) -> pa.Array:
    """Lists; a map is a list of structs of ``key`` and ``value``."""
    lengths, values = list_parts(column)
    edges = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    inner = searchable(values)
    if pa.types.is_map(column.type):
        inner = pa.StructArray.from_arrays(inner.flatten(), ["key", "value"])
    return pa.ListArray.from_arrays(edges, inner, mask=column.is_null())


def json_text(column: pa.Array) -> pa.Array:
    """Text as `tail` shows the values."""
    texts: list[str | None] = []
    for value in plain_values(column, octets_text):
        if value is None or isinstance(value, str):
            texts.append(value)
        else:
            texts.append(json.dumps(value, ensure_ascii=False))
    return pa.array(texts, pa.string())


# --- masking --------------------------------------------------------------------


def _masked_text(column: pa.Array, mask: Mask) -> pa.Array:
    if not _touched(column, mask):
        return column
    return pa.array(
        [None if one is None else mask(one) for one in column.to_pylist()], pa.string()
    )


def _touched(column: Any, mask: Mask) -> bool:
    """Whether a value, or an inner one, has something to mask, or may have it."""
    kind, types = column.type, pa.types
    if types.is_struct(kind):
        return any(_touched(child, mask) for child in column.flatten())
    if types.is_list(kind):
        return _touched(column.flatten(), mask)
    if types.is_null(kind) or not len(column):
        return False
    text = column if types.is_string(kind) else column.cast(pa.string())
    joined = _SEPARATOR.join(text.drop_null().to_pylist())
    return bool(mask(joined) != joined)
