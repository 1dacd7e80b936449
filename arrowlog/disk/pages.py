"""Checks what a row group of a Parquet file expands to before Arrow allocates it.

Arrow allocates what the header of a page states, and as many values as the footer
does: a page of a few bytes can stand for gigabytes. Page headers are structs of the
compact protocol of Thrift; the few numbers that are limited are read here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LONGEST_HEADER: Final = 64 << 10
"""Maximum bytes of a page header, with the statistics of the page."""
_DEEPEST: Final = 8
"""Levels of structs in a page header: two are used."""
_PLAIN, _RLE, _BIT_PACKED = 0, 3, 4
_DICTIONARY: Final = frozenset({2, 8})
"""PLAIN_DICTIONARY and RLE_DICTIONARY."""
_ENCODINGS: Final = frozenset({_PLAIN, _RLE, _BIT_PACKED}) | _DICTIONARY
"""Those whose values take at least their own bytes, or are in a dictionary."""
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY = 1, 2, 3, 7, 8
_INT16, _INT32, _INT64 = 4, 5, 6
_STRUCT: Final = 12


class NotParquet(ValueError):
    """The bytes are no Parquet pages that a segment may have."""


class ColumnPages(NamedTuple):
    """The pages of one column of a row group."""

    values: int
    """Values of all data pages, including nulls."""
    bytes: int
    """Bytes of all data pages without compression."""
    has_dictionary: bool


def read_pages(
    read: Callable[[int, int], Any], start: int, length: int, values: int, limit: int
) -> ColumnPages:
    """Read the headers of the pages of a column chunk, and check them.

    Args:
        read: Returns bytes of the file, of an offset and a length; fewer at its end.
        start: Offset of the first page.
        length: Bytes of all pages.
        values: Values of the column chunk; pages beyond them are not read.
        limit: Maximum bytes of all pages without compression.

    Raises:
        NotParquet: A header is invalid, has another encoding, or exceeds the limit.
    """
    end, found, expanded, has_dictionary = start + length, 0, 0, False
    while found < values:
        data = read(start, min(_LONGEST_HEADER, end - start))
        header, size = _struct(memoryview(data).cast("B"), 0, 0)
        kind, whole, stored = (_number(header, key) for key in (1, 2, 3))
        expanded += whole
        start += size + stored
        if start > end:
            msg = "a page ends beyond its column"
            raise NotParquet(msg)
        if expanded > limit:
            msg = f"its pages expand to {expanded} bytes, {limit} are allowed"
            raise NotParquet(msg)
        if kind == _DICTIONARY_PAGE:
            has_dictionary = True
            continue
        rows, encoding = _data(header, kind)
        if encoding not in _ENCODINGS:
            msg = f"a page has the encoding {encoding}, which segments do not have"
            raise NotParquet(msg)
        found += rows
    if found != values:
        msg = f"its pages have {found} values, the footer has {values}"
        raise NotParquet(msg)
    return ColumnPages(found, expanded, has_dictionary)


def _data(header: Mapping[int, Any], kind: int) -> tuple[int, int]:
    """Return the values and the encoding of a data page."""
    if kind == _DATA_PAGE:
        inner, key = header.get(5), 2
    elif kind == _DATA_PAGE_V2:
        inner, key = header.get(8), 4
    else:
        msg = f"a page is of the kind {kind}"
        raise NotParquet(msg)
    if not isinstance(inner, dict):
        msg = "the header of a page is incomplete"
        raise NotParquet(msg)
    return _number(inner, 1), _number(inner, key)


def _number(found: Mapping[int, Any], key: int) -> int:
    value = found.get(key)
    if type(value) is not int or value < 0:
        msg = "the header of a page lacks a number, or it is negative"
        raise NotParquet(msg)
    return value


def _struct(data: memoryview, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Return the numbers and structs of a struct by field, and the offset after it."""
    found: dict[int, Any] = {}
    field = 0
    try:
        while head := data[at]:
            at += 1
            kind, step = head & 15, head >> 4
            before = field
            if step:
                field += step
            else:
                field, at = _zigzag(data, at)
            if field <= before:
                # Of a repeated field, Arrow may take another value.
                msg = "the fields of a page header are not in order"
                raise NotParquet(msg)
            found[field], at = _value(data, at, kind, depth)
    except IndexError:
        msg = "the header of a page is truncated"
        raise NotParquet(msg) from None
    return found, at + 1


def _value(data: memoryview, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """Return a number of 32 bits, a struct, or None, and the offset after it."""
    if kind in {_INT16, _INT32, _INT64}:
        value, at = _zigzag(data, at)
        # Arrow skips a number of another type than that of the field.
        return (value if kind == _INT32 else None), at
    if kind in {_TRUE, _FALSE}:
        return None, at
    if kind == _STRUCT and depth < _DEEPEST:
        return _struct(data, at, depth + 1)
    if kind == _BINARY:
        length, at = _varint(data, at)
        return None, at + length
    if kind == _BYTE:
        return None, at + 1
    if kind == _DOUBLE:
        return None, at + 8
    msg = f"the header of a page has a field of the type {kind}"
    raise NotParquet(msg)


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
    msg = "a number in the header of a page is too long"
    raise NotParquet(msg)
