"""One partition of a spool: what was received waits here until it is committed.

A receiver's thread puts batches in, the lane's own thread commits everything that waits
as one epoch. Small batches then share a commit when the medium is slow, and each is
committed at once when it is not.
"""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final, final

from streamfactory.arrowlog.log import Retention
from streamfactory.spi import (
    Position,
    SpoolFull,
    StorageFailed,
    StreamError,
    Summary,
    TransientError,
    WriterFenced,
)
from streamfactory.wiring.core.guard import log as logger
from streamfactory.wiring.spool.rows import to_stored

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from streamfactory.arrowlog import Staged
    from streamfactory.arrowlog.disk import DiskLog
    from streamfactory.spi import LastCommit, Loss, MessageBatch, Partition
    from streamfactory.wiring.core.guard import RetryPolicy
    from streamfactory.wiring.receiving.statistics import Statistics

_WAITING_BYTES: Final = 32 << 20
"""Received and not committed, by partition; more makes the receiver wait."""
_IDLE: Final = 1.0
"""Seconds without rows after which a lane looks whether it is still the receiver."""
_LOOK: Final = 0.05
"""Seconds between two looks at whether a full spool has room again."""
_TRIES_AT_END: Final = 3
"""Of a commit that fails while the receiver is stopped."""


@dataclass(frozen=True, slots=True)
class LanePlan:
    """How a lane stores.

    Args:
        writer: Writer id of the partition in the spool.
        instance: Of this receiver; the last one that claimed the writer may commit.
        full: ``block``, ``drop-oldest`` or ``fail``.
        most: Bytes that the partition holds at the most; None for any number.
        retention: What the spool keeps.
        policy: How long to wait between attempts at a commit.
    """

    writer: str
    instance: str
    full: str
    most: int | None
    retention: Retention
    policy: RetryPolicy


@dataclass(frozen=True, slots=True)
class _Item:
    rows: pa.RecordBatch
    """As they are stored."""
    next_offset: int
    incarnation: str | None
    size: int


@final
class Lane:
    """Stores one partition. One thread puts, any may ask.

    Args:
        partition: Of the transport.
        log: The spool's.
        plan: How it stores.
        statistics: Counts what is stored.
        acknowledge: Is called with each position that is committed, in the lane's
            thread.

    The last commit of the writer is claimed when a lane is made: see `last`.
    """

    def __init__(
        self,
        partition: Partition,
        log: DiskLog,
        plan: LanePlan,
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
        self._closing = False
        self.error: BaseException | None = None
        """Why nothing more is stored; None while it is."""
        self.last: LastCommit | None = log.last(plan.writer)
        """What the writer committed last."""
        self._epoch = -1 if self.last is None else self.last.epoch
        self._retained = 0.0
        name = f"streamfactory-spool-{partition}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def position(self) -> Position | None:
        """Up to where the transport is stored; None where nothing is."""
        return None if self.last is None else self.last.source_position

    def put(self, batch: MessageBatch, losses: Sequence[Loss], wait: float) -> bool:
        """Add a batch with rows; False where there was no room in time.

        Args:
            batch: What was received.
            losses: What is known to be missing before it.
            wait: Seconds that it may take.

        Raises:
            StreamError: What ended the lane.
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
            if not room:
                return False
            self._items.append(item)
            self._waiting += size
            self._changed.notify_all()
        return True

    def close(self) -> None:
        """Commit what waits, and end; what could not be committed is logged.

        Raises:
            StreamError: What ended the lane.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        if self._items:
            first = self.position
            begin = "?" if first is None else first.get(self._partition, "?")
            end = self._items[-1].next_offset
            what = "partition %s: offsets %s to %s were received and not stored: %s"
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
                    items = self._group()
                if items:
                    self._store(items)
                    with self._changed:
                        del self._items[: len(items)]
                        self._waiting -= sum(item.size for item in items)
                        self._changed.notify_all()
                else:
                    self._check_owner()
                self._release()  # age releases rows while nothing is received, too
        except BaseException as error:  # noqa: BLE001 - raised where rows are put
            with self._changed:
                self.error = error
                self._changed.notify_all()

    def _group(self) -> list[_Item]:
        """What waits, as much of it as the partition may hold; at least one batch."""
        if self._plan.most is None:
            return list(self._items)
        sizes = accumulate(item.size for item in self._items)
        fits = sum(1 for size in sizes if size <= self._plan.most)
        return self._items[: max(1, fits)]

    def _store(self, items: Sequence[_Item]) -> None:
        """Commit items as one epoch, and acknowledge them."""
        self._make_room(sum(item.size for item in items))
        last = items[-1]
        position = Position().with_offset(
            self._partition, last.next_offset, last.incarnation
        )
        rows = sum(item.rows.num_rows for item in items)
        summary = Summary(rows)
        failures = 0
        staged: Staged | None = None
        while True:
            try:
                if staged is None:
                    staged = self._staged(items)
                self._commit(staged, summary, position)
                break
            except (StorageFailed, TransientError) as error:
                failures += 1
                self._blocked(error, failures)
        self._statistics.stored(rows, sum(item.size for item in items), last)
        self._acknowledge(position)

    def _check_owner(self) -> None:
        """End where another receiver has taken over, though there is no commit to fail.

        Raises:
            WriterFenced: permanent.
        """
        plan = self._plan
        if self._log.owner(plan.writer) != plan.instance:
            msg = f"another receiver has taken over {plan.writer!r}"
            raise WriterFenced(msg, partition=self._partition)

    def _staged(self, items: Sequence[_Item]) -> Staged:
        stage = self._log.stage(uuid.uuid4().hex)
        try:
            for item in items:
                stage.append(self._partition.id, item.rows)
            return stage.seal()
        except BaseException:
            stage.discard()
            raise

    def _commit(self, staged: Staged, summary: Summary, position: Position) -> None:
        plan, epoch = self._plan, self._epoch + 1
        held = self._log.commit(
            plan.writer,
            epoch,
            [staged],
            instance=plan.instance,
            summary=summary,
            source_position=position,
        )
        # An attempt whose verdict was lost may have committed: then it is ours.
        if held is not None and held.source_position != position:
            msg = f"epoch {epoch} of {plan.writer!r} was committed by another receiver"
            raise WriterFenced(msg)
        self.last = self._log.last(plan.writer)
        self._epoch = epoch

    def _blocked(self, error: StreamError, failures: int) -> None:
        """Wait before the next attempt; give up where the receiver is to end."""
        if self._closing and failures >= _TRIES_AT_END:
            raise error
        self._statistics.blocked(str(error))
        if failures == 1:
            logger.error("partition %s: not stored: %s", self._partition, error)
        with self._changed:
            self._changed.wait_for(
                lambda: self._closing, max(0.01, self._plan.policy.pause(failures))
            )

    def _make_room(self, size: int) -> None:
        """Wait, release or refuse, where the spool is full."""
        plan = self._plan
        if plan.most is None or plan.full == "drop-oldest":
            return
        while self._log.held(self._partition.id) + size > plan.most:
            if self._log.held(self._partition.id) == 0:
                return  # one batch that is larger than the bound
            msg = f"the spool holds {plan.most} bytes of the partition: it is full"
            if plan.full == "fail" or self._closing:
                raise SpoolFull(msg, partition=self._partition)
            self._statistics.blocked(msg)
            with self._changed:
                self._changed.wait_for(lambda: self._closing, _LOOK)
            self._release(at_once=True)

    def _release(self, *, at_once: bool = False) -> None:
        """Release what retention, or the bound, does not keep."""
        plan, size = self._plan, self._plan.retention.size
        if plan.full == "drop-oldest" and plan.most is not None:
            size = plan.most if size is None else min(size, plan.most)
        retention = Retention(plan.retention.age, plan.retention.rows, size)
        now = time.monotonic()
        if retention == Retention() or (not at_once and now - self._retained < 0.2):
            return
        self._retained = now
        try:
            before = self._earliest()
            self._log.retain(retention, {})
            self._statistics.released(self._earliest() - before)
        except StreamError as error:
            logger.warning("partition %s: retention: %s", self._partition, error)

    def _earliest(self) -> int:
        return self._log.bounds()[self._partition.id].earliest
