"""What writers and committers have done so far: plain numbers, cheap to keep."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import Sample, StreamError
from streamfactory.wiring.metrics import vocabulary as v

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.spi import Metric


@dataclass(slots=True)
class WriteCounters:
    """What a writer has done so far."""

    rows: int = 0
    """Rows taken."""
    bytes: int = 0
    """Of these rows, as they are in memory."""
    batches: int = 0
    seconds: float = 0.0
    """Time in `Writer.write` and `Writer.commit`."""
    failures: int = 0
    """Writes that raised an error."""
    drained: int = 0
    """Rows not written, for their epoch is there already."""
    unread: int = 0
    """Rows not written, for the reader has finished."""
    discarded: int = 0
    """Rows not written, for they do not fit: ``schema.contract=discard_row``."""


@dataclass(slots=True)
class CommitCounters:
    """What a committer has done so far."""

    commits: int = 0
    """Epochs that it made visible."""
    repeated: int = 0
    """Commits without effect, for their epoch was there already."""
    failures: int = 0
    """Commits that raised an error."""
    seconds: float = 0.0
    """Time in commits."""
    mismatches: int = 0
    """Epochs that were repeated with other rows."""
    aborts: int = 0


@final
class Timing:
    """Counts the time of blocks, and those that raise an error. One thread at a time.

    Args:
        counters: Where it is counted.
    """

    def __init__(self, counters: WriteCounters | CommitCounters) -> None:
        self._counters = counters
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = perf_counter()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._counters.seconds += perf_counter() - self._began
        if kind is not None and issubclass(kind, StreamError):
            self._counters.failures += 1


_METRICS: Final[dict[type, tuple[tuple[Metric, str], ...]]] = {
    WriteCounters: (
        (v.WRITE_ROWS, "rows"),
        (v.WRITE_BYTES, "bytes"),
        (v.WRITE_BATCHES, "batches"),
        (v.WRITE_SECONDS, "seconds"),
        (v.WRITE_FAILURES, "failures"),
        (v.WRITE_DRAINED, "drained"),
        (v.WRITE_DISCARDED, "discarded"),
    ),
    CommitCounters: (
        (v.COMMITS, "commits"),
        (v.COMMITS_REPEATED, "repeated"),
        (v.COMMITS_FAILED, "failures"),
        (v.COMMIT_SECONDS, "seconds"),
        (v.COMMIT_MISMATCHES, "mismatches"),
        (v.COMMIT_ABORTS, "aborts"),
    ),
}


@final
class SinkTally:
    """The metrics of one writer or committer. One thread counts, any may read.

    Args:
        stream: Name of the stream.
        counters: Its counts.
    """

    def __init__(self, stream: str, counters: WriteCounters | CommitCounters) -> None:
        self._labels = (stream,)
        self._counters = counters

    def counters(self) -> Iterator[Sample]:
        """See `Tally`."""
        for metric, name in _METRICS[type(self._counters)]:
            yield Sample(metric, self._labels, getattr(self._counters, name))

    def gauges(self) -> Iterator[Sample]:
        """See `Tally`; there are none."""
        yield from ()
