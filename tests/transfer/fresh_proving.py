"""A copy that skips to be on time and its backfill, both killed: each row once.

A writer is killed as well, and adds a partition. The rows of the sink are those of the
source, however often a range was skipped, joined, half read or forgotten.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.proving.backend import last
from tests.proving.children import Pack
from tests.proving.numbers import SCHEMA, append, batch, everything, store_at
from tests.proving.verdict import Verdict

from streamfactory.transfer.copies import open_copy
from streamfactory.transfer.skipping import find_skipped, open_ranges
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from streamfactory.transfer.copying import Copy

WRITER: Final = "fresh"
BACKLOG: Final = 500
EACH: Final = 40
"""Rows of an epoch of the writer."""
LONGEST: Final = {"write": 0.1, "copy": 0.4, "backfill": 0.4}
"""Seconds that each may have run before it is killed."""


def properties(root: str, topic: str, **options: str) -> dict[str, str]:
    given = {key.replace("__", "."): value for key, value in options.items()}
    return {
        "streamType": "file",
        "stream.file.path": root,
        "stream.file.topic.name": topic,
        "stream.file.fsync": "never",
        "metadata.refresh.millis": "20",
        **given,
    }


def opened(root: str, *, backfill: bool = False, few: bool = True) -> Copy:
    """The copy, or its backfill; by default with epochs of few rows."""
    source = properties(root, "in", fresh__within__rows="60")
    sink = properties(root, "out")
    if few:
        source["batch.rows"] = "10"
        sink["realtime.segment.flush.threshold.rows"] = "25"
    return open_copy(source, sink, writer_id=WRITER, backfill=backfill)


def write(root: str) -> None:
    sink = open_sink(properties(root, "in"), options={"producer.key.columns": "number"})
    with sink:
        held = last(sink, "writer")
        epoch = 0 if held is None else held.epoch + 1
        while not Path(root, "stop").exists():
            first = BACKLOG + EACH * epoch
            rows = batch(range(first, first + EACH))
            sink.put(rows, writer_id="writer", epoch=epoch)
            epoch += 1
            # A source that is faster than its copy is what is tried here.
            time.sleep(0.03)
            if epoch == 30:
                grow(root)


def grow(root: str) -> None:
    store = store_at(Path(root))
    log = store.open("in")
    if len(log.bounds()) < 3:
        log.grow(3)
    store.close()


def copy(root: str) -> None:
    with opened(root) as job:
        job.run(threading.Event(), follow=True)


def backfill(root: str) -> None:
    while True:
        with opened(root, backfill=True) as job:
            job.run(threading.Event())
        time.sleep(0.02)


def prove(rounds: int, seed: int, root: Path) -> Verdict:
    """Kill so many of them, then read what is left."""
    place, store = str(root), store_at(root)
    store.create("in", SCHEMA, 2)
    store.create("out", SCHEMA, 2)
    append(store.open("in"), {0: range(BACKLOG)})
    with opened(place) as job:  # it has committed when it is killed first
        stop = threading.Event()
        job.run(
            stop, follow=True, on_progress=lambda rows: stop.set() if rows else None
        )
    pack = Pack({"write": (write, place), "copy": (copy, place)})
    helpers = Pack({"backfill": (backfill, place)})
    try:
        chance = random.Random(seed)
        for _ in range(rounds):
            hunted = helpers if chance.random() < 0.4 else pack
            hunted.hunt(1, chance, LONGEST)
        (root / "stop").touch()
        pack.finish("write")
    finally:
        pack.close()
        helpers.close()
    ranges, left = _end(place)
    wanted, found = (Counter(_numbers(store.open(topic))) for topic in ("in", "out"))
    store.close()
    note = f"{wanted.total()} rows, {ranges} ranges open at the end, {left} after it"
    return Verdict(
        lost=(wanted - found).total() + left,
        twice=(found - wanted).total(),
        kills=rounds,
        notes=[note],
    )


def _end(place: str) -> tuple[int, int]:
    """Copy the rest and read all ranges; how many were open, before and after."""
    with opened(place, few=False) as job:
        job.run(threading.Event())
    with open_sink(properties(place, "out")) as sink:
        before = len(find_skipped(sink, WRITER))
        with opened(place, backfill=True, few=False) as job:
            job.run(threading.Event())
        return before, len(open_ranges(sink, WRITER))


def _numbers(log: object) -> list[int]:
    return [n for part in everything(log).values() for n in part]  # type: ignore[arg-type]
