"""Builds the query of a pipeline in real time, by Spark's Kafka connector."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, final

from pyspark.sql import types as t

from streamfactory.spark.arrangement import OPTION
from streamfactory.spark.pipelines.building import Building
from streamfactory.spark.pipelines.sql import problem_of, stateful_between
from streamfactory.spark.realtime.clients import CONSUMER, PRODUCER, client_options
from streamfactory.spark.realtime.json_rows import (
    ROW,
    decode_json,
    json_value,
    unreadable,
    unwritable,
)
from streamfactory.spark.realtime.rules import JSON, KAFKA, MODE
from streamfactory.spi import Problem
from streamfactory.wiring.config.loading import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from streamfactory.spark.checkpoints import PipelineCheckpoint
    from streamfactory.spark.pipelines.deadletters import Inflow
    from streamfactory.spark.pipelines.model import Pipeline, Sink, Source
    from streamfactory.spark.pipelines.sql import Analysis
    from streamfactory.spi import StreamConfig

_TIME: Final = "case when timestampType >= 0 then timestamp end"
_METADATA: Final = {
    "_topic": "topic",
    "_partition": "partition",
    "_offset": "offset",
    "_timestamp": _TIME,
    "_key": "key",
    "_headers": "headers",
}
"""Metadata of rows, from the columns of Spark's connector."""
_HEADERS: Final = t.ArrayType(
    t.StructType(
        [t.StructField("key", t.StringType()), t.StructField("value", t.BinaryType())]
    )
)
_KINDS: Final[dict[str, tuple[t.DataType, ...]]] = {
    "_key": (t.BinaryType(), t.StringType()),
    "_partition": (t.IntegerType(),),
    "_headers": (_HEADERS,),
}
"""Types of the columns that a sink takes beside its rows."""
_SINK_COLUMNS: Final = {"_key": "key", "_partition": "partition", "_headers": "headers"}
_NOT_WRITTEN: Final = ("_timestamp", "_topic", "_tombstone")


@final
class RealTimeBuilding(Building):
    """As `Building`, with Spark's Kafka connector at both ends."""

    def check(self) -> list[Problem]:
        """Operations that the mode does not support."""
        if len(self.scans) > 1:
            [source] = self._pipeline.sources
            what = f"{MODE} reads its source once, and the steps read it "
            what += f"{len(self.scans)} times"
            return [Problem("steps", what, source.origin, "write one step of them")]
        return super().check()

    def writer(self, checkpoint: PipelineCheckpoint) -> DataStreamWriter:
        """The writer of the query; see `Building.writer`."""
        self._checkpoint = checkpoint
        [sink] = self._pipeline.sinks
        config = load(sink.stream, "spark", quiet=True).config
        options = client_options(config, PRODUCER).options
        rows = encoded(self.frame, config)
        # The mode requires it; without state it is what append is.
        return (
            rows.writeStream.outputMode("update")
            .format(KAFKA)
            .options(**options, topic=config.topic)
        )

    def _read(self, source: Source, start: Mapping[str, str]) -> DataFrame:
        inflow = self._inflows[source.id]
        config = inflow.configured.config
        options = client_options(config, CONSUMER).options
        options |= {
            # Tells which source this is, in the query's plan.
            OPTION: json.dumps({"source": source.id}),
            **_topics(config),
            "kafka.isolation.level": _isolation(config),
            "startingOffsets": start.get("startingOffsets", "earliest"),
            "failOnDataLoss": "true",
            "includeHeaders": "true",
        }
        reader = self._spark.readStream.format(KAFKA).options(**options)
        return decoded(reader.load(), inflow)


def _topics(config: StreamConfig) -> dict[str, str]:
    if "subscribePattern" in config:
        return {"subscribePattern": str(config["subscribePattern"])}
    if "subscribe" in config:
        return {"subscribe": ",".join(config["subscribe"])}
    return {"subscribe": config.topic}


def _isolation(config: StreamConfig) -> str:
    passed = config.client.get(CONSUMER, {}).get("isolation.level")
    ours = config.get("isolation.level") or (passed and passed.text)
    return str(ours or "read_committed")


# --- rows ------------------------------------------------------------------------


def decoded(messages: DataFrame, inflow: Inflow) -> DataFrame:
    """The rows of messages of Spark's connector, with the schema of a source."""
    columns = {**{name: f"`{name}`" for name in messages.columns}, "timestamp": _TIME}
    if inflow.configured.config.decoder == JSON:
        own = [one for one in inflow.schema.fields if one.name not in _METADATA]
        messages = decode_json(messages, t.StructType(own))
        columns = {one.name: f"{ROW}.`{one.name}`" for one in own}
    columns |= _METADATA
    names = inflow.schema.names
    return messages.selectExpr(*(f"{columns[name]} as `{name}`" for name in names))


def encoded(rows: DataFrame, config: StreamConfig) -> DataFrame:
    """Messages for Spark's connector: columns ``value``, ``key`` and so on."""
    special = [name for name in rows.columns if name in _SINK_COLUMNS]
    value = "`value`"
    if config.decoder == JSON:
        plain = [one for one in rows.schema.fields if one.name not in _SINK_COLUMNS]
        value = json_value(t.StructType(plain))
    return rows.selectExpr(
        f"{value} as value", *(f"{name} as {_SINK_COLUMNS[name]}" for name in special)
    )


def state_problem(pipeline: Pipeline, analysis: Analysis) -> Problem | None:
    """The first step that has state; None without one."""
    [source], [sink] = pipeline.sources, pipeline.sinks
    for name in stateful_between(analysis, source.id, [sink.rows]):
        what = f"{MODE} has no state before PySpark 4.3, and this step aggregates, "
        what += "joins streams or sorts"
        [step] = [one for one in pipeline.steps if one.id == name]
        return problem_of(step, what)
    return None


def source_problems(inflow: Inflow, source: Source) -> Iterator[Problem]:
    """Why Spark's functions do not decode the rows of a source as its decoder does."""
    if inflow.configured.config.decoder != JSON:
        return
    own = [one for one in inflow.schema.fields if one.name not in _METADATA]
    reason = unreadable(t.StructType(own))
    if reason is not None:
        hint = "declare the column as string, and cast it in a step"
        yield Problem("schema", reason, source.origin, hint)


def sink_problems(
    schema: t.StructType, config: StreamConfig, sink: Sink
) -> Iterator[Problem]:
    """Why Spark's functions and connector do not write rows as our sink does."""
    plain = []
    for one in schema.fields:
        if one.name in _NOT_WRITTEN:
            what = f"column {one.name} has no effect: Spark's Kafka connector does not "
            what += "write it"
            yield Problem("sinks", what, sink.origin, "leave it out in the last step")
        elif one.name not in _SINK_COLUMNS:
            plain.append(one)
        elif not any(_same(one.dataType, kind) for kind in _KINDS[one.name]):
            kinds = " or ".join(kind.simpleString() for kind in _KINDS[one.name])
            what = f"column {one.name} is {one.dataType.simpleString()}, not {kinds}"
            yield Problem("sinks", what, sink.origin, "cast it in the last step")
    reason = unwritable(t.StructType(plain)) if config.decoder == JSON else None
    if reason is not None:
        yield Problem(
            "sinks", reason, sink.origin, "cast it to string in the last step"
        )


def _same(one: t.DataType, other: t.DataType) -> bool:
    return one.simpleString() == other.simpleString()
