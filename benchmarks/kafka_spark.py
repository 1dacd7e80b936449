"""What `kafka` on Spark makes of Spark's own Kafka source, in the same rounds.

    python benchmarks/kafka_spark.py [--json] [--rounds N] [--messages N]

JSON is read into typed columns, each of which is aggregated: by Spark's own Kafka
source with `from_json`, and by ours with the decoder `json`; natively too, where
streamfactory-native is installed (`make native`). By the clock, and by the processor
time of Spark's processes. The broker is the one that KAFKA_BOOTSTRAP names, or one that
is started here and shares the machine. Nothing is gated.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring.brokers import broker, filled
from benchmarks.measuring.figures import AGAIN, figure, itself, report
from benchmarks.measuring.on_spark import java_process, session
from benchmarks.measuring.processes import tree_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.measuring.figures import Figure
    from pyspark.sql import DataFrame, SparkSession

DDL = "id bigint, name string, price double, at bigint, tag string, flag boolean"


def row(number: int) -> bytes:
    """A message of about 120 bytes."""
    name, tag = f"name-{number % 1000:04}", f"tag-{number % 17:02}"
    fields = f'"id":{number},"name":"{name}","price":{number % 977}.25,'
    fields += f'"at":{1_700_000_000_000 + number},"tag":"{tag}","flag":true'
    return b"{" + fields.encode() + b"}"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=800_000)
    arguments = parser.parse_args()
    with broker() as bootstrap:
        report(reading(bootstrap, arguments), as_json=arguments.json)


def reading(bootstrap: str, arguments: Any) -> list[Figure]:
    """Typed columns of JSON, by Spark's own source and by ours."""
    from tests.kafka.jars import jars

    spark = session({"spark.jars": ",".join(map(str, jars("oracle")))})
    count = arguments.messages
    topic = filled(bootstrap, count, row, 4)
    java = int(java_process().parent.name)
    frames = {"spark": theirs(spark, bootstrap, topic)}
    frames[AGAIN] = frames["spark"]
    frames["ours"] = ours(spark, bootstrap, topic, "off")
    if find_spec("streamfactory_native"):
        frames["ours natively"] = ours(spark, bootstrap, topic, "required")
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in frames}
    for number in range(arguments.rounds + 1):
        for name, frame in frames.items():
            one = aggregated(frame(), count, java)
            if number:  # the first round warms all up
                taken[name].append(one)
    spark.stop()
    return [
        against_spark(name, taken, count) for name in frames if name.startswith("ours")
    ]


def theirs(spark: SparkSession, bootstrap: str, topic: str) -> Callable[[], DataFrame]:
    """By Spark's own source."""
    from pyspark.sql import functions as f

    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    value = f.from_json(f.col("value").cast("string"), DDL).alias("row")
    reader = spark.read.format("kafka").options(**options)
    return lambda: reader.load().select(value).select("row.*")


def ours(
    spark: SparkSession, bootstrap: str, topic: str, native: str
) -> Callable[[], DataFrame]:
    """By ours, with this value of ``native.reading``."""
    options = {
        "streamType": "kafka",
        "stream.kafka.broker.list": bootstrap,
        "stream.kafka.topic.name": topic,
        "stream.kafka.decoder.class.name": "json",
        "stream.kafka.native.reading": native,
        "schema": DDL,
    }
    return spark.read.format("streamfactory").options(**options).load


def aggregated(frame: DataFrame, count: int, java: int) -> tuple[float, float]:
    """Seconds by the clock and of Spark's processes; checks the number of rows."""
    from pyspark.sql import functions as f

    started, before = time.perf_counter(), tree_seconds(java)
    columns = [f.max(name) for name in frame.columns]
    found = frame.agg(f.count(f.lit(1)).alias("rows"), *columns).collect()[0]
    assert found["rows"] == count
    return time.perf_counter() - started, tree_seconds(java) - before


def against_spark(
    name: str, taken: dict[str, list[tuple[float, float]]], count: int
) -> Figure:
    """Ours against Spark's own source, by the clock, and by processor time beside."""
    pairs = list(zip(taken["spark"], taken[name], strict=True))
    beside = {
        "by processor time": statistics.median(own[1] / our[1] for own, our in pairs),
        "M messages a second": count
        / statistics.median(t for t, _ in taken[name])
        / 1e6,
    }
    title = f"Spark, JSON into typed columns: {name} against its own"
    shares = [own[0] / our[0] for own, our in pairs]
    again = itself({side: [one[0] for one in some] for side, some in taken.items()})
    goal = ">= 3" if "natively" in name else ">= 1.5"
    return figure(title, shares, "x", goal, beside, again=again)


if __name__ == "__main__":
    main()
