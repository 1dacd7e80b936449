"""The conformance kit's access to logs, without using a backend."""

from __future__ import annotations

import uuid
from abc import abstractmethod
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streamfactory.arrowlog.values import Epoch
from streamfactory.spi import Summary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfactory.arrowlog.log import Log, LogStore

_SCHEMA: Final = pa.schema([pa.field("number", pa.int64())])


class LogHarness:
    """A topic of numbers in a store that the subclass opens.

    Args:
        store: Where the topic is created and written.
    """

    def __init__(self, store: LogStore) -> None:
        self.store = store
        self.topic = ""

    @abstractmethod
    def properties(self) -> Mapping[str, str]:
        """The configuration that reads and writes the topic."""

    def create(self, partitions: int) -> None:
        self._delete()
        self.topic = f"topic-{uuid.uuid4().hex}"
        self.store.create(self.topic, _SCHEMA, partitions)

    def partitions(self) -> Sequence[int]:
        return [partition.id for partition in self._log.bounds()]

    def write(self, partition: int, numbers: Sequence[int]) -> None:
        stage = self._log.stage(uuid.uuid4().hex)
        stage.append(partition, self.rows(numbers))
        self._log.commit(Epoch(None, 0, [stage.seal()], Summary(len(numbers))))

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
        self.store.delete(self.topic)
        self.store.create(self.topic, _SCHEMA, partitions)

    def nowhere(self) -> Mapping[str, str]:
        properties = dict(self.properties())
        return {
            key: "nowhere" if key.endswith(".topic.name") else text
            for key, text in properties.items()
        }

    def rows(self, numbers: Sequence[int]) -> pa.RecordBatch:
        return pa.record_batch([pa.array(numbers, pa.int64())], schema=_SCHEMA)

    def visible(self) -> Mapping[int, Sequence[int]]:
        seen: dict[int, list[int]] = {}
        for partition in self._log.bounds():
            numbers, at = seen.setdefault(partition.id, []), partition.earliest
            while at < partition.latest:
                part = self._log.read(partition.id, at, max_rows=2**31, max_bytes=2**62)
                assert part.rows is not None
                numbers += self.numbers(part.rows)
                at += part.rows.num_rows
        return seen

    def close(self) -> None:
        self._delete()

    def _delete(self) -> None:
        if self.topic in self.store.names():
            self.store.delete(self.topic)

    @property
    def _log(self) -> Log:
        return self.store.open(self.topic)
