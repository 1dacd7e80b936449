"""The queue of one partition of a spool, from receiving to commit.

A receiver's thread adds batches; the queue's own thread stages them as they arrive, and
commits all of them as one epoch. Small batches share a commit if storage is slow, and
are committed individually if it is fast.
"""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final, final

from streamfactory.arrowlog import Epoch
from streamfactory.conversion.conform import empty_rows
from streamfactory.spi import (
    Position,
    StorageFailed,
    StreamError,
    Summary,
    TransientError,
    WriterFenced,
)
from streamfactory.wiring.core.defects import with_code
from streamfactory.wiring.core.guard import log as logger
from streamfactory.wiring.metrics.batches import (
    FinishedBatch,
    StreamEnd,
    batches,
    ranges_between,
)
from streamfactory.wiring.metrics.traceparents import Traceparents
from streamfactory.wiring.receiving.limits import PartitionLimits
from streamfactory.wiring.spool.rows import to_stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from streamfactory.arrowlog import Staged
    from streamfactory.arrowlog.disk import DiskLog
    from streamfactory.arrowlog.values import Retention
    from streamfactory.spi import LastCommit, Loss, MessageBatch, Partition
    from streamfactory.wiring.core.guard import RetryPolicy
    from streamfactory.wiring.receiving.statistics import Statistics

_WAITING_BYTES: Final = 32 << 20
"""Maximum bytes that are received but not committed, by partition; more block the
receiver."""
_EPOCH_BYTES: Final = 16 << 20
_LINGER: Final = 0.01
"""Seconds in which batches join an epoch up to so many bytes, while batches of some
size follow each other: a commit costs files of its own, which are merged later. A batch
that comes after a pause, and small ones, are committed at once."""
_SOME_BYTES: Final = 64 << 10
_IDLE: Final = 1.0
"""Seconds without rows after which a queue checks that it is still the receiver."""
_TRIES_AT_END: Final = 3
"""Attempts at a commit that fails while the receiver is being stopped."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Settings of one partition's queue.

    Args:
        writer: Writer id of the partition in the spool.
        instance: Instance id of this receiver; the last one that claimed the writer may
            commit.
        full: ``block``, ``drop-oldest`` or ``fail``.
        most: Maximum bytes of the partition; None for no limit.
        retention: Retention of the spool.
        policy: Pauses between attempts at a commit.
        stream: The stream, for traces.
    """

    writer: str
    instance: str
    full: str
    most: int | None
    retention: Retention
    policy: RetryPolicy
    stream: StreamEnd


@dataclass(frozen=True, slots=True)
class _Item:
    rows: pa.RecordBatch
    """As they are stored."""
    next_offset: int
    incarnation: str | None
    size: int


@final
class PartitionQueue:
    """Stores one partition. One thread adds; any thread may read its state.

    Args:
        partition: Partition of the transport.
        log: The spool's log.
        plan: Settings.
        statistics: Counts what is stored.
        acknowledge: Called with each committed position, in the queue's thread.

    The caller claims the writer before it creates a queue: see `last`.
    """

    def __init__(
        self,
        partition: Partition,
        log: DiskLog,
        plan: QueueSettings,
        statistics: Statistics,
        acknowledge: Callable[[Position], None],
    ) -> None:
        self._partition = partition
        self._log = log
        self._plan = plan
        self._statistics = statistics
        self._acknowledge = acknowledge
        self._changed = threading.Condition()
        self._items: list[_Item] = []
        self._waiting = 0
        """Bytes of them."""
        self._stored_at = -inf
        """When the last commit ended, by the monotonic clock."""
        self._closing = False
        self.error: BaseException | None = None
        """The error that ended the queue; None while it runs."""
        self.last: LastCommit | None = log.last(plan.writer)
        """The last commit of the writer."""
        self._epoch = -1 if self.last is None else self.last.epoch
        self._limits = PartitionLimits(
            partition,
            log,
            statistics,
            plan.full,
            plan.most,
            plan.retention,
            self._pause,
        )
        name = f"streamfactory-spool-{partition}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def position(self) -> Position | None:
        """The stored position of the transport; None if nothing is stored."""
        return None if self.last is None else self.last.source_position

    def begin(self, offset: int, incarnation: str | None) -> None:
        """Add an epoch without rows, which stores where receiving starts.

        What is received later and not stored, because the receiver is killed, is then a
        loss that the next one records. Wait for it with `drain`.

        Args:
            offset: First offset of the transport.
            incarnation: Of the partition, if known.
        """
        empty = empty_rows(self._log.schema)
        with self._changed:
            self._items.append(_Item(empty, offset, incarnation, 0))
            self._changed.notify_all()

    def put(self, batch: MessageBatch, losses: Sequence[Loss], wait: float) -> bool:
        """Add a batch with rows; False if there was no room in time.

        Args:
            batch: The received batch.
            losses: Losses before it.
            wait: Maximum seconds.

        Raises:
            StreamError: The error that ended the queue.
        """
        stored = to_stored(batch.rows, self._log.schema, time.time_ns() // 1000, losses)
        size = batch.size or int(batch.rows.nbytes)
        item = _Item(stored, batch.next_offset, batch.incarnation, size)
        with self._changed:
            room = self._changed.wait_for(
                lambda: self.error or not self._items or self._has_room(size), wait
            )
            if self.error is not None:
                raise self.error
            if not room or self._closing:
                return False
            self._items.append(item)
            self._waiting += size
            self._changed.notify_all()
        return True

    def drain(self, wait: float) -> bool:
        """Return whether all batches are committed, once they are or after a time.

        Args:
            wait: Maximum seconds.

        Raises:
            StreamError: The error that ended the queue.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.error or not self._items, wait)
            if self.error is not None:
                raise self.error
            return not self._items

    def close(self) -> None:
        """Commit the waiting batches, and end; logs those that could not be committed.

        May be called twice, by any thread.

        Raises:
            StreamError: The error that ended the queue.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        with self._changed:
            left, self._items = self._items, []
        if any(item.rows.num_rows for item in left):
            first = self.position
            begin = "?" if first is None else first.get(self._partition, "?")
            end = left[-1].next_offset
            what = "partition %s: offsets %s to %s were received, but not stored: %s"
            logger.error(what, self._partition, begin, end, self.error)
        if self.error is not None:
            raise self.error

    def _has_room(self, size: int) -> bool:
        return self._waiting + size <= _WAITING_BYTES

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._items or self._closing, _IDLE)
                    if self._closing and not self._items:
                        return
                    first = self._items[0] if self._items else None
                if first is None:
                    self._check_owner()
                else:
                    items = self._store(first)
                    self._stored_at = time.monotonic()
                    with self._changed:
                        del self._items[: len(items)]
                        self._waiting -= sum(item.size for item in items)
                        self._changed.notify_all()
                # retention by age applies while nothing is received, too
                self._limits.release()
        except BaseException as error:  # noqa: BLE001 - raised by `put`
            self._statistics.blocked(None)
            with self._changed:
                self.error = error
                self._changed.notify_all()

    def _arriving(self, items: list[_Item], room: float) -> Iterator[_Item]:
        """Yield the waiting batches, and those that follow at once, as one epoch.

        They are staged while more are received. What arrives later than that belongs to
        the next epoch, however fast it arrives.

        Args:
            items: Gets each batch before it is yielded.
            room: Maximum bytes, but for a single batch that exceeds it.
        """
        now, size = time.monotonic(), 0
        flows = now - self._stored_at < _LINGER and self._waiting >= _SOME_BYTES
        until = now + _LINGER if flows else now
        waiting = len(self._items)
        while size < _EPOCH_BYTES and (len(items) < waiting or now < until):
            with self._changed:
                self._changed.wait_for(
                    lambda: self._closing or len(self._items) > len(items),
                    max(0.0, until - now),
                )
                if len(self._items) == len(items):
                    return
                item = self._items[len(items)]
            size += item.size
            if items and size > room:
                return
            items.append(item)
            yield item
            now = time.monotonic()

    def _store(self, first: _Item) -> Sequence[_Item]:
        """Commit waiting batches as one epoch, and acknowledge them.

        Args:
            first: The first of them.

        Returns:
            All of them.
        """
        plan, before, began = self._plan, self.position, time.time()
        items, committing = self._committed(self._limits.make_room(first.size))
        rows = sum(item.rows.num_rows for item in items)
        if not rows:  # the start: nothing to count, and nothing to acknowledge
            self._statistics.blocked(None)
            return items
        self._statistics.stored(rows, sum(item.size for item in items), items[-1])
        position = self.position
        assert position is not None
        if batches.watched:
            parents = Traceparents()
            for item in items:
                parents.add(item.rows)
            batches.report(
                FinishedBatch(
                    "spool",
                    plan.stream.stream,
                    began,
                    committing,
                    time.time(),
                    plan.stream,
                    [StreamEnd(f"{plan.stream.stream} (spool)", "file")],
                    ranges_between(before, position),
                    self._epoch,
                    rows,
                    writer_id=plan.writer,
                    parents=parents.take(),
                )
            )
        self._acknowledge(position)
        return items

    def _committed(self, room: float) -> tuple[Sequence[_Item], float]:
        """Stage batches as they arrive and commit them, until it succeeds.

        Args:
            room: Maximum bytes, but for a single batch that exceeds it.

        Returns:
            The batches, and the time at which they were staged.
        """
        items: list[_Item] = []
        staged: Staged | None = None
        at, failures = 0.0, 0
        while True:
            try:
                if staged is None:
                    staged = self._staged(items or self._arriving(items, room))
                    at = time.time()
                self._commit(staged, items)
            except (StorageFailed, TransientError) as error:
                failures += 1
                self._blocked(error, failures)
            else:
                return items, at

    def _check_owner(self) -> None:
        """Raise if another receiver has claimed the writer.

        Called when there is no commit.

        Raises:
            WriterFenced: permanent.
        """
        plan = self._plan
        if self._log.owner(plan.writer) != plan.instance:
            msg = f"another receiver has claimed writer {plan.writer!r}"
            raise WriterFenced(msg, partition=self._partition)

    def _staged(self, items: Iterable[_Item]) -> Staged:
        stage = self._log.stage(uuid.uuid4().hex)
        try:
            for item in items:
                stage.append(self._partition.id, item.rows)
            return stage.seal(carried=True)
        except BaseException:
            stage.discard()
            raise

    def _commit(self, staged: Staged, items: Sequence[_Item]) -> None:
        plan, epoch, last = self._plan, self._epoch + 1, items[-1]
        position = Position().with_offset(
            self._partition, last.next_offset, last.incarnation
        )
        summary = Summary(sum(item.rows.num_rows for item in items))
        held = self._log.commit(
            Epoch(plan.writer, epoch, [staged], summary, plan.instance, position)
        ).held
        # An attempt with a lost reply may have committed: then the commit is ours.
        if held is not None and held.source_position != position:
            msg = f"epoch {epoch} of {plan.writer!r} was committed by another receiver"
            raise WriterFenced(msg)
        self.last = self._log.last(plan.writer)
        self._epoch = epoch

    def _blocked(self, error: StreamError, failures: int) -> None:
        """Wait before the next attempt; raise if the receiver is being stopped."""
        if self._closing and failures >= _TRIES_AT_END:
            raise error
        self._statistics.blocked(with_code(error))
        if failures == 1:
            logger.error("partition %s: not stored: %s", self._partition, error)
        self._pause(max(0.01, self._plan.policy.pause(failures)))

    def _pause(self, seconds: float) -> bool:
        """Wait; ends as soon as the queue is closed, and returns whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._closing, seconds)
