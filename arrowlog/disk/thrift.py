"""Reads structs of the compact protocol of Thrift: the metadata of Parquet files."""

from __future__ import annotations

from typing import Any, Final

INT32: Final = 5
INT64: Final = 6
"""Kinds of numbers."""

_TRUE, _FALSE, _BYTE, _INT16, _DOUBLE, _BINARY = 1, 2, 3, 4, 7, 8
_LIST, _SET, _MAP, _STRUCT, _UUID = 9, 10, 11, 12, 13
_DEEPEST: Final = 64
"""Levels of structs and lists: page headers have two, footers ten. Later versions of
the format may have more, which are passed over."""


class NotParquet(ValueError):
    """The bytes are no metadata or pages of Parquet that are read."""


class NotSupported(NotParquet):
    """The file is sound as far as it was read, but has what is not read."""


class ExpandsTooFar(NotParquet):
    """A row group takes more bytes in memory than a reader allows."""


def read_struct(
    data: memoryview, at: int, *, numbers: int, depth: int = 0
) -> tuple[dict[int, Any], int]:
    """Read a struct.

    Args:
        data: Bytes.
        at: Where the struct begins.
        numbers: `INT32` or `INT64`: others are left out, as Arrow skips a number of
            another type than that of the field.
        depth: Structs around it.

    Returns:
        By field: numbers, structs, and lists of structs; and the offset after it.

    Raises:
        NotParquet: It is truncated, has a field twice, or a type that Thrift does not
            have.
    """
    found: dict[int, Any] = {}
    seen: set[int] = set()
    field = 0
    try:
        while head := data[at]:
            at += 1
            kind, step = head & 15, head >> 4
            if step:
                field += step
            else:
                field, at = _zigzag(data, at)
            if field in seen:  # Arrow may take another value
                msg = f"the metadata has the field {field} twice"
                raise NotParquet(msg)
            seen.add(field)
            if kind in {_TRUE, _FALSE}:
                continue  # the kind is the value
            value, at = _value(data, at, kind, numbers, depth)
            if value is not None:
                found[field] = value
    except IndexError:
        msg = "the metadata is truncated"
        raise NotParquet(msg) from None
    return found, at + 1


def _value(
    data: memoryview, at: int, kind: int, numbers: int, depth: int
) -> tuple[Any, int]:
    """Return a number, a struct, a list of structs or None, and the offset after it."""
    if kind in {_INT16, INT32, INT64}:
        value, at = _zigzag(data, at)
        return (value if kind == numbers else None), at
    if kind == _STRUCT and depth < _DEEPEST:
        return read_struct(data, at, numbers=numbers, depth=depth + 1)
    if kind == _BINARY:
        length, at = _varint(data, at)
        return None, at + length
    if kind in {_TRUE, _FALSE, _BYTE}:
        return None, at + 1
    if kind == _DOUBLE:
        return None, at + 8
    if kind in {_LIST, _SET} and depth < _DEEPEST:
        return _list(data, at, numbers, depth + 1)
    if kind == _MAP and depth < _DEEPEST:
        return None, _after_map(data, at, depth + 1)
    if kind == _UUID:
        return None, at + 16
    msg = f"the metadata has a field of the type {kind}"
    raise NotParquet(msg)


def _list(data: memoryview, at: int, numbers: int, depth: int) -> tuple[Any, int]:
    kind, count = data[at] & 15, data[at] >> 4
    at += 1
    if count == 15:
        count, at = _varint(data, at)
    found = []
    for _ in range(count):
        value, at = _value(data, at, kind, numbers, depth)
        if kind == _STRUCT:
            found.append(value)
        elif at > len(data):
            raise IndexError
    return (found if kind == _STRUCT else None), at


def _after_map(data: memoryview, at: int, depth: int) -> int:
    """The offset after a map: metadata has none that is read."""
    count, at = _varint(data, at)
    if not count:
        return at
    kinds, at = data[at], at + 1
    for _ in range(count):
        for kind in (kinds >> 4, kinds & 15):
            _, at = _value(data, at, kind, INT64, depth)
        if at > len(data):
            raise IndexError
    return at


def _zigzag(data: memoryview, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    msg = "a number of the metadata is too long"
    raise NotParquet(msg)
