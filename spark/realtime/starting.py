"""What a query in real time requires of Spark, of its topics, and of its start."""

from __future__ import annotations

from contextlib import closing
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, cast

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamfactory.spark.checkpoints.reading import kafka_position
from streamfactory.spark.checkpoints.starting import complete_offsets
from streamfactory.spark.realtime.building import (
    sink_problems,
    source_problems,
    state_problem,
)
from streamfactory.spark.realtime.rules import KAFKA
from streamfactory.spark.sink import opened_sink
from streamfactory.spark.types import arrow_schema
from streamfactory.spi import Position, Problem
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.core.guard import log
from streamfactory.wiring.reading.losses import recreated, was_recreated
from streamfactory.wiring.reading.starts import starting_offsets
from streamfactory.wiring.receiving.embedded import open_source
from streamfactory.wiring.writing.creating import ensure_topic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from streamfactory.spark.checkpoints import PipelineCheckpoint
    from streamfactory.spark.pipelines.deadletters import Inflow
    from streamfactory.spark.pipelines.model import Pipeline
    from streamfactory.spark.pipelines.sql import Analysis
    from streamfactory.spi import PartitionInfo
    from streamfactory.wiring.reading.source import Source

AVAILABLE: Final = "realTime" in signature(DataStreamWriter.trigger).parameters
"""Whether this PySpark has the mode: 4.2 and later."""
_PACKAGE: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13"


def missing(spark: SparkSession) -> Problem | None:
    """Why a session has no real-time mode from Kafka to Kafka; None if it has."""
    if not AVAILABLE:
        return _too_old()
    version, session = pyspark.__version__, cast("Any", spark)
    sources = session._jvm.org.apache.spark.sql.execution.datasources.DataSource
    try:
        sources.lookupDataSource(KAFKA, session._jsparkSession.sessionState().conf())
    except PySparkException:
        what = f"real-time requires Spark's Kafka connector, {_PACKAGE}:{version}"
        hint = f'write "jars.packages" = "{_PACKAGE}:{version}" under [spark]; not '
        hint += "every version of PySpark has one"
        return Problem("trigger", what, "", hint)
    return None


def _too_old() -> Problem:
    what = f"real-time requires PySpark 4.2 or later, and this is {pyspark.__version__}"
    hint = "install pyspark 4.2, or set trigger = back-to-back"
    return Problem("trigger", what, "", hint)


def check_offline(
    pipeline: Pipeline, analysis: Analysis, inflows: Mapping[str, Inflow]
) -> list[Problem]:
    """Problems of this PySpark and of the columns. Connects to nothing.

    Args:
        pipeline: A pipeline in real time, without problems so far.
        analysis: Of its steps.
        inflows: Schemas of the sources, by id.
    """
    [source], [sink] = pipeline.sources, pipeline.sinks
    config = load(sink.stream, "spark", quiet=True).config
    stateful = state_problem(pipeline, analysis)
    return [
        *([] if AVAILABLE else [_too_old()]),
        *([] if stateful is None else [stateful]),
        *source_problems(inflows[source.id], source),
        *sink_problems(analysis.schemas[sink.rows], config, sink),
    ]


def check_ends(
    spark: SparkSession,
    pipeline: Pipeline,
    inflows: Mapping[str, Inflow],
    analysis: Analysis,
) -> list[Problem]:
    """Problems of Spark, of the columns, and of the number of tasks at once.

    Creates the topic of the sink if it does not exist.

    Args:
        spark: The session of the query.
        pipeline: A pipeline in real time, without problems so far.
        inflows: Schemas of the sources, by id.
        analysis: Of its steps.
    """
    lacking = missing(spark)
    if lacking is not None:
        return [lacking]
    [source], [sink] = pipeline.sources, pipeline.sinks
    found = check_offline(pipeline, analysis, inflows)
    found += _slot_problems(spark, pipeline, inflows[source.id])
    if not found:
        config = load(sink.stream, "spark", quiet=True).config
        with opened_sink(config) as opened:
            ensure_topic(opened, arrow_schema(analysis.schemas[sink.rows]))
    return found


def _slot_problems(
    spark: SparkSession, pipeline: Pipeline, inflow: Inflow
) -> list[Problem]:
    """A task reads a partition for as long as a batch takes; others would wait."""
    with closing(open_source(inflow.configured, aside=False)) as source:
        wanted = len(source.metadata.partitions())
    slots = spark.sparkContext.defaultParallelism
    if wanted <= slots:
        return []
    what = (
        f"real-time reads {wanted} partitions at once, each by a task, and Spark has "
    )
    what += f"{slots} slots"
    if not str(spark.sparkContext.master).startswith("local"):
        log.warning("pipeline %r: %s now; add executors", pipeline.name, what)
        return []
    hint = f"run with --master 'local[{wanted}]' or more"
    return [Problem("trigger", what, pipeline.origin, hint)]


def pinned(pipeline: Pipeline, checkpoint: PipelineCheckpoint) -> PipelineCheckpoint:
    """The checkpoint with offsets where the query starts, of all partitions.

    Spark saves the first offsets at the end of the first batch. Rows that arrive until
    then would be lost by a kill if the query started at the latest offsets again. The
    ids of topics are saved beside, which Spark's offsets do not have.

    Raises:
        IncarnationChanged: data_loss; a topic was recreated since the generation began.
        StreamError: Errors of the stream, or of the checkpoint.
    """
    [source] = pipeline.sources
    given = (checkpoint.start or {}).get(source.id, {})
    configured = load(source.stream.with_overrides(given), "spark", quiet=True)
    begin = checkpoint.begin
    with closing(open_source(configured, aside=False)) as opened:
        infos = opened.metadata.partitions()
        _refuse_recreated(begin, infos, opened)
        if checkpoint.planned:
            checkpoint.save_begin(_identified(begin, infos).merge(begin))
            return checkpoint
        start = kafka_position(given.get("startingOffsets", ""))
        if start is None:
            starts = starting_offsets(
                opened.config, opened.metadata, infos, start=None, default="latest"
            )
            start = Position(starts)
        offsets = complete_offsets(start, opened)
    checkpoint.save_begin(_identified(kafka_position(offsets) or Position(), infos))
    return checkpoint.pin({source.id: {"startingOffsets": offsets}})


def _refuse_recreated(
    begin: Position, infos: Sequence[PartitionInfo], source: Source
) -> None:
    """Refuse a topic that has another id than when the generation began."""
    for info in infos:
        before = begin.incarnations.get(info.partition)
        if was_recreated(before, info.incarnation):
            error = recreated(info.partition, before, info.incarnation, None)
            error.remedy = "begin again with --reset"
            raise error.at(stream=source.config.name)


def _identified(offsets: Position, infos: Sequence[PartitionInfo]) -> Position:
    """Offsets with the ids of topics; those that are new begin at the earliest."""
    incarnations = {
        info.partition: info.incarnation
        for info in infos
        if info.incarnation is not None
    }
    new = {info.partition: info.start for info in infos}
    return Position({**new, **offsets}, incarnations)
