"""What `streamfactory.spark.save` costs beside `frame.write.parquet`.

    python benchmarks/spark_save.py [--json] [--rounds N] [--rows N]

Sides take turns, and a figure is the median of the rounds' ratios, by time and by
processor time of Spark's Java process. One side is measured twice, for the noise. The
second peer writes as `save` does: no dictionaries, no compression. Nothing is gated.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring.figures import report
from benchmarks.measuring.on_spark import COLUMNS, Turns, session, topic

from streamfactory.spark import save

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.measuring.figures import Figure
    from pyspark.sql import DataFrame

GOALS: Final = {
    "Parquet again": "1",
    "Parquet, plain": "",
    "save": ">= 0.9",
    "save, synced": "",
    "save, lz4": ">= 0.9",
    "save by _partition": ">= 0.9",
    'format("streamfactory")': "",
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
    """One for each side, of what Spark's Parquet writer takes."""
    spark = session({"spark.sql.execution.arrow.maxRecordsPerBatch": "65536"})
    sides = writers(spark.range(0, rows, 1, 4).selectExpr(*COLUMNS))
    turns = Turns("Parquet", warming=1)
    for _ in range(rounds + turns.warming):
        for side, write in sides.items():
            with tempfile.TemporaryDirectory() as name:
                turns.take(side, partial(write, Path(name, "rows")))
    yield from turns.figures(rows, GOALS)
    spark.stop()


def writers(frame: DataFrame) -> dict[str, Callable[[Path], object]]:
    """What writes the rows to a new folder."""
    routed = frame.selectExpr("*", "cast(id % 4 as int) as _partition")
    plain = {"compression": "none", "parquet.enable.dictionary": "false"}

    def parquet(folder: Path, **options: str) -> None:
        frame.write.options(**options).parquet(f"file://{folder}")

    def saved(folder: Path, rows: DataFrame, **options: str) -> None:
        save(rows, chosen(folder, **options))

    def streamed(folder: Path) -> None:
        writer = frame.write.format("streamfactory").options(**chosen(folder))
        writer.mode("append").save()

    return {
        "Parquet": parquet,
        "Parquet again": parquet,
        "Parquet, plain": lambda folder: parquet(folder, **plain),
        "save": lambda folder: saved(folder, frame),
        "save, synced": lambda f: saved(f, frame, **{"stream.file.fsync": "always"}),
        "save, lz4": lambda f: saved(f, frame, **{"stream.file.compression": "lz4"}),
        "save by _partition": lambda folder: saved(folder, routed),
        'format("streamfactory")': streamed,
    }


def chosen(folder: Path, **options: str) -> dict[str, str]:
    """The options of a new topic."""
    form = {"stream.file.partitions": "4", "stream.file.segment.format": "parquet"}
    return topic(folder, "rows", **{**form, **options})


if __name__ == "__main__":
    main()
