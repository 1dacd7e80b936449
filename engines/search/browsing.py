"""Pages of messages: those of all partitions, before or after a position.

A page is merged by time where messages have times, else by partition and offset. The
limits of a page are shared by its partitions, so that none of them waits for another;
a page says how far it has read.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final, final

import numpy as np
import pyarrow as pa

from streamfactory.spi import BatchState, MisuseError, PartitionState, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from streamfactory.spi import MessageBatch, Partition, PartitionInfo
    from streamfactory.wiring.reading.reader import Reader
    from streamfactory.wiring.reading.source import Source

    Matches = Callable[[pa.RecordBatch], np.ndarray]

MOST_PARTITIONS: Final = 100
"""Partitions of one page: each has a reader."""
_CHUNK: Final = 2000
"""Messages that are fetched at once for a search."""
_FIRST, _FIRST_SEARCHED, _WIDER = 4, 64, 4
"""Offsets of the first range, where a page is read backwards, without a search and with
one, and by how much the next one is wider. The first one is read whatever its size."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one page may have, and may cost."""

    messages: int = 50
    """That the page has."""
    rows: int = 200_000
    """That are read, by all partitions together; also `size`."""
    size: int = 32 << 20
    """Bytes in memory."""
    seconds: float = 8.0


@dataclass(frozen=True, slots=True)
class Message:
    """The rows of one message."""

    partition: Partition
    offset: int
    time: int | None
    """Microseconds since 1970; None where the stream has none."""
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Extent:
    """What was read of one partition."""

    partition: Partition
    start: int
    end: int
    """Exclusive."""
    cut: bool
    """Whether a limit ended the reading."""
    lost: bool = False
    """Whether messages at the position are not held any more."""


@dataclass(frozen=True, slots=True)
class MessagePage:
    """One page. No message is in two neighbouring pages, or in none."""

    messages: tuple[Message, ...]
    before: Position
    """Where the page begins: the previous one ends here."""
    after: Position
    """Where the page ends: the next one begins here."""
    searched: tuple[Extent, ...]
    has_previous: bool
    has_next: bool
    too_large: tuple[Message, ...] = ()
    """Messages larger than the share of their partition, whole ones."""


@final
class Browser:
    """Reads pages of a source.

    Args:
        source: Its rows have the metadata columns, or are undecoded messages.
        limits: Of each page.
        matches: Whether each row of a batch is wanted; None for all rows. A message is
            on the page if one of its rows is wanted.
    """

    def __init__(
        self, source: Source, limits: Limits, matches: Matches | None = None
    ) -> None:
        self._source, self._limits, self._matches = source, limits, matches

    def page(
        self,
        infos: Sequence[PartitionInfo],
        position: Mapping[Partition, int],
        *,
        back: bool,
    ) -> MessagePage:
        """The messages after a position, or those before it.

        Args:
            infos: The partitions that are read.
            position: By partition, the offset at which the page begins; with ``back``
                at which it ends, exclusive. Those without start at their earliest, or
                end at their latest.
            back: Whether the page ends at the position.

        Raises:
            MisuseError: misuse; there are too many partitions.
            StreamError: As `Reader.fetch`, or of the search.
        """
        infos = [one for one in infos if one.state is not PartitionState.VANISHED]
        if len(infos) > MOST_PARTITIONS:
            msg = f"a page has the messages of at most {MOST_PARTITIONS} partitions, "
            msg += f"and there are {len(infos)}"
            raise MisuseError(
                msg, stream=self._source.config.name, remedy="choose one partition"
            )
        kind = _Backward if back else _Forward
        with ExitStack() as stack:
            parts: list[_Part] = []
            for info in infos:
                reader = self._source.reader(info.partition, info=info, counted=False)
                stack.callback(reader.close)
                parts.append(
                    kind(reader, info, position.get(info.partition), self._share(infos))
                )
            self._read(parts)
        return self._assembled(parts, back=back)

    def _share(self, infos: Sequence[PartitionInfo]) -> _Share:
        limits, count = self._limits, len(infos)
        return _Share(
            limits.messages,
            max(1, limits.rows // count),
            max(1, limits.size // count),
            self._matches,
        )

    def _read(self, parts: Sequence[_Part]) -> None:
        """Read all partitions in turn, until each has enough, or reached a limit."""
        deadline = time.monotonic() + self._limits.seconds
        waiting = [one for one in parts if not one.done]
        while waiting:
            for part in waiting:
                left = deadline - time.monotonic()
                if left <= 0:
                    return
                part.read(min(left, max(0.25, left / len(waiting))))
            waiting = [one for one in waiting if not one.done]

    def _assembled(self, parts: Sequence[_Part], *, back: bool) -> MessagePage:
        found = merged([part.found for part in parts])
        most = self._limits.messages
        taken = found[-most:] if back else found[:most]
        kept = {(one.partition, one.offset) for one in taken}
        ends: dict[Partition, int] = {}
        for part in parts:
            left = [
                one for one in part.found if (one.partition, one.offset) not in kept
            ]
            ends[part.partition] = part.end_of_page(left)
        here = {part.partition: part.begin for part in parts}
        before, after = (ends, here) if back else (here, ends)
        return MessagePage(
            tuple(taken),
            Position(before),
            Position(after),
            tuple(part.extent() for part in parts),
            has_previous=any(before[part.partition] > part.start for part in parts),
            has_next=any(
                part.latest is None or after[part.partition] < part.latest
                for part in parts
            ),
            too_large=tuple(
                one
                for part in parts
                for one in part.too_large
                if (one.partition, one.offset) in kept
            ),
        )


def merged(found: Iterable[Sequence[Message]]) -> list[Message]:
    """Messages of several partitions in the order of a page.

    By time, where all of them have one, else by partition and offset. Messages of one
    partition keep their order, also where their times do not rise.
    """
    keyed: list[tuple[int, Partition, int, Message]] = []
    timed = True
    for messages in found:
        latest = -(1 << 63)
        for one in messages:
            timed = timed and one.time is not None
            latest = max(latest, latest if one.time is None else one.time)
            keyed.append((latest, one.partition, one.offset, one))
    keyed.sort(key=lambda item: item[:3] if timed else item[1:3])
    return [item[3] for item in keyed]


def messages_of(batch: MessageBatch, matches: Matches | None) -> list[Message]:
    """The messages of a batch of which a row is wanted.

    Args:
        batch: A batch.
        matches: Whether each row is wanted; None for all rows.
    """
    count = batch.num_rows
    if not count:
        return []
    offsets = _offsets(batch)
    edges = [0, *(np.flatnonzero(np.diff(offsets)) + 1).tolist(), count]
    bounds = list(pairwise(edges))
    if matches is not None:
        hits = np.add.reduceat(matches(batch.rows), edges[:-1], dtype=int)
        bounds = [bounds[at] for at in np.flatnonzero(hits).tolist()]
    times = _times(batch.rows)
    return [
        Message(
            batch.partition,
            int(offsets[at]),
            None if times is None else times[at].as_py(),
            batch.rows.slice(at, end - at),
        )
        for at, end in bounds
    ]


@dataclass(frozen=True, slots=True)
class _Share:
    """The limits of one partition."""

    messages: int
    rows: int
    size: int
    matches: Matches | None


@dataclass
class _Part:
    """What is read of one partition, in one direction."""

    reader: Reader
    info: PartitionInfo
    given: int | None
    share: _Share
    found: list[Message] = field(default_factory=list)
    too_large: list[Message] = field(default_factory=list)
    rows: int = 0
    size: int = 0
    ended: bool = False
    """Whether there is nothing more in this direction."""

    def __post_init__(self) -> None:
        self.partition = self.info.partition
        self.start, self.latest = self.info.start, self.info.latest
        self.begin = self.at = self._clamped()

    @property
    def done(self) -> bool:
        """Whether nothing more is read."""
        if self.ended or len(self.found) >= self.share.messages:
            return True
        return self._spent and self.at != self.begin

    @property
    def _spent(self) -> bool:
        return self.rows >= self.share.rows or self.size >= self.share.size

    def read(self, seconds: float) -> None:
        """Read a part of it."""
        raise NotImplementedError

    def end_of_page(self, left: Sequence[Message]) -> int:
        """Where the page ends in this direction.

        Args:
            left: Messages that were found, and are not on the page.
        """
        raise NotImplementedError

    def extent(self) -> Extent:
        """What was read."""
        lost = self.given is not None and self.given < self.start
        cut = not self.ended and len(self.found) < self.share.messages
        first, last = sorted((self.begin, self.at))
        return Extent(self.partition, first, last, cut, lost)

    def _clamped(self) -> int:
        raise NotImplementedError

    def _fetch(self, start: int, end: int | None, seconds: float) -> MessageBatch:
        searching = self.share.matches is not None
        most = _CHUNK if searching else self.share.messages
        batch = self.reader.fetch(
            start,
            end=end,
            max_rows=max(1, min(most, self.share.rows - self.rows)),
            max_bytes=max(1, self.share.size - self.size),
            timeout=seconds,
        )
        self.rows += batch.num_rows
        self.size += batch.size
        return batch

    def _messages(self, batch: MessageBatch) -> list[Message]:
        """The messages of a batch that are wanted."""
        found = messages_of(batch, self.share.matches)
        if batch.size > self.share.size and len(found) == 1:
            self.too_large += found
        return found


class _Forward(_Part):
    def _clamped(self) -> int:
        given = self.start if self.given is None else max(self.start, self.given)
        at = given if self.latest is None else min(given, self.latest)
        self.ended = self.latest is not None and at >= self.latest
        return at

    def read(self, seconds: float) -> None:
        batch = self._fetch(self.at, self.latest, seconds)
        self.found += self._messages(batch)
        still = self.latest is None and not batch.num_rows
        self.at = batch.next_offset
        self.ended = (
            still
            or batch.state is BatchState.END_OF_PARTITION
            or (self.latest is not None and self.at >= self.latest)
        )

    def end_of_page(self, left: Sequence[Message]) -> int:
        return left[0].offset if left else self.at


@dataclass
class _Backward(_Part):
    width: int = 0
    _pending: list[Message] = field(default_factory=list)
    _range: tuple[int, int] | None = None

    def _clamped(self) -> int:
        latest = self.start if self.latest is None else self.latest
        at = latest if self.given is None else min(latest, self.given)
        self.ended = at <= self.start
        return max(self.start, at)

    def read(self, seconds: float) -> None:
        if self._range is None:
            first = _FIRST if self.share.matches is None else _FIRST_SEARCHED
            self.width = self.width * _WIDER or first
            self._range = max(self.start, self.at - self.width), self.at
        start, end = self._range
        batch = self._fetch(start, end, seconds)
        self._pending += self._messages(batch)
        self._range = batch.next_offset, end
        if batch.next_offset >= end or batch.state is BatchState.END_OF_PARTITION:
            self._complete()

    def _complete(self) -> None:
        """Add the messages of a range that was read whole: others would be missing."""
        self.found[:0] = self._pending
        self._pending, self._range = [], None
        self.at = max(self.start, self.at - self.width)
        self.ended = self.at <= self.start

    def end_of_page(self, left: Sequence[Message]) -> int:
        return left[-1].offset + 1 if left else self.at


def _offsets(batch: MessageBatch) -> np.ndarray:
    if batch.offsets is not None:
        return np.asarray(batch.offsets)
    first = batch.first_offset or 0
    return np.arange(first, first + batch.num_rows)


def times_of(rows: pa.RecordBatch) -> pa.Array | None:
    """The times of messages; None where the rows have none."""
    names = rows.schema.names
    # `timestamp` is a metadata column of undecoded messages only.
    name = "timestamp" if "timestampType" in names else "_timestamp"
    at = rows.schema.get_field_index(name)
    if at < 0 or not pa.types.is_timestamp(rows.schema.field(at).type):
        return None
    return rows.column(at)


def _times(rows: pa.RecordBatch) -> pa.Array | None:
    found = times_of(rows)
    if found is None:
        return None
    return found.cast(pa.timestamp("us", "UTC"), safe=False).view(pa.int64())
