"""What writing from Spark costs beside Spark's own Parquet writer, in the same rounds.

    python benchmarks/spark_writing.py [--json] [--rounds N] [--rows N]

All sides write the same six columns from the same plan. The ceiling is a Python data
source that discards the batches: no writer in Python is faster. Nothing is gated.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring.figures import figure, itself, ratios, report, turns
from benchmarks.measuring.on_spark import COLUMNS, session, topic
from benchmarks.measuring.trivial import DiscardedRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.measuring.figures import Figure
    from pyspark.sql import SparkSession

GOAL: Final = ">= 0.95 of ceiling"
SIZES: Final = (65_536, 10_000, 1_000)
"""Rows of a batch, at most."""


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=4_000_000)
    arguments = parser.parse_args()
    report(figures(arguments.rounds, arguments.rows), as_json=arguments.json)


def figures(rounds: int, rows: int) -> Iterator[Figure]:
    """One for each size of batches."""
    spark = session()
    spark.dataSource.register(DiscardedRows)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "rows")
        sides = writers(spark, folder, rows)
        check(spark, sides, folder, rows)
        for size in SIZES:
            spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(size))
            took = turns(rounds, sides, after=lambda: shutil.rmtree(folder, True))
            yield figure(
                f"write, batches of {size} rows",
                ratios(took["Parquet"], took["ours"]),
                "x Parquet",
                GOAL,
                {"seconds": statistics.median(took["ours"])},
                ceiling=ratios(took["Parquet"], took["ceiling"]),
                again=itself(took),
            )
    spark.stop()


def writers(
    spark: SparkSession, folder: Path, rows: int
) -> dict[str, Callable[[], None]]:
    """What writes the rows: to a new folder, or to nowhere."""
    frame = spark.range(0, rows, 1, 4).selectExpr(*COLUMNS)

    def written(form: str, options: dict[str, str]) -> Callable[[], None]:
        writer = frame.write.format(form).options(**options).mode("append")
        return writer.save

    return {
        "Parquet": written("parquet", {"path": str(folder / "parquet")}),
        "ours": written("streamfactory", appended(folder)),
        "ceiling": written(DiscardedRows.name(), {"rows": str(rows)}),
    }


def appended(folder: Path) -> dict[str, str]:
    """The options of the topic."""
    return topic(folder, "rows", **{"stream.file.partitions": "4"})


def check(
    spark: SparkSession, sides: dict[str, Callable[[], None]], folder: Path, rows: int
) -> None:
    """Check that each side writes all rows; the ceiling does so itself."""
    for side in sides.values():
        side()
    ours = spark.read.format("streamfactory").options(**appended(folder)).load()
    assert spark.read.parquet(str(folder / "parquet")).count() == rows
    assert ours.count() == rows
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
