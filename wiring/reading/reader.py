"""The final `Reader`: implements the [f] rules of R over any consumer."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import (
    BatchState,
    ClosedError,
    FetchLimits,
    MisuseError,
    StreamError,
)
from streamfactory.wiring.metrics.registry import registry
from streamfactory.wiring.reading.batches import BatchMaker
from streamfactory.wiring.reading.bounds import Bounds
from streamfactory.wiring.reading.counters import Counters, ReadTally
from streamfactory.wiring.reading.fetching import FetchLoop
from streamfactory.wiring.reading.losses import LossPolicy
from streamfactory.wiring.reading.recovering import RecoveringConsumer

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from streamfactory.spi import (
        MessageBatch,
        Partition,
        PartitionInfo,
        PartitionLevelConsumer,
        StreamConfig,
    )
    from streamfactory.wiring.core.clock import Clock
    from streamfactory.wiring.core.guard import Guard
    from streamfactory.wiring.core.throttle import Throttle
    from streamfactory.wiring.decoding.row_schema import Shaper

log = logging.getLogger("streamfactory")

_CLOSE: Final = 5.0
"""Seconds that `close` waits for a fetch of another thread."""
_LONGEST_PAUSE: Final = 0.05


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """The configuration of a reader."""

    stream: str
    timeout: float
    """Default timeout of fetches, in seconds."""
    max_rows: int
    max_bytes: int
    losses: LossPolicy
    idle: float
    """Seconds without data after which the consumer is recreated; 0 for never."""

    @classmethod
    def of(cls, config: StreamConfig) -> ReaderSettings:
        """Create them from the options."""
        return cls(
            stream=config.name,
            timeout=config["fetch.timeout.millis"] / 1000,
            max_rows=config["batch.rows"],
            max_bytes=config["batch.bytes"],
            losses=LossPolicy.of(config),
            idle=max(0, config["idle.timeout.millis"]) / 1000,
        )


@final
class Reader:
    """Reads one partition by offset. One thread fetches; any thread may close.

    Created by `Source.reader`.

    Args:
        partition: The partition.
        settings: Limits and policies.
        create: Creates the backend's consumer.
        look_up: Fetches the partition's current bounds; cancelled when the event is
            set.
        identify: Fetches the partition's current incarnation, likewise.
        shaper: Converts rows to the declared schema.
        guard: Translates errors.
        clock: The clock.
        info: Bounds that were just fetched, if any: saves the first look-up.
        incarnation: Incarnation of the caller's offsets, if known.
        counted: Whether the metrics of the process count what is read.
        throttle: Limits what is read per second; None without a limit.
    """

    def __init__(
        self,
        partition: Partition,
        settings: ReaderSettings,
        *,
        create: Callable[[], PartitionLevelConsumer],
        look_up: Callable[[threading.Event], PartitionInfo],
        identify: Callable[[threading.Event], str | None],
        shaper: Shaper,
        guard: Guard,
        clock: Clock,
        info: PartitionInfo | None = None,
        incarnation: str | None = None,
        counted: bool = True,
        throttle: Throttle | None = None,
    ) -> None:
        self.partition = partition
        self.counters = Counters()
        self._tally = ReadTally(settings.stream, partition, self.counters, clock)
        self._end_metrics = registry.track(self, self._tally) if counted else None
        self._settings = settings
        self._clock = clock
        self._throttle = throttle
        self._closed = threading.Event()
        self._bounds = Bounds(
            partition,
            settings.losses,
            look_up=lambda: look_up(self._closed),
            identify=lambda: identify(self._closed),
            info=info,
            incarnation=incarnation,
        )
        self._maker = BatchMaker(partition, shaper, self._bounds, self.counters)
        self._fetch_loop = FetchLoop(
            RecoveringConsumer(partition, create, guard, clock, self.counters),
            self._bounds,
            self._maker,
            clock,
            closed=self._closed,
            idle=settings.idle,
        )
        self._busy = threading.Lock()
        self._asked: int | None = None
        self._next: int | None = None
        self._checked = False
        self._was_empty = False
        self._released = False

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch."""
        return self._maker.schema

    @property
    def stream(self) -> str:
        """Name of the stream."""
        return self._settings.stream

    @property
    def incarnation(self) -> str | None:
        """The incarnation of the offsets, if known."""
        return self._bounds.incarnation

    @property
    def uncertain(self) -> bool:
        """Whether rows need a check of the incarnation (rule R13)."""
        return self._bounds.uncertain

    def fetch(
        self,
        start: int,
        *,
        end: int | None = None,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        timeout: float | None = None,
        confirm: bool = True,
    ) -> MessageBatch:
        """Read messages at or after ``start`` and before ``end``.

        Returns as soon as there are rows, the offset advanced, or the partition ended;
        at the timeout with the state ``THROTTLED`` while a rate allows no rows.
        Repeating ``start`` continues after an empty batch and replays after one with
        rows (rule R6).

        Args:
            start: First offset to read, inclusive.
            end: End of the range, exclusive; None for no end.
            max_rows: Maximum rows, before decoding; a message is never split.
            max_bytes: Maximum bytes; a larger message is a batch of its own.
            timeout: Seconds to wait for messages; ``fetch.timeout.millis`` by default.
            confirm: Whether rows are checked to be of the reader's incarnation (rule
                R13). If not, the caller does it before it uses them, for several
                batches at once: by `verify`, or with `uncertain` and `distrust`.

        Raises:
            OffsetOutOfRange, IncarnationChanged: data_loss (rule R7); with the
            available range.
            ClosedError: misuse; closed before or during the call.
            StreamError: The source's error, translated; for a transient one the
                attempts are exhausted.
        """
        if not self._busy.acquire(blocking=False):
            self._check_open()
            msg = "two threads use one reader"
            raise MisuseError(
                msg, partition=self.partition, remedy="create one per thread"
            )
        known, checked = self._bounds.incarnation, self._checked
        before = self._asked, self._next, self._was_empty
        try:
            self._check_open()
            limits = self._limits(start, max_rows, max_bytes, timeout)
            if start == end and not self._bounds.begun_again:
                return self._maker.empty(start, end)
            if self._throttle is not None:
                return self._fetch_slowly(self._throttle, start, end, limits, confirm)
            if confirm:
                return self._fetch_confirmed(start, end, limits)
            return self._fetch(start, end, limits)
        except BaseException as error:
            # A failed fetch has no effect: the next one repeats it completely.
            self._maker.rest, self._checked = None, checked
            self._asked, self._next, self._was_empty = before
            self._bounds.forget(known)
            if not isinstance(error, StreamError):
                raise
            if self._closed.is_set() and not isinstance(error, ClosedError):
                raise self._closed_error() from error
            error.at(stream=self._settings.stream, partition=self.partition)
            raise
        finally:
            if self._closed.is_set():
                self._release()
            self._busy.release()

    def distrust(self, incarnation: str | None) -> None:
        """Discard what was read since the topic was recreated.

        The next fetch checks its start, and applies ``out.of.range``.

        Args:
            incarnation: That of the start of the next fetch.
        """
        self._bounds.forget(incarnation)
        self._fetch_loop.stop()
        self._maker.rest, self._checked = None, False
        self._next, self._was_empty = None, False

    def begin_range(self) -> None:
        """Begin a planned range: it has an error budget of its own (rule D3)."""
        self._maker.begin_range()

    def verify(self) -> None:
        """Verify that the topic was not recreated.

        Called after the last fetch of a range: if the topic is recreated during the
        read, rows of both incarnations may be returned (rule R7).

        Raises:
            IncarnationChanged: data_loss.
        """
        self._bounds.verify(self._next or 0)

    def close(self) -> None:
        """Close; may be called twice. Wakes a blocked fetch of another thread."""
        self._closed.set()
        deadline = self._clock.now() + _CLOSE
        while not self._busy.acquire(timeout=_LONGEST_PAUSE):
            self._fetch_loop.wake()
            if self._clock.now() > deadline:
                # That thread releases the consumer when its fetch returns.
                log.warning("partition %s: a fetch does not return", self.partition)
                return
        try:
            self._release()
        finally:
            self._busy.release()

    def _limits(
        self,
        start: int,
        max_rows: int | None,
        max_bytes: int | None,
        timeout: float | None,
    ) -> FetchLimits:
        settings = self._settings
        limits = FetchLimits(
            settings.max_rows if max_rows is None else max_rows,
            settings.max_bytes if max_bytes is None else max_bytes,
            settings.timeout if timeout is None else timeout,
        )
        if start < 0 or limits.max_rows < 1 or limits.max_bytes < 1:
            msg = (
                f"start {start}, max_rows {limits.max_rows} or max_bytes "
                f"{limits.max_bytes} is below its minimum of 0, 1 and 1"
            )
            raise MisuseError(msg, partition=self.partition)
        return limits

    def _fetch_slowly(
        self,
        throttle: Throttle,
        start: int,
        end: int | None,
        limits: FetchLimits,
        confirm: bool,
    ) -> MessageBatch:
        """Fetch when the rate allows it, and no more than that of a second."""
        slowed = throttle.admit(limits, self._closed)
        self._check_open()
        if slowed is None:
            return self._maker.empty(start, start, BatchState.THROTTLED)
        fetch = self._fetch_confirmed if confirm else self._fetch
        batch = fetch(start, end, slowed)
        throttle.took(batch.num_rows, batch.size)
        return batch

    def _fetch_confirmed(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> MessageBatch:
        known = self._bounds.incarnation
        batch = self._fetch(start, end, limits)
        while batch.num_rows and not self._bounds.unchanged:
            self.distrust(known)
            batch = self._fetch(start, end, limits)
        return batch

    def _fetch(self, start: int, end: int | None, limits: FetchLimits) -> MessageBatch:
        again = self._was_empty and start == self._asked and self._next is not None
        where = self._next if again and self._next is not None else start
        if where != self._next or not self._checked:
            self._maker.rest = None
            where = self._bounds.check(where, end=end)
            self._checked = True
        if end is not None and where >= end:
            if start > end and where == start:
                msg = f"the range ends at {end}, before its start"
                raise MisuseError(msg, partition=self.partition, offset=start)
            batch = self._maker.empty(start, end)
            self._checked = where == end
        else:
            answer, self._maker.rest = self._maker.rest, None
            if answer is None:
                where, answer = self._fetch_loop.ask(where, end, limits)
                # A topic that is idle for long may have been recreated.
                self._checked = not self._fetch_loop.renewed
            batch = self._maker.batch(start, where, end, limits, answer)
        self._tally.observe(batch)
        self._asked, self._next = start, batch.next_offset
        self._was_empty = batch.num_rows == 0
        return batch

    def _release(self) -> None:
        self._maker.rest = None
        self._fetch_loop.stop()
        if not self._released:
            self._released = True
            if self._end_metrics is not None:
                self._end_metrics()
            self._maker.close()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise self._closed_error()

    def _closed_error(self) -> ClosedError:
        return ClosedError("the reader is closed", partition=self.partition)
