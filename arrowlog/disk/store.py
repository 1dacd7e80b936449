"""The topics of a storage, and the current incarnation of each.

A topic has a folder with its quoted name. Numbered files in it record the creation and
deletion of incarnations; the highest number is current.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from typing import TYPE_CHECKING, Final, final

from streamfactory.arrowlog.checks import NO_TOPIC_REMEDY
from streamfactory.arrowlog.decoding import members_of, named, optional, text
from streamfactory.arrowlog.disk.format_lookup import fewer_partitions, format_named
from streamfactory.arrowlog.disk.housekeeping import STAGED_SECONDS
from streamfactory.arrowlog.disk.journal import Journal
from streamfactory.arrowlog.disk.loading import strip
from streamfactory.arrowlog.disk.log import DiskLog
from streamfactory.arrowlog.disk.names import (
    INCARNATION,
    TEMPORARY,
    generation_name,
    generations,
    record_name,
    topic_folder,
    topic_of,
)
from streamfactory.arrowlog.disk.records import FORMAT, FORMATS, Record
from streamfactory.arrowlog.disk.sealed import DAMAGED, decode_sealed, seal
from streamfactory.arrowlog.disk.snapshots import schema_text
from streamfactory.arrowlog.log import LogStore
from streamfactory.spi import (
    BatchValidator,
    CorruptData,
    FormatRefused,
    MisuseError,
    StorageFailed,
    TopicNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from streamfactory.arrowlog.disk.settings import Settings
    from streamfactory.arrowlog.disk.state import State
    from streamfactory.arrowlog.disk.storage import Storage

_GENERATION_BYTES: Final = 4096
"""Maximum bytes of a generation file."""
_GENERATION: Final = {
    FORMAT: members_of({"topic": text, "incarnation": optional(named(INCARNATION))})
}

log = logging.getLogger("streamfactory")


@final
class DiskLogStore(LogStore):
    """Topics under one root.

    Args:
        storage: The root.
        settings: Settings of all topics.
        clock: Returns milliseconds since the epoch.
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
        form = self._settings.segment_format
        most = format_named(form).most_partitions
        if not 1 <= partitions <= most:
            msg = f"a topic can have 1 to {most} partitions, not {partitions}"
            raise MisuseError(msg, remedy=fewer_partitions(form))
        BatchValidator(schema)  # refuses types that readers would refuse
        format_named(form).check_schema(schema)
        number = self._vacant(name)
        incarnation = uuid.uuid4().hex
        place = self._place(name, incarnation)
        now = max(0, int(self._clock() if self._clock else time.time() * 1000))
        first = Record(
            uuid.uuid4().hex,
            0,
            now,
            partitions=partitions,
            schema=schema_text(schema.remove_metadata()),
            format=FORMATS[form],
        )
        for folder in ("log", "data", "index"):
            place.prepare(folder)
        place.publish(record_name(0), first.encode())
        if not self._name(name, number + 1, incarnation):
            self._storage.remove_folder(f"{topic_folder(name)}/{incarnation}")
            raise _there_already(name)
        # The creator of the folder may have been killed before its name was durable.
        self._storage.settle("")
        self._tidy(name)
        return self.open(name)

    def open(self, name: str) -> DiskLog:
        number, incarnation = self._current(name)
        with self._lock:
            log = self._logs.get(name)
            if incarnation is None or (log and log.incarnation != incarnation):
                self._forget(name)
                log = None
            if incarnation is None:
                raise self._nothing(name)
            if log is None:
                try:
                    log = self._opened(name, incarnation)
                except TopicNotFound:  # its deletion was killed before it was recorded
                    with contextlib.suppress(StorageFailed):
                        self._name(name, number + 1, None)
                    raise self._nothing(name) from None
                self._logs[name] = log
            return log

    def delete(self, name: str) -> None:
        number = self._current(name)[0]
        try:
            log = self.open(name)
        except TopicNotFound:
            self._tidy(name)
            raise

        def build(state: State) -> Record:
            return log.journal.record(state, deleted=True)

        log.journal.publish(build)
        self._name(name, number + 1, None)
        self._tidy(name)
        with self._lock:
            self._forget(name)

    def names(self) -> Sequence[str]:
        found = [topic_of(folder) for folder in self._storage.names("")]
        return sorted(name for name in found if name is not None and self._stands(name))

    def within(self, folder: str) -> DiskLogStore:
        """Return a store in a folder below this one's root.

        A name that does not end in ``.topic`` cannot collide with a topic.
        """
        inner = self._storage.within(folder)
        return DiskLogStore(inner, self._settings, self._clock)

    def close(self) -> None:
        """Release the resources of all topics."""
        with self._lock:
            logs, self._logs = self._logs, {}
        for log in logs.values():
            log.close()
        self._storage.close()

    def _forget(self, name: str) -> None:
        log = self._logs.pop(name, None)
        if log is not None:
            log.close()

    def _opened(self, name: str, incarnation: str) -> DiskLog:
        place = self._place(name, incarnation)
        journal = Journal(name, incarnation, place, self._clock)
        return DiskLog(journal, self._settings, tidy=lambda: self._tidy(name))

    def _place(self, name: str, incarnation: str) -> Storage:
        return self._storage.within(f"{topic_folder(name)}/{incarnation}")

    def _nothing(self, name: str) -> TopicNotFound:
        known = ", ".join(self.names()) or "none"
        place = self._storage.location
        msg = f"topic {name!r} does not exist in {place}; existing topics: {known}"
        return TopicNotFound(msg, remedy=NO_TOPIC_REMEDY)

    # --- generations ----------------------------------------------------

    def _current(self, name: str) -> tuple[int, str | None]:
        """Return the highest generation of a name, and its incarnation, if any."""
        numbers = generations(self._storage.names(topic_folder(name)))
        if not numbers:
            return -1, None
        return numbers[-1], self._read_generation(name, numbers[-1])

    def _read_generation(self, name: str, number: int) -> str | None:
        file = _generation(name, number)
        place = f"{self._storage.location}/{file}"
        data = self._storage.read(file, _GENERATION_BYTES)
        found = decode_sealed(data, place, _GENERATION)
        if found["topic"] != name:
            msg = f"{place}: the file belongs to another topic"
            raise CorruptData(msg, remedy=DAMAGED)
        incarnation: str | None = found["incarnation"]
        return incarnation

    def _name(self, name: str, number: int, incarnation: str | None) -> bool:
        """Record a generation of a name; False if another process did."""
        record = seal({"format": FORMAT, "topic": name, "incarnation": incarnation})
        return self._storage.publish(_generation(name, number), record)

    def _stands(self, name: str) -> bool:
        """Whether a topic exists.

        Also true for a damaged one, which fails when opened.
        """
        try:
            return self._current(name)[1] is not None
        except (CorruptData, FormatRefused):
            return True

    def _vacant(self, name: str) -> int:
        """Return the highest generation of a name without topic."""
        number, incarnation = self._current(name)
        if incarnation is not None:
            try:
                self.open(name)
            except TopicNotFound:  # it removed what a kill had left
                return self._current(name)[0]
            raise _there_already(name)
        return number

    def _tidy(self, name: str) -> None:
        """Remove what killed creations and deletions have left of a name."""
        try:
            self._tidy_folder(name, topic_folder(name))
        except (CorruptData, FormatRefused) as error:
            # Foreign files are not removed; opening the topic reports them.
            log.warning("%s: not tidied up: %s", name, error)

    def _tidy_folder(self, name: str, folder: str) -> None:
        files = self._storage.names(folder)
        numbers = generations(files)
        found = {number: self._read_generation(name, number) for number in numbers}
        current = found[numbers[-1]] if numbers else None
        ended = {one for one in found.values() if one not in {None, current}}
        for incarnation in set(files) - {current}:
            if INCARNATION.fullmatch(incarnation) is None:
                continue
            if incarnation in ended:
                strip(self._place(name, incarnation))
                continue
            ages = self._storage.ages(f"{folder}/{incarnation}/log").values()
            if min(ages, default=0.0) >= STAGED_SECONDS:
                self._storage.remove_folder(f"{folder}/{incarnation}")
        old = self._storage.ages(folder)
        torn = [n for n, age in old.items() if age >= STAGED_SECONDS]
        self._storage.remove(f"{folder}/{n}" for n in torn if TEMPORARY.fullmatch(n))


def _generation(name: str, number: int) -> str:
    return f"{topic_folder(name)}/{generation_name(number)}"


def _there_already(name: str) -> MisuseError:
    msg = f"topic {name!r} exists already"
    return MisuseError(msg, remedy="open it, or delete it first")
