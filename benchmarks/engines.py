"""Query engines over a `file` stream, against the same rows in one Arrow file.

    python benchmarks/engines.py [--json] [--rounds N] [--rows N]

Ratios from the same run, each round in another order; nothing is gated. The Arrow file
is read as a `pyarrow.dataset`, which is how engines read Arrow files; beside that ratio
is the one against the file mapped to memory as a table.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
from datafusion import SessionContext

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring.figures import figure, itself, ratios, report, turns

import streamfactory
from streamfactory import engines

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.measuring.figures import Figure

BATCH = 65_536
QUERY = "select page, count(*), sum(price), max(id) from rows group by page"
ONE_COLUMN = "select sum(price) from rows"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rows", type=int, default=8_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stream = write(folder, arguments.rows)
        figures = measure(folder, stream, arguments.rounds)
    report(figures, as_json=arguments.json)


def write(folder: Path, rows: int) -> dict[str, str]:
    """The same rows as a stream of one partition and as an Arrow file."""
    stream = {
        "streamType": "file",
        "stream.file.path": str(folder / "streams"),
        "stream.file.topic.name": "rows",
    }
    batches = [batch(start) for start in range(0, rows, BATCH)]
    table = pa.Table.from_batches(batches)
    with (
        pa.OSFile(str(folder / "rows.arrow"), "wb") as target,
        pa.ipc.new_file(target, table.schema) as writer,
    ):
        for one in batches:
            writer.write_batch(one)
    with streamfactory.open_sink(stream) as sink:
        sink.put(table)
    return stream


def batch(start: int) -> pa.RecordBatch:
    """64k rows of three columns."""
    numbers = range(start, start + BATCH)
    return pa.record_batch(
        {
            "id": pa.array(numbers, pa.int64()),
            "page": [f"/page/{n % 100}" for n in numbers],
            "price": pa.array([n / 8 for n in numbers], pa.float64()),
        }
    )


def measure(folder: Path, stream: dict[str, str], rounds: int) -> list[Figure]:
    """Each engine over both."""
    path = str(folder / "rows.arrow")
    files = ds.dataset(path, format="ipc")
    mapped = pa.ipc.open_file(pa.memory_map(path)).read_all()
    with duckdb.connect() as connection:
        connection.register("of_file", files)
        connection.register("of_table", mapped)
        engines.duckdb.register(connection, stream, name="of_stream")
        found = [
            *of_duckdb(connection, "group by", QUERY, rounds, goal=">= 0.9"),
            *of_duckdb(connection, "one column", ONE_COLUMN, rounds, goal="none"),
        ]
    context = SessionContext()
    context.register_dataset("of_file", files)
    engines.datafusion.register(context, stream, name="of_stream")
    found += compared(
        "DataFusion group by",
        lambda name: context.sql(QUERY.replace("rows", name)).collect(),
        rounds,
        goal="none",
    )
    frames = {
        "of_file": pl.scan_pyarrow_dataset(files),
        "of_stream": engines.polars.scan(stream),
    }
    found += compared(
        "Polars group by, streaming engine",
        lambda name: (
            frames[name]
            .group_by("page")
            .agg(pl.len(), pl.col("price").sum(), pl.col("id").max())
            .collect(engine="streaming")
        ),
        rounds,
        goal="none",
    )
    return found


def of_duckdb(
    connection: duckdb.DuckDBPyConnection,
    what: str,
    query: str,
    rounds: int,
    *,
    goal: str,
) -> list[Figure]:
    """DuckDB's throughput over the stream, as a share of that over the file."""

    def run(name: str) -> Any:
        return connection.sql(query.replace("rows", name)).fetchall()

    return compared(f"DuckDB {what}", run, rounds, goal=goal, table=True)


def compared(
    what: str,
    run: Callable[[str], object],
    rounds: int,
    *,
    goal: str,
    table: bool = False,
) -> list[Figure]:
    """Seconds over the file, divided by seconds over the stream."""
    names = ["of_file", "of_stream", *(["of_table"] if table else [])]
    sides = {name: (lambda name=name: run(name)) for name in names}
    took = turns(rounds, sides)
    beside = {}
    if table:
        mapped = ratios(took["of_table"], took["of_stream"])
        beside["x mapped table"] = sorted(mapped)[len(mapped) // 2]
    values = ratios(took["of_file"], took["of_stream"])
    title, again = f"{what} over a stream", itself(took)
    return [figure(title, values, "x file", goal, beside, again=again)]


if __name__ == "__main__":
    main()
