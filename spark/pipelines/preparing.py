"""From files to pipelines that can start: every problem first, at once."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException

from streamfactory.spark.checkpoints import PipelineCheckpoint
from streamfactory.spark.failures import StreamFactoryError, reason
from streamfactory.spark.pipelines.building import Building, shape_of
from streamfactory.spark.pipelines.checking import errors, stream_problems
from streamfactory.spark.pipelines.hooks import hook_of
from streamfactory.spark.pipelines.sql import analyse
from streamfactory.spark.sink import check_sink
from streamfactory.spark.types import spark_schema
from streamfactory.spi import ConfigError, Problem
from streamfactory.wiring.configure import configure
from streamfactory.wiring.plugins import default_manager
from streamfactory.wiring.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from streamfactory.spark.pipelines.definition import Draft, Outlet, Pipeline
    from streamfactory.spark.pipelines.progress import Batch
    from streamfactory.spark.pipelines.sql import Analysis
    from streamfactory.wiring.definition import StreamDefinition

_EVIDENCE: Final = ("_error", "_raw")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A pipeline that can start."""

    pipeline: Pipeline
    session: SparkSession
    building: Building
    checkpoint: PipelineCheckpoint
    hook: Callable[[Batch], None] | None
    drain: Path


def check_sql(
    spark: SparkSession, draft: Draft, schema: StructType | None
) -> tuple[Analysis, list[Problem]]:
    """What Spark finds wrong with the SQL over rows of a schema, None: unknown."""
    analysis = analyse(spark, draft, schema)
    problems = list(analysis.problems)
    pipeline = draft.pipeline
    if pipeline is not None and schema is not None and not errors(problems):
        shape = shape_of(pipeline, analysis)
        if isinstance(shape, Problem):
            problems.append(shape)
    return analysis, problems


def declared_schema(draft: Draft) -> StructType | None:
    """The source's schema where its configuration declares it; asks nobody."""
    pipeline = draft.pipeline
    if pipeline is None or stream_problems(pipeline.source):
        return None
    config = configure(pipeline.source, default_manager(), use="spark").config
    if config.get("schema") is None:
        return None
    return rows_of(pipeline, _asked_schema(pipeline.source))


def asked_schema(draft: Draft) -> StructType | None:
    """The schema of the source's rows; the stream is asked.

    Raises:
        StreamError: The stream's.
    """
    pipeline = draft.pipeline
    return (
        None if pipeline is None else rows_of(pipeline, _asked_schema(pipeline.source))
    )


def rows_of(pipeline: Pipeline, schema: StructType) -> StructType:
    """What steps see of the source: no columns of evidence where a sink takes them."""
    if pipeline.dead_letters is None:
        return schema
    missing = [name for name in _EVIDENCE if name not in schema.names]
    if missing:
        msg = "a sink for dead letters wants bad messages as rows"
        remedy = "set decode.on.error=dead-letter in [source]"
        raise ConfigError(msg, stream=pipeline.source.name, remedy=remedy)
    return type(schema)([f for f in schema if f.name not in _EVIDENCE])


def prepare(
    spark: SparkSession,
    draft: Draft,
    analysis: Analysis,
    drain: Path,
    *,
    reset: str | None = None,
    ignore: str | None = None,
) -> Prepared:
    """Build the query of a pipeline without problems, and open its checkpoint.

    Raises:
        ConfigError: config; Spark cannot stream it, or rows do not fit their sink.
        StreamError: What `PipelineCheckpoint.open` raises.
    """
    pipeline = draft.pipeline
    assert pipeline is not None
    shape = shape_of(pipeline, analysis)
    assert not isinstance(shape, Problem)
    session = spark.newSession()
    for key, value in pipeline.spark.items():
        session.conf.set(key, value)
    # Checked before anything is written down: once for the words, once to start.
    trial = Building(session, pipeline, analysis, shape, start={}, drain=None)
    problem = trial.check()
    if problem is not None:
        msg = "1 problem in the pipeline"
        raise ConfigError(msg, problems=[problem])
    for sink in pipeline.sinks:
        _check_sink(pipeline, sink, analysis.schemas[sink.rows])
    with ExitStack() as stack:
        source = Source(configure(pipeline.source, default_manager(), use="spark"))
        stack.callback(source.close)
        checkpoint = PipelineCheckpoint.open(
            pipeline.checkpoint,
            pipeline.name,
            {pipeline.source_id: source},
            reset=reset,
            ignore=ignore,
        )
    start = (checkpoint.start or {}).get(pipeline.source_id, {})
    building = Building(
        session, pipeline, analysis, shape, start=start, drain=str(drain)
    )
    return Prepared(
        pipeline, session, building, checkpoint, hook_of(pipeline.hook), drain
    )


def _asked_schema(definition: StreamDefinition) -> StructType:
    source = Source(configure(definition, default_manager(), use="spark"))
    try:
        return spark_schema(source.schema)
    finally:
        source.close()


def _check_sink(pipeline: Pipeline, sink: Outlet, schema: StructType) -> None:
    configured = configure(sink.stream, default_manager(), use="spark")
    overwrite = pipeline.mode == "complete"
    check_sink(configured.config, schema, overwrite=overwrite, streaming=True)


def told_by_spark(error: Exception) -> str:
    """Why a query failed: our words, where they are ours."""
    ours = reason(error)
    if ours is not None:
        return ours
    lines = str(error).strip().splitlines()
    known = isinstance(error, PySparkException | StreamFactoryError)
    return lines[0] if lines and known else f"{type(error).__name__}: {error}"
