"""What `streamfactory.spark.scan` costs beside `spark.read.parquet`.

    python benchmarks/spark_scan.py [--json] [--rounds N] [--rows N]

Sides take turns, and a figure is the median of the rounds' ratios, by time and by
processor time of Spark's Java process. One side is measured twice, for the noise.
Nothing is gated.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring.figures import report
from benchmarks.measuring.on_spark import COLUMNS, Turns, session, topic
from benchmarks.spark import AGGREGATE

from streamfactory.spark import scan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.measuring.figures import Figure
    from pyspark.sql import DataFrame, SparkSession

GOALS: Final = {
    "Parquet again": "1",
    "scan": ">= 0.95",
    "scan, compressed": ">= 0.95",
    "scan with _offset": ">= 0.8",
    "stream": ">= 0.7",
}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=8_000_000)
    arguments = parser.parse_args()
    report(figures(arguments.rounds, arguments.rows), as_json=arguments.json)


def figures(rounds: int, rows: int) -> Iterator[Figure]:
    """One for each side, of what Spark's Parquet reader takes."""
    with tempfile.TemporaryDirectory() as name:
        spark = session({"spark.sql.shuffle.partitions": "2"})
        sides = prepared(spark, Path(name), rows)
        turns = Turns("Parquet", warming=2)
        for _ in range(rounds + turns.warming):
            for side, task in sides.items():
                turns.take(side, task)
        yield from turns.figures(rows, GOALS)
        spark.stop()


def prepared(
    spark: SparkSession, folder: Path, rows: int
) -> dict[str, Callable[[], object]]:
    """Write the rows for each side, and return what reads them."""
    frame = spark.range(0, rows, 1, 4).selectExpr(*COLUMNS)
    frame.write.parquet(str(folder / "parquet"))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")
    topics = {}
    for name, form, compression in (
        ("plain", "parquet", "none"),
        ("packed", "parquet", "lz4"),
        ("arrow", "arrow", "none"),
    ):
        options = {
            "stream.file.partitions": "4",
            "stream.file.segment.format": form,
            "stream.file.compression": compression,
        }
        topics[name] = topic(folder, name, **options)
        writer = frame.write.format("streamfactory").options(**topics[name])
        writer.mode("append").save()

    def parquet() -> DataFrame:
        return spark.read.parquet(str(folder / "parquet"))

    def stream() -> DataFrame:
        reader = spark.read.format("streamfactory")
        return reader.options(**topics["arrow"]).load()

    def scanned(name: str) -> DataFrame:
        return scan(topics[name], spark=spark)

    return {
        "Parquet": aggregated(parquet),
        "Parquet again": aggregated(parquet),
        "scan": aggregated(lambda: scanned("plain")),
        "scan, compressed": aggregated(lambda: scanned("packed")),
        "scan with _offset": aggregated(lambda: scanned("plain"), "max(_offset)"),
        "stream": aggregated(stream),
    }


def aggregated(side: Callable[[], DataFrame], *more: str) -> Callable[[], object]:
    """One row of all columns."""
    return lambda: side().selectExpr(*AGGREGATE, *more).collect()


if __name__ == "__main__":
    main()
