"""The ring of one partition: records of Arrow messages in a mapped file."""

from __future__ import annotations

import mmap
import os
from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streamfactory.backends.shm.layout import (
    PADDING,
    PAGE,
    RECORD_HEAD,
    RING_HEAD,
    RING_MAGIC,
    VERSION,
    Damaged,
    Record,
    decode_record,
    encode_record,
    record_length,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from streamfactory.backends.shm.layout import Part
    from streamfactory.backends.shm.messages import Octets

_POPULATE_WRITE: Final = 23
"""Advice MADV_POPULATE_WRITE, which Python 3.11 does not name: a quarter less time than
to allocate pages first and to touch each afterwards."""


def ring_name(partition: int) -> str:
    """The file of the ring of a partition."""
    return f"{partition}.ring"


def create_ring(path: Path, partition: int, incarnation: bytes, capacity: int) -> None:
    """Create the file of a ring; only what is written to takes memory."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        head = RING_HEAD.pack(RING_MAGIC, VERSION, partition, incarnation, capacity)
        os.pwrite(file, head.ljust(PAGE, b"\0"), 0)
        os.ftruncate(file, PAGE + capacity)
    finally:
        os.close(file)


class Ring:
    """One ring, with an index of its records. Not thread-safe: the topic has a lock.

    Args:
        folder: Of the topic.
        partition: Which ring.
        incarnation: Of the topic.
        capacity: Bytes of its records.

    Raises:
        Damaged: The file is of another topic, or shorter than it should be.
    """

    def __init__(
        self, folder: Path, partition: int, incarnation: bytes, capacity: int
    ) -> None:
        self.capacity = capacity
        path = folder / ring_name(partition)
        self._file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            head = os.pread(self._file, RING_HEAD.size, 0)
            expected = (RING_MAGIC, VERSION, partition, incarnation, capacity)
            size = os.fstat(self._file).st_size
            if head != RING_HEAD.pack(*expected) or size != PAGE + capacity:
                msg = f"{path} is not the ring of this topic"
                raise Damaged(msg)
            whole = mmap.mmap(self._file, size, prot=mmap.PROT_READ)
        except BaseException:
            os.close(self._file)
            raise
        self.data = pa.py_buffer(whole).slice(PAGE)
        self._view = memoryview(whole)[PAGE:]
        self._bases = array("Q")
        self._positions = array("Q")
        """Of the records in the index. Numbers: a ring may hold a million records."""
        self._known: int | None = None
        """Position up to which records are in the index."""
        self._end: int | None = None
        """Offset behind the last one of them."""
        self.sound: set[int] = set()
        """Positions of records whose messages were validated here."""
        self._written: mmap.mmap | None = None
        """The file mapped for writing, from the first write on."""
        self._allocated = 0
        """Bytes of the file, from its beginning, that have memory."""

    def close(self) -> None:
        """Close the file. Batches that are held keep the memory mapped."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            if self._written is not None:
                self._written.close()

    # --- reading ----------------------------------------------------------------------

    def follow(self, part: Part) -> None:
        """Bring the index to the bounds of a state.

        Raises:
            Damaged: A record is not of the format; or it was overwritten meanwhile.
        """
        if self._known is None or self._known < part.tail:
            del self._bases[:], self._positions[:]
            self._known, self._end = part.tail, None
            self.sound.clear()
        while self._known < part.head:
            # Another thread may have followed a later state already.
            found = self.record(self._known, part.head - self._known)
            if found.kind != PADDING:
                end = self._end
                late = found.base + found.rows > part.latest
                if late or (end is not None and found.base != end):
                    msg = f"the record at position {found.position} has base "
                    msg += f"{found.base} and {found.rows} rows, after {end}, with "
                    msg += f"{part.latest} as the latest offset"
                    raise Damaged(msg)
                self._bases.append(found.base)
                self._positions.append(found.position)
                self._end = found.base + found.rows
            self._known += found.length
        if self._positions and self._positions[0] < part.tail:
            expired = bisect_left(self._positions, part.tail)
            self.sound.difference_update(self._positions[:expired])
            del self._positions[:expired], self._bases[:expired]

    def record(self, position: int, most: int) -> Record:
        """The record at a position.

        Raises:
            Damaged: None is there.
        """
        at = position % self.capacity
        head = self._view[at : at + RECORD_HEAD]
        return decode_record(head, position, min(most, self.capacity - at))

    @property
    def records(self) -> Iterator[Record]:
        """Those of the state that was followed last, in order of their offsets.

        Raises:
            Damaged: One was overwritten meanwhile.
        """
        return map(self._indexed, range(len(self._positions)))

    def at(self, offset: int) -> Record | None:
        """The record with the rows of an offset; None if it is not in the index.

        Raises:
            Damaged: It was overwritten meanwhile.
        """
        index = bisect_right(self._bases, offset) - 1
        if index < 0 or self._end is None or offset >= self._end:
            return None
        return self._indexed(index)

    def offset_at(self, timestamp_ms: int) -> int | None:
        """The first offset appended at or after a time.

        Raises:
            Damaged: A record was overwritten meanwhile.
        """
        index = bisect_left(
            range(len(self._bases)),
            timestamp_ms,
            key=lambda index: self._indexed(index).appended_ms,
        )
        return self._bases[index] if index < len(self._bases) else None

    def boundary(self, least: int, most: int) -> tuple[int, int] | None:
        """Position and first offset of a record.

        Args:
            least: The record is at this position or after it.
            most: The last record up to this position is meant, if there is one.
        """
        index = bisect_left(self._positions, least)
        index = max(index, bisect_right(self._positions, most) - 1)
        if index == len(self._positions):
            return None
        return self._positions[index], self._bases[index]

    def _indexed(self, index: int) -> Record:
        found = self.record(self._positions[index], self.capacity)
        if found.base != self._bases[index] or found.kind == PADDING:
            msg = f"the record at position {found.position} was replaced"
            raise Damaged(msg)
        return found

    def payload(self, record: Record) -> pa.Buffer:
        """The messages of a record, where they are."""
        at = record.position % self.capacity + RECORD_HEAD
        return self.data.slice(at, record.payload)

    # --- writing ----------------------------------------------------------------------

    def place(self, head: int, payload: int) -> tuple[int | None, int]:
        """Where the next record goes: the position of padding before it, its own."""
        left = self.capacity - head % self.capacity
        if record_length(payload) <= left:
            return None, head
        return head, head + left

    def write(self, record: Record, parts: Sequence[Octets]) -> None:
        """Write a record beyond the head: no reader looks there.

        Args:
            record: Its header.
            parts: Its payload.

        Raises:
            OSError: There is no memory left.
        """
        at = PAGE + record.position % self.capacity
        target = self._reserved(at + RECORD_HEAD + record.payload)
        for part in (encode_record(record), *parts):
            end = at + len(part)
            target[at:end] = memoryview(part).cast("B")
            at = end

    def _reserved(self, end: int) -> mmap.mmap:
        """The file mapped for writing, with memory for so many bytes of it.

        Without memory a write into the map would end the process. A call of the system
        that writes could not, but copies at less than half the speed.
        """
        if self._written is None:
            self._written = mmap.mmap(self._file, PAGE + self.capacity)
        if end > self._allocated:
            end = -(-end // PAGE) * PAGE
            populate(self._written, self._file, self._allocated, end)
            self._allocated = end
        return self._written


def populate(mapped: mmap.mmap, file: int, begin: int, end: int) -> None:
    """Make memory for a part of a mapped file, whose ends are those of pages.

    Raises:
        OSError: There is none left.
    """
    try:
        mapped.madvise(_POPULATE_WRITE, begin, end - begin)
    except OSError:  # Linux before 5.14 has no such advice; or there is no memory
        os.posix_fallocate(file, begin, end - begin)
