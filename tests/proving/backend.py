"""The `file` backend, by its public ways: a writer and a reader, killed and begun anew.

Both name themselves, and ask for their last epoch.
"""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from tests.proving.children import Pack
from tests.proving.numbers import SCHEMA, batch, everything, numbers_of, store_at
from tests.proving.verdict import Verdict, compared

import streamfactory
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from streamfactory.spi import LastCommit
    from streamfactory.wiring.writing.sink import Sink

EACH: Final = 5
"""Rows of an epoch."""


def stream(root: str, topic: str, partitions: int = 1) -> dict[str, str]:
    return {
        "streamType": "file",
        "stream.file.path": root,
        "stream.file.topic.name": topic,
        "stream.file.partitions": str(partitions),
        "stream.file.fsync": "never",
        "stream.file.compaction.files": "8",
    }


def write(root: str) -> None:
    options = {"producer.key.columns": "number"}
    with open_sink(stream(root, "in", 3), options=options) as sink:
        held = last(sink, "writer")
        epoch = 0 if held is None else held.epoch + 1
        while not Path(root, "stop").exists():
            rows = batch(range(EACH * epoch, EACH * (epoch + 1)))
            sink.put(rows, writer_id="writer", epoch=epoch)
            epoch += 1


def read(root: str) -> None:
    with open_sink(stream(root, "out")) as sink:
        held = last(sink, "reader")
        epoch = 0 if held is None else held.epoch + 1
        start = "earliest" if held is None else held.source_position
        source = streamfactory.open(stream(root, "in", 3), start=start, follow=True)
        with source:
            while True:
                over = Path(root, "drain").exists()
                found = source.next_batch(0.02)
                if found is not None and found.rows.num_rows:
                    sink.put(
                        pa.record_batch(found.rows.columns, schema=SCHEMA),
                        writer_id="reader",
                        epoch=epoch,
                        source_position=source.position,
                    )
                    epoch += 1
                elif over:
                    behind = source.lag().values()
                    # An unknown lag, or none at all, is not the end.
                    if behind and all(rows == 0 for rows in behind):
                        return


def last(sink: Sink, writer: str) -> LastCommit | None:
    with contextlib.closing(sink.committer(writer_id=writer)) as committer:
        return committer.last()


def prove(rounds: int, seed: int, root: Path) -> Verdict:
    """Kill so many of them."""
    store = store_at(root)
    store.create("in", SCHEMA, 3)
    store.create("out", SCHEMA)
    place = str(root)
    pack = Pack({"write": (write, place), "read": (read, place)})
    try:
        pack.hunt(rounds, random.Random(seed))
        for name, marker in (("write", "stop"), ("read", "drain")):
            (root / marker).touch()
            pack.finish(name)
    finally:
        pack.close()
    log = store.open("in")
    held = log.last("writer")
    epochs = 0 if held is None else held.epoch + 1
    partitions = everything(log)
    out = numbers_of(store.open("out"))
    store.close()
    written = {"all": sorted(n for some in partitions.values() for n in some)}
    verdict = compared({"all": range(EACH * epochs)}, written)
    # What has been read has the order of each partition.
    seen = {partition: set(some) for partition, some in partitions.items()}
    read_of = {
        f"{partition}": [n for n in out if n in seen[partition]]
        for partition in partitions
    }
    verdict += compared(
        {f"{partition}": some for partition, some in partitions.items()}, read_of
    )
    strangers = {n for n in out if not any(n in some for some in seen.values())}
    verdict.twice += len(strangers)
    verdict.kills = rounds
    return verdict
