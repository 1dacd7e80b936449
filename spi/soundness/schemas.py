"""Checks that a schema has supported types and parameters only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

import pyarrow as pa

from streamfactory.spi.errors import SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_FIELDS: Final = 100_000
MOST_LEVELS: Final = 64

REMEDY: Final = "the program that wrote it has a defect, or it was damaged since"
"""Of an invalid batch."""
_REMEDY: Final = "write the column in another type, or omit it"
_RENAME: Final = "give each column its own name"

_types = pa.types
_item = pa.int8()
# A look-up of the id replaces calls of up to 23 functions: validators of short segments
# are created for each of them.
FLAT: Final = frozenset(
    kind.id
    for kind in (
        pa.null(),
        pa.bool_(),
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64()),
        *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us")),
        *(pa.duration("s"), pa.month_day_nano_interval()),
        *(pa.string(), pa.large_string(), pa.string_view()),
        *(pa.binary(), pa.large_binary(), pa.binary_view()),
    )
)
"""Ids of the types without children whose parameters are always valid."""
_NESTED: Final = frozenset(
    kind.id
    for kind in (
        pa.struct([]),
        *(pa.list_(_item), pa.large_list(_item), pa.list_(_item, 1)),
        *(pa.list_view(_item), pa.large_list_view(_item)),
        pa.map_(_item, _item),
        pa.run_end_encoded(pa.int32(), _item),
        *(pa.sparse_union([]), pa.dense_union([])),
    )
)
_DIGITS: Final = {32: 9, 64: 18, 128: 38, 256: 76}
"""Maximum precision of decimals, by the bits of their type."""


def check_schema(schema: pa.Schema) -> None:
    """Refuse unsupported types and parameters.

    Raises:
        SchemaMismatch: permanent; names the dotted path and the type.
    """
    _Walk().fields([schema.field(i) for i in range(len(schema))], "", MOST_LEVELS)


def most_digits(kind: pa.DataType) -> int:
    """Return the maximum precision of decimal types of that width."""
    return _DIGITS[kind.bit_width]


def children(kind: pa.DataType) -> list[pa.Field]:
    """Return the child fields of a type; none unless it is nested."""
    return [kind.field(i) for i in range(kind.num_fields)]


def parts(array: pa.Array) -> list[pa.Array]:
    """Return the child arrays of an array.

    For slices of lists and dense unions they are complete. For run-end encoded arrays
    they are the values, without the run ends; for dictionary and extension arrays the
    children of the dictionary and of the storage.
    """
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return parts(array.storage)
    if _types.is_dictionary(kind):
        return parts(array.dictionary)
    if _types.is_struct(kind) or _types.is_union(kind):
        return [array.field(number) for number in range(kind.num_fields)]
    return [array.values] if kind.num_fields else []


def is_same(array: pa.Array, other: pa.Array) -> bool:
    """Whether two arrays of the same, not nested type have the same buffers."""
    if array.offset != other.offset or len(array) != len(other):
        return False
    if array.null_count != other.null_count:
        return False
    return _places(array) == _places(other)


def _places(array: pa.Array) -> list[tuple[int, int] | None]:
    buffers = array.buffers()
    return [(b.address, b.size) if b is not None else None for b in buffers]


class _Walk:
    """Checks every field of one schema, recursively."""

    def __init__(self) -> None:
        self._left = MOST_FIELDS

    def fields(self, fields: Iterable[pa.Field], path: str, levels: int) -> None:
        """Check the fields of one level."""
        names: set[str] = set()
        for number, field in enumerate(fields):
            self._left -= 1
            if self._left < 0 or not levels:
                msg = f"the schema has more than {MOST_FIELDS} fields, "
                raise SchemaMismatch(msg + f"or more than {MOST_LEVELS} levels")
            try:
                name = field.name
            except UnicodeDecodeError:
                where = f"column {path!r}, child" if path else "column number"
                msg = f"the name of {where} {number} is not UTF-8"
                raise SchemaMismatch(msg, remedy=_RENAME) from None
            at = f"{path}.{name}" if path else name
            # Children are found by number, so equal names are harmless there.
            if name in names and not path:
                msg = f"the schema has several columns named {name!r}"
                raise SchemaMismatch(msg, remedy=_RENAME)
            names.add(name)
            self._kind(field.type, at, levels)
            if _types.is_null(field.type) and not field.nullable:
                _refuse(at, "null", "is declared not nullable, but has only nulls")

    def _kind(self, kind: pa.DataType, path: str, levels: int) -> None:
        if kind.id in FLAT:
            return
        if isinstance(kind, pa.BaseExtensionType):
            self._kind(kind.storage_type, path, levels)
        elif _types.is_dictionary(kind):
            self._kind(kind.value_type, path, levels)
        elif _types.is_decimal(kind):
            _check_decimal(kind, path)
        elif _types.is_timestamp(kind):
            _check_zone(kind, path)
        elif _types.is_fixed_size_binary(kind):
            if kind.byte_width < 0:
                _refuse(path, shown(kind), f"has values of {kind.byte_width} bytes")
        elif kind.id in _NESTED:
            if _types.is_fixed_size_list(kind) and kind.list_size < 0:
                _refuse(path, "a list", f"has lists of {kind.list_size} values")
            self.fields(children(kind), path, levels - 1)
        else:
            _refuse(path, shown(kind), "is not supported")


def _check_decimal(kind: pa.DataType, path: str) -> None:
    most = most_digits(kind)
    if not (1 <= kind.precision <= most and -most <= kind.scale <= most):
        what = f"has a precision or scale beyond {most} digits"
        _refuse(path, shown(kind), what)


def _check_zone(kind: pa.DataType, path: str) -> None:
    try:
        _ = kind.tz
    except UnicodeDecodeError:
        _refuse(path, "timestamp", "has a time zone that is not UTF-8")


def shown(kind: pa.DataType) -> str:
    """Return a type as text, even if its names are not UTF-8."""
    try:
        return str(kind)
    except UnicodeDecodeError:
        return f"type {kind.id} of Arrow"


def _refuse(path: str, kind: str, what: str) -> NoReturn:
    msg = f"column {path!r}: {kind} {what}"
    raise SchemaMismatch(msg, remedy=_REMEDY) from None
