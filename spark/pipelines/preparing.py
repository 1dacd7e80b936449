"""Prepares pipelines to run; reports all problems at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from streamfactory.spark.checkpoints import PipelineCheckpoint
from streamfactory.spark.failures import reason, words_of
from streamfactory.spark.fanout import FORMAT
from streamfactory.spark.pipelines.building import Building, shape_of
from streamfactory.spark.pipelines.checking import errors, refuse
from streamfactory.spark.pipelines.hooks import hook_of
from streamfactory.spark.pipelines.sql import analyse, session_like
from streamfactory.spark.pipelines.table_guarantees import table_guarantee
from streamfactory.spark.pipelines.tables import check_table
from streamfactory.spark.saving import refusal
from streamfactory.spark.sink import check_opened, opened_sink
from streamfactory.spark.types import spark_schema
from streamfactory.spi import ConfigError, Problem, StreamError
from streamfactory.spi.claims import combine
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.core.guard import log
from streamfactory.wiring.decoding.deadletters import DEAD_LETTER_SCHEMA
from streamfactory.wiring.receiving.embedded import open_source
from streamfactory.wiring.writing.cycles import refuse_cycle

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from streamfactory.spark.pipelines.deadletters import Inflow
    from streamfactory.spark.pipelines.model import Draft, Pipeline, Sink
    from streamfactory.spark.pipelines.progress import Batch
    from streamfactory.spark.pipelines.sql import Analysis
    from streamfactory.spi import Verdict
    from streamfactory.wiring.config.settled import Configured


@dataclass(frozen=True, slots=True)
class Way:
    """How the rows of a sink are written."""

    sink: str
    refused: str | None
    """Why Spark's Parquet writer does not write them; None if it does."""
    parquet: bool
    """Whether the stream is configured for segments of Parquet."""

    def __str__(self) -> str:
        if self.refused is None:
            return "Spark's Parquet writer"
        return f"format({FORMAT!r}): {self.refused}"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A pipeline that is ready to start."""

    pipeline: Pipeline
    source: Configured
    session: SparkSession
    building: Building
    checkpoint: PipelineCheckpoint
    hook: Callable[[Batch], None] | None
    drain: Path
    guarantee: Verdict
    """Guarantee from the source to all sinks."""
    ways: list[Way]
    """How streams are written."""


def check_sql(
    spark: SparkSession, draft: Draft, schema: StructType | None
) -> tuple[Analysis, list[Problem]]:
    """Problems that Spark finds in the SQL; ``schema`` is None if unknown."""
    analysis = analyse(spark, draft, schema)
    problems = list(analysis.problems)
    pipeline = draft.pipeline
    if pipeline is not None and schema is not None and not errors(problems):
        shape = shape_of(pipeline, analysis)
        if isinstance(shape, Problem):
            problems.append(shape)
    return analysis, problems


@dataclass(frozen=True, slots=True)
class Built:
    """A pipeline whose query was built and checked."""

    pipeline: Pipeline
    source: Configured
    session: SparkSession
    building: Building
    guarantees: list[Verdict]
    """Guarantees of the sinks."""
    ways: list[Way]
    """How streams are written."""


def build(
    spark: SparkSession, draft: Draft, analysis: Analysis, inflow: Inflow, drain: Path
) -> Built:
    """Build the query of a pipeline without problems. Saves nothing.

    Raises:
        ConfigError: config; Spark does not support the query, or rows do not fit a
            sink.
        StreamError: Errors of a sink.
    """
    pipeline = draft.pipeline
    assert pipeline is not None
    shape = shape_of(pipeline, analysis)
    assert not isinstance(shape, Problem)
    session = session_like(spark)
    _set(session, pipeline)
    problems: list[Problem] = []
    guarantees: list[Verdict] = []
    ways: list[Way] = []
    schemas = {sink.name: analysis.schemas[sink.rows] for sink in pipeline.sinks}
    if pipeline.dead_letters is not None:
        schemas[pipeline.dead_letters.name] = spark_schema(DEAD_LETTER_SCHEMA)
    for sink in pipeline.all_sinks:
        found = _check_sink(pipeline, sink, schemas[sink.name])
        if isinstance(found, Problem):
            problems.append(found)
        else:
            guarantees.append(found[0])
            ways.append(found[1])
    saved = frozenset(way.sink for way in ways if way.refused is None)
    try:
        building = Building(
            session, pipeline, analysis, shape, inflow, str(drain), saved
        )
    except PySparkException as error:
        raise ConfigError(reason(error) or words_of(error)) from error
    problems = building.check() + problems
    for table in pipeline.tables:
        wrong = check_table(session, table)
        problems += [] if wrong is None else [wrong]
        guarantees.append(table_guarantee(table))
    refuse(problems, pipeline.origin)
    return Built(pipeline, inflow.configured, session, building, guarantees, ways)


def open_checkpoint(
    built: Built, drain: Path, *, reset: str | None = None, ignore: str | None = None
) -> Prepared:
    """Decide where a pipeline starts, and save the decision.

    Raises:
        ConfigError: config; a sink writes to the topic of the source.
        StreamError: As `PipelineCheckpoint.open`.
    """
    pipeline = built.pipeline
    source = open_source(built.source, aside=False)
    name = pipeline.source_id
    more = {f"{name}#{n}": source for n in range(2, built.building.scans + 1)}
    try:
        for sink in pipeline.all_sinks:
            refuse_cycle(source, load(sink.stream, "write"))
        checkpoint = PipelineCheckpoint.open(
            pipeline.checkpoint,
            pipeline.name,
            {name: source, **more},
            reset=reset,
            ignore=ignore,
        )
        guarantee = combine(source.guarantee, *built.guarantees)
    finally:
        source.close()
    start = (checkpoint.start or {}).get(name, {})
    building = built.building.starting(start) if start else built.building
    hook = hook_of(pipeline.hook)
    return Prepared(
        pipeline,
        built.source,
        built.session,
        building,
        checkpoint,
        hook,
        drain,
        guarantee,
        built.ways,
    )


def _set(session: SparkSession, pipeline: Pipeline) -> None:
    """Apply a pipeline's settings. Static ones of Spark can only be compared."""
    for key, value in pipeline.spark.items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
            continue
        there = session.sparkContext.getConf().get(key)
        if there != value:
            log.warning(
                "pipeline %r: %s stays %s: it can only be set when Spark starts",
                pipeline.name,
                key,
                "as it is" if there is None else there,
            )


def _check_sink(
    pipeline: Pipeline, sink: Sink, schema: StructType
) -> tuple[Verdict, Way] | Problem:
    """The guarantee of a sink for rows of a schema, and how they are written.

    Or why it refuses them.
    """
    config = load(sink.stream, "spark").config
    overwrite = pipeline.mode == "complete" and sink is not pipeline.dead_letters
    try:
        with opened_sink(config) as opened:
            verdict = check_opened(opened, schema, overwrite=overwrite, streaming=True)
            parquet = config.get("segment.format") == "parquet"
            return verdict, Way(sink.name, refusal(opened, schema), parquet)
    except StreamError as error:
        if error.retryable:
            raise
        what = f"sink {sink.name!r}: {error.what}"
        return Problem("sinks", what, sink.origin, error.remedy)
