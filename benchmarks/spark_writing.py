"""What writing from Spark costs beside Spark's own Parquet writer, in the same rounds.

    python benchmarks/spark_writing.py [--json] [--rounds N] [--rows N]

Both write the same six columns from the same plan. Nothing is gated.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring.figures import figure, report, seconds
from benchmarks.measuring.on_spark import COLUMNS, session, topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measuring.figures import Figure
    from pyspark.sql import DataFrame

GOAL = ">= 0.7"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=8_000_000)
    arguments = parser.parse_args()
    report(figures(arguments), as_json=arguments.json)


def figures(arguments: argparse.Namespace) -> Iterator[Figure]:
    """Of batches of both sizes."""
    spark = session()
    frame = spark.range(0, arguments.rows, 1, 4).selectExpr(*COLUMNS)
    for rows in (65_536, 10_000):
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(rows))
        found = parquets(frame, arguments.rounds)
        yield figure(f"write, batches of {rows} rows", found, "x Parquet", GOAL)
    spark.stop()


def parquets(frame: DataFrame, rounds: int) -> list[float]:
    """Parquet's time over ours, of some rounds; one more warms up."""
    ratios = []
    for turn in range(rounds + 1):
        with tempfile.TemporaryDirectory() as folder:
            parquet = seconds(lambda: frame.write.parquet(str(Path(folder, "parquet"))))
            ours = seconds(lambda: save(frame, Path(folder)))
        if turn:
            ratios.append(parquet / ours)
    return ratios


def save(frame: DataFrame, folder: Path) -> None:
    """Append to a new topic."""
    options = topic(folder, "rows", **{"stream.file.partitions": "4"})
    frame.write.format("streamfactory").options(**options).mode("append").save()


if __name__ == "__main__":
    main()
