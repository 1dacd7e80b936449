"""What a pipeline costs beside the same query written by hand, in the same rounds.

    python benchmarks/pipeline.py [--json] [--rounds N] [--rows N] [--only NAME ...]

``query``: rows through SQL into a stream, available-now, in one Spark, hand against
pipeline. ``first``: seconds from starting a process to the first row in the sink, a
bare session with the query by hand against ``streamfactory run``. Nothing is gated.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring.figures import figure, report

import streamfactory
from streamfactory.spi import TopicNotFound
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measuring.figures import Figure
    from pyspark.sql import SparkSession

SQL: Final = "select id, price * 2 as price, item from input where user < 900"
PATIENCE: Final = 180
CHUNK: Final = 250_000


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--only", nargs="+", default=["query", "first"])
    arguments = parser.parse_args()
    report(figures(arguments), as_json=arguments.json)


def figures(arguments: argparse.Namespace) -> Iterator[Figure]:
    """All that was asked for, each when it is there."""
    with tempfile.TemporaryDirectory() as name:
        place = Place(Path(name))
        place.fill("input", arguments.rows)
        place.fill("little", 1000)
        if "query" in arguments.only:
            yield query(place, arguments.rounds)
        if "first" in arguments.only:
            yield first(place, arguments.rounds)


class Place:
    """Streams and pipelines in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.streams = folder / "configs"
        self.streams.mkdir()
        os.environ["STREAMFACTORY_STREAMS"] = str(self.streams)

    def stream(self, name: str) -> str:
        """Define a stream."""
        self.streams.joinpath(f"{name}.toml").write_text(
            f"""[properties]
            streamType = "file"
            "stream.file.path" = "{self.folder / "topics"}"
            "stream.file.topic.name" = "{name}"
            "stream.file.partitions" = 2
            "stream.file.fsync" = "never"
            """
        )
        return name

    def fill(self, name: str, rows: int) -> None:
        """Make a stream of so many rows."""
        with open_sink(self.stream(name)) as sink:
            for epoch, start in enumerate(range(0, rows, CHUNK)):
                ids = pa.arange(start, min(rows, start + CHUNK))
                numbers = ids.to_numpy()
                columns = {
                    "id": ids,
                    "user": pa.array(numbers % 1000),
                    "price": pa.array(numbers * 0.5),
                    "item": pa.array([f"item {n % 5000}" for n in numbers]),
                    "_partition": pa.array((numbers % 2).astype("int32")),
                }
                batch = pa.RecordBatch.from_pydict(columns)
                sink.put(batch, writer_id="bench", epoch=epoch)

    def pipeline(self, source: str, sink: str) -> Path:
        """The file of a pipeline that has not run."""
        path = self.folder / f"{sink}.toml"
        path.write_text(
            f"""checkpoint = "{self.folder / "checkpoints" / sink}"
            [source]
            stream = "{source}"
            startingOffsets = "earliest"
            [[steps]]
            id = "wanted"
            sql = "{SQL}"
            [[sinks]]
            stream = "{self.stream(sink)}"
            """
        )
        return path


def query(place: Place, rounds: int) -> Figure:
    """The same query by hand and as a pipeline; both from a ready session."""
    from streamfactory.spark.pipelines.session import spark_session
    from streamfactory.spark.pipelines.together import Pipelines

    ratios = []
    log = place.folder / "spark.log"
    with spark_session("local[2]", {}, log=log) as spark:
        for number in range(rounds + 1):
            begin = time.perf_counter()
            by_hand(spark, place, "input", place.stream(unique()))
            middle = time.perf_counter()
            pipelines = Pipelines([place.pipeline("input", unique())])
            outcomes = pipelines.run(spark, threading.Event(), lambda _: None)
            end = time.perf_counter()
            assert outcomes[0].failure is None, outcomes[0].failure
            if number:  # the first round warms Spark up
                ratios.append((end - middle) / (middle - begin))
    return figure("a pipeline against the query by hand", ratios, "x", "<= 1.05")


def by_hand(spark: SparkSession, place: Place, source: str, sink: str) -> None:
    """The same query in plain PySpark."""
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    (
        spark.readStream.format("streamfactory")
        .option("startingOffsets", "earliest")
        .load(source)
        .createOrReplaceTempView("input")
    )
    (
        spark.sql(SQL)
        .writeStream.format("streamfactory")
        .option("stream", sink)
        .option("checkpointLocation", str(place.folder / "checkpoints" / sink))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


HAND: Final = """
import sys
from pathlib import Path
sys.path.insert(0, {benchmarks!r})
from streamfactory.spark import prepare_environment
prepare_environment()
from pyspark.sql import SparkSession
import pipeline
builder = SparkSession.builder.master("local[2]")
spark = builder.config("spark.ui.enabled", "false").getOrCreate()
place = pipeline.Place.__new__(pipeline.Place)
place.folder = Path({folder!r})
pipeline.by_hand(spark, place, "little", {sink!r})
spark.stop()
"""


def first(place: Place, rounds: int) -> Figure:
    """Seconds that the command adds until the first row is there to be read."""
    added = []
    for _ in range(rounds):
        sink = place.stream(unique())
        here, folder = str(Path(__file__).parent), str(place.folder)
        program = HAND.format(benchmarks=here, folder=folder, sink=sink)
        bare = until_first([sys.executable, "-c", program], sink)
        sink = unique()
        path = place.pipeline("little", sink)
        command = [sys.executable, "-m", "streamfactory", "run", str(path)]
        added.append(until_first([*command, "--master", "local[2]"], sink) - bare)
    return figure("seconds more from command to first row", added, "s", "<= 1")


def until_first(command: list[str], sink: str) -> float:
    """Seconds until the sink has a row; the process then ends."""
    begin = time.perf_counter()
    with subprocess.Popen(  # noqa: S603 - our own
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        while not has_rows(sink):
            assert time.perf_counter() - begin < PATIENCE, "no row came"
            assert not process.poll(), f"status {process.returncode}"
            time.sleep(0.02)
        took = time.perf_counter() - begin
        process.wait(PATIENCE)
    return took


def has_rows(name: str) -> bool:
    """Whether a reader finds one."""
    try:
        with streamfactory.open(name) as stream:
            return any(stream.lag().values())
    except TopicNotFound:
        return False


def unique() -> str:
    """A name that no other sink has."""
    return f"sink-{uuid.uuid4().hex[:8]}"


if __name__ == "__main__":
    main()
