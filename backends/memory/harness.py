"""The conformance kit's hand on ``memory``: it reaches the log, not the backend."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pyarrow as pa

from streamfactory.backends.memory.stores import store
from streamfactory.spi import Summary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from streamfactory.arrowlog import MemoryLog

_SCHEMA = pa.schema([pa.field("number", pa.int64())])


class MemoryHarness:
    """A topic of numbers in a store of its own."""

    def __init__(self, folder: Path) -> None:
        self._store = f"conformance-{folder.name}"
        self._topic = ""

    def create(self, partitions: int) -> None:
        self.close()
        self._topic = f"topic-{uuid.uuid4().hex}"
        store(self._store).create(self._topic, _SCHEMA, partitions)

    def properties(self) -> Mapping[str, str]:
        return {
            "streamType": "memory",
            "stream.memory.topic.name": self._topic,
            "stream.memory.store": self._store,
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
        store(self._store).delete(self._topic)
        store(self._store).create(self._topic, _SCHEMA, partitions)

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
        if self._topic in store(self._store).names():
            store(self._store).delete(self._topic)

    @property
    def _log(self) -> MemoryLog:
        return store(self._store).open(self._topic)
