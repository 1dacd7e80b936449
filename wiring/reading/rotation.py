"""Reads several partitions fairly, one batch at a time.

A batch is fetched, confirmed and then handed out. It is confirmed if no topic was
recreated since it was fetched (rule R13): if the results of a backend do not carry the
incarnation, it is looked up after the fetch, once for all batches of a turn.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from streamfactory.conversion.conform import empty_rows
from streamfactory.spi import (
    Abandoned,
    BatchState,
    ClosedError,
    Finished,
    MessageBatch,
    Partition,
    PartitionState,
    PartitionVanished,
    Position,
    Skipped,
    TopicNotFound,
    TransientError,
)
from streamfactory.wiring.reading.batches import refuse_torn
from streamfactory.wiring.reading.confirming import Unconfirmed
from streamfactory.wiring.reading.counters import Counters
from streamfactory.wiring.reading.losses import LossPolicy, recreated, was_recreated
from streamfactory.wiring.reading.skipping import before, joined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from streamfactory.spi import End, PartitionInfo, StreamError
    from streamfactory.wiring.core.clock import Clock
    from streamfactory.wiring.reading.reader import Reader
    from streamfactory.wiring.reading.source import Source

_OPEN: Final = 64
"""Maximum open readers if the ends are known: ten thousand partitions do not need ten
thousand connections."""
_LONGEST_PAUSE: Final = 0.05


@dataclass(slots=True, eq=False)
class _Cursor:
    partition: Partition
    next: int
    end: int | None
    info: PartitionInfo | None
    incarnation: str | None
    reader: Reader | None = None
    ended: bool = False
    """Whether there is nothing more to fetch."""


@final
class Rotation:
    """Reads partitions in turn. One thread reads; any thread may close.

    Args:
        source: Creates the readers.
        infos: The current partitions.
        starts: First offset by partition, inclusive. Other partitions are not read.
        ends: End by partition, exclusive; an entry of None reads until the partition
            ends. None instead of a map follows the stream, with new partitions.
        incarnations: Incarnations of the starts, if known.
        mine: Selects new partitions to read.
        refresh: Seconds between searches for new partitions.
        clock: The clock.
        skipped: Ranges before the starts that were skipped, and not read since.
    """

    def __init__(
        self,
        source: Source,
        infos: Sequence[PartitionInfo],
        starts: Mapping[Partition, int],
        *,
        ends: Mapping[Partition, int | None] | None,
        incarnations: Mapping[Partition, str],
        mine: Callable[[Partition], bool],
        refresh: float,
        clock: Clock,
        skipped: Iterable[Skipped] = (),
    ) -> None:
        self._source = source
        self._policy = LossPolicy.of(source.config)
        self._following = ends is None
        self._mine = mine
        self._refresh = refresh
        self._clock = clock
        self._looked = clock.now()
        self._closed = threading.Event()
        self._counters = Counters()
        self._next: dict[Partition, int] = {}
        self._incarnations: dict[Partition, str] = {}
        self._skipped = list(skipped)
        self._verified = False
        self.ends: dict[Partition, End] = {}
        """The ends of partitions that have ended."""
        self._cursors: deque[_Cursor] = deque()
        self._fetched: Unconfirmed[_Cursor] = Unconfirmed(source, self._closed)
        self._unreturned: deque[tuple[_Cursor, MessageBatch]] = deque()
        for info in infos:
            partition = info.partition
            if partition in starts:
                end = None if ends is None else ends[partition]
                self._add(info, starts[partition], end, incarnations.get(partition))

    @property
    def finished(self) -> bool:
        """Whether all partitions are finished."""
        waiting = self._cursors or self._fetched or self._unreturned
        return self._verified and not waiting

    @property
    def position(self) -> Position:
        """Next offset of each partition, after the last returned batch."""
        return Position(self._next, self._incarnations).skipping(self._skipped)

    @property
    def counters(self) -> Counters:
        """The sum of the counters of all readers."""
        readers = [cursor.reader for cursor in self._open_cursors()]
        return sum((r.counters for r in readers if r is not None), self._counters)

    def next_batch(self, timeout: float) -> MessageBatch | None:
        """Return the next batch with content; None if none arrived in time.

        Content is rows, dead letters, losses or an end.

        Args:
            timeout: Seconds.

        Raises:
            PartitionVanished, OffsetOutOfRange, IncarnationChanged: data_loss.
            ConnectionFailed: transient; a partition broke off instead of ending.
            StreamError: See `Reader.fetch`.
        """
        deadline = self._clock.now() + timeout
        pause = 0.001
        while True:
            self._check_open()
            self._look_for_partitions()
            if not self._unreturned:
                self._turn(deadline)
                self._confirm()
            if self._unreturned:
                return self._hand_out()
            if not self._cursors and not self._fetched and not self._following:
                self._verify()
                return None
            left = deadline - self._clock.now()
            if left <= 0:
                return None
            if self._clock.wait(self._closed, min(pause, left)):
                continue
            pause = min(pause * 2, _LONGEST_PAUSE)

    def verify(self) -> None:
        """Verify before a commit that no topic was recreated (rule R13).

        All rows that were handed out are of the incarnation that `position` has, so an
        unreachable source is no reason not to commit them.

        Raises:
            IncarnationChanged: data_loss; under the policy ``fail``.
        """
        readers = {
            cursor.partition: cursor.reader
            for cursor in self._cursors
            if cursor.reader is not None and cursor.reader.uncertain
        }
        with suppress(TransientError, PartitionVanished, TopicNotFound):
            found = self._fetched.look_up(readers) if readers else {}
            for partition, incarnation in found.items():
                self._compare(partition, readers[partition], incarnation)

    def skip(self, targets: Mapping[Partition, int]) -> list[Skipped]:
        """Continue at later offsets, and add what lies before them to the position.

        Args:
            targets: Where partitions continue, each behind its next offset.

        Returns:
            The ranges, of partitions that have not ended.
        """
        ranges = []
        for cursor in [one for one in self._cursors if one.partition in targets]:
            partition, target = cursor.partition, targets[cursor.partition]
            incarnation = self._incarnations.get(partition)
            one = Skipped(partition, self._next[partition], target, incarnation)
            # Batches that were not handed out are read by the backfill.
            self._fetched.drop(cursor)
            kept = (item for item in self._unreturned if item[0] is not cursor)
            self._unreturned = deque(kept)
            cursor.next = self._next[partition] = target
            self._skipped = joined(self._skipped, one)
            ranges.append(one)
        return ranges

    def keep_skipped(self, skipped: Iterable[Skipped]) -> None:
        """Replace the skipped ranges by those that were not read since."""
        self._skipped = list(skipped)

    def begin_range(self) -> None:
        """Begin a range: reset the error budget of each partition (rule D3)."""
        for cursor in self._cursors:
            if cursor.reader is not None:
                cursor.reader.begin_range()

    def close(self) -> None:
        """Close all readers; may be called twice."""
        self._closed.set()
        for cursor in self._open_cursors():
            if cursor.reader is not None:
                cursor.reader.close()

    def _open_cursors(self) -> set[_Cursor]:
        """Cursors of which something may be fetched or handed out."""
        unreturned = [cursor for cursor, _ in list(self._unreturned)]
        return {*list(self._cursors), *self._fetched.cursors, *unreturned}

    def _turn(self, deadline: float) -> None:
        """Poll each partition once, until enough has content."""
        if self._fetched and (self._fetched.due or self._clock.now() >= deadline):
            return
        window = (
            len(self._cursors) if self._following else min(len(self._cursors), _OPEN)
        )
        last = 0
        for turn in range(1, window + 1):
            cursor = self._cursors[0]
            self._rotate()
            # The fetch of a single partition may block: no other partition waits.
            patience = min(deadline - self._clock.now(), 0.5) if window == 1 else 0.0
            batch = self._fetch(cursor, 0.0 if self._fetched else max(0.0, patience))
            if batch is None:
                continue
            if (
                batch.num_rows
                or batch.losses
                or batch.dead_letters is not None
                or batch.end is not None
            ):
                if not self._fetched.add(cursor, batch):
                    return
                last = turn
            elif cursor not in self._fetched.cursors:
                self._move(cursor, batch)
        # A rate may have ended the turn: the next one begins with the others.
        for _ in range(last if last < len(self._cursors) else 0):
            self._rotate()

    def _fetch(self, cursor: _Cursor, timeout: float) -> MessageBatch | None:
        if cursor.reader is None:
            cursor.reader = self._source.reader(
                cursor.partition, info=cursor.info, incarnation=cursor.incarnation
            )
            cursor.info = None
            if self._closed.is_set():
                cursor.reader.close()  # created during `close`
        try:
            batch = cursor.reader.fetch(
                cursor.next, end=cursor.end, timeout=timeout, confirm=False
            )
        except (PartitionVanished, TopicNotFound) as error:
            self._gone(cursor, error)
            return None
        cursor.next = batch.next_offset
        ended = batch.state is BatchState.END_OF_PARTITION
        if ended or (cursor.end is not None and cursor.next >= cursor.end):
            cursor.ended = True
            self._cursors.remove(cursor)
        return batch

    def _confirm(self) -> None:
        """Pass on what was fetched, if no topic was recreated meanwhile."""
        if not self._fetched or (self._cursors and not self._fetched.due):
            return
        confirmed, again = self._fetched.confirm()
        self._unreturned.extend(confirmed)
        for cursor, start in again:
            # The next fetch from there applies `out.of.range`.
            assert cursor.reader is not None
            cursor.reader.distrust(self._incarnations.get(cursor.partition))
            cursor.next = start
            if cursor.ended:
                cursor.ended = False
                self._cursors.append(cursor)

    def _compare(
        self, partition: Partition, reader: Reader, incarnation: str | None
    ) -> None:
        """Compare an incarnation that was looked up with that of the position."""
        known = self._incarnations.get(partition)
        if was_recreated(known, incarnation):
            reader.distrust(known)
            if self._policy.fails:
                error = recreated(partition, known, incarnation, self._next[partition])
                raise error.at(stream=self._source.config.name)

    def _hand_out(self) -> MessageBatch:
        cursor, batch = self._unreturned.popleft()
        self._move(cursor, batch)
        refuse_torn(batch, self._source.config.name)
        return batch

    def _move(self, cursor: _Cursor, batch: MessageBatch) -> None:
        """Move the position behind a batch that is handed out, or has no content."""
        partition = cursor.partition
        if cursor.reader is None:
            return  # it was removed
        self._next[partition] = batch.next_offset
        if any(loss.cause == "truncated" for loss in batch.losses):
            # From here on, offsets that were skipped are read.
            resumed = batch.first_offset
            at = batch.next_offset if resumed is None else resumed
            known = self._incarnations.get(partition)
            self._skipped = before(self._skipped, partition, known, at)
        if batch.incarnation is not None:
            self._incarnations[partition] = batch.incarnation
        if batch.state is BatchState.END_OF_PARTITION:
            self.ends[partition] = batch.end or Finished()
        if cursor.ended and cursor.next == batch.next_offset:
            self._close(cursor)

    def _rotate(self) -> None:
        """Move the first partition behind the other open ones."""
        cursor = self._cursors.popleft()
        others = len(self._cursors)
        self._cursors.insert(
            others if self._following else min(others, _OPEN - 1), cursor
        )

    def _close(self, cursor: _Cursor) -> None:
        reader, cursor.reader = cursor.reader, None
        if reader is not None:
            reader.close()
            self._counters += reader.counters

    def _add(
        self, info: PartitionInfo, start: int, end: int | None, incarnation: str | None
    ) -> None:
        partition = info.partition
        cursor = _Cursor(partition, start, end, info, incarnation or info.incarnation)
        self._next[partition] = start
        if cursor.incarnation is not None:
            self._incarnations[partition] = cursor.incarnation
        same = info.incarnation in (None, cursor.incarnation)
        if info.state is not PartitionState.VANISHED and start == end and same:
            return
        self._cursors.append(cursor)
        if info.state is PartitionState.VANISHED:
            self._gone(cursor, None)

    def _look_for_partitions(self) -> None:
        if not self._following or self._clock.now() - self._looked < self._refresh:
            return
        self._looked = self._clock.now()
        readers = {c.partition: c.reader for c in self._cursors if c.reader is not None}
        for info in self._source.metadata.partitions():
            partition = info.partition
            if info.state is PartitionState.VANISHED:
                cursors = [
                    cursor for cursor in self._cursors if cursor.partition == partition
                ]
                if cursors:
                    self._gone(cursors[0], None)
            elif partition in readers:
                self._compare(partition, readers[partition], info.incarnation)
            elif partition not in self._next and self._mine(partition):
                # A new partition is read from its earliest offset (rule M4).
                self._add(info, info.start, None, None)

    def _gone(self, cursor: _Cursor, error: StreamError | None) -> None:
        """Handle a removed partition.

        Raise, or record a loss and continue with the others.

        It is removed here: if it is created again, it is a new partition.
        """
        partition = cursor.partition
        if self._policy.fails and error is not None:
            raise error
        loss = self._policy.vanished(partition, cursor.next, "while it was read")
        self._cursors.remove(cursor)
        self._fetched.drop(cursor)
        self._close(cursor)
        self._counters.losses.append(loss)
        self._next.pop(partition, None)
        self._incarnations.pop(partition, None)
        self.ends[partition] = Abandoned()
        batch = MessageBatch(
            partition,
            empty_rows(self._source.schema),
            cursor.next,
            cursor.next,
            BatchState.END_OF_PARTITION,
            losses=(loss,),
            end=Abandoned(),
        )
        self._unreturned.append((cursor, batch))

    def _verify(self) -> None:
        """Verify after the last fetch that the topic was not recreated (rule R7)."""
        if self._verified:
            return
        infos = self._source.metadata.partitions() if self._incarnations else ()
        for info in infos:
            partition, found = info.partition, info.incarnation
            known = self._incarnations.get(partition)
            if was_recreated(known, found):
                error = recreated(partition, known, found, self._next[partition])
                raise error.at(stream=self._source.config.name)
        self._verified = True

    def _check_open(self) -> None:
        if self._closed.is_set():
            msg = "the stream is closed"
            raise ClosedError(msg, stream=self._source.config.name)
