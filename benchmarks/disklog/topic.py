"""The topic that benchmarks of the log fill, and how it is opened."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from benchmarks.measuring.rows import batches

from streamfactory.arrowlog import Epoch
from streamfactory.arrowlog.disk import DiskLog, DiskLogStore, LocalStorage, Settings
from streamfactory.spi import Summary
from streamfactory.wiring.config.definition import from_mapping

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

TOPIC: Final = "rows"
LARGE: Final = 65_536
SMALL: Final = 1_000
SEGMENT: Final = 64 << 20
MANY: Final = 1 << 62


@dataclass
class Bench:
    """What the command line asked for."""

    folder: Path
    rounds: int
    full: bool

    def place(self) -> Path:
        """A new folder."""
        return self.folder / uuid.uuid4().hex


def many_rows(rows: int, size: int) -> list[pa.RecordBatch]:
    """Distinct batches of the topic's schema, so many bytes in all."""
    return batches(rows, size, zone="UTC")


def few_rows(number: int) -> pa.RecordBatch:
    """One row."""
    rows = _one_row()
    return rows.set_column(0, rows.schema.field(0), pa.array([number], pa.int64()))


@cache
def _one_row() -> pa.RecordBatch:
    return many_rows(1, 1)[0]


def append(
    log: DiskLog,
    each: Sequence[pa.RecordBatch],
    writer: str | None = None,
    epoch: int = 0,
) -> None:
    """One epoch."""
    stage = log.stage(uuid.uuid4().hex)
    for rows in each:
        stage.append(0, rows)
    summary = Summary(sum(rows.num_rows for rows in each))
    sealed = stage.seal(carried=True)
    log.commit(Epoch(writer, epoch, [sealed], summary, instance=writer or ""))


def new_log(place: Path, *, partitions: int = 1, fsync: str = "always") -> DiskLog:
    """An empty topic."""
    store = DiskLogStore(LocalStorage(place, fsync=fsync), Settings())
    return store.create(TOPIC, few_rows(0).schema, partitions)


def open_log(place: Path, *, fsync: str = "always") -> DiskLog:
    """The topic, opened again."""
    return DiskLogStore(LocalStorage(place, fsync=fsync), Settings()).open(TOPIC)


def properties(place: Path) -> Mapping[str, str]:
    """The topic as a stream."""
    return {
        "streamType": "file",
        "stream.file.path": str(place),
        "stream.file.topic.name": TOPIC,
    }


def definition(place: Path) -> Any:
    """The topic as a stream."""
    return from_mapping(properties(place))


def latest(log: DiskLog) -> int:
    """Of the first partition."""
    return log.bounds()[0].latest


def segments(log: DiskLog) -> list[str]:
    """Files of the first partition, in the order of their rows."""
    found: dict[str, None] = {}
    at, end = 0, latest(log)
    while at < end:
        run = log.journal.refreshed().index.find(0, at)
        assert run is not None
        found[run.file] = None
        at = run.end
    return list(found)


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on the medium."""
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.close(file)
