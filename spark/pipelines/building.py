"""Builds the Spark query of a pipeline.

Rows are processed as a stream up to one id, the trunk. With a single sink that is the
last id, and Spark's sink for streams writes it. With several sinks, or in update mode,
the rows of the trunk are cached per batch, later steps are evaluated over them, and all
sinks are written at the same time, each with its own writer id and the batch number, so
a repeated batch is written only where it is missing. A sink that Spark's Parquet writer
writes is written per batch, too.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users write it

from streamfactory.spark.arrangement import Arrangement
from streamfactory.spark.failures import describe_failure, words_of
from streamfactory.spark.fanout import (
    FORMAT,
    QUERY_PROPERTY,
    SinkWrite,
    describe_failures,
    evaluated_once,
    write_all,
)
from streamfactory.spark.pipelines.deadletters import BAD, GOOD, source_of
from streamfactory.spark.pipelines.sql import stateful_between, with_watermark
from streamfactory.spark.pipelines.tables import write_table
from streamfactory.spark.versions import ADMISSION
from streamfactory.spi import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from streamfactory.spark.checkpoints import PipelineCheckpoint
    from streamfactory.spark.pipelines.deadletters import Inflow
    from streamfactory.spark.pipelines.model import Pipeline, Sink
    from streamfactory.spark.pipelines.sql import Analysis

_SCAN: Final = re.compile(r"^[\s:+\-]*~?StreamingRelation", re.MULTILINE)
_GOOD: Final = "good"
_BAD: Final = "bad"


@dataclass(frozen=True, slots=True)
class Shape:
    """How the rows of a pipeline are split among its sinks."""

    trunk: str
    batched: bool
    """Whether batches are written by `foreachBatch` instead of Spark's writer."""
    joined: bool
    """Whether bad messages are unioned with the rows of a stateful trunk."""


def shape_of(pipeline: Pipeline, analysis: Analysis) -> Shape | Problem:
    """The shape of a pipeline, or why it is not possible."""
    targets = [sink.rows for sink in pipeline.targets]
    trunk = _trunk(pipeline, analysis, targets)
    loose = stateful_between(analysis, trunk, targets)
    if loose:
        names = " and ".join(repr(sink.name) for sink in pipeline.targets)
        what = f"the sinks {names} have no common step after {trunk!r}, and step "
        what += f"{loose[0]!r} aggregates, joins or sorts: it would see one batch only"
        hint = "give one of them a pipeline of its own, which reads the stream too"
        return Problem("sinks", what, pipeline.targets[0].origin, hint)
    if pipeline.dead_letters is None:
        several = len(pipeline.targets) > 1 or bool(pipeline.tables)
        batched = several or pipeline.mode == "update"
        return Shape(trunk, batched, joined=False)
    if stateful_between(analysis, pipeline.source_id, targets):
        return Shape(trunk, batched=True, joined=True)
    return Shape(pipeline.source_id, batched=True, joined=False)


def _trunk(pipeline: Pipeline, analysis: Analysis, targets: list[str]) -> str:
    """The last id that the rows of all sinks pass through."""

    def passes(target: str, name: str) -> bool:
        waiting, seen = [target], {name}
        while waiting:
            at = waiting.pop()
            if at == pipeline.source_id and at != name:
                return False
            if at not in seen:
                seen.add(at)
                waiting += analysis.reads.get(at, set())
        return True

    found = pipeline.source_id
    for name in analysis.order:
        within = all(name in analysis.reach(target) for target in targets)
        if within and all(passes(target, name) for target in targets):
            found = name
    return found


class Building:
    """The query of one pipeline, in its own session.

    Args:
        spark: A session without views of others.
        pipeline: A pipeline without problems.
        analysis: Analysis with the actual schema of the source.
        shape: How its rows are split.
        inflow: Schema of the source.
        drain: A file whose existence stops the source.
        saved: Names of sinks whose batches Spark's Parquet writer writes.
    """

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        analysis: Analysis,
        shape: Shape,
        inflow: Inflow,
        drain: str,
        saved: frozenset[str] = frozenset(),
    ) -> None:
        self._saved = saved
        self._spark = spark
        self._pipeline = pipeline
        self._analysis = analysis
        self._shape = shape
        self._inflow = inflow
        self._drain = drain
        self._checkpoint: PipelineCheckpoint | None = None
        self.failure: str | None = None
        """Why a batch could not be written."""
        self._steps = {step.id: step for step in pipeline.steps}
        self._raw = self._read({})
        self.frame = self._frame()

    def starting(self, start: Mapping[str, str]) -> Building:
        """A copy with start options of the source for a new query."""
        other = copy.copy(self)
        other._raw = other._read(start)
        other.frame = other._frame()
        return other

    @property
    def pins_end(self) -> bool:
        """Whether the source itself stops at the latest offsets of the start."""
        return self._pipeline.trigger.millis is None and not ADMISSION

    @property
    def scans(self) -> int:
        """How often the query reads the source; Spark creates as many sources."""
        plan: Any = self.frame._jdf.queryExecution().analyzed()
        return max(1, len(_SCAN.findall(plan.treeString())))

    def check(self) -> list[Problem]:
        """Operations that Spark does not support in this output mode."""
        jvm: Any = self._spark._jvm
        plan: Any = self.frame._jdf.queryExecution().analyzed()
        mode = self._pipeline.mode.capitalize()
        modes = jvm.org.apache.spark.sql.streaming.OutputMode
        checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
        try:
            checker.checkForStreaming(plan, getattr(modes, mode)())
        except PySparkException as error:
            what = words_of(error)
            return [Problem("output.mode", what, self._pipeline.origin)]
        return []

    def writer(self, checkpoint: PipelineCheckpoint) -> DataStreamWriter:
        """The writer of the query, without checkpoint and trigger.

        Args:
            checkpoint: Where commits of the sinks are recorded.
        """
        self._checkpoint = checkpoint
        writer = self.frame.writeStream.outputMode(self._pipeline.mode)
        if self._shape.batched or self._saved:
            return writer.foreachBatch(self._write)
        [sink] = self._pipeline.sinks
        arranged = self._arranged(sink)
        return writer.format(FORMAT).options(**arranged.to_options())

    # --- as a stream ------------------------------------------------------------

    def _frame(self) -> DataFrame:
        good = with_watermark(self._good(self._raw), self._pipeline.watermark)
        frames = {self._pipeline.source_id: good}
        good.createOrReplaceTempView(self._pipeline.source_id)
        for name in self._analysis.order:
            if name in self._steps and name in self._analysis.reach(self._shape.trunk):
                step = self._steps[name]
                frame = with_watermark(self._spark.sql(step.sql), step.watermark)
                frame.createOrReplaceTempView(name)
                frames[name] = frame
        if self._shape.joined:
            return self._joined(frames[self._shape.trunk])
        if self._pipeline.dead_letters is not None:
            return self._raw
        return frames[self._shape.trunk]

    def _read(self, start: Mapping[str, str]) -> DataFrame:
        stream = source_of(self._pipeline).with_overrides(start)
        options = Arrangement(
            stream, self._drain, available_now=self.pins_end
        ).to_options()
        return self._spark.readStream.format(FORMAT).options(**options).load()

    def _good(self, rows: DataFrame) -> DataFrame:
        if not self._inflow.letters:
            return rows
        return rows.where(GOOD).drop(*self._inflow.hidden)

    def _letters(self, rows: DataFrame) -> DataFrame:
        return rows.where(BAD).selectExpr(*self._inflow.letters)

    def _joined(self, trunk: DataFrame) -> DataFrame:
        """Stateful rows and dead letters, which are stateless, in one query."""
        rows = trunk.select(F.struct("*").alias(_GOOD))
        letters = self._letters(self._raw).select(F.struct("*").alias(_BAD))
        no_letter = F.lit(None).cast(letters.schema[0].dataType).alias(_BAD)
        no_row = F.lit(None).cast(rows.schema[0].dataType).alias(_GOOD)
        return rows.select(_GOOD, no_letter).unionByName(letters.select(no_row, _BAD))

    # --- by the batch -----------------------------------------------------------

    def _write(self, batch: DataFrame, epoch: int) -> None:
        """Write one batch to all sinks."""
        session, pipeline = batch.sparkSession, self._pipeline
        query = str(session.sparkContext.getLocalProperty(QUERY_PROPERTY))
        count = len(pipeline.all_sinks) + len(pipeline.tables)
        try:
            with evaluated_once(batch, sinks=count):
                frames = self._parts(batch)
                writes: dict[str, Callable[[], None]] = {
                    one.name: partial(
                        self._write_sink, one, frames[one.name], query, epoch
                    )
                    for one in pipeline.all_sinks
                }
                for table in pipeline.tables:
                    writes[table.name] = partial(
                        write_table,
                        table,
                        frames[table.name],
                        query,
                        epoch,
                        replaces=pipeline.mode == "complete",
                    )
                failures = write_all(session, writes)
        except Exception as error:
            # The error loses its details on its way through Java.
            self.failure = describe_failure(error)
            raise
        if failures:
            self.failure = describe_failures(failures)
            raise next(iter(failures.values()))

    def _parts(self, batch: DataFrame) -> dict[str, DataFrame]:
        """The rows of each sink."""
        trunk, dead = batch, None
        if self._shape.joined:
            trunk = batch.where(f"{_GOOD} is not null").select(f"{_GOOD}.*")
            dead = batch.where(f"{_BAD} is not null").select(f"{_BAD}.*")
        elif self._pipeline.dead_letters is not None:
            trunk, dead = self._good(batch), self._letters(batch)
        trunk.createOrReplaceTempView(self._shape.trunk)
        frames = {self._shape.trunk: trunk}
        behind = {
            name
            for sink in self._pipeline.targets
            for name in self._analysis.reach(sink.rows)
        } - self._analysis.reach(self._shape.trunk)
        for name in self._analysis.order:
            if name in behind:
                frames[name] = batch.sparkSession.sql(self._steps[name].sql)
                frames[name].createOrReplaceTempView(name)
        parts = {sink.name: frames[sink.rows] for sink in self._pipeline.targets}
        if dead is not None and self._pipeline.dead_letters is not None:
            parts[self._pipeline.dead_letters.name] = dead
        return parts

    def _write_sink(self, sink: Sink, rows: DataFrame, query: str, epoch: int) -> None:
        dead = sink is self._pipeline.dead_letters
        replaces = self._pipeline.mode == "complete" and not dead
        saves = sink.name in self._saved
        SinkWrite(self._arranged(sink), rows, replaces, saves).run(query, epoch)

    def _arranged(self, sink: Sink) -> Arrangement:
        dead = sink is self._pipeline.dead_letters
        assert self._checkpoint is not None
        ledger = self._checkpoint.ledger(sink.name, dead_letters=dead)
        return Arrangement(sink.stream, sink=sink.name, ledger=ledger)
