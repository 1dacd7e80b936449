"""Reads records of the rings of a topic: mapped under a lease, or copied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from streamfactory.arrowlog.disk import forks
from streamfactory.backends.shm.layout import PINNED, Damaged
from streamfactory.backends.shm.leases import Leases
from streamfactory.backends.shm.messages import check_messages, decode_rows
from streamfactory.backends.shm.ring import Ring
from streamfactory.spi import BatchValidator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from streamfactory.backends.shm.control import Control
    from streamfactory.backends.shm.layout import Part, Record
    from streamfactory.backends.shm.settings import Settings

T = TypeVar("T")
"""What an index is asked for."""
_SHARE: Final = 4
"""A process holds at most a quarter of a ring; of further rows it gets copies."""
_COPIED: Final = 2048
"""Bytes of a record that is copied sooner than a lease for it is made."""


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
        found = self._payload(partition, record)
        if found is None:
            return None
        payload, copied = found
        ring = self._rings[partition]
        # Nobody changes a copy after it was checked; so each one is.
        checked = not copied and record.position in ring.sound
        if not checked:
            check_messages(payload, record.kind)
        rows = decode_rows(payload, record.kind, self._schema)
        if rows.num_rows != record.rows or not rows.schema.equals(self._schema):
            msg = f"the record at position {record.position} has other rows than it "
            msg += "announces"
            raise Damaged(msg)
        if not checked:
            self._validator.validate(rows)
        if not copied:
            ring.sound.add(record.position)
        return rows, record.payload, record.base

    def position(self, partition: int, part: Part, offset: int) -> int:
        """The position of the record with an offset; the head at the latest."""
        if offset >= part.latest:
            return part.head
        found = self._found(partition, part, offset)
        return part.tail if found is None else found.position

    def offset_at(self, partition: int, part: Part, timestamp_ms: int) -> int | None:
        """The first offset appended at or after a time."""
        return self._looked(partition, part, lambda ring: ring.offset_at(timestamp_ms))

    def sizes(self, partition: int, part: Part) -> Sequence[tuple[int, int, int]]:
        """Base, end and bytes of all records."""

        def sizes_of(ring: Ring) -> Sequence[tuple[int, int, int]]:
            return [(r.base, r.base + r.rows, r.payload) for r in ring.records]

        return self._looked(partition, part, sizes_of) or ()

    def boundary(
        self, partition: int, part: Part, least: int, most: int
    ) -> tuple[int, int]:
        """As `Ring.boundary`; the head and the latest offset if there is none."""
        found = self._looked(partition, part, lambda ring: ring.boundary(least, most))
        return found or (part.head, part.latest)

    def _found(self, partition: int, part: Part, offset: int) -> Record | None:
        return self._looked(partition, part, lambda ring: ring.at(offset))

    def _looked(
        self, partition: int, part: Part, look: Callable[[Ring], T | None]
    ) -> T | None:
        """What a ring answers when its index is up to date.

        Returns:
            None, too, if the records were overwritten meanwhile.
        """
        with self._lock:
            ring = self.ring(partition)
            try:
                ring.follow(part)
                return look(ring)
            except Damaged:
                if self._tail(partition) > part.tail:
                    return None
                raise

    def _payload(self, partition: int, record: Record) -> tuple[pa.Buffer, bool] | None:
        """The messages of a record, in memory that no writer overwrites.

        Returns:
            The messages, and whether they are a copy; None if they were overwritten.
        """
        ring = self._rings[partition]
        found = ring.payload(record)
        entry = None
        if not self._settings.copies and record.length > _COPIED:
            mapped = sum(self._pins.copy().values()) + record.length
            if mapped <= ring.capacity // _SHARE:
                entry = self.leases.add(PINNED, partition, record.position)
        if entry is None:
            copied = pa.py_buffer(found.to_pybytes())
            is_held = self._tail(partition) <= record.position
            return (copied, True) if is_held else None
        self._pins[entry] = record.length
        pin = _Pin(entry, self.leases, ring, self._pins)
        # After the lease: a writer moves the tail first, and looks at leases then.
        if self._tail(partition) > record.position:
            return None
        return pa.foreign_buffer(found.address, found.size, pin), False

    def _tail(self, partition: int) -> int:
        parts = self._control.state().parts
        if partition >= len(parts):
            msg = f"partition {partition} of the topic has vanished"
            raise Damaged(msg)
        return parts[partition].tail
