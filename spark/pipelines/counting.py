"""The metrics of a pipeline, from Spark's progress reports. On the driver."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import Sample
from streamfactory.wiring.metrics import vocabulary as v

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamfactory.spark.checkpoints import SinkCommit
    from streamfactory.spark.pipelines.outcomes import Batch
    from streamfactory.spi import Metric

_COUNTERS: Final = (
    v.PIPELINE_ROWS,
    v.PIPELINE_BATCHES,
    v.PIPELINE_BATCH_SECONDS,
    v.PIPELINE_PLAN_SECONDS,
    v.PIPELINE_WRITE_SECONDS,
    v.PIPELINE_CHECKPOINT_SECONDS,
    v.PIPELINE_LATE_ROWS,
    v.PIPELINE_FAILURES,
    v.PIPELINE_DEAD_LETTERS,
    v.PIPELINE_FAILED_ATTEMPTS,
)


@final
class PipelineTally:
    """The metrics of one pipeline. One thread counts, any may read.

    Args:
        pipeline: Its name.
        clock: Seconds since 1970; another one in tests.
    """

    def __init__(self, pipeline: str, clock: Callable[[], float] = time.time) -> None:
        self._pipeline = pipeline
        self._clock = clock
        self._counts: dict[Metric, float] = dict.fromkeys(_COUNTERS, 0)
        self._running = False
        self._at: float | None = None
        self._last: Batch | None = None
        # Replaced as a whole: other threads read it.
        self._written: dict[str, tuple[int, int]] = {}
        self._unmet: dict[str, int] = {}

    def started(self) -> None:
        """Note that the query has started."""
        self._running = True
        self._at = self._clock()

    def idle(self) -> None:
        """Note that a trigger found no rows."""
        self._at = self._clock()

    def add(self, batch: Batch) -> None:
        """Count a committed batch."""
        counts, durations = self._counts, batch.durations
        counts[v.PIPELINE_ROWS] += batch.rows
        counts[v.PIPELINE_BATCHES] += 1
        counts[v.PIPELINE_BATCH_SECONDS] += batch.seconds
        counts[v.PIPELINE_PLAN_SECONDS] += durations.plan
        counts[v.PIPELINE_WRITE_SECONDS] += durations.write
        counts[v.PIPELINE_CHECKPOINT_SECONDS] += durations.checkpoint
        counts[v.PIPELINE_LATE_ROWS] += batch.dropped
        # Spark's report of a batch without rows may have no counts.
        self._unmet = self._unmet | {
            name: self._unmet.get(name, 0) + rows
            for name, rows in batch.expectations.items()
        }
        self._last = batch
        self._at = self._clock()

    def wrote(self, commit: SinkCommit) -> None:
        """Count what a committed batch wrote to one sink."""
        rows = sum(one.writes for one in commit.partitions)
        size = sum(one.size for one in commit.partitions)
        before = self._written.get(commit.sink, (0, 0))
        now = (before[0] + rows, before[1] + size)
        self._written = {**self._written, commit.sink: now}
        self._counts[v.PIPELINE_DEAD_LETTERS] += rows * commit.dead_letters
        self._counts[v.PIPELINE_FAILED_ATTEMPTS] += commit.failed_attempts

    def ended(self, *, failed: bool) -> None:
        """Note that the query has ended."""
        self._running = False
        self._counts[v.PIPELINE_FAILURES] += failed

    def counters(self) -> Iterator[Sample]:
        """See `Tally`."""
        for metric in _COUNTERS:
            yield Sample(metric, (self._pipeline,), self._counts[metric])
        for sink, (rows, size) in self._written.items():
            yield Sample(v.PIPELINE_WRITTEN_ROWS, (self._pipeline, sink), rows)
            yield Sample(v.PIPELINE_WRITTEN_BYTES, (self._pipeline, sink), size)
        for name, rows in self._unmet.items():
            yield Sample(v.PIPELINE_UNMET_ROWS, (self._pipeline, name), rows)

    def gauges(self) -> Iterator[Sample]:
        """See `Tally`."""
        labels, last = (self._pipeline,), self._last
        yield Sample(v.PIPELINE_RUNNING, labels, self._running)
        if self._at is not None:
            yield Sample(v.PIPELINE_LAST_TRIGGER, labels, self._at)
        if last is None:
            return
        yield Sample(v.PIPELINE_EPOCH, labels, last.batch)
        yield Sample(v.PIPELINE_STATE_ROWS, labels, last.state_rows)
        watermark = _seconds(last.watermark)
        if watermark:
            yield Sample(v.PIPELINE_WATERMARK, labels, watermark)
        for metric, by_topic in (
            (v.PIPELINE_LAG, last.lag),
            (v.PIPELINE_NEXT, last.offsets),
        ):
            for topic, by_id in by_topic.items():
                for number, value in by_id.items():
                    yield Sample(metric, (self._pipeline, topic, number), value)


def _seconds(watermark: str | None) -> float:
    """Seconds since 1970; 0 where no row has moved the watermark yet."""
    if watermark is None:
        return 0.0
    return datetime.fromisoformat(watermark).timestamp()
