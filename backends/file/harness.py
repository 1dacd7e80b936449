"""The conformance kit's hand on ``file``: it reaches the log, not the backend."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pyarrow as pa

from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.spi import Summary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from streamfactory.arrowlog.disk import DiskLog

_SCHEMA = pa.schema([pa.field("number", pa.int64())])


class FileHarness:
    """A topic of numbers in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "topics"
        self._store = DiskLogStore(LocalStorage(self._folder), Settings())
        self._topic = ""

    def create(self, partitions: int) -> None:
        self._delete()
        self._topic = f"topic-{uuid.uuid4().hex}"
        self._store.create(self._topic, _SCHEMA, partitions)

    def properties(self) -> Mapping[str, str]:
        return {
            "streamType": "file",
            "stream.file.path": str(self._folder),
            "stream.file.topic.name": self._topic,
        }

    def partitions(self) -> Sequence[int]:
        return [lane.id for lane in self._log.bounds()]

    def write(self, partition: int, numbers: Sequence[int]) -> None:
        stage = self._log.stage(uuid.uuid4().hex)
        stage.append(partition, self.rows(numbers))
        self._log.commit(None, 0, [stage.seal()], summary=Summary(len(numbers)))

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        found: list[int] = rows.column("number").to_pylist()
        return found

    def grow(self, partitions: int) -> None:
        self._log.grow(partitions)

    def truncate(self, partition: int, messages: int) -> None:
        earliest = self._log.bounds()[partition].earliest
        self._log.truncate({partition: earliest + messages})

    def recreate(self) -> None:
        partitions = len(self._log.bounds())
        self._store.delete(self._topic)
        self._store.create(self._topic, _SCHEMA, partitions)

    def nowhere(self) -> Mapping[str, str]:
        return {**self.properties(), "stream.file.topic.name": "nowhere"}

    def rows(self, numbers: Sequence[int]) -> pa.RecordBatch:
        return pa.record_batch([pa.array(numbers, pa.int64())], schema=_SCHEMA)

    def visible(self) -> Mapping[int, Sequence[int]]:
        seen: dict[int, list[int]] = {}
        for lane in self._log.bounds():
            numbers, at = seen.setdefault(lane.id, []), lane.earliest
            while at < lane.latest:
                part = self._log.read(lane.id, at, max_rows=2**31, max_bytes=2**62)
                assert part.rows is not None
                numbers += self.numbers(part.rows)
                at += part.rows.num_rows
        return seen

    def close(self) -> None:
        self._delete()
        self._store.close()

    def _delete(self) -> None:
        if self._topic in self._store.names():
            self._store.delete(self._topic)

    @property
    def _log(self) -> DiskLog:
        return self._store.open(self._topic)
