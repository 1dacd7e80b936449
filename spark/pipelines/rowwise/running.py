"""Runs pipelines without Spark: each is a copy whose conversion is its steps."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, final

from streamfactory.spark.checkpoints import Engine, PipelineCheckpoint, Place
from streamfactory.spark.checkpoints.copied import (
    identity,
    local_folder,
    position_store,
)
from streamfactory.spark.checkpoints.holding import hold
from streamfactory.spark.failures import describe_failure
from streamfactory.spark.pipelines.counting import PipelineTally
from streamfactory.spark.pipelines.hooks import HookFailed, hook_of
from streamfactory.spark.pipelines.outcomes import Batch, Durations, Outcome, Read
from streamfactory.spark.pipelines.overriding import PipelineFiles, noting
from streamfactory.spark.pipelines.problems import refuse
from streamfactory.spark.pipelines.rowwise.ends import Ends, source_of
from streamfactory.spark.pipelines.rowwise.steps import Tally
from streamfactory.spi import Position, Problem
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.controls.control import Control
from streamfactory.wiring.controls.states import pipeline_job
from streamfactory.wiring.core.guard import log
from streamfactory.wiring.metrics.registry import registry
from streamfactory.wiring.receiving.embedded import open_source

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from streamfactory.spark.pipelines.model import Draft, Pipeline
    from streamfactory.spark.pipelines.overriding import Overrides
    from streamfactory.spi import Partition
    from streamfactory.transfer.copying import Copy


@final
@dataclass(slots=True, weakref_slot=True)
class RowRun:
    """One pipeline: opened, run once, closed. One thread.

    Args:
        draft: A pipeline without problems.
        reset: Value of ``--reset``.
        ignore: Value of ``--ignore-checkpoint``.
        on_batch: Called with each committed batch.
    """

    draft: Draft
    reset: str | None
    ignore: str | None
    on_batch: Callable[[Batch], None]
    outcome: Outcome = field(init=False)
    _stack: ExitStack = field(default_factory=ExitStack)
    _copy: Copy = field(init=False)
    _pipeline: Pipeline = field(init=False)
    _read: Tally = field(default_factory=Tally)
    _tally: PipelineTally = field(init=False)
    _hook: Callable[[Batch], None] | None = None
    _checkpoint: PipelineCheckpoint = field(init=False)
    _since: float = field(default_factory=time.monotonic)
    _at: Position | None = None

    def open(self) -> None:
        """Open all ends, and decide where the pipeline starts.

        Raises:
            StreamError: As the ends raise, or the checkpoint.
        """
        assert self.draft.pipeline is not None
        self._pipeline = pipeline = self.draft.pipeline
        endless = pipeline.trigger.millis is not None
        self.outcome = Outcome(pipeline.name, endless=endless)
        self._tally = PipelineTally(pipeline.name)
        registry.track(self, self._tally)
        self._hook = hook_of(pipeline.hook)
        with ExitStack() as unless_made:
            place = Place.of(pipeline.checkpoint)
            local_folder(place)
            unless_made.enter_context(hold(place))
            self._open(place, unless_made)
            self._stack = unless_made.pop_all()
        self.outcome.promise = str(self._copy.guarantee)
        self.outcome.went_on = self._checkpoint.why

    def _open(self, place: Place, stack: ExitStack) -> None:
        """Open the source, the checkpoint, the sinks and the copy between them."""
        pipeline = self._pipeline
        [read] = pipeline.sources
        definition = source_of(pipeline)
        with closing(open_source(load(definition, "read"), aside=False)) as looked:
            self._checkpoint = PipelineCheckpoint.open(
                pipeline.checkpoint,
                pipeline.name,
                {read.id: looked},
                reset=self.reset,
                ignore=self.ignore,
                engine=Engine.DATAFUSION,
            )
        generation = place.child(str(self._checkpoint.generation))
        start = (self._checkpoint.start or {}).get(read.id, {})
        source = open_source(load(definition.with_overrides(start), "read"), aside=True)
        stack.callback(source.close)
        ends = Ends.open(self.draft, source, stack)
        own = identity(generation, pipeline.sinks[0].name)
        self._copy = ends.copy(
            own,
            self._read,
            checkpoints=position_store(generation),
            control=Control(pipeline_job(pipeline.name)),
            on_commit=self._committed,
        )
        stack.callback(self._copy.close)

    def run(self, stop: threading.Event) -> Outcome:
        """Run until the end, a failure, or the stop."""
        began, outcome = time.monotonic(), self.outcome
        self._since = began
        self._tally.started()
        try:
            done = self._copy.run(stop, follow=outcome.endless)
            outcome.stopped, outcome.pause = not done.complete, done.pause
        except Exception as error:  # noqa: BLE001 - other pipelines continue
            outcome.failure = describe_failure(error)
            log.debug("pipeline %r failed", outcome.pipeline, exc_info=True)
        outcome.seconds = time.monotonic() - began
        self._tally.ended(failed=outcome.failure is not None)
        return outcome

    def close(self) -> None:
        """Close all ends; may be called twice."""
        self._stack.close()

    def _committed(self, epoch: int, position: Position) -> None:
        """Report what was committed, as a batch."""
        read, before, self._at = self._read, self._at, position
        now = time.monotonic()
        seconds, self._since = now - self._since, now
        if not read.rows:
            self._tally.idle()
            return
        if self.outcome.batches == 0:
            self._checkpoint.note_begun()
        batch = self._batch(epoch, seconds, before, position)
        read.clear()
        outcome = self.outcome
        outcome.batches += 1
        outcome.rows += batch.rows
        outcome.unmet.update(batch.expectations)
        outcome.last = batch
        self._tally.add(batch)
        for name, rows in batch.expectations.items():
            if rows:
                what = "pipeline %r, batch %d: rows that do not fulfil %r: %d"
                log.warning(what, outcome.pipeline, epoch, name, rows)
        self.on_batch(batch)
        self._call_hook(batch)

    def _batch(
        self, epoch: int, seconds: float, before: Position | None, position: Position
    ) -> Batch:
        read, pipeline = self._read, self._pipeline
        offsets = _by_topic(dict(position.items()))
        lag = _by_topic(
            {
                partition: max(0, latest - position.get(partition, latest))
                for partition, latest in read.latest.items()
            }
        )
        starts = _by_topic({} if before is None else dict(before.items()))
        names = (one.name for step in pipeline.steps for one in step.expectations)
        unmet = {name: read.unmet[name] for name in names}
        return Batch(
            pipeline.name,
            epoch,
            read.rows,
            seconds,
            round(read.rows / seconds, 1) if seconds else 0.0,
            offsets,
            lag,
            None,
            0,
            datetime.now(UTC).isoformat(timespec="milliseconds"),
            Durations(write=seconds),
            starts=starts,
            sources={pipeline.sources[0].id: Read(read.rows, offsets, lag, starts)},
            expectations=unmet,
        )

    def _call_hook(self, batch: Batch) -> None:
        if self._hook is None:
            return
        try:
            self._hook(batch)
        except HookFailed as error:
            if self._pipeline.hook.on_failure != "warn":
                raise  # the batch is committed: the next run continues behind it
            log.warning("%s", error)


def _by_topic(offsets: dict[Partition, Any]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for partition, value in offsets.items():
        found.setdefault(partition.topic, {})[str(partition.id)] = value
    return found


def run_rowwise(
    paths: Sequence[Path],
    overrides: Overrides,
    stop: threading.Event,
    on_batch: Callable[[Batch], None],
) -> list[Outcome]:
    """Run pipelines without Spark concurrently, until each has ended.

    A failing pipeline does not affect others.

    Args:
        paths: Of their files.
        overrides: Of all of them.
        stop: Once set, all commit what they have read, and end.
        on_batch: Called with each committed batch, by one thread at a time.

    Raises:
        ConfigError: config; with all problems of all pipelines. None was started.
        TransientError: transient; a stream could not be reached.
    """
    files = PipelineFiles.read(paths, overrides)
    files.refuse()
    turn = threading.Lock()

    def report(batch: Batch) -> None:
        with turn:
            on_batch(batch)

    over = (overrides.reset, overrides.ignore, report)
    problems = list[Problem]()
    with ExitStack() as opened:
        runs = [RowRun(draft, *over) for draft in files.drafts]
        for run in runs:
            with noting(run.draft, problems):
                run.open()
                opened.callback(run.close)
        refuse(problems, files.origin)
        threads = [threading.Thread(target=run.run, args=(stop,)) for run in runs[1:]]
        for thread in threads:
            thread.start()
        runs[0].run(stop)
        for thread in threads:
            thread.join()
    return [run.outcome for run in runs]
