"""Appends epochs to the rings of a topic. The caller has the lock of its writers."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streamfactory.arrowlog.checks import no_such_partition
from streamfactory.arrowlog.disk.names import topic_of
from streamfactory.arrowlog.disk.records import WriterState
from streamfactory.arrowlog.values import Committed
from streamfactory.arrowlog.writers import committed_before
from streamfactory.backends.shm.control import Known
from streamfactory.backends.shm.layout import (
    BLOCKS,
    PADDING,
    PINNED,
    READING,
    Part,
    Record,
    record_length,
)
from streamfactory.backends.shm.leases import held_by_all
from streamfactory.backends.shm.messages import RowEncoder
from streamfactory.backends.shm.staging import StagedRows, too_large
from streamfactory.spi import StreamTimeout

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from streamfactory.arrowlog.values import Epoch, Staged
    from streamfactory.backends.shm.control import Control
    from streamfactory.backends.shm.leases import Held
    from streamfactory.backends.shm.messages import Octets
    from streamfactory.backends.shm.reader import RingReader
    from streamfactory.backends.shm.settings import Settings
    from streamfactory.spi import BatchValidator

_PIECE: Final = 8
"""A record takes about this part of a ring at most."""
_SPARE: Final = 16
"""A ring gives up about this part more than it has to, where records are smaller."""
_POLL: Final = 0.002
_LEAST_ROOM: Final = 16 << 20
"""Bytes of a staged file that are always read."""

Write = tuple[int, Record, "Sequence[Octets]"]


class Appender:
    """Commits epochs.

    Args:
        folder: Of the topic.
        control: Its control file.
        reader: Its rings.
        settings: How long readers are waited for.
    """

    def __init__(
        self, folder: Path, control: Control, reader: RingReader, settings: Settings
    ) -> None:
        self._folder = folder
        self._control = control
        self._reader = reader
        self._patience = settings.patience
        self._encoder = RowEncoder(control.schema)
        self._unpinned: dict[int, int] = {}
        """By partition, a position before which no process can hold bytes."""

    def commit(
        self, epoch: Epoch, validator: BatchValidator, incarnation: str, now: int
    ) -> Committed:
        """Append the rows of an epoch; as `Log.commit`."""
        known = self._control.known()
        writer = None if epoch.writer is None else known.writers.get(epoch.writer)
        staged = self._staged(epoch.attempts, validator, incarnation)
        held = committed_before(epoch, writer)
        if held is not None:
            staged.discard()
            return Committed(held)
        rows = staged.read(known.recent)
        before = list(self._control.state().parts)
        now = max(now, self._control.state().appended_ms)
        parts, writes = self._placed(before, rows, now, replace_all=epoch.replace)
        self._make_room(before, parts)
        for partition, record, messages in writes:
            self._reader.ring(partition).write(record, messages)
        recent = [*known.recent, *staged.carried()]
        writers = _with(known.writers, epoch, now)
        self._control.publish(parts, Known(writers, recent), now)
        staged.discard()
        placed = {
            number: range(old.latest, new.latest)
            for number, (old, new) in enumerate(zip(before, parts, strict=True))
            if new.latest > old.latest
        }
        return Committed(placed=placed)

    def discard(
        self, staged: Staged, validator: BatchValidator, incarnation: str
    ) -> None:
        """Remove the rows of a sealed attempt."""
        self._staged([staged], validator, incarnation).discard()

    def _staged(
        self, attempts: Sequence[Staged], validator: BatchValidator, incarnation: str
    ) -> StagedRows:
        room = self._control.capacity * len(self._control.state().parts)
        # Twice, so that rows which are a little too many are refused with their size.
        most = max(2 * room, _LEAST_ROOM)
        return StagedRows(attempts, self._folder, validator, incarnation, most)

    def claimed(
        self, before: WriterState | None, instance: str, now: int
    ) -> WriterState:
        """A writer that an instance has claimed."""
        return replace(before or WriterState("", now), owner=instance, at=now)

    # --- where records go -------------------------------------------------------------

    def _placed(
        self,
        before: Sequence[Part],
        rows: Mapping[int, Sequence[pa.RecordBatch]],
        now: int,
        *,
        replace_all: bool,
    ) -> tuple[list[Part], list[Write]]:
        """The bounds after an epoch, and the records to write.

        Raises:
            MessageTooLarge: permanent; the rows of a partition have no room in a ring.
            TopicNotFound: permanent; staged rows name a partition that does not exist.
        """
        parts, writes = list(before), list[Write]()
        if replace_all:
            parts = [Part(p.latest, p.latest, p.head, p.head) for p in parts]
        for partition, batches in rows.items():
            if not 0 <= partition < len(parts):
                topic = topic_of(self._folder.name) or ""
                raise no_such_partition(topic, partition, len(parts))
            part = parts[partition]
            head, base = part.head, part.latest
            ring = self._reader.ring(partition)
            for batch in self._pieces(batches):
                messages = self._encoder.encode(batch)
                size = sum(map(len, messages))
                padding, at = ring.place(head, size)
                if padding is not None:
                    gap = Record(padding, at - padding, base, 0, now, 0, PADDING)
                    writes.append((partition, gap, ()))
                length, count = record_length(size), batch.num_rows
                kind = self._encoder.kind
                record = Record(at, length, base, count, now, size, kind)
                writes.append((partition, record, messages))
                head, base = at + length, base + count
            if head - part.head > self._control.capacity:
                raise too_large(partition, head - part.head, self._control.capacity)
            parts[partition] = part._replace(latest=base, head=head)
            if replace_all:
                parts[partition] = parts[partition]._replace(tail=part.head)
        return parts, writes

    def _pieces(self, batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
        most, found = self._control.capacity // _PIECE, []
        for batch in batches:
            size = pa.ipc.get_record_batch_size(batch)
            if size <= most:
                found.append(batch)
                continue
            many = min(-(-size // most), batch.num_rows)
            step = -(-batch.num_rows // many)
            found += [batch.slice(at, step) for at in range(0, batch.num_rows, step)]
        return found

    # --- room -------------------------------------------------------------------------

    def _make_room(self, before: list[Part], parts: list[Part]) -> None:
        """Give up the oldest records where the new ones go, and wait for readers.

        The tails are moved before a byte is overwritten: who reads a record looks at
        the tail again after its lease. Small records are given up many at a time.

        Raises:
            StreamTimeout: transient; readers hold the bytes for too long.
        """
        needed = {
            number: new.head - self._control.capacity
            for number, (old, new) in enumerate(zip(before, parts, strict=True))
            if new.head > max(old.head, self._control.capacity)
        }
        full = [number for number in needed if before[number].tail < needed[number]]
        if full:
            limits = self._limits(before, {number: needed[number] for number in full})
            self._wait(lambda: self._pinned(needed), "holds")
            moved = list(before)
            for number, most in limits.items():
                old, new = before[number], parts[number]
                tail, earliest = self._reader.boundary(
                    number, old, needed[number], most
                )
                earliest = max(earliest, old.earliest)
                moved[number] = old._replace(tail=tail, earliest=earliest)
                if new.tail < tail:
                    parts[number] = new._replace(tail=tail, earliest=earliest)
            self._control.publish(moved)
        if any(at > self._unpinned.get(number, 0) for number, at in needed.items()):
            self._wait(lambda: self._pinned(needed), "holds")

    def _limits(
        self, before: Sequence[Part], needed: Mapping[int, int]
    ) -> Mapping[int, int]:
        """Positions up to which the records of full rings are given up.

        Where writers wait for readers: after all readers are beyond what is needed, and
        not further than they are.
        """
        spare = self._control.capacity // _SPARE
        limits = {number: at + spare for number, at in needed.items()}
        if self._control.flags & BLOCKS:
            tails = {
                number: self._reader.boundary(number, before[number], at, at)[0]
                for number, at in needed.items()
            }
            self._wait(lambda: self._unread(tails), "has not read")
            read = self._first(READING)
            for number, at in needed.items():
                # Its reader may have ended since.
                last = read[number].position if number in read else at
                limits[number] = max(at, min(limits[number], last))
        return limits

    def _pinned(self, needed: Mapping[int, int]) -> str | None:
        """The process that holds bytes which are to be overwritten."""
        tails = {number: self._control.state().parts[number].tail for number in needed}
        first = self._first(PINNED)
        for number, at in needed.items():
            if number in first and first[number].position < at:
                return _text(first[number])
        # Nobody can take a lease before the tail any more.
        for number, tail in tails.items():
            held = first.get(number)
            self._unpinned[number] = min(tail, held.position if held else tail)
        return None

    def _unread(self, tails: Mapping[int, int]) -> str | None:
        """A reader that needs records which are to be given up, or that none reads."""
        first = self._first(READING)
        for number, tail in tails.items():
            if number not in first:
                return f"no process (partition {number} has no reader)"
            if first[number].position < tail:
                return _text(first[number])
        return None

    def _first(self, kind: int) -> Mapping[int, Held]:
        """The first position that processes hold, by partition."""
        found: dict[int, Held] = {}
        for held in held_by_all(self._folder):
            if held.kind == kind:
                other = found.setdefault(held.partition, held)
                if held.position < other.position:
                    found[held.partition] = held
        return found

    def _wait(self, look: Callable[[], str | None], what: str) -> None:
        deadline = time.monotonic() + self._patience
        while (found := look()) is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                msg = f"a ring is full: for {self._patience:g} s {found} {what} rows "
                msg += "that have to make room"
                remedy = "let readers release batches, or read with read.mode=copy; or "
                remedy += "raise stall.timeout.millis or the capacity of the topic"
                raise StreamTimeout(msg, remedy=remedy)
            word = self._control.word  # which readers wake; leases do not
            word.wait(word.value, min(_POLL, left))


def _text(held: Held) -> str:
    return f"process {held.process} (partition {held.partition})"


def _with(
    writers: Mapping[str, WriterState], epoch: Epoch, now: int
) -> Mapping[str, WriterState]:
    """The remembered writers after an epoch."""
    if epoch.writer is None:
        return writers
    position = None if epoch.position is None else epoch.position.to_json()
    summary = epoch.summary
    state = WriterState(
        epoch.instance, now, epoch.number, summary.rows, summary.sums, position
    )
    return {**writers, epoch.writer: state}
