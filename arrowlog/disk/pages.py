"""Checks what a row group of a Parquet file expands to before Arrow allocates it.

Arrow allocates what the header of a page states, and as many values as the footer
does: a page of a few bytes can stand for gigabytes. Here the few numbers that are
limited are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamfactory.arrowlog.disk.thrift import (
    INT32,
    INT64,
    ExpandsTooFar,
    NotParquet,
    NotSupported,
    read_struct,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LONGEST_FOOTER: Final = 64 << 20
"""Bytes that the footer of a file may have: Arrow reads it as a whole."""
TAIL: Final = 8
"""Bytes at the end of a file: the length of its footer, and the magic number."""

_MAGIC: Final = b"PAR1"
_LONGEST_HEADER: Final = 64 << 10
"""Maximum bytes of a page header, with the statistics of the page."""
_PLAIN, _RLE, _BIT_PACKED = 0, 3, 4
_DICTIONARY: Final = frozenset({2, 8})
"""PLAIN_DICTIONARY and RLE_DICTIONARY."""
_ENCODINGS: Final = frozenset({_PLAIN, _RLE, _BIT_PACKED}) | _DICTIONARY
"""Those whose values take at least their own bytes, or are in a dictionary."""
PLAIN_LENGTHS: Final = 6
"""DELTA_LENGTH_BYTE_ARRAY: Arrow allocates the lengths of all values of a page."""
PREFIXES: Final = 7
"""DELTA_BYTE_ARRAY: a value repeats the beginning of the one before, and may be as long
as its page. Arrow allocates the lengths of all values of a page."""
SAFE_ENCODINGS: Final = _ENCODINGS | {5, PLAIN_LENGTHS, PREFIXES, 9}
"""Besides, those of other writers in which a value takes few bytes:
DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY, BYTE_STREAM_SPLIT."""
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3


class ColumnPages(NamedTuple):
    """The pages of one column of a row group."""

    values: int
    """Values of all data pages, including nulls."""
    bytes: int
    """Bytes of all data pages without compression."""
    dictionary: int
    """Bytes of the dictionary without compression; 0 without one."""
    encodings: frozenset[int]
    """Of the data pages."""
    prefixed: int = 0
    """Bytes without compression of the longest page in which values share prefixes:
    none of them is longer."""

    @property
    def has_dictionary(self) -> bool:
        """Whether values may be in a dictionary."""
        return self.dictionary > 0

    @property
    def is_mixed(self) -> bool:
        """Whether the dictionary was given up within the column."""
        return self.has_dictionary and not self.encodings <= _DICTIONARY


def footer_limits(tail: bytes, size: int) -> dict[str, int]:
    """The limits with which Arrow may read the footer of a file.

    Args:
        tail: The last `TAIL` bytes of the file.
        size: Bytes of the file.

    Raises:
        NotParquet: The file does not end as a Parquet file does.
    """
    footer = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or not 0 < footer <= min(size - 12, LONGEST_FOOTER):
        msg = "it has no footer"
        raise NotParquet(msg)
    # Each element of a list takes at least a byte.
    return {"thrift_string_size_limit": footer, "thrift_container_size_limit": footer}


def footer_of(read: Callable[[int, int], Any], tail: bytes, size: int) -> Any:
    """The bytes of the footer of a file, whose `footer_limits` are known.

    Args:
        read: Returns bytes of the file, of an offset and a length.
        tail: The last `TAIL` bytes of the file.
        size: Bytes of the file.
    """
    length = int.from_bytes(tail[:4], "little")
    return read(size - TAIL - length, length)


class Chunk(NamedTuple):
    """A column of a row group, as the footer has it."""

    start: int
    """Offset of the first page."""
    length: int
    """Bytes of all pages."""
    values: int


class Group(NamedTuple):
    """A row group, as the footer has it."""

    rows: int
    bytes: int
    """Of all pages without compression."""
    chunks: tuple[Chunk, ...]


def read_groups(footer: Any, columns: int) -> list[Group]:
    """Read the row groups of a footer, without the metadata of Arrow.

    Arrow's answer to a question about a column whose metadata is invalid ends the
    process: `pyarrow` 26 lets the exception of C++ pass.

    Args:
        footer: Its bytes, without `TAIL`.
        columns: Stored columns.

    Raises:
        NotParquet: A row group lacks a number, or has other columns.
    """
    found, _ = read_struct(memoryview(footer).cast("B"), 0, numbers=INT64)
    groups = []
    for group in found.get(4) or ():
        chunks = group.get(1)
        if not isinstance(chunks, list) or len(chunks) != columns:
            msg = f"a row group does not have the {columns} columns of the schema"
            raise NotParquet(msg)
        size = group.get(2)
        groups.append(Group(_number(group, 3), size or 0, tuple(map(_chunk, chunks))))
    return groups


def read_codecs(footer: Any) -> list[frozenset[int]]:
    """Return the compression of the columns of each row group, as numbers of Parquet.

    Arrow names them, but ends the process for a number that it does not know.

    Args:
        footer: Its bytes, without `TAIL`, of which `read_groups` has read the rest.

    Raises:
        NotParquet: A column has no compression.
    """
    found, _ = read_struct(memoryview(footer).cast("B"), 0, numbers=INT32)
    return [
        frozenset(_number(column.get(3) or {}, 4) for column in group.get(1) or ())
        for group in found.get(4) or ()
    ]


def _chunk(column: Mapping[int, Any]) -> Chunk:
    found = column.get(3)
    if not isinstance(found, dict):
        msg = "a column has no metadata"
        raise NotParquet(msg)
    start, dictionary = _number(found, 9), found.get(11)
    # As Arrow determines it.
    if isinstance(dictionary, int) and 0 < dictionary < start:
        start = dictionary
    return Chunk(start, _number(found, 7), _number(found, 5))


def read_pages(
    read: Callable[[int, int], Any],
    chunk: Chunk,
    limit: int,
    encodings: frozenset[int] = _ENCODINGS,
) -> ColumnPages:
    """Read the headers of the pages of a column chunk, and check them.

    Args:
        read: Returns bytes of the file, of an offset and a length; fewer at its end.
        chunk: The column; pages beyond its values are not read.
        limit: Maximum bytes of all pages without compression.
        encodings: Those that data pages may have.

    Raises:
        ExpandsTooFar: The pages exceed the limit.
        NotSupported: A page has another encoding.
        NotParquet: A header is invalid.
    """
    start, length, values = chunk
    end, found, expanded, dictionary, prefixed = start + length, 0, 0, 0, 0
    used = set[int]()
    while found < values:
        data = read(start, min(_LONGEST_HEADER, end - start))
        header, size = read_struct(memoryview(data).cast("B"), 0, numbers=INT32)
        kind, whole, stored = (_number(header, key) for key in (1, 2, 3))
        expanded += whole
        start += size + stored
        if start > end:
            msg = "a page ends beyond its column"
            raise NotParquet(msg)
        if expanded > limit:
            msg = f"its pages expand to {expanded} bytes, {limit} are allowed"
            raise ExpandsTooFar(msg)
        if kind == _DICTIONARY_PAGE:
            dictionary += max(1, whole)
            continue
        rows, encoding = _data(header, kind)
        if encoding not in encodings:
            msg = f"a page has the encoding {encoding}, which is unsupported"
            raise NotSupported(msg)
        used.add(encoding)
        if encoding == PREFIXES:
            prefixed = max(prefixed, whole)
        found += rows
    if found != values:
        msg = f"its pages have {found} values, the footer has {values}"
        raise NotParquet(msg)
    return ColumnPages(found, expanded, dictionary, frozenset(used), prefixed)


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
        msg = "the footer, or the header of a page, lacks a number, or it is negative"
        raise NotParquet(msg)
    return value
