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
import json
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users write it

from streamfactory.spark.arrangement import OPTION, Arrangement
from streamfactory.spark.failures import describe_failure
from streamfactory.spark.fanout import (
    FORMAT,
    QUERY_PROPERTY,
    SinkWrite,
    describe_failures,
    evaluated_once,
    write_all,
)
from streamfactory.spark.pipelines.deadletters import BAD, GOOD, stream_of
from streamfactory.spark.pipelines.functions import rows_of
from streamfactory.spark.pipelines.lookups import Lookups
from streamfactory.spark.pipelines.observing import counted, observed
from streamfactory.spark.pipelines.progress import Scan
from streamfactory.spark.pipelines.shaping import used_lookups
from streamfactory.spark.pipelines.sql import (
    distinct,
    errors_of,
    problem_of,
    with_watermark,
)
from streamfactory.spark.pipelines.tables import write_table
from streamfactory.spark.pipelines.trees import unsupported
from streamfactory.spark.versions import ADMISSION
from streamfactory.spi import Problem
from streamfactory.wiring.controls.states import Controls, pipeline_job

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from streamfactory.spark.checkpoints import PipelineCheckpoint
    from streamfactory.spark.pipelines.deadletters import Inflow
    from streamfactory.spark.pipelines.lookups import LookupState
    from streamfactory.spark.pipelines.model import (
        Pipeline,
        Sink,
        Source,
        Step,
    )
    from streamfactory.spark.pipelines.shaping import Shape
    from streamfactory.spark.pipelines.sql import Analysis

_GOOD: Final = "good"
_BAD: Final = "bad"


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """What is known of a batch, beside Spark's report."""

    lookups: Mapping[str, LookupState]
    """What it used of lookups, by id."""
    unmet: dict[str, int] = field(default_factory=dict)
    """Rows that did not fulfil an expectation, by name, of steps that are evaluated
    batch by batch."""


class Building:
    """The query of one pipeline, in its own session.

    Args:
        spark: A session without views of others.
        pipeline: A pipeline without problems.
        analysis: Analysis with the actual schemas of the sources.
        shape: How its rows are split.
        inflows: Schemas of the sources, by id.
        drain: A file whose existence stops the sources.
        saved: Names of sinks whose batches Spark's Parquet writer writes.
    """

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        analysis: Analysis,
        shape: Shape,
        inflows: Mapping[str, Inflow],
        drain: str,
        saved: frozenset[str] = frozenset(),
    ) -> None:
        self._saved = saved
        self._spark = spark
        self._pipeline = pipeline
        self._analysis = analysis
        self._shape = shape
        self._inflows = inflows
        self._drain = drain
        self._checkpoint: PipelineCheckpoint | None = None
        self.failure: str | None = None
        """Why a batch could not be written."""
        self._facts: dict[int, BatchFacts] = {}
        """Of batches that were written, until they are reported."""
        self._steps = {step.id: step for step in pipeline.steps}
        self.lookups = Lookups(used_lookups(pipeline, analysis), analysis.schemas)
        self._frames: dict[str, DataFrame] = {}
        """By id, of what is processed as a stream."""
        self._raw = self._read_all({})
        self.frame = self._frame()

    def starting(self, starts: Mapping[str, Mapping[str, str]]) -> Building:
        """A copy with start options of the sources, by id, for a new query."""
        other = copy.copy(self)
        other._raw = other._read_all(starts)
        other.frame = other._frame()
        return other

    @property
    def pins_end(self) -> bool:
        """Whether the source itself stops at the latest offsets of the start."""
        return self._pipeline.trigger.millis is None and not ADMISSION

    @property
    def scans(self) -> list[Scan]:
        """How the query reads its sources, in Spark's order.

        Spark reads relations of the plan that are equal by one source: in a union with
        itself a source has two scans of one relation, in a join with itself of two.
        """
        plan: Any = self.frame._jdf.queryExecution().analyzed()
        leaves = plan.collectLeaves()
        relations: list[Any] = []
        found: list[Scan] = []
        for index in range(leaves.size()):
            leaf = leaves.apply(index)
            if leaf.getClass().getSimpleName() != "StreamingRelationV2":
                continue
            equal = (at for at, one in enumerate(relations) if one.equals(leaf))
            relation = next(equal, len(relations))
            if relation == len(relations):
                relations.append(leaf)
            arrangement = json.loads(leaf.extraOptions().get(OPTION))
            found.append(Scan(str(arrangement["source"]), relation))
        # A query that reads no stream has the positions of the first.
        return found or [Scan(self._pipeline.sources[0].id)]

    def check(self) -> list[Problem]:
        """Operations that Spark does not support in this output mode."""
        mode = self._pipeline.mode
        whole = unsupported(self._spark, self.frame, mode)
        if whole is None:
            return []
        for name in self._analysis.order:
            if name in self._steps and name in self._frames:
                what = unsupported(self._spark, self._frames[name], mode)
                if what is not None:
                    step = self._steps[name]
                    return [problem_of(step, what)]
        return [Problem("output.mode", whole, self._pipeline.origin)]

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

    def facts_of(self, epoch: int) -> BatchFacts:
        """What is known of a committed batch. Earlier ones are forgotten."""
        found = self._facts.get(epoch, BatchFacts(self.lookups.states))
        for old in [number for number in self._facts if number <= epoch]:
            del self._facts[old]
        return found

    # --- as a stream ------------------------------------------------------------

    def _frame(self) -> DataFrame:
        frames = self._frames = {}
        self.lookups.open(self._spark)
        for source in self._pipeline.sources:
            good = self._good(source.id, self._raw[source.id])
            frames[source.id] = with_watermark(good, source.watermark)
            frames[source.id].createOrReplaceTempView(source.id)
        before = self._analysis.reach(self._shape.trunk)
        for name in self._analysis.order:
            if name in self._steps and name in before:
                step = self._steps[name]
                frame = self._rows(step)
                frame.createOrReplaceTempView(name)
                frames[name] = frame
        if self._shape.joined:
            return self._joined(frames[self._shape.trunk])
        if self._pipeline.dead_letters is not None:
            return self._raw[self._shape.trunk]
        return frames[self._shape.trunk]

    def _rows(self, step: Step) -> DataFrame:
        """The rows of a step as a stream.

        Raises:
            ConfigError: config; Spark refuses the query over streams, or the function
                fails with them.
        """
        with errors_of(step):
            frame = with_watermark(rows_of(self._spark, step), step.watermark)
            return observed(distinct(frame, step), step)

    def _read_all(
        self, starts: Mapping[str, Mapping[str, str]]
    ) -> dict[str, DataFrame]:
        sources = self._pipeline.sources
        return {one.id: self._read(one, starts.get(one.id, {})) for one in sources}

    def _read(self, source: Source, start: Mapping[str, str]) -> DataFrame:
        stream = stream_of(self._pipeline, source).with_overrides(start)
        options = Arrangement(
            stream,
            self._drain,
            available_now=self.pins_end,
            source=source.id,
            job=pipeline_job(self._pipeline.name),
            controls=str(Controls().folder),
        ).to_options()
        return self._spark.readStream.format(FORMAT).options(**options).load()

    def _good(self, source: str, rows: DataFrame) -> DataFrame:
        inflow = self._inflows[source]
        if not inflow.letters:
            return rows
        return rows.where(GOOD).drop(*inflow.hidden)

    def _letters(self, source: str, rows: DataFrame) -> DataFrame:
        return rows.where(BAD).selectExpr(*self._inflows[source].letters)

    def _joined(self, trunk: DataFrame) -> DataFrame:
        """Stateful rows and dead letters, which are stateless, in one query."""
        rows = trunk.select(F.struct("*").alias(_GOOD))
        parts = (self._letters(name, raw) for name, raw in self._raw.items())
        letters = reduce(DataFrame.unionByName, parts)
        letters = letters.select(F.struct("*").alias(_BAD))
        no_letter = F.lit(None).cast(letters.schema[0].dataType).alias(_BAD)
        no_row = F.lit(None).cast(rows.schema[0].dataType).alias(_GOOD)
        return rows.select(_GOOD, no_letter).unionByName(letters.select(no_row, _BAD))

    # --- by the batch -----------------------------------------------------------

    def _write(self, batch: DataFrame, epoch: int) -> None:
        """Write one batch to all sinks."""
        session, pipeline = batch.sparkSession, self._pipeline
        query = str(session.sparkContext.getLocalProperty(QUERY_PROPERTY))
        # Counting reads the rows once more, like a sink.
        count = len(pipeline.all_sinks) + len(pipeline.tables)
        count += sum(bool(step.expectations) for step in self._behind)
        try:
            self.lookups.refresh(session)
            facts = self._facts[epoch] = BatchFacts(self.lookups.states)
            with ExitStack() as cached:
                cached.enter_context(evaluated_once(batch, sinks=count))
                frames = self._parts(batch, facts, cached)
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

    @property
    def _behind(self) -> list[Step]:
        """The steps that are evaluated batch by batch, in their order."""
        targets = self._pipeline.targets
        needed = {name for one in targets for name in self._analysis.reach(one.rows)}
        needed -= self._analysis.reach(self._shape.trunk)
        order = self._analysis.order
        return [self._steps[n] for n in order if n in needed & self._steps.keys()]

    def _parts(
        self, batch: DataFrame, facts: BatchFacts, cached: ExitStack
    ) -> dict[str, DataFrame]:
        """The rows of each sink. Counts the expectations of steps on the way.

        Rows with expectations are cached until ``cached`` ends. Evaluated for each sink
        on its own, a row that depends on chance or time could be in none of them.
        """
        trunk, dead = batch, None
        if self._shape.joined:
            trunk = batch.where(f"{_GOOD} is not null").select(f"{_GOOD}.*")
            dead = batch.where(f"{_BAD} is not null").select(f"{_BAD}.*")
        elif self._pipeline.dead_letters is not None:
            source = self._shape.trunk
            trunk, dead = self._good(source, batch), self._letters(source, batch)
        trunk.createOrReplaceTempView(self._shape.trunk)
        frames = {self._shape.trunk: trunk}
        for step in self._behind:
            rows = distinct(rows_of(batch.sparkSession, step), step)
            if step.expectations:
                rows = cached.enter_context(evaluated_once(rows, sinks=2))
                facts.unmet.update(counted(rows, step))
            rows.createOrReplaceTempView(step.id)
            frames[step.id] = rows
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
