"""Topics of numbers: what every proof of the log writes and reads."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamfactory.arrowlog import Epoch
from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.spi import Summary

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from streamfactory.arrowlog import Log, Staged
    from streamfactory.spi import LastCommit

SCHEMA = pa.schema([pa.field("number", pa.int64())])


class HandClock:
    """Milliseconds, moved by hand."""

    def __init__(self, ms: float = 0.0) -> None:
        self.ms = ms

    def __call__(self) -> float:
        return self.ms


def store_at(root: Path, clock: HandClock | None = None, **settings: Any) -> Any:
    """A store as another process has it. Tests care for its time, not for fsync."""
    storage = LocalStorage(root, fsync="never")
    return DiskLogStore(storage, Settings(**settings), clock)


def batch(numbers: Iterable[int]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(list(numbers), pa.int64())], schema=SCHEMA)


def stage(
    log: Log, partitions: Mapping[int, Sequence[int]], *, carried: bool = False
) -> Staged:
    """Stage numbers, by partition."""
    attempt = log.stage(uuid.uuid4().hex)
    for partition, numbers in partitions.items():
        attempt.append(partition, batch(numbers))
    return attempt.seal(carried=carried)


def append(
    log: Log,
    partitions: Mapping[int, Sequence[int]],
    writer: str | None = None,
    epoch: int = 0,
    *,
    carried: bool = False,
    **options: Any,
) -> LastCommit | None:
    """Commit an epoch of numbers."""
    options.setdefault("summary", Summary(sum(map(len, partitions.values()))))
    staged = stage(log, partitions, carried=carried)
    return log.commit(Epoch(writer, epoch, [staged], **options)).held


def numbers_of(log: Log, partition: int = 0, start: int | None = None) -> list[int]:
    """All numbers of a partition, or those from an offset on."""
    found: list[int] = []
    bounds = log.bounds()[partition]
    at = bounds.earliest if start is None else start
    while at < bounds.latest:
        part = log.read(partition, at, max_rows=1 << 30, max_bytes=1 << 40)
        assert part.rows is not None
        assert part.start == at
        found += part.rows.column("number").to_pylist()
        at += part.rows.num_rows
    return found


def everything(log: Log) -> dict[int, list[int]]:
    """All numbers, by partition."""
    return {partition.id: numbers_of(log, partition.id) for partition in log.bounds()}
