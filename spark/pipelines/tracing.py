"""The batches of a pipeline, as they are reported to traces. On the driver."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, final

from streamfactory.spi import Partition
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.metrics.batches import (
    FinishedBatch,
    OffsetRange,
    StreamEnd,
    batches,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streamfactory.spark.pipelines.outcomes import Batch
    from streamfactory.spark.pipelines.preparing import Prepared
    from streamfactory.wiring.config.settled import Configured


@final
class PipelineTracer:
    """Reports the batches of one pipeline. One thread.

    Args:
        prepared: The pipeline.
    """

    def __init__(self, prepared: Prepared) -> None:
        pipeline = prepared.pipeline
        self._name = pipeline.name
        self._source = _joined(prepared.sources.values())
        self._sinks: list[StreamEnd] = []
        if batches.watched:
            configured = (load(sink.stream, "spark") for sink in pipeline.all_sinks)
            self._sinks += [StreamEnd.of(one.config) for one in configured]
            tables = pipeline.tables
            self._sinks += [StreamEnd(one.name, one.format) for one in tables]

    def committed(self, batch: Batch) -> None:
        """Report a committed batch, with the times of Spark's report."""
        if not batches.watched:
            return
        begin = datetime.fromisoformat(batch.time).timestamp()
        writing = begin + batch.durations.plan
        batches.report(
            FinishedBatch(
                "pipeline",
                self._name,
                begin,
                writing,
                max(writing, begin + batch.seconds),
                self._source,
                self._sinks,
                list(_ranges(batch)),
                batch.batch,
                batch.rows,
            )
        )

    def failed(self, failure: str) -> None:
        """Report the end of the pipeline because of an error."""
        if not batches.watched:
            return
        now = time.time()
        code = failure[1:].partition("]")[0] if failure.startswith("[") else None
        batches.report(
            FinishedBatch(
                "pipeline",
                self._name,
                now,
                now,
                now,
                self._source,
                (),
                error=failure,
                code=code,
            )
        )


def _joined(sources: Iterable[Configured]) -> StreamEnd:
    """The stream that a batch reads; of several, their names and types."""
    ends = [StreamEnd.of(one.config) for one in sources]
    if len(ends) == 1:
        return ends[0]
    kinds = dict.fromkeys(str(end.system) for end in ends)
    return StreamEnd(", ".join(end.stream for end in ends), ", ".join(kinds))


def _ranges(batch: Batch) -> Iterator[OffsetRange]:
    for read in batch.sources.values():
        for topic, by_id in read.offsets.items():
            starts = read.starts.get(topic, {})
            for number, end in by_id.items():
                start = starts.get(number)
                if start != end:
                    yield OffsetRange(Partition(topic, int(number)), start, end)
