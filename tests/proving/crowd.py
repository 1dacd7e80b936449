"""Writers, a compactor, retention and a reader of one topic, all killed at random.

Each of them is a process that goes on where it was. The reader stores what it has read
in another topic, together with its position: every row has to be there once, and those
of a writer in its order.
"""

from __future__ import annotations

import os
import random
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.proving.children import Pack
from tests.proving.numbers import SCHEMA, append, numbers_of
from tests.proving.stepping import SteppedStorage
from tests.proving.verdict import Verdict, compared

from streamfactory.arrowlog import Retention
from streamfactory.arrowlog.disk import DiskLogStore, Settings
from streamfactory.spi import Partition, Position, Summary

if TYPE_CHECKING:
    from streamfactory.arrowlog import Log, LogStore

WRITERS: Final = ("ann", "bob")
PARTITIONS: Final = 2
EACH: Final = 3
"""Rows of an epoch in each partition."""
FAR: Final = 10**9
"""Between the numbers of two writers."""


def store_of(root: str) -> DiskLogStore:
    """The store as with ``fsync=always``, but for the time that syncing takes."""
    storage = SteppedStorage(Path(root), lambda *_: None, fsync="always")
    return DiskLogStore(storage, Settings(merge_files=8))


def rows_of(writer: str, epoch: int, partition: int) -> range:
    first = FAR * WRITERS.index(writer) + epoch * EACH * PARTITIONS + partition * EACH
    return range(first, first + EACH)


def write(root: str, writer: str) -> None:
    """Commit one epoch after another, and note each that was acknowledged."""
    log, instance = store_of(root).open("in"), uuid.uuid4().hex
    held = log.claim(writer, instance)
    epoch = 0 if held is None else held.epoch + 1
    note = os.open(Path(root, writer), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while not stopped(root):
        partitions = {
            partition: rows_of(writer, epoch, partition)
            for partition in range(PARTITIONS)
        }
        append(log, partitions, writer, epoch, instance=instance)
        os.write(note, b"%d\n" % epoch)
        epoch += 1


def compact(root: str) -> None:
    log = store_of(root).open("in")
    while not stopped(root):
        log.compact()


def retain(root: str) -> None:
    """Keep little, but all that the reader has not stored."""
    store = store_of(root)
    log, out = store.open("in"), store.open("out")
    while not stopped(root):
        log.retain(Retention(rows=20), offsets(out))


def read(root: str) -> None:
    """Store what is read, with the position behind it."""
    store = store_of(root)
    log, out, instance = store.open("in"), store.open("out"), uuid.uuid4().hex
    held = out.claim("reader", instance)
    epoch, at = 0 if held is None else held.epoch + 1, offsets(out)
    while True:
        over = Path(root, "drain").exists()
        partitions = {}
        for partition in range(PARTITIONS):
            part = log.read(partition, at[partition], max_rows=7, max_bytes=1 << 20)
            if part.rows is not None:
                partitions[partition] = part.rows.column("number").to_pylist()
                at[partition] += part.rows.num_rows
        if partitions:
            position = Position(
                {Partition("in", partition): at[partition] for partition in at}
            )
            append(
                out,
                partitions,
                "reader",
                epoch,
                instance=instance,
                summary=Summary(),
                position=position,
            )
            epoch += 1
        elif over:
            return
        else:
            log.wait(0, at[0], 0.01)


def offsets(out: Log) -> dict[int, int]:
    """What the reader has stored."""
    held = out.last("reader")
    if held is None or held.source_position is None:
        return dict.fromkeys(range(PARTITIONS), 0)
    return {p.id: offset for p, offset in held.source_position.items()}


def stopped(root: str) -> bool:
    return Path(root, "stop").exists()


def prove(rounds: int, seed: int, root: Path) -> Verdict:
    """Kill so many of them."""
    store = store_of(str(root))
    for name in ("in", "out"):
        store.create(name, SCHEMA, PARTITIONS)
    place = str(root)
    roles = {name: (write, place, name) for name in WRITERS}
    others = {"compact": (compact, place), "retain": (retain, place)}
    pack = Pack({**roles, **others, "read": (read, place)})
    try:
        pack.hunt(rounds, random.Random(seed))
        (root / "stop").touch()
        for name in (*roles, *others):
            pack.finish(name)
        (root / "drain").touch()
        pack.finish("read")
    finally:
        pack.close()
    verdict = judge(root, store)
    verdict.kills = rounds
    store.close()
    return verdict


def judge(root: Path, store: LogStore) -> Verdict:
    log, out = store.open("in"), store.open("out")
    for one in (log, out):
        problems = one.verify().problems
        assert not problems, problems
    wanted, found = {}, {}
    verdict = Verdict()
    for writer in WRITERS:
        held = log.last(writer)
        epochs = 0 if held is None else held.epoch + 1
        note = (root / writer).read_text().split() if (root / writer).exists() else []
        acknowledged = int(note[-1]) + 1 if note else 0
        verdict.lost += max(0, acknowledged - epochs) * PARTITIONS * EACH
        first = FAR * WRITERS.index(writer)
        for partition in range(PARTITIONS):
            place = f"{writer}/{partition}"
            rows = [rows_of(writer, epoch, partition) for epoch in range(epochs)]
            wanted[place] = [number for some in rows for number in some]
            numbers = numbers_of(out, partition)
            found[place] = [n for n in numbers if first <= n < first + FAR]
    verdict += compared(wanted, found)
    return verdict
