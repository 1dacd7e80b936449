"""Running of pipelines: several in one Spark, with progress, drain and stop."""

from __future__ import annotations

import queue
import time
from collections import deque
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from streamfactory.spark.failures import describe_failure, unlogged
from streamfactory.spark.pipelines.counting import PipelineTally
from streamfactory.spark.pipelines.hooks import HookFailed
from streamfactory.spark.pipelines.outcomes import Outcome
from streamfactory.spark.pipelines.progress import batch_of
from streamfactory.spark.pipelines.tracing import PipelineTracer
from streamfactory.spi import Partition, Position, StreamError
from streamfactory.wiring.controls.control import Control
from streamfactory.wiring.controls.states import pipeline_job
from streamfactory.wiring.core.defects import with_code
from streamfactory.wiring.core.guard import log
from streamfactory.wiring.metrics.registry import registry
from streamfactory.wiring.reading.progress import ProgressGroup
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from pyspark.sql.streaming.query import StreamingQuery

    from streamfactory.spark.pipelines.outcomes import Batch, Read
    from streamfactory.spark.pipelines.preparing import Prepared
    from streamfactory.wiring.config.settled import Configured

_POOL: Final = "spark.scheduler.pool"
"""With a pool for each, pipelines share Spark fairly."""
_PAUSE: Final = 0.1
"""Seconds between two polls of the runs."""
_LAST_REPORT: Final = 10.0
"""Seconds to wait for a query's last report after its end."""
_ROUND_MILLIS: Final = 1000
"""Back to back, a round without rows is counted once per this interval."""


class _Listener(StreamingQueryListener):
    """Puts Spark's events into a queue, so that Spark's thread never waits."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Ignored."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """A batch is committed."""
        self.events.put(("batch", event.progress.json))

    def onQueryIdle(self, event: Any) -> None:  # noqa: ARG002, N802
        """A round had no rows."""
        self.events.put(("idle", ""))

    def onQueryTerminated(self, event: Any) -> None:  # noqa: ARG002, N802
        """The last event."""
        self.events.put(("end", ""))


@dataclass(slots=True, weakref_slot=True)
class _Run:
    """A running or ended pipeline."""

    prepared: Prepared
    on_batch: Callable[[Batch], None]
    outcome: Outcome
    control: Control
    listener: _Listener = field(default_factory=_Listener)
    query: StreamingQuery | None = None
    """None before the start, and while the pipeline is paused."""
    began: float = field(default_factory=time.monotonic)
    idle: int = 0
    draining: bool = False
    pausing: bool = False
    """Whether it is draining because of a pause: it waits then, instead of ending."""
    drained_at: int = 0
    """Batches that were committed when draining began."""
    silent: bool = False
    """Whether the query has sent its last event."""
    ended: bool = False
    tally: PipelineTally = field(init=False)
    tracer: PipelineTracer = field(init=False)

    def __post_init__(self) -> None:
        self.tally = PipelineTally(self.outcome.pipeline)
        self.tracer = PipelineTracer(self.prepared)
        registry.track(self, self.tally)

    # --- start ------------------------------------------------------------------

    def begin(self) -> None:
        """Start the query. If the pipeline is paused, wait; or end, if it would end."""
        pause = self.control.pause
        if pause is None:
            self._start()
        elif not self.outcome.endless:  # a scheduler's runs must not pile up
            self.drain(stopped=True)

    def _start(self) -> None:
        """Start the query, which runs in Spark's threads."""
        prepared = self.prepared
        pipeline, session = prepared.pipeline, prepared.session
        trigger = pipeline.trigger
        interval = trigger.millis or _ROUND_MILLIS
        rounds = 0 if trigger.millis else interval
        session.conf.set("spark.sql.streaming.noDataProgressEventInterval", str(rounds))
        self.listener, self.silent = _Listener(), False
        session.streams.addListener(self.listener)
        writer = prepared.building.writer(prepared.checkpoint)
        writer = writer.queryName(pipeline.name)
        writer = writer.option("checkpointLocation", prepared.checkpoint.folder)
        if trigger.real_time:
            chosen: Any = writer  # PySpark 4.2 and later have the argument
            writer = chosen.trigger(realTime=f"{trigger.millis} milliseconds")
        elif trigger.millis is None and not prepared.building.pins_end:
            writer = writer.trigger(availableNow=True)
        else:
            period = f"{trigger.millis or 0} milliseconds"
            writer = writer.trigger(processingTime=period)
        context: Any = session.sparkContext
        before = context.getLocalProperty(_POOL)
        context.setLocalProperty(_POOL, pipeline.name)  # the query's thread inherits it
        try:
            self.query = writer.start()
            self.tally.started()
        except Exception as error:  # noqa: BLE001 - other pipelines continue
            self._finish(describe_failure(error))
        finally:
            context.setLocalProperty(_POOL, before)

    # --- while it runs ----------------------------------------------------------

    def look(self) -> None:
        """Process events, and detect the end of the query, a pause, and its end."""
        if self.ended:
            return
        if self.query is None:
            if self.control.pause is None:
                self._start()
            return
        active = self.query.isActive
        self._process_events()
        if not active:
            self._conclude()
        elif not self.draining and self.control.pause is not None:
            self.draining = self.pausing = True
            self._plan_no_more()
        elif self.draining and self._between_batches:
            self.query.stop()

    @property
    def _between_batches(self) -> bool:
        """Whether a draining query can be stopped."""
        assert self.query is not None
        if self.prepared.pipeline.trigger.real_time:
            # The next batch has begun: what it wrote so far is written again.
            return self.outcome.batches > self.drained_at
        # The source plans no further rows, so stopping between rounds loses nothing.
        return not self.query.status["isTriggerActive"]

    def drain(self, *, stopped: bool) -> None:
        """Finish the current batch, plan no further rows, and end."""
        if self.ended or (self.draining and not (self.pausing and stopped)):
            return
        self.draining, self.pausing = True, False
        self.outcome.stopped = stopped
        if self.query is None:
            self._finish(None)
        else:
            self._plan_no_more()

    def _plan_no_more(self) -> None:
        self.drained_at = self.outcome.batches
        self.prepared.drain.touch()

    def kill(self) -> None:
        """Stop immediately; the next run repeats what was not committed."""
        if self.ended:
            return
        self.outcome.stopped, self.pausing = True, False
        if self.query is None:
            self._finish(None)
        else:
            self.query.stop()
            self._conclude()

    def _process_events(self) -> None:
        """Process queued events."""
        while True:
            try:
                what, text = self.listener.events.get_nowait()
            except queue.Empty:
                return
            if what == "end":
                self.silent = True
            elif what == "batch":
                self._batch(text)
            else:
                self.tally.idle()
                self._round(rows=0)

    def _batch(self, text: str) -> None:
        prepared, outcome = self.prepared, self.outcome
        name = prepared.pipeline.name
        batch = batch_of(name, text, prepared.building.scans)
        if outcome.last is not None and batch.batch <= outcome.last.batch:
            self.tally.idle()
            self._round(rows=0)  # Spark repeats the last report while idle
            return
        if outcome.batches == 0:
            self._note_begun()
        outcome.batches += 1
        outcome.rows += batch.rows
        outcome.dropped += batch.dropped
        facts = prepared.building.facts_of(batch.batch)
        batch = replace(
            batch,
            lookups={name: one.plain() for name, one in facts.lookups.items()},
            expectations=batch.expectations | facts.unmet,
        )
        outcome.unmet.update(batch.expectations)
        outcome.last = batch
        self.tally.add(batch)
        self._count_written(batch)
        self.tracer.committed(batch)
        if batch.dropped:
            log.warning(
                "pipeline %r, batch %d: %d rows or groups came after the watermark, %s,"
                " and were dropped; a longer watermark.delay keeps them",
                name,
                batch.batch,
                batch.dropped,
                batch.watermark,
            )
        for expectation, rows in batch.expectations.items():
            if rows:
                what = "pipeline %r, batch %d: rows that do not fulfil %r: %d"
                log.warning(what, name, batch.batch, expectation, rows)
        self.on_batch(batch)
        self._call_hook(batch)
        if prepared.building.pins_end:
            self.idle = 0  # offsets without rows are no end
        else:
            self._round(rows=batch.rows)

    def _count_written(self, batch: Batch) -> None:
        """Count what the tasks wrote, which other processes recorded."""
        pipeline, checkpoint = self.prepared.pipeline, self.prepared.checkpoint
        for sink in pipeline.all_sinks:
            try:
                commit = checkpoint.ledger(sink.name).read(batch.batch)
            except StreamError as error:
                name = pipeline.name
                log.warning("pipeline %r: its rows are not counted: %s", name, error)
                continue
            if commit is not None:
                self.tally.wrote(commit)

    def _note_begun(self) -> None:
        try:
            self.prepared.checkpoint.note_begun()
        except StreamError as error:
            self._fail(error)

    def _fail(self, error: StreamError) -> None:
        """End the pipeline because of an error. Committed batches stay."""
        self.outcome.failure = self.outcome.failure or with_code(error)
        self.drain(stopped=True)

    def _call_hook(self, batch: Batch) -> None:
        if self.prepared.hook is None:
            return
        try:
            self.prepared.hook(batch)
        except HookFailed as error:
            if self.prepared.pipeline.hook.on_failure == "warn":
                log.warning("%s", error)
                return
            self._fail(error)

    def _round(self, *, rows: int) -> None:
        self.idle = 0 if rows else self.idle + 1
        most = self.prepared.pipeline.idle_rounds
        if self.prepared.building.pins_end:
            most = 1
        if most is not None and self.idle >= most:
            self.drain(stopped=False)

    # --- end --------------------------------------------------------------------

    def _conclude(self) -> None:
        assert self.query is not None
        deadline = time.monotonic() + _LAST_REPORT
        self._process_events()
        while not self.silent and time.monotonic() < deadline:
            time.sleep(0.01)
            self._process_events()
        error = self.query.exception()
        failure = None
        if error is not None:
            failure = self.prepared.building.failure or describe_failure(error)
        if self.pausing and failure is None and self.outcome.failure is None:
            self._suspend()
        else:
            self._finish(failure)

    def _suspend(self) -> None:
        """Wait for the end of a pause, without a query."""
        self._publish_end()
        self.tally.ended(failed=False)
        self.prepared.session.streams.removeListener(self.listener)
        self.prepared.drain.unlink()
        self.query, self.draining, self.pausing = None, False, False

    def _publish_end(self) -> None:
        """Commit the last batch to ``progress.group``.

        Spark reports a committed batch only with the next one, and the query may have
        been stopped before that.
        """
        last = self.outcome.last
        for name, configured in self.prepared.sources.items():
            if last is None or "progress.group" not in configured.config:
                continue
            try:
                _publish(configured, last.sources[name])
            except StreamError as error:
                log.warning("pipeline %r: %s", self.prepared.pipeline.name, error)

    def _finish(self, failure: str | None) -> None:
        self.ended = True
        if self.query is None:
            self.outcome.pause = self.control.pause
        self._publish_end()
        self.outcome.seconds = time.monotonic() - self.began
        self.outcome.failure = self.outcome.failure or failure
        if self.outcome.failure is not None:
            self.tracer.failed(self.outcome.failure)
        self.tally.ended(failed=self.outcome.failure is not None)
        self.prepared.session.streams.removeListener(self.listener)


def _publish(configured: Configured, read: Read) -> None:
    """Commit the end of what a batch read of a source to its ``progress.group``."""
    offsets = {
        Partition(topic, int(number)): offset
        for topic, by_id in read.offsets.items()
        for number, offset in by_id.items()
    }
    with closing(Source(configured, aside=False)) as source:
        ProgressGroup(source).publish(Position(offsets))


def run_prepared(
    prepared: Sequence[Prepared],
    stop: threading.Event,
    on_batch: Callable[[Batch], None],
) -> list[Outcome]:
    """Run pipelines concurrently until each has ended.

    A failing pipeline does not affect others. An interrupt stops all immediately.

    Args:
        prepared: The pipelines, which share one Spark.
        stop: Once set, all finish their current batch and end.
        on_batch: Called with each committed batch, in the calling thread.
    """
    runs = [
        _Run(
            one,
            on_batch,
            Outcome(
                one.pipeline.name,
                went_on=one.checkpoint.why,
                promise=str(one.guarantee),
                ways=tuple(one.ways),
                endless=one.pipeline.trigger.millis is not None,
            ),
            # In real time Spark's connector reads without limits.
            Control(
                pipeline_job(one.pipeline.name),
                limited=not one.pipeline.trigger.real_time,
            ),
        )
        for one in prepared
    ]
    with ExitStack() as stack:
        stack.enter_context(unlogged())
        for run in runs:
            stack.callback(run.kill)
        for run in runs:
            run.begin()
        waiting = deque(runs)
        while waiting:
            run = waiting.popleft()
            if stop.is_set():
                run.drain(stopped=True)
            run.look()
            if not run.ended:
                waiting.append(run)
                _rest(stop, _PAUSE / len(waiting))
    return [run.outcome for run in runs]


def _rest(stop: threading.Event, seconds: float) -> None:
    """Wait, but return at once when `stop` is set."""
    if stop.is_set():
        time.sleep(seconds)
    else:
        stop.wait(seconds)
