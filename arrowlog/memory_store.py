"""The topics in the memory of a process."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, final

from streamfactory.arrowlog.checks import MOST_PARTITIONS, NO_TOPIC_REMEDY
from streamfactory.arrowlog.log import LogStore
from streamfactory.arrowlog.memory import MemoryLog
from streamfactory.spi import MisuseError, TopicNotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa


@final
class MemoryLogStore(LogStore):
    """Topics in the memory of this process.

    Args:
        clock: Answers milliseconds since the epoch; for all topics.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._logs: dict[str, MemoryLog] = {}
        self._lock = threading.Lock()
        self._clock = clock

    def create(self, name: str, schema: pa.Schema, partitions: int = 1) -> MemoryLog:
        if not 1 <= partitions <= MOST_PARTITIONS:
            msg = (
                f"a topic can have 1 to {MOST_PARTITIONS} partitions, not {partitions}"
            )
            raise MisuseError(msg)
        with self._lock:
            if name in self._logs:
                msg = f"topic {name!r} exists already"
                raise MisuseError(msg, remedy="open it, or delete it first")
            self._logs[name] = MemoryLog(name, schema, partitions, self._clock)
            return self._logs[name]

    def open(self, name: str) -> MemoryLog:
        with self._lock:
            return self._found(name)

    def delete(self, name: str) -> None:
        with self._lock:
            log = self._found(name)
            del self._logs[name]
        log.mark_deleted()

    def names(self) -> Sequence[str]:
        with self._lock:
            return sorted(self._logs)

    def _found(self, name: str) -> MemoryLog:
        if name not in self._logs:
            known = ", ".join(sorted(self._logs)) or "none"
            msg = f"topic {name!r} does not exist in memory; existing topics: {known}"
            raise TopicNotFound(msg, remedy=NO_TOPIC_REMEDY)
        return self._logs[name]
