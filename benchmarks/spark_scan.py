"""What `streamfactory.spark.scan` costs beside `spark.read.parquet`.

    python benchmarks/spark_scan.py [--json] [--rounds N] [--rows N]

Sides take turns, and a figure is the median of the rounds' ratios, by time and by
processor time of Spark's Java process. One side is measured twice, for the noise.
Nothing is gated.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring.figures import figure, report, seconds
from benchmarks.measuring.on_spark import COLUMNS, session, topic
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
        java = java_process()
        taken: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
        for turn in range(rounds + 2):
            for side, task in sides.items():
                before = processor_seconds(java)
                one = seconds(task), processor_seconds(java) - before
                if turn > 1:  # the first ones warm up
                    taken[side].append(one)
        peers = taken.pop("Parquet")
        for side, mine in taken.items():
            pairs = list(zip(peers, mine, strict=True))
            by_time = [peer[0] / own[0] for peer, own in pairs]
            by_processor = figure("", [p[1] / o[1] for p, o in pairs], "x", "")
            beside = {"by processor": by_processor.value}
            text = f"{side} of {rows} rows, of Parquet's"
            yield figure(text, by_time, "x", GOALS[side], beside)
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


def java_process() -> Path:
    """Return the status of the Java process that this one has started."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        if "(java)" in path.read_text() and stat_of(path)[1] == str(os.getpid()):
            return path
    msg = "this process has started no Java process"
    raise LookupError(msg)


def stat_of(status: Path) -> list[str]:
    """Return the fields of the status of a process behind its name."""
    return status.read_text().rpartition(")")[2].split()


def processor_seconds(process: Path) -> float:
    """Return the processor time of a process."""
    fields = stat_of(process)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
