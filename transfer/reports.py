"""Reports the commits of a copy to traces, with what its rows were read of."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, final

from streamfactory.wiring.controls.states import copy_job, pipeline_job
from streamfactory.wiring.metrics.batches import (
    FinishedBatch,
    StreamEnd,
    batches,
    ranges_between,
    reported,
)
from streamfactory.wiring.metrics.traceparents import Traceparents

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.spi import MessageBatch, Position, StreamConfig
    from streamfactory.wiring.controls.control import Control
    from streamfactory.wiring.writing.epochs import Epochs


@final
class CommitReports:
    """Reports each commit with rows of one copy. One thread.

    Args:
        source: Configuration of the source.
        sink: Configuration of the sink.
        writer_id: Writer id of the copy.
        control: What users ask of its job; None if they cannot.
    """

    def __init__(
        self,
        source: StreamConfig,
        sink: StreamConfig,
        writer_id: str,
        control: Control | None,
    ) -> None:
        self._source = source
        self._sink = sink
        self._writer_id = writer_id
        self._kind, self._name = "copy", writer_id
        self.job = copy_job(writer_id)
        """The job in metrics: of the copy, or of the pipeline that it belongs to."""
        if control is not None and control.job.startswith(pipeline_job("")):
            self.job = control.job
            self._kind, _, self._name = self.job.partition("/")
        self._began: float | None = None
        """When the first rows of the open epoch were read, since 1970-01-01 UTC."""
        self._traceparents = Traceparents()
        """Of the open epoch."""

    def add(self, batch: MessageBatch) -> None:
        """Add rows to the open epoch."""
        if self._began is None:
            self._began = time.time()
        if batches.watched:
            self._traceparents.add(batch.rows)

    @contextmanager
    def commit(
        self, epochs: Epochs, before: Position | None, position: Position
    ) -> Iterator[None]:
        """Report the commit of an epoch that the block makes, if it has rows.

        Args:
            epochs: With the open epoch.
            before: The position of the commit before it.
            position: Its own.
        """
        began, self._began = self._began, None
        if not (batches.watched and epochs.pending):
            yield
            return
        now = time.time()
        batch = FinishedBatch(
            self._kind,
            self._name,
            min(now, began or now),
            now,
            now,
            StreamEnd.of(self._source),
            [StreamEnd.of(self._sink)],
            ranges_between(before, position),
            epochs.epoch,
            epochs.pending,
            writer_id=self._writer_id,
            parents=self._traceparents.take(),
        )
        with reported(batch):
            yield
