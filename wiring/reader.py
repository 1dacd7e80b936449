"""The final `Reader`: makes the [f] rules of R true once, over any consumer."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import (
    BatchState,
    ClosedError,
    ContractBroken,
    Fetched,
    FetchLimits,
    Finished,
    MessageBatch,
    MisuseError,
    OffsetOutOfRange,
    StreamError,
    TransientError,
)
from streamfactory.wiring.bounds import Bounds
from streamfactory.wiring.counters import Counters
from streamfactory.wiring.cutting import Answer, cut
from streamfactory.wiring.holding import HeldConsumer

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from streamfactory.spi import Partition, PartitionInfo, PartitionLevelConsumer
    from streamfactory.wiring.clock import Clock
    from streamfactory.wiring.guard import Guard
    from streamfactory.wiring.shaping import Shaper

log = logging.getLogger("streamfactory")

_SLICE: Final = 0.25
"""Seconds that an author may block at a time, unless it can be woken."""
_CLOSE: Final = 5.0
"""Seconds that `close` waits for a fetch of another thread to come back."""
_LONGEST_PAUSE: Final = 0.05
_REFUSALS: Final = 3
"""Starts that a source may refuse in one fetch, each after new bounds."""


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """What a reader needs to know of the configuration."""

    stream: str
    timeout: float
    """Seconds; for fetches that do not say."""
    max_rows: int
    max_bytes: int
    out_of_range: str
    """``fail``, ``earliest`` or ``latest``."""
    idle: float
    """Seconds without data after which the consumer is made anew; 0 for never."""


@final
class Reader:
    """Reads one partition by offset. One thread fetches; any may close.

    Made by `Source.reader`.

    Args:
        partition: What it reads.
        settings: Limits and policies.
        create: Makes the author's consumer.
        look_up: Asks the source for this partition's bounds, now.
        shaper: Makes rows of the declared schema.
        guard: Translates errors.
        clock: Time.
        info: The partition as it was just seen, if it was: spares the first look-up.
        incarnation: What the caller's offsets count, where it knows.
    """

    def __init__(
        self,
        partition: Partition,
        settings: ReaderSettings,
        *,
        create: Callable[[], PartitionLevelConsumer],
        look_up: Callable[[], PartitionInfo],
        shaper: Shaper,
        guard: Guard,
        clock: Clock,
        info: PartitionInfo | None = None,
        incarnation: str | None = None,
    ) -> None:
        self.partition = partition
        self.counters = Counters()
        self._settings = settings
        self._shaper = shaper
        self._guard = guard
        self._clock = clock
        self._held = HeldConsumer(partition, create, guard, clock, self.counters)
        self._bounds = Bounds(
            settings.stream,
            partition,
            settings.out_of_range,
            look_up=look_up,
            info=info,
            incarnation=incarnation,
        )
        self._busy = threading.Lock()
        self._closed = threading.Event()
        self._asked: int | None = None
        self._next: int | None = None
        self._was_empty = False
        self._rest: Answer | None = None
        self._last_data = clock.now()

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch."""
        return self._shaper.schema

    @property
    def incarnation(self) -> str | None:
        """What the offsets count, as far as it is known."""
        return self._bounds.incarnation

    def fetch(
        self,
        start: int,
        *,
        end: int | None = None,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        timeout: float | None = None,
    ) -> MessageBatch:
        """Read messages at or after ``start`` and before ``end``.

        Returns as soon as there is anything: rows, an offset that moved on, an end.
        The same ``start`` again goes on after an empty answer and replays after one
        with rows (rule R6).

        Args:
            start: First offset wanted, inclusive.
            end: First offset not wanted; None for no end.
            max_rows: Rows at the most, before decoding; a message is never split.
            max_bytes: Bytes at the most; a longer message comes alone.
            timeout: Seconds to wait for messages; ``fetch.timeout.millis`` by default.

        Raises:
            OffsetOutOfRange, IncarnationChanged: data_loss (rule R7); carry what is
                available.
            ClosedError: misuse; closed before, or while it waited.
            StreamError: The source's failure, translated; a transient one has used up
                its attempts.
        """
        if not self._busy.acquire(blocking=False):
            msg = "two threads fetch from one reader"
            raise MisuseError(msg, partition=self.partition, remedy="make one for each")
        try:
            self._check_open()
            if end is not None and start >= end:
                return self._nothing(start, end)
            settings = self._settings
            limits = FetchLimits(
                max_rows or settings.max_rows,
                max_bytes or settings.max_bytes,
                settings.timeout if timeout is None else timeout,
            )
            return self._fetch(start, end, limits)
        except StreamError as error:
            if self._closed.is_set() and not isinstance(error, ClosedError):
                raise self._closed_error() from error
            error.at(stream=self._settings.stream, partition=self.partition)
            raise
        finally:
            self._busy.release()
            if self._closed.is_set():
                self._release()

    def verify(self) -> None:
        """Ask once more that the offsets still count the same.

        Called after the last fetch of a range: a source that was deleted and begun
        again while it was read may answer rows of both lives (rule R7).

        Raises:
            IncarnationChanged: data_loss.
        """
        self._bounds.verify(self._next or 0)

    def close(self) -> None:
        """Close; twice is fine. A fetch that waits in another thread is woken."""
        self._closed.set()
        deadline = self._clock.now() + _CLOSE
        while not self._busy.acquire(timeout=_LONGEST_PAUSE):
            self._held.wake()
            if self._clock.now() > deadline:
                # That thread releases the consumer when it comes back.
                log.warning("partition %s: a fetch does not come back", self.partition)
                return
        try:
            self._release()
        finally:
            self._busy.release()

    def _fetch(self, start: int, end: int | None, limits: FetchLimits) -> MessageBatch:
        again = self._was_empty and start == self._asked and self._next is not None
        where = self._next if again and self._next is not None else start
        if where != self._next:
            self._rest = None
            where = self._bounds.check(where)
        answer, self._rest = self._rest, None
        if answer is None:
            where, answer = self._ask(where, end, limits)
        batch = self._batch(start, where, end, limits, answer)
        self._asked, self._next = start, batch.next_offset
        self._was_empty = batch.num_rows == 0
        return batch

    def _ask(
        self, where: int, end: int | None, limits: FetchLimits
    ) -> tuple[int, Answer]:
        """Ask the author, in slices, until there is something or time is up."""
        deadline = self._clock.now() + limits.timeout
        pause, refusals = 0.001, 0
        while True:
            asked_at = self._clock.now()
            left = max(0.0, deadline - asked_at)
            slice_ = left if self._held.can_wake else min(left, _SLICE)
            try:
                fetched = self._held.fetch(where, end, replace(limits, timeout=slice_))
            except TransientError as error:
                self._check_open()
                self._held.recover(error, left, self._closed)
                fetched = Fetched(None, where)
            except OffsetOutOfRange:
                refusals += 1
                if refusals > _REFUSALS:
                    raise
                where = self._bounds.check(where, refused=True)
                continue
            self._check_open()
            answer = self._answer(where, fetched)
            elsewhere = self._bounds.meet(fetched.incarnation, where)
            if elsewhere is not None:
                if answer.rows is not None:
                    msg = "R7: rows came with a new incarnation"
                    raise self._broken(msg)
                where = elsewhere
                continue
            if answer.rows is not None or fetched.next_offset > where or _ends(fetched):
                first = fetched.next_offset if answer.rows is None else answer.offset(0)
                self._bounds.check_gap(where, first, fetched)
                return where, answer
            left = deadline - self._clock.now()
            if left <= 0:
                self._renew_when_idle()
                return where, answer
            if self._clock.now() - asked_at < slice_:
                # The author came back early: do not spin.
                self._clock.wait(self._closed, min(pause, left))
                pause = min(pause * 2, _LONGEST_PAUSE)
                self._check_open()

    def _answer(self, where: int, fetched: Fetched) -> Answer:
        rows = fetched.rows
        if rows is None or not rows.num_rows:
            return Answer(where, None, None, fetched)
        offsets = self._shaper.offsets_of(fetched)
        answer = Answer(where, rows, offsets, fetched)
        if offsets is not None and len(offsets) != rows.num_rows:
            msg = f"{rows.num_rows} rows with {len(offsets)} offsets"
            raise self._broken(msg)
        first, last = answer.offset(0), answer.offset(rows.num_rows - 1)
        if last >= fetched.next_offset or last < first:
            what = f"R1: rows from {first} to {last}, but {fetched.next_offset} is next"
            raise self._broken(what)
        if first < where:
            # What came before was not asked for: a chunk's beginning, a redelivery.
            fresh = answer.index_of(where)
            answer = answer.slice(fresh, rows.num_rows)
            if fresh == rows.num_rows:
                answer = replace(answer, start=where, rows=None, offsets=None)
        return answer

    def _batch(
        self,
        start: int,
        where: int,
        end: int | None,
        limits: FetchLimits,
        answer: Answer,
    ) -> MessageBatch:
        fetched = answer.fetched
        next_offset, size, messages = max(fetched.next_offset, where), 0, 0
        if answer.rows is not None:
            answer, self._rest, next_offset, size = cut(answer, where, end, limits)
            assert answer.rows is not None
            messages = int(answer.rows.num_rows)
            next_offset = max(next_offset, where)
        if end is not None:
            next_offset = min(next_offset, end)
        rows, offsets = self._shaper.shape(
            answer.rows, answer.offsets, answer.start, self.partition
        )
        whole = self._rest is None and fetched.unfiltered_count is not None
        self._count(int(rows.num_rows), messages, size)
        losses = (*self._bounds.losses, *fetched.losses)
        self._bounds.losses = []
        self.counters.losses.extend(losses)
        state = self._state(int(rows.num_rows), fetched, next_offset, end)
        ended = state is BatchState.END_OF_PARTITION
        return MessageBatch(
            partition=self.partition,
            rows=rows,
            start_offset=start,
            next_offset=next_offset,
            state=state,
            first_offset=_first(answer, offsets) if rows.num_rows else None,
            offsets=offsets,
            latest=fetched.latest,
            unfiltered_count=fetched.unfiltered_count or messages
            if whole
            else messages,
            size=size,
            incarnation=self.incarnation,
            losses=losses,
            end=(fetched.end or Finished()) if ended else None,
        )

    def _state(
        self, rows: int, fetched: Fetched, next_offset: int, end: int | None
    ) -> BatchState:
        if rows:
            return BatchState.DATA
        if _ends(fetched):
            return BatchState.END_OF_PARTITION
        if fetched.state in (BatchState.CAUGHT_UP, BatchState.THROTTLED):
            return fetched.state
        reached_latest = fetched.latest is not None and next_offset >= fetched.latest
        if reached_latest or (end is not None and next_offset >= end):
            return BatchState.CAUGHT_UP
        return BatchState.IDLE

    def _nothing(self, start: int, end: int) -> MessageBatch:
        if start > end:
            msg = f"the range ends at {end}, before its start"
            raise MisuseError(msg, partition=self.partition, offset=start)
        rows, _ = self._shaper.shape(None, None, start, self.partition)
        return MessageBatch(self.partition, rows, start, start, BatchState.CAUGHT_UP)

    def _count(self, rows: int, messages: int, size: int) -> None:
        counters = self.counters
        counters.messages += messages
        counters.bytes += size
        counters.bad_messages = self._shaper.bad_messages
        if messages:
            self._last_data = self._clock.now()
        if rows:
            counters.rows += rows
            counters.batches += 1

    def _renew_when_idle(self) -> None:
        idle = self._settings.idle
        if idle and self._clock.now() - self._last_data > idle:
            self._last_data = self._clock.now()
            self._held.renew()

    def _release(self) -> None:
        self._rest = None
        self._held.drop()
        self._shaper.close()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise self._closed_error()

    def _closed_error(self) -> ClosedError:
        return ClosedError("the reader is closed", partition=self.partition)

    def _broken(self, what: str) -> ContractBroken:
        return ContractBroken(f"rule {what}", partition=self.partition)


def _ends(fetched: Fetched) -> bool:
    return fetched.state is BatchState.END_OF_PARTITION and not fetched.rows


def _first(answer: Answer, offsets: pa.Int64Array | None) -> int:
    return answer.start if offsets is None else int(offsets[0].as_py())
