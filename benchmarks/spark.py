"""What reading on Spark costs beside Spark's own sources, in the same rounds.

    python benchmarks/spark.py [--json] [--rounds N] [--rows N] [--only NAME ...]

Sides take turns, and a figure is the median of the rounds' ratios. The ceiling of a
batch is a Python data source that only yields memory-mapped batches of the same rows;
that of a trigger is a Python stream reader without state, with one row in each batch.
No source in Python is faster. Kafka's broker is the one that KAFKA_BOOTSTRAP names, or
one that is started here. Nothing is gated. Writing is measured by spark_writing.py.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring.brokers import broker
from benchmarks.measuring.figures import figure, itself, ratios, report, turns
from benchmarks.measuring.mapped import MappedFiles, write_mapped
from benchmarks.measuring.on_spark import COLUMNS, session, topic
from benchmarks.triggers.compared import figures as triggers
from benchmarks.triggers.queries import CONF
from benchmarks.triggers.streams import file_stream, kafka_stream

from streamfactory.arrowlog import Epoch
from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.spi import Summary
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.microbatch import Planner
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from benchmarks.measuring.figures import Figure
    from pyspark.sql import DataFrameReader, Row, SparkSession

AGGREGATE: Final = (
    "sum(id)",
    "sum(user)",
    "sum(price)",
    "max(item)",
    "max(at)",
    "count_if(bought)",
)
AGGREGATE_OF_TWO: Final = ("sum(id)", "sum(price)")
PARTITIONS: Final = 1_000
PARTS: Final = ("batch", "stream", "kafka", "plan")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--only", nargs="+", default=PARTS)
    arguments = parser.parse_args()
    report(figures(arguments), as_json=arguments.json)


def figures(arguments: argparse.Namespace) -> Iterator[Figure]:
    """All that was asked for, each when it is there."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "plan" in arguments.only:
            yield planning(folder, arguments.rounds)
        if {"batch", "stream", "kafka"} & set(arguments.only):
            spark = session({"spark.sql.shuffle.partitions": "2", **CONF})
            if "batch" in arguments.only:
                yield from batches(spark, folder, arguments.rounds, arguments.rows)
            if {"stream", "kafka"} & set(arguments.only):
                yield from streams(spark, folder, arguments)
            spark.stop()


# --- a batch --------------------------------------------------------------------


def batches(
    spark: SparkSession, folder: Path, rounds: int, rows: int
) -> Iterator[Figure]:
    """Reading and aggregating all columns, and two of them.

    A Python data source is not told which columns a query reads: ``schema`` names them.
    """
    frame = spark.range(0, rows, 1, 4).selectExpr(*COLUMNS)
    options = topic(folder, "rows", **{"stream.file.partitions": "4"})
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")
    frame.write.format("streamfactory").options(**options).mode("append").save()
    parquet, mapped = folder / "parquet", folder / "mapped"
    frame.write.parquet(str(parquet))
    write_mapped(mapped, [str(file) for file in parquet.glob("*.parquet")])
    spark.dataSource.register(MappedFiles)
    sources = {
        "Parquet": ("parquet", {"path": str(parquet)}),
        "ours": ("streamfactory", options),
        "ceiling": (MappedFiles.name(), {"path": str(mapped)}),
    }
    columns = spark.read.parquet(str(parquet))
    for what, schema, aggregate in (
        ("all columns", columns.schema, AGGREGATE),
        ("2 of 6 columns", columns.select("id", "price").schema, AGGREGATE_OF_TWO),
    ):
        sides = {
            side: aggregated(spark.read.format(form).schema(schema), given, aggregate)
            for side, (form, given) in sources.items()
        }
        found = {side: read() for side, read in sides.items()}
        assert found["ours"] == found["Parquet"] == found["ceiling"]
        assert found["ours"][0][0] == rows * (rows - 1) // 2
        took = turns(rounds, sides)
        yield figure(
            f"batch read of {rows} rows, {what}",
            ratios(took["Parquet"], took["ours"]),
            "x Parquet",
            ">= 0.95 of ceiling",
            {"seconds": statistics.median(took["ours"])},
            ceiling=ratios(took["Parquet"], took["ceiling"]),
            again=itself(took),
        )


def aggregated(
    reader: DataFrameReader, options: Mapping[str, str], aggregate: Sequence[str]
) -> Callable[[], list[Row]]:
    """One row of the columns."""
    reader = reader.options(**options)
    return lambda: reader.load().selectExpr(*aggregate).collect()


# --- streams --------------------------------------------------------------------


def streams(spark: SparkSession, folder: Path, arguments: Any) -> Iterator[Figure]:
    """What triggers take beside those of Spark's rate sources."""
    found: dict[str, dict[str, str]] = {}
    with ExitStack() as stack:
        if "stream" in arguments.only:
            found["file"] = file_stream(folder, 1)
            found[f"file, {PARTITIONS} partitions"] = file_stream(folder, PARTITIONS)
        if "kafka" in arguments.only:
            found["kafka"] = kafka_stream(stack.enter_context(broker()))
        yield from triggers(spark, folder, arguments.rounds, found)


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
            log.commit(Epoch(None, 0, [stage.seal()], Summary(3 * PARTITIONS)))
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
