"""Messages of ``pgoutput``, the format of logical decoding (protocol version 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct, error
from typing import Final

from streamfactory import spi

_BEGIN: Final = Struct(">QqI")
_COMMIT: Final = Struct(">BQQq")
_OID: Final = Struct(">I")
_COUNT: Final = Struct(">H")
_COLUMN: Final = Struct(">Ii")
_TRUNCATE: Final = Struct(">IB")
_EPOCH: Final = 946_684_800_000_000
"""Microseconds between 1970 and 2000, where PostgreSQL's times begin."""
_TEXT, _NULL, _UNCHANGED = b"tnu"

Values = list[bytes | None]
"""Of a row, as text; None is null."""


@dataclass(frozen=True, slots=True)
class Begin:
    """The next changes are those of one transaction."""

    lsn: int
    """Where the record of its commit begins."""
    time: int
    """Of the commit, in microseconds since 1970, UTC."""


@dataclass(frozen=True, slots=True)
class Commit:
    """The transaction is complete."""

    end: int
    """Where the record of its commit ends."""


@dataclass(frozen=True, slots=True)
class Relation:
    """Columns of a table, for the changes that follow."""

    oid: int
    columns: Sequence[tuple[str, int, int]]
    """Name, oid of the type, and type modifier."""


@dataclass(frozen=True, slots=True)
class Change:
    """One row was inserted, updated or deleted."""

    oid: int
    old: Values | None
    new: Values | None
    whole: bool
    """Whether ``old`` has all columns, and not only those of the key."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """All rows of tables were removed."""

    oids: Sequence[int]


Message = Begin | Commit | Relation | Change | Truncate


def parse(data: bytes) -> Message | None:
    """One message; None for one that readers of rows do not need.

    Raises:
        spi.CorruptData: data_loss; it is not complete, or not of this protocol.
    """
    try:
        return _parse(data)
    except (error, IndexError, ValueError) as cause:
        msg = f"a message of pgoutput cannot be read: {cause}"
        raise spi.CorruptData(msg) from cause


def _parse(data: bytes) -> Message | None:
    kind = data[:1]
    if kind in (b"I", b"U", b"D"):
        return _change(kind, data)
    if kind == b"B":
        lsn, time, _ = _BEGIN.unpack_from(data, 1)
        return Begin(lsn, time + _EPOCH)
    if kind == b"C":
        _, _, end, _ = _COMMIT.unpack_from(data, 1)
        return Commit(end)
    if kind == b"R":
        return _relation(data)
    if kind == b"T":
        count, _ = _TRUNCATE.unpack_from(data, 1)
        at = 1 + _TRUNCATE.size
        return Truncate(
            [_OID.unpack_from(data, at + 4 * index)[0] for index in range(count)]
        )
    return None  # a type, an origin, or a message of an application


def _change(kind: bytes, data: bytes) -> Change:
    (oid,) = _OID.unpack_from(data, 1)
    if kind == b"I":
        return Change(oid, None, _values(data, 6, None)[0], whole=True)
    part = data[5:6]
    if part == b"N":
        return Change(oid, None, _values(data, 6, None)[0], whole=False)
    old, at = _values(data, 6, None)
    whole = part == b"O"
    if kind == b"D":
        return Change(oid, old, None, whole=whole)
    return Change(oid, old, _values(data, at + 1, old)[0], whole=whole)


def _values(data: bytes, at: int, old: Values | None) -> tuple[Values, int]:
    """The values of a row, and where they end.

    A long value that an update did not touch is not sent: it is that of the old row.
    """
    (count,) = _COUNT.unpack_from(data, at)
    at += 2
    values: Values = []
    for index in range(count):
        kind = data[at]
        at += 1
        if kind == _TEXT:
            begin = at + 4
            at = begin + _OID.unpack_from(data, at)[0]
            values.append(data[begin:at])
        elif kind == _UNCHANGED:
            values.append(None if old is None else old[index])
        elif kind == _NULL:
            values.append(None)
        else:
            msg = f"pgoutput sent a value of the unknown kind {kind}"
            raise IndexError(msg)
    if at > len(data):
        msg = "a message of pgoutput is not complete"
        raise IndexError(msg)
    return values, at


def _relation(data: bytes) -> Relation:
    (oid,) = _OID.unpack_from(data, 1)
    at = data.index(b"\0", data.index(b"\0", 5) + 1) + 2  # names, replica identity
    (count,) = _COUNT.unpack_from(data, at)
    at += 2
    found = []
    for _ in range(count):
        end = data.index(b"\0", at + 1)
        found.append((data[at + 1 : end].decode(), *_COLUMN.unpack_from(data, end + 1)))
        at = end + 1 + _COLUMN.size
    return Relation(oid, tuple(found))
