"""All that can be done to a log, in an order that can be taken up anywhere.

The epochs of a writer count the steps: whoever goes on asks for the last one. Each deed
has, once more, the effect of once.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from typing import TYPE_CHECKING, Final

from tests.proving.numbers import SCHEMA, append, numbers_of, store_at

from streamfactory.arrowlog import MemoryLogStore
from streamfactory.arrowlog.disk import DiskLogStore, Settings
from streamfactory.arrowlog.disk.loading import load_snapshot
from streamfactory.arrowlog.disk.names import snapshots
from streamfactory.spi import TopicNotFound

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.proving.stepping import SteppedStorage

    from streamfactory.arrowlog import Log, LogStore
    from streamfactory.arrowlog.disk import DiskLog

STEPS: Final = 36
PARTITIONS: Final = 2
SETTINGS: Final = Settings(merge_files=4)
COUNTING: Final = "a"
PASSING: Final = "b"


def run(store: LogStore, on_epoch: Callable[[int], None] | None = None) -> None:
    """Take all steps that are left; call ``on_epoch`` after each commit."""
    if COUNTING not in store.names():
        store.create(COUNTING, SCHEMA, PARTITIONS)
    log = store.open(COUNTING)
    instance = uuid.uuid4().hex
    held = log.claim("w", instance)
    for step in range(0 if held is None else held.epoch + 1, STEPS):
        _deed(store, log, step)
        partitions = {
            partition: _rows(step, partition) for partition in range(PARTITIONS)
        }
        append(
            log,
            partitions,
            "w",
            step,
            carried=step % 3 == 2,
            instance=instance,
            replace=step == 17,
        )
        if on_epoch is not None:
            on_epoch(step)


def _rows(step: int, partition: int) -> range:
    first = 100 * step + 50 * partition
    return range(first, first + 1 + (step + partition) % 4)


def rows_until(epoch: int, partition: int) -> list[int]:
    """All that was ever appended to a partition of the counting topic."""
    if partition >= PARTITIONS:
        return []
    return [n for step in range(epoch + 1) for n in _rows(step, partition)]


def _deed(store: LogStore, log: Log, step: int) -> None:
    match step % 10:
        case 2 if step > 10:
            log.grow(step // 10 + 2)
        case 3:
            log.compact()
        case 5:
            log.truncate({0: 2 * step - 6})
        case 6:
            with contextlib.suppress(TopicNotFound):
                store.delete(PASSING)
        case 7:
            if PASSING not in store.names():
                store.create(PASSING, SCHEMA)
        case 8:
            append(store.open(PASSING), {0: [step]}, "v", step, carried=True)
        case 9:
            log.discard(log.stage("empty").seal())


def outcome(store: LogStore) -> dict[str, list[int]]:
    """Rows by topic and partition, and where each partition begins and ends."""
    found: dict[str, list[int]] = {}
    for name in store.names():
        log = store.open(name)
        for partition in log.bounds():
            found[f"{name}/{partition.id}"] = numbers_of(log, partition.id)
            found[f"{name}/{partition.id} edges"] = [
                partition.earliest,
                partition.latest,
            ]
    return found


def expected() -> dict[str, list[int]]:
    """What has to be there, however often it was killed."""
    store = MemoryLogStore()
    run(store)
    return outcome(store)


def trace(root: Path, storage: type[SteppedStorage]) -> list[str]:
    """The names of all steps, in their order."""
    names: list[str] = []
    storage_ = storage(root, lambda name, _: names.append(name), fsync="always")
    run(DiskLogStore(storage_, SETTINGS))
    return names


def leftovers(root: Path) -> list[str]:
    """Files that nobody needs, once they are old and everything was tidied up."""
    for path in root.rglob("*"):
        if path.is_file():
            os.utime(path, (0, 0))
    store = store_at(root)
    needed: set[Path] = set()
    for name in store.names():
        log = store.open(name)
        log.compact()
        inner = root / f"{name}.topic" / log.incarnation
        parts = snapshot_parts(log)
        needed |= {inner / file for file in log.journal.known.index.files() | parts}
    store.close()
    files = {path for path in root.rglob("*") if path.is_file()}
    said = {path for path in files if path.suffix in {".json", ".snapshot"}}
    return sorted(str(path) for path in files - said - needed)


def snapshot_parts(log: DiskLog) -> set[str]:
    """Names of the parts of all snapshots."""
    taken = snapshots(log.storage.names("log"))
    read = [load_snapshot(log.storage, version) for version in taken]
    return {part for one in read for part in one.parts}
