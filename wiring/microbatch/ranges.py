"""Ranges of offsets: splitting them into tasks, and reading them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from streamfactory.spi import BatchState, Extent, StreamTimeout
from streamfactory.wiring.reading.batches import refuse_torn
from streamfactory.wiring.reading.extents import advance
from streamfactory.wiring.reading.losses import recreated, was_recreated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.spi import MessageBatch, Partition
    from streamfactory.wiring.core.clock import Clock
    from streamfactory.wiring.reading.reader import Reader

log = logging.getLogger("streamfactory")


class Range(NamedTuple):
    """A range of one task: start inclusive, end exclusive. Pickles."""

    partition: Partition
    start: int
    end: int
    incarnation: str | None
    """Incarnation of the offsets; reading another one is refused."""

    @property
    def size(self) -> int:
        """Number of offsets, not rows."""
        return self.end - self.start


Extents = Callable[["Range"], "Sequence[Extent]"]
"""The runs of offsets of a range that can hold messages, in order."""


def whole(one: Range) -> Sequence[Extent]:
    """The extents of a range in which every offset can hold a message."""
    return [Extent(one.start, one.end)]


def split(
    ranges: Sequence[Range],
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
    extents: Extents = whole,
) -> list[Range]:
    """Split ranges by ``minPartitions`` and ``maxRecordsPerPartition``.

    Args:
        ranges: None of them empty.
        min_partitions: About so many are wanted; those that are small anyhow stay
            whole, and are taken out of the arithmetic, as in Spark-Kafka.
        max_records_per_partition: None has more messages than this.
        extents: Where the messages of a range are: it is cut there and nowhere else.
    """
    if min_partitions is None and max_records_per_partition is None:
        return list(ranges)
    parts = [_Part(one, extents(one)) for one in ranges]
    if max_records_per_partition is not None:
        parts = [
            cut
            for part in parts
            for cut in part.cut(-(-part.size // max_records_per_partition))
        ]
    if min_partitions is None or len(parts) >= min_partitions:
        return [part.range for part in parts]
    total = max(1, sum(part.size for part in parts))
    small = [part for part in parts if round(part.size / total * min_partitions) <= 1]
    large = [part for part in parts if round(part.size / total * min_partitions) > 1]
    left, rest = min_partitions - len(small), sum(part.size for part in large)
    pieces = [
        piece
        for part in large
        for piece in part.cut(max(1, round(part.size / rest * left)))
    ]
    return sorted(part.range for part in [*small, *pieces])


class _Part(NamedTuple):
    """A range, with the extents that hold its messages."""

    range: Range
    extents: Sequence[Extent]

    @property
    def size(self) -> int:
        """Messages."""
        return sum(extent.end - extent.start for extent in self.extents)

    def cut(self, parts: int) -> list[_Part]:
        """About so many ranges, of about as many messages each."""
        size = self.size
        inner = {self._offset(size * part // parts) for part in range(1, parts)}
        edges = sorted({self.range.start, *inner, self.range.end})
        return [
            _Part(
                self.range._replace(start=a, end=b),
                [
                    Extent(max(a, extent.start), min(b, extent.end))
                    for extent in self.extents
                    if extent.start < b and extent.end > a
                ],
            )
            for a, b in pairwise(edges)
        ]

    def _offset(self, messages: int) -> int:
        """The offset behind so many messages."""
        return advance(self.extents, messages, self.range.end)


def read_range(
    reader: Reader,
    wanted: Range,
    *,
    timeout: float,
    clock: Clock,
    turn: float | None = None,
) -> Iterator[MessageBatch]:
    """Read a planned range to its end; yields all batches, also those without rows.

    Args:
        reader: Reader of the range's partition and incarnation.
        wanted: The range; its messages exist, so missing ones are lost.
        timeout: Seconds without progress until an error is raised. Waiting for a rate
            is progress.
        clock: The clock.
        turn: Maximum seconds of one fetch; by default that of the configuration.

    Raises:
        StreamTimeout: transient; no message arrived.
        ConnectionFailed: transient; the partition broke off before the end.
        StreamError: Raised by the reader.
    """
    at, returned = wanted.start, False
    progress = clock.now()
    while at < wanted.end:
        # Confirmed by `verify`, once for the whole range.
        batch = reader.fetch(at, end=wanted.end, timeout=turn, confirm=False)
        if _elsewhere(batch, at, wanted):
            if returned and was_recreated(wanted.incarnation, batch.incarnation):
                # Rows that were returned may be of the new topic (rule R13).
                raise recreated(
                    wanted.partition, wanted.incarnation, batch.incarnation, at
                ).at(stream=reader.stream)
            log.warning(
                "partition %s: offsets %d to %d of a planned range are lost",
                wanted.partition,
                at,
                wanted.end,
            )
            return
        refuse_torn(batch, reader.stream)
        throttled = batch.state is BatchState.THROTTLED
        if batch.num_rows or batch.next_offset > at or throttled:
            progress = clock.now()
        at, returned = max(at, batch.next_offset), returned or batch.num_rows > 0
        yield batch
        if batch.state is BatchState.END_OF_PARTITION:
            break
        if clock.now() - progress > timeout and at < wanted.end:
            msg = f"no message arrived for {timeout:g} s before the end at {wanted.end}"
            raise StreamTimeout(
                msg, stream=reader.stream, partition=wanted.partition, offset=at
            )
    reader.verify()


def _elsewhere(batch: MessageBatch, at: int, wanted: Range) -> bool:
    """Whether a reader continued outside the range after a loss.

    Rows there are not part of the range, which has offsets of an earlier incarnation,
    or beyond the end of a truncated partition. The next plan detects the loss too, and
    plans those rows once.
    """
    if was_recreated(wanted.incarnation, batch.incarnation):
        return True
    return batch.first_offset is not None and batch.first_offset < at
