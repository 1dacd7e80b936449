"""What reading lakehouse tables costs: snapshots on Spark, and one commit of many.

    python benchmarks/tables.py [--json] [--rounds N] [--rows N] [--only NAME ...]

Snapshots are compared with Spark's Parquet reader over the same data files: no
connector of Delta or Iceberg runs on this PySpark. So is a Python data source that only
yields batches of the same rows from memory-mapped Arrow files: what no source in Python
is faster than. The changes of the last of 1,000
commits are read from a table with few rows and from one with many, in turns. Nothing
is gated.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring.figures import figure, itself, ratios, report, turns
from benchmarks.measuring.mapped import MappedFiles, write_mapped
from benchmarks.measuring.on_spark import session

import streamfactory
from streamfactory.spark import scan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.measuring.figures import Figure
    from pyspark.sql import SparkSession

FORMATS: Final = ("delta", "iceberg")
FILES: Final = 8
"""Data files of a table whose snapshot is read."""
COMMITS: Final = 1_000
FEW: Final = 8_000
"""Rows of the smaller table, in its first commit."""
EACH: Final = 10
"""Rows of each later commit."""
AGGREGATE: Final = (
    "sum(id)",
    "sum(user)",
    "sum(price)",
    "max(item)",
    "max(at)",
    "count_if(bought)",
)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--commits", type=int, default=COMMITS)
    parser.add_argument("--only", nargs="+", default=["snapshot", "commit"])
    arguments = parser.parse_args()
    os.environ.setdefault("PYICEBERG_MAX_WORKERS", "1")
    report(figures(arguments), as_json=arguments.json)


def figures(arguments: argparse.Namespace) -> Iterator[Figure]:
    """All that was asked for, each when it is measured."""
    if "snapshot" in arguments.only:
        spark = session()
        spark.dataSource.register(MappedFiles)
        for kind in FORMATS:
            yield from snapshot(spark, kind, arguments.rounds, arguments.rows)
        spark.stop()
    if "commit" in arguments.only:
        for kind in FORMATS:
            yield one_commit(kind, arguments)


def rows_of(first: int, count: int) -> pa.Table:
    """The six columns that benchmarks of Spark move, see `on_spark`."""
    numbers = pa.arange(first, first + count)
    items = pa.array([f"item {number}" for number in range(5_000)])
    indices = pa.array(numbers.to_numpy() % 5_000, pa.int32())
    return pa.table(
        {
            "id": numbers,
            "user": pa.array(numbers.to_numpy() % 1_000, pa.int32()),
            "price": pa.array(numbers.to_numpy() * 0.5),
            "item": items.take(indices),
            "at": pa.array(
                numbers.to_numpy() + 1_700_000_000_000_000, pa.timestamp("us", "UTC")
            ),
            "bought": pa.array(numbers.to_numpy() % 7 == 0),
        }
    )


def properties(kind: str, path: Path) -> dict[str, str]:
    """The stream of a table."""
    return {"streamType": kind, f"stream.{kind}.path": str(path)}


# --- a snapshot on Spark --------------------------------------------------------


def snapshot(
    spark: SparkSession, kind: str, rounds: int, rows: int
) -> Iterator[Figure]:
    """Reading and aggregating all columns, against Spark's Parquet reader.

    All sides read the columns of the table. A Python data source cannot leave out
    columns that a query does not use: the change columns are measured beside. `scan`
    plans the files and has Spark's Parquet reader read them.
    """
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "table")
        append = WRITERS[kind](path)
        for number in range(FILES):
            append(rows_of(number * rows // FILES, rows // FILES))
        files = [str(file) for file in path.rglob("*.parquet")]
        options = properties(kind, path)

        def ours(**more: str) -> object:
            read = spark.read.format("streamfactory").options(**options, **more)
            return read.load().selectExpr(*AGGREGATE).collect()

        def theirs() -> object:
            return spark.read.parquet(*files).selectExpr(*AGGREGATE).collect()

        mapped = Path(name, "mapped")
        write_mapped(mapped, files)

        def ceiling() -> object:
            read = spark.read.format(MappedFiles.name()).load(str(mapped))
            return read.selectExpr(*AGGREGATE).collect()

        same = {f"stream.{kind}.change.columns": "false"}

        def scanned() -> object:
            return scan({**options, **same}).selectExpr(*AGGREGATE).collect()

        assert ours() == theirs() == ceiling() == scanned()
        sides = {"ours": lambda: ours(**same), "theirs": theirs, "more": ours}
        took = turns(rounds, sides | {"ceiling": ceiling, "scan": scanned})
    more = statistics.median(ratios(took["theirs"], took["more"]))
    yield figure(
        f"{kind}: snapshot of {rows} rows, of Parquet's",
        ratios(took["theirs"], took["ours"]),
        "x",
        ">= 0.7",
        {
            "with 3 change columns": more,
            "seconds": statistics.median(took["ours"]),
        },
        ceiling=ratios(took["theirs"], took["ceiling"]),
        again=itself(took),
    )
    yield figure(
        f"{kind}: scan of {rows} rows, of Parquet's",
        ratios(took["theirs"], took["scan"]),
        "x",
        ">= 0.9",
        {"seconds": statistics.median(took["scan"])},
        again=itself(took),
    )


# --- one commit of many ---------------------------------------------------------


def one_commit(kind: str, arguments: argparse.Namespace) -> Figure:
    """Opening a stream at the last of many commits, and reading its rows."""
    with tempfile.TemporaryDirectory() as name:
        sides = {
            size: _pull(kind, Path(name, size), count, arguments.commits)
            for size, count in (("few", FEW), ("many", arguments.rows))
        }
        took = turns(arguments.rounds * 4, sides)
    return figure(
        f"{kind}: 1 of {arguments.commits} commits, {arguments.rows} rows to {FEW}",
        ratios(took["many"], took["few"]),
        "x",
        "<= 1.1",
        {f"ms of {size}": statistics.median(took[size]) * 1000 for size in sides},
    )


def _pull(kind: str, path: Path, rows: int, commits: int) -> Callable[[], object]:
    """Write a table, and return what reads its last commit."""
    append = WRITERS[kind](path)
    whole = max(1, rows // 1_000_000)
    append(rows_of(0, rows // whole))
    for number in range(1, whole):
        append(rows_of(number * rows // whole, rows // whole))
    MORE[kind](append, path, commits - whole - 1)
    with streamfactory.open(properties(kind, path), follow=False) as stream:
        for _ in stream:
            pass
        start = stream.position
    append(rows_of(rows, EACH))

    def pull() -> None:
        with streamfactory.open(
            properties(kind, path), start=start, follow=False
        ) as stream:
            found = sum(batch.rows.num_rows for batch in stream)
        assert found == EACH, found

    return pull


def delta_writer(path: Path) -> Callable[[pa.Table], None]:
    """Appends to a Delta table; each call is a commit."""
    from deltalake import write_deltalake

    return lambda rows: write_deltalake(str(path), rows, mode="append")


def delta_commits(append: Callable[[pa.Table], None], _: Path, count: int) -> None:
    """Small commits of a Delta table."""
    for number in range(count):
        append(rows_of(number * EACH, EACH))


def iceberg_writer(path: Path) -> Callable[[pa.Table], None]:
    """Appends to an Iceberg table; each call is a commit.

    The catalog is read from the table's folder at each call.
    """
    from pyiceberg.catalog.memory import InMemoryCatalog

    def append(rows: pa.Table) -> None:
        catalog = InMemoryCatalog("bench", warehouse=f"file://{path.parent}")
        catalog.create_namespace("n")
        found = sorted((path / "metadata").glob("*.metadata.json"))
        if found:
            table = catalog.register_table("n.table", f"file://{found[-1]}")
        else:
            table = catalog.create_table(
                "n.table", rows.schema, location=f"file://{path}"
            )
        table.append(rows)
        catalog.close()

    return append


def iceberg_commits(append: Callable[[pa.Table], None], path: Path, count: int) -> None:
    """Small commits of an Iceberg table, all of them with the same data file.

    One is written. The others are stated in the metadata, as so many writers would
    have left them: ``pyiceberg`` would take half an hour for a thousand.
    """
    from copy import copy

    from pyiceberg.io.pyarrow import PyArrowFileIO
    from pyiceberg.manifest import read_manifest_list, write_manifest_list

    append(rows_of(0, EACH))
    newest = max((path / "metadata").glob("*.metadata.json"))
    body: dict[str, Any] = json.loads(newest.read_text())
    last = body["snapshots"][-1]
    io = PyArrowFileIO()
    manifests = list(read_manifest_list(io.new_input(last["manifest-list"])))
    parent, sequence = last["snapshot-id"], last["sequence-number"]
    for number in range(1, count):
        manifests.append(copy(manifests[0]))
        body["snapshots"].append(
            last
            | {
                "snapshot-id": number,
                "parent-snapshot-id": parent,
                "sequence-number": sequence + number,
            }
        )
        parent = number
    listed = f"file://{path}/metadata/snap-many.avro"
    with write_manifest_list(
        2, io.new_output(listed), parent, None, sequence + count - 1, "deflate"
    ) as writer:
        writer.add_manifests(manifests)
    body["snapshots"][-1]["manifest-list"] = listed
    body["current-snapshot-id"] = parent
    body["last-sequence-number"] = sequence + count - 1
    body["refs"]["main"]["snapshot-id"] = parent
    number = int(newest.name.partition("-")[0]) + 1
    newest.with_name(f"{number:05}-{uuid.uuid4()}.metadata.json").write_text(
        json.dumps(body)
    )


WRITERS: Final = {"delta": delta_writer, "iceberg": iceberg_writer}
MORE: Final = {"delta": delta_commits, "iceberg": iceberg_commits}


if __name__ == "__main__":
    main()
