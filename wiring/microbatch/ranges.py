"""Ranges of offsets: cut into tasks, and read by them."""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from streamfactory.spi import BatchState, StreamTimeout
from streamfactory.wiring.reading.following import refuse_torn
from streamfactory.wiring.reading.losses import was_recreated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.spi import MessageBatch, Partition
    from streamfactory.wiring.core.clock import Clock
    from streamfactory.wiring.reading.reader import Reader

log = logging.getLogger("streamfactory")


class Range(NamedTuple):
    """Offsets for one task: a start that is read and an end that is not. Pickles."""

    partition: Partition
    start: int
    end: int
    incarnation: str | None
    """What the offsets count: another one is refused."""

    @property
    def size(self) -> int:
        """Offsets, not rows."""
        return self.end - self.start


def split(
    ranges: Sequence[Range], least: int | None = None, longest: int | None = None
) -> list[Range]:
    """Cut ranges as ``minPartitions`` and ``maxRecordsPerPartition`` say.

    Args:
        ranges: None of them empty.
        least: About so many are wanted; those that are small anyhow stay whole, and
            are taken out of the arithmetic, as in Spark-Kafka.
        longest: None is longer than this.
    """
    if longest is not None:
        ranges = [
            one for whole in ranges for one in _cut(whole, -(-whole.size // longest))
        ]
    if least is None or len(ranges) >= least:
        return list(ranges)
    total = sum(one.size for one in ranges)
    small = [one for one in ranges if round(one.size / total * least) <= 1]
    large = [one for one in ranges if round(one.size / total * least) > 1]
    left, rest = least - len(small), sum(one.size for one in large)
    cut = [
        part
        for one in large
        for part in _cut(one, max(1, round(one.size / rest * left)))
    ]
    return sorted([*small, *cut])


def _cut(whole: Range, parts: int) -> list[Range]:
    size = whole.size
    edges = sorted({whole.start + size * part // parts for part in range(parts + 1)})
    return [whole._replace(start=a, end=b) for a, b in pairwise(edges)]


def read_range(
    reader: Reader,
    wanted: Range,
    *,
    timeout: float,
    clock: Clock,
    turn: float | None = None,
) -> Iterator[MessageBatch]:
    """Read a planned range to its end, batch by batch, rows or not.

    Args:
        reader: Of the range's partition and incarnation.
        wanted: Exists: a source that has nothing for it has lost something.
        timeout: Seconds without progress after which that is an error.
        clock: Time.
        turn: Seconds that one fetch waits at the most; by default as the stream is
            configured.

    Raises:
        StreamTimeout: transient; no message comes.
        ConnectionFailed: transient; the partition broke off before the end.
        StreamError: The reader's.
    """
    at = wanted.start
    progress = clock.now()
    while at < wanted.end:
        batch = reader.fetch(at, end=wanted.end, timeout=turn)
        if _elsewhere(batch, at, wanted):
            log.warning(
                "partition %s: %d to %d of a planned range are gone, and not read",
                wanted.partition,
                at,
                wanted.end,
            )
            return
        refuse_torn(batch, reader.stream)
        if batch.num_rows or batch.next_offset > at:
            progress = clock.now()
        at = max(at, batch.next_offset)
        yield batch
        if batch.state is BatchState.END_OF_PARTITION:
            break
        if clock.now() - progress > timeout and at < wanted.end:
            msg = f"no message came for {timeout:g} s, and {wanted.end} is planned"
            raise StreamTimeout(
                msg, stream=reader.stream, partition=wanted.partition, offset=at
            )
    reader.verify()


def _elsewhere(batch: MessageBatch, at: int, wanted: Range) -> bool:
    """Whether a reader that may go on after a loss did so at other rows.

    These are no part of the range: it counts offsets of an earlier life, or ones that
    were cut off. Whoever plans next meets the loss too, and plans them once.
    """
    if was_recreated(wanted.incarnation, batch.incarnation):
        return True
    return batch.first_offset is not None and batch.first_offset < at
