"""What writing from Spark costs beside Spark's own Parquet writer, in the same rounds.

    python benchmarks/spark_writing.py [--json] [--rounds N] [--rows N]

Both write the same six columns from the same plan. Nothing is gated.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamfactory.spark import prepare_environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

COLUMNS = (
    "id",
    "cast(id % 1000 as int) as user",
    "id * 0.5D as price",
    "concat('item ', id % 5000) as item",
    "timestamp_micros(1700000000000000 + id) as at",
    "id % 7 = 0 as bought",
)
GOAL = 0.7


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=8_000_000)
    arguments = parser.parse_args()
    spark = session()
    frame = spark.range(0, arguments.rows, 1, 4).selectExpr(*COLUMNS)
    figures = []
    for rows in (65_536, 10_000):
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(rows))
        found = figure(f"write, batches of {rows} rows", frame, arguments.rounds)
        figures.append(found)
        if not arguments.json:
            sys.stdout.write(
                f"{found['name']:<40} {found['ratio']:.2f} x Parquet   goal >= {GOAL}"
                f"   rounds {found['rounds']}, spread {found['spread']:.2f}\n"
            )
    if arguments.json:
        sys.stdout.write(json.dumps(figures) + "\n")
    spark.stop()


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
            .config("spark.driver.memory", "2g")
            .getOrCreate()
        )
    made.sparkContext.setLogLevel("OFF")
    return made


def figure(name: str, frame: DataFrame, rounds: int) -> dict[str, Any]:
    """The ratio of both writers, the median of some rounds; one more warms up."""
    ratios = []
    for turn in range(rounds + 1):
        with tempfile.TemporaryDirectory() as folder:
            parquet = seconds(lambda: frame.write.parquet(str(Path(folder, "parquet"))))
            ours = seconds(lambda: save(frame, Path(folder, "topics")))
        if turn:
            ratios.append(parquet / ours)
    return {
        "name": name,
        "ratio": statistics.median(ratios),
        "goal": GOAL,
        "rounds": rounds,
        "spread": max(ratios) - min(ratios),
    }


def save(frame: DataFrame, folder: Path) -> None:
    """Append to a new topic."""
    options = {
        "streamType": "file",
        "stream.file.path": str(folder),
        "stream.file.topic.name": "rows",
        "stream.file.partitions": "4",
        "stream.file.fsync": "never",  # Parquet's writer does not sync either
    }
    frame.write.format("streamfactory").options(**options).mode("append").save()


def seconds(task: Callable[[], None]) -> float:
    """That a task takes."""
    began = time.perf_counter()
    task()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
