"""What reading on Spark costs beside Spark's own sources, in the same rounds.

    python benchmarks/spark.py [--json] [--rounds N] [--rows N] [--only NAME ...]

Two sides take turns, and a figure is the median of the rounds' ratios. Nothing is
gated. Writing is measured by spark_writing.py.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import warnings
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.spark import prepare_environment
from streamfactory.spi import Summary
from streamfactory.wiring.configure import configure
from streamfactory.wiring.definition import from_mapping
from streamfactory.wiring.microbatch import Planner
from streamfactory.wiring.plugins import default_manager
from streamfactory.wiring.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

COLUMNS: Final = (
    "id",
    "cast(id % 1000 as int) as user",
    "id * 0.5D as price",
    "concat('item ', id % 5000) as item",
    "timestamp_micros(1700000000000000 + id) as at",
    "id % 7 = 0 as bought",
)
AGGREGATE: Final = (
    "sum(id)",
    "sum(user)",
    "sum(price)",
    "max(item)",
    "max(at)",
    "count_if(bought)",
)
TRIGGERS: Final = 40
"""That a round of streaming waits for."""
PARTITIONS: Final = 1_000
PATIENCE: Final = 120


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--only", nargs="+", default=["batch", "stream", "plan"])
    arguments = parser.parse_args()
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        if "plan" in arguments.only:
            figures.append(planning(Path(folder), arguments.rounds))
        if {"batch", "stream"} & set(arguments.only):
            spark = session()
            if "batch" in arguments.only:
                figures.append(
                    batch(spark, Path(folder), arguments.rounds, arguments.rows)
                )
            if "stream" in arguments.only:
                figures += streams(spark, Path(folder), arguments.rounds)
            spark.stop()
    lines = [
        f"{f['name']:<44} {f['value']:>7.2f} {f['unit']:<2} goal {f['goal']:<8}"
        f" rounds {f['rounds']}, spread {f['spread']:.2f}"
        for f in figures
    ]
    text = json.dumps(figures) if arguments.json else "\n".join(lines)
    sys.stdout.write(f"{text}\n")


def session() -> SparkSession:
    """Two cores."""
    prepare_environment()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySpark's, of pandas 3
        from pyspark.sql import SparkSession

        builder: Any = SparkSession.builder
        made: SparkSession = (
            builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.memory", "2g")
            .config("spark.sql.shuffle.partitions", "2")
            # Triggers without rows are reported as well.
            .config("spark.sql.streaming.noDataProgressEventInterval", "0")
            .getOrCreate()
        )
    made.sparkContext.setLogLevel("OFF")
    return made


def topic(folder: Path, name: str, **options: str) -> dict[str, str]:
    """The options of a topic of ``file``."""
    return {
        "streamType": "file",
        "stream.file.path": str(folder / "topics"),
        "stream.file.topic.name": name,
        "stream.file.fsync": "never",
        **options,
    }


# --- a batch --------------------------------------------------------------------


def batch(spark: SparkSession, folder: Path, rounds: int, rows: int) -> dict[str, Any]:
    """Reading and aggregating all columns, against Spark's Parquet reader."""
    frame = spark.range(0, rows, 1, 4).selectExpr(*COLUMNS)
    options = topic(folder, "rows", **{"stream.file.partitions": "4"})
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")
    frame.write.format("streamfactory").options(**options).mode("append").save()
    frame.write.parquet(str(folder / "parquet"))

    def theirs() -> DataFrame:
        return spark.read.parquet(str(folder / "parquet"))

    def ours() -> DataFrame:
        return spark.read.format("streamfactory").options(**options).load()

    ratios = []
    for turn in range(rounds + 1):
        parquet, mine = (seconds(aggregated(side)) for side in (theirs, ours))
        if turn:
            ratios.append(parquet / mine)
    return figure(f"batch read of {rows} rows, of Parquet's", ratios, "x", ">= 0.7")


def aggregated(side: Callable[[], DataFrame]) -> Callable[[], object]:
    """One row of all columns."""
    return lambda: side().selectExpr(*AGGREGATE).collect()


# --- a stream -------------------------------------------------------------------


def streams(spark: SparkSession, folder: Path, rounds: int) -> list[dict[str, Any]]:
    """What a trigger with one row, and one without any, takes beside rate's."""
    options = topic(folder, "ticks")
    plain = spark.range(TRIGGERS * (rounds + 1)).coalesce(1)
    plain.write.format("streamfactory").options(**options).mode("append").save()
    each = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "1"}
    mine = spark.readStream.format("streamfactory").options(**options, **each)
    idle = spark.readStream.format("streamfactory").options(**options)
    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1)
    still = spark.readStream.format("rate").option("rowsPerSecond", 1)
    tiny, empty = [], []
    for turn in range(rounds + 1):
        pair = [triggers(side.load(), folder, rows=True) for side in (ticks, mine)]
        quiet = [triggers(side.load(), folder, rows=False) for side in (still, idle)]
        if turn:
            tiny.append(pair[1] / pair[0])
            empty.append(quiet[1] / quiet[0])
    return [
        figure("trigger of one row, of rate-micro-batch's", tiny, "x", "<= 1.5"),
        figure("trigger without rows, of rate's", empty, "x", "<= 1.5"),
    ]


def triggers(frame: DataFrame, folder: Path, *, rows: bool) -> float:
    """Median milliseconds of the triggers with rows, or without."""
    with tempfile.TemporaryDirectory(dir=folder) as checkpoint:
        query = (
            frame.writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(processingTime="0 seconds")
            .start()
        )
        found: dict[str, int] = {}
        deadline = time.monotonic() + PATIENCE
        while len(found) < TRIGGERS and time.monotonic() < deadline:
            for one in query.recentProgress:
                if bool(one["numInputRows"]) == rows and one["batchId"] > 0:
                    found[one["timestamp"]] = one["durationMs"]["triggerExecution"]
            time.sleep(0.05)
        query.stop()
    return max(1.0, statistics.median([*found.values()][5:]))  # the first ones warm up


# --- planning -------------------------------------------------------------------


def planning(folder: Path, rounds: int) -> dict[str, Any]:
    """Milliseconds from an offset to the ranges of the next batch."""
    rows = pa.record_batch({"id": [1, 2, 3]})
    store = DiskLogStore(LocalStorage(folder / "topics", fsync="never"), Settings())
    log = store.create("many", rows.schema, PARTITIONS)
    options = topic(folder, "many", startingOffsets="earliest")
    configured = configure(from_mapping(options), default_manager(), use="spark")
    taken = []
    with closing(store), closing(Source(configured)) as source:
        planner = Planner(source)
        start = planner.initial()
        for turn in range(rounds + 1):
            stage = log.stage(str(turn))
            for partition in range(PARTITIONS):
                stage.append(partition, rows)
            log.commit(None, 0, [stage.seal()], summary=Summary(3 * PARTITIONS))
            began = time.perf_counter()
            end = planner.latest(start)
            ranges = planner.ranges(start, end)
            end.to_text()
            if turn:
                taken.append((time.perf_counter() - began) * 1000)
            assert len(ranges) == PARTITIONS
            start = end
    return figure(f"planning a batch of {PARTITIONS} partitions", taken, "ms", "< 100")


def figure(name: str, found: list[float], unit: str, goal: str) -> dict[str, Any]:
    """One line of the report."""
    return {
        "name": name,
        "value": statistics.median(found),
        "unit": unit,
        "goal": goal,
        "rounds": len(found),
        "spread": max(found) - min(found),
    }


def seconds(task: Callable[[], object]) -> float:
    """That a task takes."""
    began = time.perf_counter()
    task()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
