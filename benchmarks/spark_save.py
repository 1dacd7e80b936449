"""What `streamfactory.spark.save` costs beside `frame.write.parquet`.

    python benchmarks/spark_save.py [--json] [--rounds N] [--rows N]

Sides take turns, and a figure is the median of the rounds' ratios, by time and by
processor time of Spark's Java process. One side is measured twice, for the noise. The
second peer writes as `save` does: no dictionaries, no compression.

Micro-batches are appended to one topic, each as an epoch of a writer id, beside appends
to one folder of Parquet files: milliseconds of one. Nothing is gated.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring.figures import figure, itself, ratios, report, turns
from benchmarks.measuring.on_spark import COLUMNS, Turns, session, topic

from streamfactory.spark import save

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.measuring.figures import Figure
    from pyspark.sql import DataFrame, SparkSession

GOALS: Final = {
    "Parquet again": "1",
    "Parquet, plain": "",
    "save": ">= 0.9",
    "save, synced": "",
    "save, lz4": ">= 0.9",
    "save by _partition": ">= 0.9",
    'format("streamfactory")': "",
}
MICRO: Final = (1_000, 100_000)
"""Rows of a micro-batch."""
APPENDS: Final = 5
"""Micro-batches in a turn."""


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=4_000_000)
    arguments = parser.parse_args()
    report(figures(arguments.rounds, arguments.rows), as_json=arguments.json)


def figures(rounds: int, rows: int) -> Iterator[Figure]:
    """One for each side, of what Spark's Parquet writer takes."""
    spark = session({"spark.sql.execution.arrow.maxRecordsPerBatch": "65536"})
    sides = writers(spark.range(0, rows, 1, 4).selectExpr(*COLUMNS))
    taken = Turns("Parquet", warming=1)
    for _ in range(rounds + taken.warming):
        for side, write in sides.items():
            with tempfile.TemporaryDirectory() as name:
                taken.take(side, partial(write, Path(name, "rows")))
    yield from taken.figures(rows, GOALS)
    for each in MICRO:
        with tempfile.TemporaryDirectory() as name:
            yield from micro_batches(spark, Path(name), rounds, each)
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


def micro_batches(
    spark: SparkSession, folder: Path, rounds: int, rows: int
) -> Iterator[Figure]:
    """Milliseconds of a micro-batch, and of the same one in Parquet files."""
    frame = spark.range(0, rows, 1, 4).selectExpr(*COLUMNS)
    parquet = str(folder / "parquet")
    topics = {
        "save": chosen(folder / "by-task"),
        "save by key": chosen(folder / "by-key", **{"producer.key.columns": "user"}),
    }

    def append() -> None:
        for _ in range(APPENDS):
            frame.write.mode("append").parquet(parquet)

    def saver(options: dict[str, str]) -> Callable[[], None]:
        epochs = itertools.count()

        def saved() -> None:
            for epoch in itertools.islice(epochs, APPENDS):
                assert save(frame, options, writer_id="micro", epoch=epoch)

        return saved

    sides = {side: saver(options) for side, options in topics.items()}
    took = turns(rounds, {"Parquet": append, **sides})
    # The peer takes two turns in each round, and the first round warms up.
    written = (rounds + 1) * APPENDS * rows
    assert spark.read.parquet(parquet).count() == 2 * written
    theirs = statistics.median(took["Parquet"])
    for side, options in topics.items():
        found = spark.read.format("streamfactory").options(**options).load()
        assert found.count() == written
        yield figure(
            f"{side}, a micro-batch of {rows} rows",
            [1000 * one / APPENDS for one in took[side]],
            "ms",
            "none",
            {
                "ms, Parquet": 1000 * theirs / APPENDS,
                "x Parquet": statistics.median(ratios(took["Parquet"], took[side])),
            },
            again=itself(took),
        )


def chosen(folder: Path, **options: str) -> dict[str, str]:
    """The options of a new topic."""
    form = {"stream.file.partitions": "4", "stream.file.segment.format": "parquet"}
    return topic(folder, "rows", **{**form, **options})


if __name__ == "__main__":
    main()
