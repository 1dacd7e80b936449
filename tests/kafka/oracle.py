"""The same topics, read by Spark's own Kafka source and by ours."""

from __future__ import annotations

import json
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp"]
COLUMNS += ["timestampType", "headers"]
Source = tuple[str, dict[str, str]]
"""A format, and its options."""


def add_jars(spark: SparkSession, jars: Iterable[Path]) -> None:
    """Give a session Spark's own source."""
    for jar in jars:
        spark.sql(f"ADD JAR '{jar}'")


def theirs(bootstrap: str, topics: str, level: str) -> Source:
    return "kafka", {
        "kafka.bootstrap.servers": bootstrap,
        "kafka.isolation.level": level,
        "subscribe": topics,
    }


def ours(bootstrap: str, topics: str, level: str) -> Source:
    return "streamfactory", {
        "streamType": "kafka",
        "stream.kafka.broker.list": bootstrap,
        "stream.kafka.isolation.level": level,
        "stream.kafka.decoder.class.name": "raw",
        "subscribe": topics,
    }


def rows_of(frame: DataFrame) -> list[Any]:
    """The rows of a frame, in their order."""
    place = attrgetter("topic", "partition", "offset")
    return sorted(frame.select(*COLUMNS).collect(), key=place)


def batch(spark: SparkSession, source: Source) -> list[Any]:
    name, options = source
    reader = spark.read.format(name).options(**options, includeHeaders="true")
    return rows_of(reader.load())


def stream(
    spark: SparkSession, source: Source, folder: Path, most: int
) -> tuple[list[Any], list[Any]]:
    """Rows, and where each batch of so many offsets ended."""
    name, options = source
    query = (
        spark.readStream.format(name)
        .options(**options, includeHeaders="true", startingOffsets="earliest")
        .option("maxOffsetsPerTrigger", str(most))
        .load()
        .select(*COLUMNS)
        .writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(400)
    assert query.exception() is None
    ends = [offsets_in(one["sources"][0]["endOffset"]) for one in query.recentProgress]
    return rows_of(spark.read.parquet(str(folder / "rows"))), ends


def offsets_in(text: Any) -> Any:
    """The offsets in Spark's form, whatever stands around them."""
    body = json.loads(text) if isinstance(text, str) else text
    body = body.get("at") or body
    body = json.loads(body) if isinstance(body, str) else body
    return body.get("offsets", body)
