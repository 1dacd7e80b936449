"""Prepares pipelines to run; reports all problems at once."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from streamfactory.spark.checkpoints import Engine, PipelineCheckpoint
from streamfactory.spark.failures import reason, words_of
from streamfactory.spark.pipelines.building import Building
from streamfactory.spark.pipelines.hooks import hook_of
from streamfactory.spark.pipelines.outcomes import Way
from streamfactory.spark.pipelines.problems import errors, refuse
from streamfactory.spark.pipelines.shaping import shape_of
from streamfactory.spark.pipelines.sql import analyse, session_like
from streamfactory.spark.pipelines.table_guarantees import table_guarantee
from streamfactory.spark.pipelines.tables import check_table
from streamfactory.spark.realtime.rules import VERDICT
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
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from streamfactory.spark.pipelines.deadletters import Inflow
    from streamfactory.spark.pipelines.model import Draft, Pipeline, Sink
    from streamfactory.spark.pipelines.outcomes import Batch
    from streamfactory.spark.pipelines.sql import Analysis
    from streamfactory.spi import Verdict
    from streamfactory.wiring.config.settled import Configured
    from streamfactory.wiring.reading.source import Source


@dataclass(frozen=True, slots=True)
class Prepared:
    """A pipeline that is ready to start."""

    pipeline: Pipeline
    sources: Mapping[str, Configured]
    """By id."""
    session: SparkSession
    building: Building
    checkpoint: PipelineCheckpoint
    hook: Callable[[Batch], None] | None
    drain: Path
    guarantee: Verdict
    """Guarantee from the sources to all sinks."""
    ways: list[Way]
    """How streams are written."""


def check_sql(
    spark: SparkSession, draft: Draft, schemas: Mapping[str, StructType] | None
) -> tuple[Analysis, list[Problem]]:
    """Problems that Spark finds in the SQL.

    ``schemas`` of the sources and lookups, by id, are None if that of a source is
    unknown.
    """
    analysis = analyse(spark, draft, schemas)
    problems = list(analysis.problems)
    pipeline = draft.pipeline
    if pipeline is not None and schemas is not None and not errors(problems):
        shape = shape_of(pipeline, analysis)
        if isinstance(shape, Problem):
            problems.append(shape)
    return analysis, problems


@dataclass(frozen=True, slots=True)
class Built:
    """A pipeline whose query was built and checked."""

    pipeline: Pipeline
    sources: Mapping[str, Configured]
    """By id."""
    session: SparkSession
    building: Building
    guarantees: list[Verdict]
    """Guarantees of the sinks."""
    ways: list[Way]
    """How streams are written."""


def build(
    spark: SparkSession,
    draft: Draft,
    analysis: Analysis,
    inflows: Mapping[str, Inflow],
    drain: Path,
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
    apply_settings(session, pipeline)
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
    kind = Building
    if pipeline.trigger.real_time:
        # Imported here: few pipelines have it.
        from streamfactory.spark.realtime.building import RealTimeBuilding
        from streamfactory.spark.realtime.starting import check_ends

        kind = RealTimeBuilding
        refuse(check_ends(session, pipeline, inflows, analysis), pipeline.origin)
        guarantees.append(VERDICT)
    try:
        building = kind(session, pipeline, analysis, shape, inflows, str(drain), saved)
    except PySparkException as error:
        raise ConfigError(reason(error) or words_of(error)) from error
    problems = building.check() + problems
    for table in pipeline.tables:
        wrong = check_table(session, table)
        problems += [] if wrong is None else [wrong]
        guarantees.append(table_guarantee(table))
    refuse(problems, pipeline.origin)
    configured = {name: inflow.configured for name, inflow in inflows.items()}
    return Built(pipeline, configured, session, building, guarantees, ways)


def open_checkpoint(
    built: Built, drain: Path, *, reset: str | None = None, ignore: str | None = None
) -> Prepared:
    """Decide where a pipeline starts, and save the decision.

    Raises:
        ConfigError: config; a sink writes to the topic of a source.
        StreamError: As `PipelineCheckpoint.open`.
    """
    pipeline = built.pipeline
    scans = names_of([scan.source for scan in built.building.scans])
    with ExitStack() as stack:
        opened: dict[str, Source] = {}
        for name, configured in built.sources.items():
            opened[name] = open_source(configured, aside=False)
            stack.callback(opened[name].close)
        for source, sink in product(opened.values(), pipeline.all_sinks):
            refuse_cycle(source, load(sink.stream, "write"))
        checkpoint = PipelineCheckpoint.open(
            pipeline.checkpoint,
            pipeline.name,
            {scan: opened[name] for scan, name in scans.items()},
            reset=reset,
            ignore=ignore,
            engine=Engine.REAL_TIME if pipeline.trigger.real_time else Engine.SPARK,
        )
        if pipeline.trigger.real_time:
            from streamfactory.spark.realtime.starting import pinned

            checkpoint = pinned(pipeline, checkpoint)
        reading = (source.guarantee for source in opened.values())
        guarantee = combine(*reading, *built.guarantees)
    starts = checkpoint.start
    building = built.building if starts is None else built.building.starting(starts)
    hook = hook_of(pipeline.hook)
    return Prepared(
        pipeline,
        built.sources,
        built.session,
        building,
        checkpoint,
        hook,
        drain,
        guarantee,
        built.ways,
    )


def names_of(scans: Sequence[str]) -> dict[str, str]:
    """A name for each source that Spark creates, and the id of its stream.

    The first has the id as its name, the second of the same stream ``id#2``.
    """
    found: dict[str, str] = {}
    for at, name in enumerate(scans):
        before = scans[:at].count(name)
        found[f"{name}#{before + 1}" if before else name] = name
    return found


def apply_settings(session: SparkSession, pipeline: Pipeline) -> None:
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
            live = pipeline.trigger.real_time
            return verdict, Way(sink.name, refusal(opened, schema), parquet, live)
    except StreamError as error:
        if error.retryable:
            raise
        what = f"sink {sink.name!r}: {error.what}"
        return Problem("sinks", what, sink.origin, error.remedy)
