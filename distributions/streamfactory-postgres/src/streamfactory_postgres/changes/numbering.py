"""Offsets of changes: where a transaction was committed, and a number within it.

An offset is::

    position of the commit in the WAL / 32 * 2**16 + code of the change's number

Two commits are at least 40 bytes apart, so that no two have the same quotient. 47 bits
are left for it: a cluster has offsets for 4 PiB of WAL. A position in the WAL can be
computed from each offset, which is what a slot is advanced to.

A transaction may have any number of changes, and a later one may be committed 40 bytes
behind it: 16 bits have to do. The first 4096 changes have an offset each; then 2048
offsets count runs of 2 changes, the next 2048 runs of 4, and so on up to 2**42 changes.
The changes of a run are one message (docs/design/postgres-changes.md).
"""

from __future__ import annotations

from typing import Final

from streamfactory import spi

_BITS: Final = 16
_SHIFT: Final = 5
_EXACT: Final = 12
"""Bits of numbers that are their own code."""
_LAST: Final = 1 << (63 - _BITS + _SHIFT)


def offset_of(lsn: int, number: int = 0) -> int:
    """The offset of a change.

    Args:
        lsn: Where the record of the commit begins; for a bound, where a record ends.
        number: Of the change within its transaction, from 0.

    Raises:
        spi.Unsupported: misuse; the cluster has written more than 4 PiB of WAL.
    """
    if lsn >= _LAST:
        msg = f"the WAL position {text_of(lsn)} has no offset: it exceeds 52 bits"
        raise spi.Unsupported(msg)
    return lsn >> _SHIFT << _BITS | _code(number)


def lsn_of(offset: int) -> int:
    """A position in the WAL with all commits at or after an offset behind it."""
    return offset >> _BITS << _SHIFT


def begin_run(number: int) -> int:
    """The first number, from this one on, with another offset than the last one."""
    if number < 1 << _EXACT:
        return number
    run = (number - 1).bit_length() - _EXACT
    return number if run <= 0 else ((number - 1 >> run) + 1) << run


def text_of(lsn: int) -> str:
    """A position as PostgreSQL writes it, such as ``0/1528FA8``."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_from(text: str) -> int:
    """The position that PostgreSQL writes so."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def _code(number: int) -> int:
    if number < 1 << _EXACT:
        return number
    run = number.bit_length() - _EXACT
    return (run << (_EXACT - 1)) + (number >> run)
