"""Deletion vectors: which rows of a data file are marked as deleted.

The format is that of Delta's protocol: an array of Roaring bitmaps, in the log itself
or in a file of the table.
"""

from __future__ import annotations

import string
import zlib
from base64 import b85decode
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import numpy as np

from streamfactory.spi import CorruptData, FormatRefused
from streamfactory.tables import (
    MOST_MARKED,
    PieceGone,
    check_size,
    path_below,
    relative_path,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streamfactory.backends.delta.actions import Vector
    from streamfactory.tables import Piece, TableFiles

_MAGIC: Final = 1681511377
_PLAIN: Final = 12346
"""Cookie of a bitmap without run containers; one with them has `_RUNS`."""
_RUNS: Final = 12347
_OFFSETS_FROM: Final = 4
"""A bitmap with run containers has a header of offsets from so many containers on."""
_LAST: Final = 1 << 48
_ARRAY: Final = 4096
"""Values of an array container at the most; one with more is a bit for each value."""
_WORDS: Final = 8192
_LETTERS: Final = string.ascii_lowercase + string.ascii_uppercase
_Z85: Final = string.digits + _LETTERS + ".-:+=^!/*?&<>()[]{}@%$#"
_B85: Final = string.digits + _LETTERS.swapcase() + "!#$%&()*+-;<=>?@^_`{|}~"
_TO_B85: Final = str.maketrans(_Z85, _B85)
_UUID: Final = 20
"""Characters of an encoded UUID."""


def chosen_rows(
    files: TableFiles, piece: Piece, location: str, most: int
) -> tuple[NDArray[np.int64], bool] | None:
    """The rows of a data file that its deletion vectors choose; None means all.

    Args:
        files: Of the table.
        piece: Of the data file; its detail may have descriptors of vectors: ``inside``
            of the rows that are meant, ``outside`` of rows that are left out.
        location: Of the table, for messages.
        most: Bytes that a vector may have.

    Returns:
        Numbers of rows, rising, and whether they are the rows wanted or the others.

    Raises:
        PieceGone: The file of a vector was removed.
        CorruptData: data_loss; a vector is damaged, or marks a row beyond the file.
        FormatRefused: permanent; a vector is too large, or outside of the table.
    """
    rows = {}
    for name in ("inside", "outside"):
        vector: Any = (piece.detail or {}).get(name)
        if vector is None:
            continue
        marked = rows[name] = marked_rows(files, vector, location, most)
        if marked.size and marked[-1] >= piece.span:
            what = f"a deletion vector marks row {marked[-1]} of {piece.path!r}, "
            what += f"which has {piece.span} rows"
            raise CorruptData(what)
    if "inside" not in rows:
        return (rows["outside"], False) if rows else None
    if "outside" not in rows:
        return rows["inside"], True
    return np.setdiff1d(rows["inside"], rows["outside"], assume_unique=True), True


def marked_rows(
    files: TableFiles, vector: Vector, location: str, most: int
) -> NDArray[np.int64]:
    """Numbers of the rows that a deletion vector marks, rising.

    Args:
        files: Of the table.
        vector: As the log describes it.
        location: Of the table, for messages.
        most: Bytes that the vector may have.

    Raises:
        PieceGone: The file of the vector was removed.
        CorruptData: data_loss; the vector is damaged.
        FormatRefused: permanent; it is too large, or outside of the table.
    """
    check_size("a deletion vector", vector.size, most)
    if vector.rows > MOST_MARKED:
        what = f"a deletion vector of the table marks {vector.rows} rows, more than "
        what += f"{MOST_MARKED}"
        raise FormatRefused(
            what, remedy="rewrite the file with REORG TABLE ... APPLY (PURGE)"
        )
    try:
        if vector.kind == "i":
            body = _decoded(vector.text)[: vector.size]
        else:
            path = vector_path(vector, location)
            body = _stored(files, path, vector.offset, vector.size)
        return _rows(body, vector.rows)
    except (IndexError, ValueError) as error:
        if isinstance(error, (CorruptData, FormatRefused)):
            raise
        what = f"a deletion vector of the table is damaged: {error}"
        raise CorruptData(what) from error


def vector_path(vector: Vector, location: str) -> str:
    """The path of the file of a deletion vector, below the table.

    Args:
        vector: Stored in a file.
        location: Of the table.

    Raises:
        ValueError: The log does not describe one.
        FormatRefused: permanent; the file is outside of the table.
    """
    kind, text = vector.kind, vector.text
    if kind == "u":
        prefix, name = text[:-_UUID], UUID(bytes=_decoded(text[-_UUID:]))
        path = f"{prefix}/" if prefix else ""
        return relative_path(f"{path}deletion_vector_{name}.bin", location)
    if kind == "p":
        return path_below(location, text)
    what = f"its storage type is {kind!r}"
    raise ValueError(what)


def _stored(files: TableFiles, path: str, offset: int, size: int) -> bytes:
    """The vector at an offset of a file: its size, its bytes, their checksum."""
    try:
        with files.open(path) as file:
            found = file.read_at(size + 8, offset) if offset <= file.size() else b""
    except FileNotFoundError as error:
        what = f"{path!r} does not exist"
        raise PieceGone(what) from error
    body = found[4 : 4 + size]
    checksum = int.from_bytes(found[4 + size :], "big")
    whole = len(found) == size + 8 and int.from_bytes(found[:4], "big") == size
    if not whole or zlib.crc32(body) != checksum:
        what = f"{path!r} does not have it at {offset}"
        raise ValueError(what)
    return body


def _decoded(text: str) -> bytes:
    """Bytes of text in Z85."""
    if len(text) % 5 or not set(text) <= set(_Z85):
        what = "its text is not in base 85"
        raise ValueError(what)
    return b85decode(text.translate(_TO_B85))


class _Bytes:
    """Reads numbers from bytes, front to back."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def numbers(self, kind: str, count: int) -> NDArray[Any]:
        found = np.frombuffer(self._data, kind, count, self._at)
        self._at += found.nbytes
        return found

    def number(self, kind: str) -> int:
        return int(self.numbers(kind, 1)[0])


def _rows(body: bytes, cardinality: int) -> NDArray[np.int64]:
    data = _Bytes(body)
    if data.number("<u4") != _MAGIC:
        what = "it is of an unknown format"
        raise ValueError(what)
    found: list[NDArray[np.int64]] = []
    left = cardinality
    for _ in range(data.number("<u8")):
        base = data.number("<u4") << 32
        if base > _LAST:
            what = "it marks rows beyond what a file can have"
            raise ValueError(what)
        for container in _bitmap(data, base, left):
            found.append(container)
            left -= len(container)
    rows = np.concatenate(found) if found else np.empty(0, np.int64)
    if left or (np.diff(rows) <= 0).any():
        what = f"it has not the {cardinality} rows that the log states"
        raise ValueError(what)
    return rows


def _bitmap(data: _Bytes, base: int, most: int) -> list[NDArray[np.int64]]:
    """The containers of a Roaring bitmap; no more than so many values are held."""
    cookie = data.number("<u4")
    runs: NDArray[Any] | None = None
    if cookie & 0xFFFF == _RUNS:
        count = (cookie >> 16) + 1
        flags = data.numbers("u1", (count + 7) // 8)
        runs = np.unpackbits(flags, bitorder="little")
    elif cookie == _PLAIN:
        count = data.number("<u4")
    else:
        what = "it has an unknown bitmap"
        raise ValueError(what)
    header = data.numbers("<u2", 2 * count).astype(np.int64)
    keys, sizes = header[::2], header[1::2] + 1
    if sizes.sum() > most:
        what = "it has more rows than the log states"
        raise ValueError(what)
    if runs is None or count >= _OFFSETS_FROM:
        data.numbers("<u4", count)
    found = []
    for at in range(count):
        run = runs is not None and bool(runs[at])
        values = _container(data, int(sizes[at]), run=run)
        if len(values) != sizes[at]:
            what = "a bitmap has another number of rows than it states"
            raise ValueError(what)
        found.append(values.astype(np.int64) + (base + (int(keys[at]) << 16)))
    return found


def _container(data: _Bytes, size: int, *, run: bool) -> NDArray[Any]:
    if run:
        pairs = data.numbers("<u2", 2 * data.number("<u2")).astype(np.int64)
        starts, lengths = pairs[::2], pairs[1::2] + 1
        if lengths.sum() != size or (starts + lengths > 1 << 16).any():
            return starts[:0]
        before = np.cumsum(lengths) - lengths
        return np.repeat(starts - before, lengths) + np.arange(size)
    if size <= _ARRAY:
        return data.numbers("<u2", size)
    bits = np.unpackbits(data.numbers("u1", _WORDS), bitorder="little")
    return np.flatnonzero(bits)
