"""A program: the same topics by Spark's own Kafka source and by ours, compared.

    python oracle.py BOOTSTRAP FOLDER JARS TOPIC...

Prints one JSON object: for each topic and way of reading, what differs.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamfactory.spark import prepare_environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp"]
COLUMNS += ["timestampType", "headers"]
ROWS = 400
"""A trigger's offsets at the most."""


def session(folder: Path, jars: str) -> SparkSession:
    prepare_environment()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        return (
            SparkSession.builder.master("local[2]")
            .config("spark.jars", jars)
            .config("spark.ui.enabled", "false")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
            .config("spark.local.dir", str(folder / "local"))
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
            .getOrCreate()
        )


def theirs(bootstrap: str, topic: str, level: str) -> tuple[str, dict[str, str]]:
    return "kafka", {
        "kafka.bootstrap.servers": bootstrap,
        "kafka.isolation.level": level,
        "subscribe": topic,
    }


def ours(bootstrap: str, topic: str, level: str) -> tuple[str, dict[str, str]]:
    return "streamfactory", {
        "streamType": "kafka",
        "stream.kafka.broker.list": bootstrap,
        "stream.kafka.isolation.level": level,
        "stream.kafka.decoder.class.name": "raw",
        "subscribe": topic,
    }


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    found = frame.select(*COLUMNS).sort("partition", "offset").collect()
    return [tuple(row) for row in found]


def batch(spark: SparkSession, source: tuple[str, dict[str, str]]) -> Any:
    name, options = source
    reader = spark.read.format(name).options(**options, includeHeaders="true")
    return rows_of(reader.load())


def stream(spark: SparkSession, source: tuple[str, dict[str, str]], to: Path) -> Any:
    """Rows, and where each batch ended."""
    name, options = source
    query = (
        spark.readStream.format(name)
        .options(**options, includeHeaders="true", startingOffsets="earliest")
        .option("maxOffsetsPerTrigger", str(ROWS))
        .load()
        .select(*COLUMNS)
        .writeStream.format("parquet")
        .option("path", str(to / "rows"))
        .option("checkpointLocation", str(to / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert query.exception() is None
    ends = [offsets_in(one["sources"][0]["endOffset"]) for one in query.recentProgress]
    return rows_of(spark.read.parquet(str(to / "rows"))), ends


def offsets_in(text: Any) -> Any:
    """The offsets in Spark's form, whatever stands around them."""
    body = json.loads(text) if isinstance(text, str) else text
    body = body.get("at") or body
    body = json.loads(body) if isinstance(body, str) else body
    return body.get("offsets", body)


def main(bootstrap: str, folder: str, jars: str, *topics: str) -> None:
    place = Path(folder)
    spark = session(place, jars)
    found: dict[str, Any] = {}
    for number, topic in enumerate(topics):
        level = "read_committed" if "transaction" in topic else "read_uncommitted"
        two = [make(bootstrap, topic, level) for make in (theirs, ours)]
        one, other = (batch(spark, source) for source in two)
        found[f"{topic} batch"] = difference(one, other)
        places = [place / f"{number}-{source[0]}" for source in two]
        pairs = zip(two, places, strict=True)
        (one, ends), (other, own) = (stream(spark, s, to) for s, to in pairs)
        found[f"{topic} stream"] = difference(one, other)
        found[f"{topic} ends"] = {"theirs": ends, "ours": own}
    spark.stop()
    sys.stdout.write(json.dumps(found) + "\n")


def difference(one: list[Any], other: list[Any]) -> dict[str, Any]:
    unlike = [pair for pair in zip(one, other, strict=False) if pair[0] != pair[1]]
    return {
        "theirs": len(one),
        "ours": len(other),
        "first": str(unlike[0]) if unlike else None,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
