"""Batches in and out of the log, against plain Arrow files.

The ceiling is the plain files, and validation of each batch, which is not left out.
"""

from __future__ import annotations

import os
import uuid
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from benchmarks.disklog.topic import (
    LARGE,
    SEGMENT,
    SMALL,
    TOPIC,
    append,
    definition,
    latest,
    many_rows,
    new_log,
    properties,
    segments,
    sync,
)
from benchmarks.measuring.figures import figure, itself, ratios, turns

from streamfactory.spi import Partition
from streamfactory.spi.soundness import BatchValidator
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.source import Source
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.disklog.topic import Bench
    from benchmarks.measuring.figures import Figure

    from streamfactory.arrowlog.disk import DiskLog

    Validate = Callable[[pa.RecordBatch], object]

READ: Final = 512 << 20
"""Bytes that a round of reading takes."""


# --- reading ----------------------------------------------------------------------


def reading_figures(bench: Bench) -> Iterator[Figure]:
    """The same files, warm: by Arrow alone, by the log, and by a reader."""
    place = bench.place()
    log = new_log(place, fsync="never")
    each = many_rows(LARGE, SEGMENT)
    for _ in range(READ // SEGMENT):
        append(log, each)
    files = [log.storage.location + "/" + name for name in segments(log)]
    source = Source(configure(definition(place), default_manager(), use="read"))
    reader = source.reader(Partition(TOPIC, 0))
    with ExitStack() as stack:
        for thing in (log, source, reader):
            stack.callback(thing.close)
        sides = {
            "raw": lambda: read_raw(files),
            "validated": lambda: read_raw(files, validator(each[0].schema)),
            "log.read": lambda: read_log(log),
            "Reader.fetch": lambda: read_fetch(reader, latest(log)),
        }
        seconds = turns(bench.rounds, sides)
    again = itself(seconds)
    least = ratios(seconds["raw"], seconds["validated"])
    for name, over, goal in (
        ("log.read", "raw", ">= 0.95 of ceiling"),
        ("Reader.fetch", "raw", "none"),
        ("Reader.fetch", "log.read", ">= 0.95"),
    ):
        shares = ratios(seconds[over], seconds[name])
        ceiling = least if over == "raw" else ()
        title, unit = f"read warm, {name}", f"x {over}"
        yield figure(title, shares, unit, goal, ceiling=ceiling, again=again)


def validator(schema: pa.Schema) -> Validate:
    """What checks the values of each batch of another program."""
    return BatchValidator(schema).validate


def unchecked(rows: pa.RecordBatch) -> None:
    """Check nothing."""


def read_raw(files: Sequence[str], check: Validate = unchecked) -> None:
    """Every batch of some files."""
    for file in files:
        with pa.memory_map(file) as mapped, pa.ipc.open_file(mapped) as opened:
            for number in range(opened.num_record_batches):
                rows = opened.get_batch(number)
                check(rows)
                aggregate(rows)


def read_log(log: DiskLog) -> None:
    """Every batch of the log."""
    at, end = 0, latest(log)
    while at < end:
        part = log.read(0, at, max_rows=LARGE, max_bytes=8 << 20)
        assert part.rows is not None
        aggregate(part.rows)
        at += part.rows.num_rows


def read_fetch(reader: Any, end: int) -> None:
    """The same through what users hold."""
    at = 0
    while at < end:
        batch = reader.fetch(at)
        aggregate(batch.rows)
        at = batch.next_offset


def aggregate(rows: pa.RecordBatch) -> float:
    """Touch every column, as a query would."""
    total: float = pc.sum(rows.column("offset")).as_py()
    total += pc.sum(rows.column("qty")).as_py()
    total += pc.sum(rows.column("price")).as_py()
    total += pc.max(rows.column("ts")).value
    for name in ("key", "note"):
        total += pc.sum(pc.binary_length(rows.column(name))).as_py()
    return total


# --- appending --------------------------------------------------------------------


def appending_figures(bench: Bench) -> Iterator[Figure]:
    """Epochs of a segment each, against one plain file each."""
    for rows, of_raw, of_log in ((LARGE, 0.9, 0.9), (SMALL, 1.2, 0.8)):
        each = many_rows(rows, SEGMENT)
        check = validator(each[0].schema)
        for fsync in ("always", "never"):
            place = bench.place()
            log = new_log(place, fsync=fsync)
            sink = open_sink({**properties(place), "stream.file.fsync": fsync})
            plain = bench.place()
            plain.mkdir()
            sides = {
                "raw": partial(append_raw, plain, each, fsync),
                "validated": partial(append_raw, plain, each, fsync, check),
                "LogStage": partial(append, log, each),
                "Sink": partial(append_sink, sink, each, count()),
            }
            seconds = turns(bench.rounds, sides, after=partial(emptied, plain, log))
            sink.close()
            log.close()
            size, again = f"{rows // 1000}k rows, fsync={fsync}", itself(seconds)
            least = ratios(seconds["raw"], seconds["validated"])
            for name, over, goal in (
                ("LogStage", "raw", f">= {of_raw}"),
                ("Sink", "raw", "none"),
                ("Sink", "LogStage", f">= {of_log}"),
            ):
                shares = ratios(seconds[over], seconds[name])
                ceiling = least if over == "raw" else ()
                title, unit = f"append {size}, {name}", f"x {over}"
                yield figure(title, shares, unit, goal, ceiling=ceiling, again=again)


def append_raw(
    place: Path,
    each: Sequence[pa.RecordBatch],
    fsync: str,
    check: Validate = unchecked,
) -> None:
    """One file a segment, by Arrow's own writer."""
    path = place / uuid.uuid4().hex
    with (
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_file(file, each[0].schema) as writer,
    ):
        for rows in each:
            check(rows)
            writer.write_batch(rows)
    if fsync == "always":
        sync(path)
        sync(place)


def append_sink(
    sink: Any, each: Sequence[pa.RecordBatch], epochs: Iterator[int]
) -> None:
    """The same through what users hold."""
    epoch = next(epochs)
    with sink_parts(sink, each[0].schema, epoch) as (writer, committer):
        for rows in each:
            writer.write(rows)
        committer.commit(epoch, [writer.commit()])


@contextmanager
def sink_parts(sink: Any, schema: pa.Schema, epoch: int) -> Iterator[tuple[Any, Any]]:
    """A writer and its committer."""
    writer = sink.writer(schema, writer_id="bench", epoch=epoch)
    committer = sink.committer(writer_id="bench")
    yield writer, committer
    writer.close()
    committer.close()


def emptied(plain: Path, log: DiskLog) -> None:
    """Give the disk its room back, and let it come to rest.

    The log keeps deleted segments for a while, for readers. A side whose files stay in
    the page cache writes to memory that the system has to find and clear first.
    """
    log.truncate({0: latest(log)})
    for path in [*plain.iterdir(), *Path(log.storage.location, "data").iterdir()]:
        path.unlink()
    os.sync()
