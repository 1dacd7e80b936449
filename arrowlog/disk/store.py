"""Topics in a place: which there are, and which incarnation each name stands for.

A topic has a folder by its quoted name. Numbered files in it say what became of the
name: an incarnation was created, or deleted. The highest number is right.
"""

from __future__ import annotations

import threading
import time
import uuid
from typing import TYPE_CHECKING, Final, final
from urllib.parse import quote, unquote

from streamfactory.arrowlog.disk.loading import record_name
from streamfactory.arrowlog.disk.log import DiskLog
from streamfactory.arrowlog.disk.records import FORMAT, Record, seal, unseal
from streamfactory.arrowlog.disk.state import schema_text
from streamfactory.arrowlog.log import LogStore
from streamfactory.spi import MisuseError, TopicNotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from streamfactory.arrowlog.disk.settings import Settings
    from streamfactory.arrowlog.disk.state import State
    from streamfactory.arrowlog.disk.storage import Storage

_LONGEST: Final = 200
"""Characters of a quoted name: file systems take 255 bytes."""
_SUFFIX: Final = ".topic"


@final
class DiskLogStore(LogStore):
    """Topics under one root.

    Args:
        storage: The root.
        settings: For all topics.
        clock: Answers milliseconds since the epoch.
    """

    def __init__(
        self,
        storage: Storage,
        settings: Settings,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._storage = storage
        self._settings = settings
        self._clock = clock
        self._logs: dict[str, DiskLog] = {}
        self._lock = threading.Lock()

    def create(self, name: str, schema: pa.Schema, partitions: int = 1) -> DiskLog:
        if partitions < 1:
            msg = f"a topic has at least one partition, not {partitions}"
            raise MisuseError(msg)
        number, current = self._current(name)
        if current is not None:
            raise _there_already(name)
        incarnation = uuid.uuid4().hex
        place = self._storage.within(f"{_folder(name)}/{incarnation}")
        now = int(self._clock() if self._clock else time.time() * 1000)
        first = Record(
            uuid.uuid4().hex,
            0,
            now,
            partitions=partitions,
            schema=schema_text(schema.remove_metadata()),
        )
        place.publish(record_name(0), first.encode())
        born = seal({"format": FORMAT, "topic": name, "incarnation": incarnation})
        if not self._storage.publish(_generation(name, number + 1), born):
            self._storage.remove_folder(f"{_folder(name)}/{incarnation}")
            raise _there_already(name)
        return self.open(name)

    def open(self, name: str) -> DiskLog:
        incarnation = self._current(name)[1]
        with self._lock:
            log = self._logs.get(name)
            if incarnation is None or (log and log.incarnation != incarnation):
                self._forget(name)
                log = None
            if incarnation is None:
                known = ", ".join(self.names()) or "none"
                place = self._storage.location
                msg = f"there is no topic {name!r} in {place}; there are: {known}"
                raise TopicNotFound(msg)
            if log is None:
                inner = self._storage.within(f"{_folder(name)}/{incarnation}")
                log = DiskLog(name, incarnation, inner, self._settings, self._clock)
                self._logs[name] = log
            return log

    def delete(self, name: str) -> None:
        log = self.open(name)
        number = self._current(name)[0]

        def build(state: State) -> Record:
            return log.record(state, deleted=True)

        log.publish(build)
        ended = seal({"format": FORMAT, "topic": name, "incarnation": None})
        self._storage.publish(_generation(name, number + 1), ended)
        # The last record stays: by it, whoever still writes there learns of the end.
        log.strip()
        with self._lock:
            self._forget(name)

    def names(self) -> Sequence[str]:
        folders = [name for name in self._storage.names("") if name.endswith(_SUFFIX)]
        names = [unquote(folder.removesuffix(_SUFFIX)) for folder in folders]
        return sorted(name for name in names if self._current(name)[1] is not None)

    def close(self) -> None:
        """Give back what all topics hold."""
        with self._lock:
            logs, self._logs = self._logs, {}
        for log in logs.values():
            log.close()

    def _forget(self, name: str) -> None:
        log = self._logs.pop(name, None)
        if log is not None:
            log.close()

    def _current(self, name: str) -> tuple[int, str | None]:
        """The highest number of a name, and the incarnation it has, if any."""
        folder = _folder(name)
        numbers = [
            int(file.removesuffix(".json"))
            for file in self._storage.names(folder)
            if file.endswith(".json") and file.removesuffix(".json").isdigit()
        ]
        if not numbers:
            return -1, None
        place = _generation(name, max(numbers))
        told = unseal(self._storage.read(place), f"{self._storage.location}/{place}")
        return max(numbers), told["incarnation"]


def _folder(name: str) -> str:
    """Where a topic is: never outside of the root, whatever its name."""
    quoted = quote(name, safe="")
    if quoted.startswith("."):
        quoted = f"%2E{quoted[1:]}"
    if not name or len(quoted) > _LONGEST:
        msg = f"a topic's name has 1 to {_LONGEST} characters, quoted: {name[:50]!r}"
        raise MisuseError(msg)
    return f"{quoted}{_SUFFIX}"


def _generation(name: str, number: int) -> str:
    return f"{_folder(name)}/{number:06d}.json"


def _there_already(name: str) -> MisuseError:
    msg = f"there is a topic {name!r} already"
    return MisuseError(msg, remedy="open it, or delete it first")
