"""What reading on Spark costs beside Spark's own sources, in the same rounds.

    python benchmarks/spark.py [--json] [--rounds N] [--rows N] [--only NAME ...]

Two sides take turns, and a figure is the median of the rounds' ratios. Nothing is
gated. Writing is measured by spark_writing.py.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring.figures import figure, report, seconds
from benchmarks.measuring.on_spark import COLUMNS, session, topic

from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.spi import Summary
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.microbatch import Planner
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.measuring.figures import Figure
    from pyspark.sql import DataFrame, SparkSession

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
    report(figures(arguments), as_json=arguments.json)


def figures(arguments: argparse.Namespace) -> Iterator[Figure]:
    """All that was asked for, each when it is there."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "plan" in arguments.only:
            yield planning(folder, arguments.rounds)
        if {"batch", "stream"} & set(arguments.only):
            # Triggers without rows are reported as well.
            interval = {"spark.sql.streaming.noDataProgressEventInterval": "0"}
            spark = session({"spark.sql.shuffle.partitions": "2", **interval})
            if "batch" in arguments.only:
                yield batch(spark, folder, arguments.rounds, arguments.rows)
            if "stream" in arguments.only:
                yield from streams(spark, folder, arguments.rounds)
            spark.stop()


# --- a batch --------------------------------------------------------------------


def batch(spark: SparkSession, folder: Path, rounds: int, rows: int) -> Figure:
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


def streams(spark: SparkSession, folder: Path, rounds: int) -> list[Figure]:
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


def planning(folder: Path, rounds: int) -> Figure:
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


if __name__ == "__main__":
    main()
