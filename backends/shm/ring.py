"""The ring of one partition: records of Arrow messages in a mapped file."""

from __future__ import annotations

import mmap
import os
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streamfactory import arrowipc as ipc
from streamfactory.backends.shm.layout import (
    MESSAGE,
    PADDING,
    PAGE,
    RECORD_HEAD,
    RING_HEAD,
    RING_MAGIC,
    STREAM,
    VERSION,
    Damaged,
    Record,
    decode_record,
    encode_record,
    record_length,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from streamfactory.backends.shm.layout import Part

_MOST_HEADER: Final = 64 << 20


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
        self._bases: list[int] = []
        self._records: list[Record] = []
        self._known: int | None = None
        """Position up to which records are in the index."""
        self.sound: set[int] = set()
        """Positions of records whose messages were validated here."""

    def close(self) -> None:
        """Close the file. Batches that are held keep the memory mapped."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    # --- reading ----------------------------------------------------------------------

    def follow(self, part: Part) -> None:
        """Bring the index to the bounds of a state.

        Raises:
            Damaged: A record is not of the format; or it was overwritten meanwhile.
        """
        if self._known is None or self._known < part.tail:
            self._bases, self._records, self._known = [], [], part.tail
            self.sound.clear()
        while self._known < part.head:
            # Another thread may have followed a later state already.
            found = self.record(self._known, part.head - self._known)
            expected = self._records[-1] if self._records else None
            if found.kind != PADDING:
                end = expected and expected.base + expected.rows
                late = found.base + found.rows > part.latest
                if late or (end is not None and found.base != end):
                    msg = f"the record at position {found.position} has base "
                    msg += f"{found.base} and {found.rows} rows, after {end}, with "
                    msg += f"{part.latest} as the latest offset"
                    raise Damaged(msg)
                self._bases.append(found.base)
                self._records.append(found)
            self._known += found.length
        expired = bisect_left(self._records, part.tail, key=lambda r: r.position)
        if expired:
            self.sound.difference_update(r.position for r in self._records[:expired])
            del self._records[:expired], self._bases[:expired]

    def record(self, position: int, most: int) -> Record:
        """The record at a position.

        Raises:
            Damaged: None is there.
        """
        at = position % self.capacity
        head = self._view[at : at + RECORD_HEAD]
        return decode_record(head, position, min(most, self.capacity - at))

    @property
    def records(self) -> Sequence[Record]:
        """Those of the state that was followed last, in order of their offsets."""
        return self._records

    def at(self, offset: int) -> Record | None:
        """The record with the rows of an offset; None if it is not in the index."""
        index = bisect_right(self._bases, offset) - 1
        if index < 0:
            return None
        found = self._records[index]
        return found if offset < found.base + found.rows else None

    def offset_at(self, timestamp_ms: int) -> int | None:
        """The first offset appended at or after a time."""
        index = bisect_left(self._records, timestamp_ms, key=lambda r: r.appended_ms)
        return self._bases[index] if index < len(self._records) else None

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

    def write(self, record: Record, payload: pa.Buffer | None) -> None:
        """Write a record beyond the head: no reader looks there.

        Raises:
            OSError: There is no memory left.
        """
        at = PAGE + record.position % self.capacity
        parts: list[bytes | memoryview] = [encode_record(record)]
        if payload is not None:
            parts.append(memoryview(payload))
        written = os.pwritev(self._file, parts, at)
        expected = sum(len(part) for part in parts)
        while written < expected:  # a call writes 2 GiB at most
            rest = memoryview(b"".join(parts))[written:]
            written += os.pwrite(self._file, rest, at + written)


# --- messages -----------------------------------------------------------------------


def encode_rows(rows: pa.RecordBatch, *, dictionaries: bool) -> pa.Buffer:
    """The messages of a batch: one, or a stream where the schema has dictionaries."""
    if not dictionaries:
        return rows.serialize()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return sink.getvalue()


def check_messages(payload: pa.Buffer, kind: int) -> None:
    """Check the headers of all messages of a record, before Arrow reads them.

    Raises:
        ipc.NotIpc, ipc.IpcTooLong: They are not those of a record.
    """
    data, at = memoryview(payload), 0
    kinds: list[int] = []
    while at < len(data):
        if len(data) - at < ipc.PREFIX:
            msg = "a message ends before its header"
            raise ipc.NotIpc(msg)
        length = ipc.header_length(data[at : at + ipc.PREFIX], _MOST_HEADER)
        begin, at = at + ipc.PREFIX, at + ipc.PREFIX + length
        if length == 0:
            break
        header = ipc.read_header(data[begin:at], len(data) - at)
        if header.compressed is not None or header.foreign_order:
            msg = "a message is compressed, or of another order of bytes"
            raise ipc.NotIpc(msg)
        kinds.append(header.kind)
        at += header.body
    single = kinds == [ipc.ROWS]
    stream = kinds[:1] == [ipc.SCHEMA] and kinds[-1:] == [ipc.ROWS]
    if at != len(data) or not (single if kind == MESSAGE else stream):
        msg = f"a record has messages of kinds {kinds[:10]}"
        raise ipc.NotIpc(msg)


def decode_rows(payload: pa.Buffer, kind: int, schema: pa.Schema) -> pa.RecordBatch:
    """The batch of a record, in the memory of its payload.

    Raises:
        Damaged: Arrow cannot read the messages.
    """
    try:
        if kind == STREAM:
            with pa.ipc.open_stream(payload) as reader:
                return reader.read_next_batch()
        return pa.ipc.read_record_batch(payload, schema)
    except (pa.ArrowException, ValueError, OSError, StopIteration) as error:
        msg = f"the messages of a record cannot be read: {error}"
        raise Damaged(msg) from error
