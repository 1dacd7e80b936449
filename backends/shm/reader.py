"""Reads records of the rings of a topic: mapped under a lease, or copied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streamfactory.arrowlog.disk import forks
from streamfactory.backends.shm.layout import PINNED, Damaged
from streamfactory.backends.shm.leases import Leases
from streamfactory.backends.shm.ring import Ring, check_messages, decode_rows
from streamfactory.spi import BatchValidator

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from streamfactory.backends.shm.control import Control
    from streamfactory.backends.shm.layout import Part, Record
    from streamfactory.backends.shm.settings import Settings

_SHARE: Final = 4
"""A process holds at most a quarter of a ring; of further rows it gets copies."""


class _Pin:
    """Keeps a record from being overwritten for as long as Arrow refers to it."""

    __slots__ = ("_entry", "_leases", "_pins", "_ring")

    def __init__(
        self, entry: int, leases: Leases, ring: Ring, pins: dict[int, int]
    ) -> None:
        self._entry = entry
        self._leases = leases
        self._ring = ring  # whose memory the buffer is
        self._pins = pins

    def __del__(self) -> None:
        self._pins.pop(self._entry, None)
        self._leases.remove(self._entry)


class RingReader:
    """The rings of one topic in this process. Thread-safe.

    Args:
        folder: Of the topic.
        control: Its control file.
        schema: Of its rows.
        settings: Whether rows are copied, and validated.
    """

    def __init__(
        self, folder: Path, control: Control, schema: pa.Schema, settings: Settings
    ) -> None:
        self._folder = folder
        self._control = control
        self._schema = schema
        self._settings = settings
        self._validator = BatchValidator(schema, values=settings.checks)
        self._lock = forks.Lock()
        self._rings: dict[int, Ring] = {}
        self._leases: Leases | None = None
        self._pins: dict[int, int] = {}
        """Bytes that are in use here, by entry of the leases."""

    def close(self) -> None:
        """Close all files. What batches refer to stays mapped and leased."""
        with self._lock:
            rings, self._rings = self._rings, {}
            leases, self._leases = self._leases, None
        for ring in rings.values():
            ring.close()
        if leases is not None:
            leases.close()

    @property
    def leases(self) -> Leases:
        """Those of this process; the file is created with the first one."""
        with self._lock:
            if self._leases is None or not self._leases.is_mine:
                self._leases, self._pins = Leases(self._folder), {}
            return self._leases

    def ring(self, partition: int) -> Ring:
        """The ring of a partition. The caller is a writer, or has the lock."""
        found = self._rings.get(partition)
        if found is None:
            control = self._control
            made = Ring(self._folder, partition, control.incarnation, control.capacity)
            found = self._rings[partition] = made
        return found

    def read(
        self, partition: int, part: Part, start: int
    ) -> tuple[pa.RecordBatch, int, int] | None:
        """The rows of the record with an offset, their bytes and first offset.

        Returns:
            None if the record was overwritten meanwhile.
        """
        record = self._found(partition, part, start)
        if record is None:
            return None
        payload = self._payload(partition, record)
        if payload is None:
            return None
        ring, sound = self._rings[partition], record.position
        checked = sound in ring.sound
        if not checked:
            check_messages(payload, record.kind)
        rows = decode_rows(payload, record.kind, self._schema)
        if rows.num_rows != record.rows or not rows.schema.equals(self._schema):
            msg = f"the record at position {record.position} has other rows than it "
            msg += "announces"
            raise Damaged(msg)
        if not checked:
            self._validator.validate(rows)
            ring.sound.add(sound)
        return rows, record.payload, record.base

    def position(self, partition: int, part: Part, offset: int) -> int:
        """The position of the record with an offset; the head at the latest."""
        if offset >= part.latest:
            return part.head
        found = self._found(partition, part, offset)
        return part.tail if found is None else found.position

    def offset_at(self, partition: int, part: Part, timestamp_ms: int) -> int | None:
        """The first offset appended at or after a time."""
        with self._lock:
            ring = self._follow(partition, part)
            return None if ring is None else ring.offset_at(timestamp_ms)

    def sizes(self, partition: int, part: Part) -> Sequence[tuple[int, int, int]]:
        """Base, end and bytes of all records."""
        with self._lock:
            ring = self._follow(partition, part)
            records = () if ring is None else ring.records
            return [(r.base, r.base + r.rows, r.payload) for r in records]

    def first_after(self, partition: int, part: Part, position: int) -> tuple[int, int]:
        """Position and offset of the first record at or after a position."""
        with self._lock:
            ring = self._follow(partition, part)
            for record in () if ring is None else ring.records:
                if record.position >= position:
                    return record.position, record.base
        return part.head, part.latest

    def _found(self, partition: int, part: Part, offset: int) -> Record | None:
        with self._lock:
            ring = self._follow(partition, part)
            return None if ring is None else ring.at(offset)

    def _follow(self, partition: int, part: Part) -> Ring | None:
        """The ring, with its index brought up to date; None if that is overwritten."""
        ring = self.ring(partition)
        try:
            ring.follow(part)
        except Damaged:
            if self._tail(partition) > part.tail:
                return None
            raise
        return ring

    def _payload(self, partition: int, record: Record) -> pa.Buffer | None:
        """The messages of a record, in memory that no process writes to meanwhile."""
        ring = self._rings[partition]
        found = ring.payload(record)
        entry = None
        mapped = sum(self._pins.copy().values()) + record.length
        if not self._settings.copies and mapped <= ring.capacity // _SHARE:
            entry = self.leases.add(PINNED, partition, record.position)
        if entry is None:
            copied = pa.py_buffer(found.to_pybytes())
            return copied if self._tail(partition) <= record.position else None
        self._pins[entry] = record.length
        pin = _Pin(entry, self.leases, ring, self._pins)
        # After the lease: a writer moves the tail first, and looks at leases then.
        if self._tail(partition) > record.position:
            return None
        return pa.foreign_buffer(found.address, found.size, pin)

    def _tail(self, partition: int) -> int:
        return self._control.state().parts[partition].tail
