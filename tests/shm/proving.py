"""Writers and a reader of small rings, all killed at random.

The writers wait for the reader wherever a ring is full. The reader stores what it has
read in another topic, together with its position: every row has to be there once, and
those of a writer in its order. Killed processes leave leases, locks, records beyond the
head and staged files, which the others have to get over.
"""

from __future__ import annotations

import os
import random
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.proving.children import Pack
from tests.proving.crowd import (
    PARTITIONS,
    WRITERS,
    judge,
    offsets,
    rows_of,
    stopped,
)
from tests.proving.numbers import SCHEMA, append

from streamfactory.backends.shm.settings import Settings
from streamfactory.backends.shm.store import ShmLogStore
from streamfactory.spi import Partition, Position, Summary

if TYPE_CHECKING:
    from tests.proving.verdict import Verdict

IN: Final = Settings(capacity=1 << 16, blocks=True, patience=3600.0)
"""Rings of some 100 records: they wrap every few seconds."""
OUT: Final = Settings(capacity=1 << 28)
"""Rings that hold everything."""


def store_of(root: str, settings: Settings) -> ShmLogStore:
    return ShmLogStore(Path(root) / "topics", settings)


def write(root: str, writer: str) -> None:
    """Commit one epoch after another, and note each that was acknowledged."""
    log, instance = store_of(root, IN).open("in"), uuid.uuid4().hex
    held = log.claim(writer, instance)
    epoch = 0 if held is None else held.epoch + 1
    note = os.open(Path(root, writer), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while not stopped(root):
        partitions = {
            partition: rows_of(writer, epoch, partition)
            for partition in range(PARTITIONS)
        }
        # As a task on another machine does it, and as a sink in one process.
        carried = epoch % 2 == 0
        append(log, partitions, writer, epoch, carried=carried, instance=instance)
        os.write(note, b"%d\n" % epoch)
        epoch += 1


def read(root: str) -> None:
    """Store what is read, with the position behind it."""
    log, out = store_of(root, IN).open("in"), store_of(root, OUT).open("out")
    instance, entries = uuid.uuid4().hex, [log.begin_reading(p) for p in (0, 1)]
    held = out.claim("reader", instance)
    epoch, at = 0 if held is None else held.epoch + 1, offsets(out)
    while True:
        over = Path(root, "drain").exists()
        partitions = {}
        for partition, entry in enumerate(entries):
            assert entry is not None
            log.move_reading(entry, partition, at[partition])
            part = log.read(partition, at[partition], max_rows=50, max_bytes=1 << 20)
            if part.rows is not None:
                partitions[partition] = part.rows.column("number").to_pylist()
                at[partition] += part.rows.num_rows
        if partitions:
            position = Position({Partition("in", p): at[p] for p in at})
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


def prove(rounds: int, seed: int, root: Path) -> Verdict:
    """Kill so many of them."""
    place = str(root)
    store_of(place, IN).create("in", SCHEMA, PARTITIONS)
    store_of(place, OUT).create("out", SCHEMA, PARTITIONS)
    roles = {name: (write, place, name) for name in WRITERS}
    pack = Pack({**roles, "read": (read, place)})
    try:
        pack.hunt(rounds, random.Random(seed), {"ann": 0.3, "bob": 0.3, "read": 0.5})
        (root / "stop").touch()
        for name in roles:
            pack.finish(name)
        (root / "drain").touch()
        pack.finish("read")
    finally:
        pack.close()
    store = store_of(place, OUT)
    verdict = judge(root, store)
    verdict.kills = rounds
    wrapped = store.open("in").bounds()[0].earliest
    verdict.notes.append(f"shm: {wrapped} rows of a partition have left its ring")
    store.close()
    return verdict
