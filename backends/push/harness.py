"""The conformance kit's access to ``push``: a producer and a reader of two tables."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streamfactory.push import PushSink, PushTable, named, push_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_SCHEMA: Final = pa.schema([pa.field("number", pa.int64())])


class PushHarness:
    """Tables of numbers with names of their own."""

    def __init__(self, folder: Path) -> None:
        self._source = self._target = ""
        self._halves: list[tuple[PushSink, PushTable]] = []
        self._seen: list[list[int]] = []

    def create(self, partitions: int) -> None:
        self.close()
        self._source, self._target = uuid.uuid4().hex, uuid.uuid4().hex
        self._halves = [
            push_table(_SCHEMA, lanes=partitions, name=name)
            for name in (self._source, self._target)
        ]
        self._seen = [[] for _ in range(partitions)]

    def properties(self) -> Mapping[str, str]:
        return {"streamType": "push", "stream.push.topic.name": self._source}

    def sink_properties(self) -> Mapping[str, str]:
        return {"streamType": "push", "stream.push.topic.name": self._target}

    def partitions(self) -> Sequence[int]:
        return range(len(self._seen))

    def write(self, partition: int, numbers: Sequence[int]) -> None:
        self._halves[0][0].lane(partition).write(self.rows(numbers))

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        found: list[int] = rows.column("number").to_pylist()
        return found

    def rows(self, numbers: Sequence[int]) -> pa.RecordBatch:
        return pa.record_batch([pa.array(numbers, pa.int64())], schema=_SCHEMA)

    def visible(self) -> Mapping[int, Sequence[int]]:
        """Rows are taken out of the table, and remembered."""
        channel = named.find(self._target).channel
        for number in self.partitions():
            while isinstance(
                rows := channel.take(number, 1 << 20, 0, self), pa.RecordBatch
            ):
                self._seen[number] += self.numbers(rows)
        return dict(enumerate(self._seen))

    def close(self) -> None:
        for sink, table in self._halves:
            sink.close()
            table.close()
        self._halves = []
