"""What ``publish`` makes of CSV, JSON lines and Parquet, beside the readers of Arrow.

    python benchmarks/publish.py [--json] [--rounds N] [--rows N]

Each side writes the same rows: ``publish`` into a new topic on disk, the other by
Arrow's reader of the format, in one thread and with the same declared types, into plain
Arrow files. Ratios are of the processor time of the process, with the clock beside.
Nothing is gated.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.disklog.topic import LARGE, properties
from benchmarks.measuring.figures import (
    AGAIN,
    figure,
    itself,
    ratios,
    report,
    shuffled,
)
from benchmarks.measuring.rows import batches

import streamfactory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from benchmarks.measuring.figures import Figure

BLOCK: Final = 8 << 20
"""Bytes of text that Arrow parses at once."""


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    report(figures(arguments.rounds, arguments.rows), as_json=arguments.json)


def figures(rounds: int, rows: int) -> Iterator[Figure]:
    """One for each format."""
    table = many_rows(rows)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for form, write in WRITERS.items():
            path = folder / f"rows.{form}"
            write(table, path)
            place = folder / "written"
            sides: dict[str, Callable[[], None]] = {
                "bare": partial(read_bare, form, path, place, table.schema),
                "ours": partial(publish, path, place, table.schema),
            }
            check(sides["ours"], place, rows)
            work, clock = turns(rounds, sides, place)
            yield figure(
                f"publish {form}, {rows:,} rows",
                ratios(work["bare"], work["ours"]),
                "x bare",
                "none",
                {
                    "by the clock": statistics.median(
                        ratios(clock["bare"], clock["ours"])
                    )
                },
                again=itself(work),
            )


def many_rows(count: int) -> pa.Table:
    """Rows of six columns, with nulls in one of them."""
    each = batches(LARGE, 1, zone="UTC")[0]
    table = pa.Table.from_batches([each] * -(-count // LARGE))
    return table.slice(0, count)


def publish(path: Path, place: Path, schema: pa.Schema) -> None:
    """Publish a file to a new topic."""
    streamfactory.publish(properties(place), path, schema=schema)


def check(ours: Callable[[], None], place: Path, rows: int) -> None:
    """See that all rows are published."""
    ours()
    with streamfactory.open(properties(place), follow=False) as stream:
        found = sum(batch.rows.num_rows for batch in stream)
    shutil.rmtree(place)
    if found != rows:
        sys.exit(f"{found} of {rows} rows were published")


def turns(
    rounds: int, sides: dict[str, Callable[[], None]], place: Path
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Processor time and seconds of each side; a round to warm up is left out."""
    sides = {**sides, AGAIN: sides["bare"]}
    work: dict[str, list[float]] = {name: [] for name in sides}
    clock: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, side in shuffled(sides):
            begun, used = time.perf_counter(), time.process_time()
            side()
            if number:
                work[name].append(time.process_time() - used)
                clock[name].append(time.perf_counter() - begun)
            shutil.rmtree(place)
    return work, clock


def read_bare(form: str, path: Path, place: Path, schema: pa.Schema) -> None:
    """Arrow's reader into one Arrow file."""
    place.mkdir()
    with (
        pa.OSFile(str(place / "rows.arrow"), "wb") as file,
        pa.ipc.new_file(file, schema) as writer,
    ):
        for rows in READERS[form](path, schema):
            writer.write_batch(rows)


# --- the formats ----------------------------------------------------------------------


def read_csv(path: Path, schema: pa.Schema) -> Iterable[pa.RecordBatch]:
    """Of a CSV file with a header."""
    reader: Iterable[pa.RecordBatch] = pc.open_csv(
        path,
        pc.ReadOptions(use_threads=False, block_size=BLOCK),
        convert_options=pc.ConvertOptions(
            column_types=schema,
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return reader


def read_json(path: Path, schema: pa.Schema) -> Iterable[pa.RecordBatch]:
    """Of JSON lines."""
    reader: Iterable[pa.RecordBatch] = pj.open_json(
        path,
        pj.ReadOptions(use_threads=False, block_size=BLOCK),
        pj.ParseOptions(explicit_schema=schema),
    )
    return reader


def read_parquet(path: Path, schema: pa.Schema) -> Iterable[pa.RecordBatch]:
    """Of a Parquet file."""
    with pq.ParquetFile(path) as file:
        for rows in file.iter_batches(LARGE, use_threads=False):
            yield rows.cast(schema)


def write_json(table: pa.Table, path: Path) -> None:
    """One object a line, with times as text."""
    at = table.schema.get_field_index("ts")
    texts = table.column(at).cast(pa.timestamp("us")).cast(pa.string())
    texts = pa.compute.binary_join_element_wise(texts, "Z", "")
    frame = table.set_column(at, "ts", texts).to_pandas()
    frame.to_json(path, orient="records", lines=True)


READERS: Final = {"csv": read_csv, "jsonl": read_json, "parquet": read_parquet}
WRITERS: Final[dict[str, Callable[[pa.Table, Path], object]]] = {
    "csv": pc.write_csv,
    "jsonl": write_json,
    "parquet": pq.write_table,
}


if __name__ == "__main__":
    main()
