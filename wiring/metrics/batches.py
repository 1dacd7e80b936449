"""Finished batches of pipelines, copies and spools, for traces.

Jobs report each batch after its commit. Without a subscriber that is one comparison.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

from streamfactory.spi import StreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streamfactory.spi import Partition, Position, StreamConfig


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """A stream that a batch has read or written."""

    stream: str
    """Its name, as it is configured."""
    system: str | None = None
    """Its type: ``kafka``."""
    topic: str | None = None
    """Its topic, where it has one only."""

    @classmethod
    def of(cls, config: StreamConfig) -> StreamEnd:
        """The end of a configured stream."""
        return cls(config.name, config.type, config.get("topic.name"))


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets of one partition in a batch."""

    partition: Partition
    start: int | None
    """Inclusive; None where the job did not know it."""
    end: int
    """Exclusive."""


@dataclass(frozen=True, slots=True)
class FinishedBatch:
    """A batch that was committed, or has failed."""

    job: str
    """``pipeline``, ``copy`` or ``spool``."""
    name: str
    """Of the pipeline, the copy's writer id, or the spooled stream."""
    begin: float
    """When it began, in seconds since 1970-01-01 UTC."""
    committing: float
    """When writing or committing began; not before `begin`."""
    end: float
    """When the commit had returned."""
    source: StreamEnd
    sinks: Sequence[StreamEnd]
    ranges: Sequence[OffsetRange] = ()
    """Offsets that it read; partitions without new ones are omitted."""
    epoch: int | None = None
    """Number of its commit; None if it is unknown."""
    rows: int | None = None
    error: str | None = None
    """Why it failed; None if it was committed."""
    code: str | None = None
    """Code of that error, where it is ours."""
    writer_id: str | None = None
    """Of its commit."""
    parents: Sequence[str] = ()
    """Of `Traceparents`: the contexts of its messages."""


def ranges_between(before: Position | None, after: Position) -> list[OffsetRange]:
    """The ranges between two positions, without empty ones."""
    return [
        OffsetRange(partition, start, end)
        for partition, end in after.items()
        for start in [None if before is None else before.get(partition)]
        if start != end
    ]


@final
class Batches:
    """Passes finished batches of this process to one subscriber."""

    def __init__(self) -> None:
        self._subscriber: Callable[[FinishedBatch], None] | None = None

    @property
    def watched(self) -> bool:
        """Whether there is a subscriber: only then batches are reported."""
        return self._subscriber is not None

    def report(self, batch: FinishedBatch) -> None:
        """Pass a batch to the subscriber, if there still is one. Any thread."""
        subscriber = self._subscriber
        if subscriber is not None:
            subscriber(batch)

    def subscribe(self, subscriber: Callable[[FinishedBatch], None] | None) -> None:
        """Set the subscriber, which must not block or raise; None removes it."""
        self._subscriber = subscriber


batches = Batches()
"""Of this process."""


@contextmanager
def reported(batch: FinishedBatch) -> Iterator[None]:
    """Report a batch when its commit, which is the block, has ended or failed.

    Args:
        batch: Its `end` and error are replaced.
    """
    try:
        yield
    except Exception as error:
        code = error.code if isinstance(error, StreamError) else None
        end, what = time.time(), str(error)
        batches.report(replace(batch, end=end, error=what, code=code))
        raise
    batches.report(replace(batch, end=time.time()))
