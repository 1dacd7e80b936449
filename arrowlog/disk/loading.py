"""Where records and snapshots lie, and how a topic is opened.

Opening reads one snapshot, and the records since: as many at the millionth commit as
at the hundredth.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from streamfactory.arrowlog.disk.names import (
    is_log_name,
    record_name,
    records,
    snapshot_name,
    snapshots,
)
from streamfactory.arrowlog.disk.parts import load_part
from streamfactory.arrowlog.disk.records import DAMAGED, Record
from streamfactory.arrowlog.disk.snapshots import Snapshot, schema_of
from streamfactory.arrowlog.disk.state import State
from streamfactory.spi import CorruptData, StreamError, TopicNotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.arrowlog.disk.storage import Storage

_TRIES: Final = 8

log = logging.getLogger("streamfactory")


def load_record(storage: Storage, version: int) -> Record:
    """The record of a version.

    Raises:
        FileNotFoundError: There is none.
        CorruptData: data_loss.
        FormatRefused: permanent.
    """
    name = record_name(version)
    data = storage.read(name)
    return Record.decode(data, f"{storage.location}/{name}", version)


def load_snapshot(storage: Storage, version: int) -> Snapshot:
    """The snapshot of a version, without its parts.

    Raises:
        FileNotFoundError: There is none.
        CorruptData: data_loss.
        FormatRefused: permanent.
    """
    name = snapshot_name(version)
    data = storage.read(name)
    return Snapshot.decode(data, f"{storage.location}/{name}", version)


def load(storage: Storage, incarnation: str) -> State:
    """The topic as of its newest good snapshot, or of its first record.

    Raises:
        TopicNotFound: permanent; it has ended.
        CorruptData: data_loss; no snapshot is good, and the first records are gone.
        FormatRefused: permanent.
    """
    failures: dict[str, CorruptData | None] = {}
    for _ in range(_TRIES):
        names = storage.names("log")
        try:
            state = _newest(storage, incarnation, names, failures)
        except FileNotFoundError:  # removed after a newer one came: look again
            continue
        if state is not None:
            return state
        break
    raise _unreadable(storage, [one for one in failures.values() if one])


def _newest(
    storage: Storage,
    incarnation: str,
    names: Sequence[str],
    failures: dict[str, CorruptData | None],
) -> State | None:
    """The newest state that can be read; None where there is none.

    Args:
        storage: Of the topic.
        incarnation: Of the topic.
        names: In the folder ``log``.
        failures: By snapshot, what is wrong with it; None where a part was missing
            when it was looked at for the first time.

    Raises:
        FileNotFoundError: Something went after the names were listed, or is missing.
    """
    for version in reversed(snapshots(names)):
        name = snapshot_name(version)
        place = f"{storage.location}/{name}"
        if failures.get(name):
            continue
        try:
            taken = load_snapshot(storage, version)
            schema, count = schema_of(taken.schema, place), len(taken.latest)
            parts = [load_part(storage, part, count) for part in taken.parts]
            return State.from_snapshot(incarnation, taken, schema, parts)
        except CorruptData as error:
            failures[name] = error
        except FileNotFoundError as error:
            if name not in failures:
                failures[name] = None
                raise
            msg = f"{place}: a part of it is missing ({error})"
            failures[name] = CorruptData(msg)
        log.warning("%s; the one before is read", failures[name])
    if records(names)[:1] == [0]:
        return _first(storage, incarnation)
    return None


def _unreadable(storage: Storage, failures: Sequence[CorruptData]) -> StreamError:
    """Why there is no state."""
    left = records(storage.names("log"))
    if left and load_record(storage, left[-1]).deleted:
        msg = "the topic was deleted"
        return TopicNotFound(msg)
    if failures:
        return failures[0]
    if left:
        name = record_name(left[0])
        msg = f"{storage.location}: what was before {name} is missing"
    else:
        msg = f"{storage.location}/{record_name(0)} is missing"
    return CorruptData(msg)


def strip(storage: Storage) -> None:
    """Remove the files of a topic that has ended, but for its last record.

    By that one whoever still writes there learns of the end.
    """
    names = sorted(filter(is_log_name, storage.ages("log")))
    last = [record_name(version) for version in records(names)[-1:]]
    storage.remove(f"log/{n}" for n in names if f"log/{n}" not in last)
    for folder in ("data", "index"):
        storage.remove_folder(folder)


def hole(storage: Storage, state: State) -> str | None:
    """What is missing where there are records, but not the next one; None if nothing.

    Only a power cut makes such a hole, and only where the storage is lazy.
    """
    following = state.version + 1 + len(state.void)
    beyond = [n for n in records(storage.names("log")) if n > following]
    if not beyond:
        return None
    try:
        storage.size(record_name(following))
    except FileNotFoundError:
        place, stands = record_name(following), record_name(beyond[0])
        return f"{storage.location}/{place} is missing, and {stands} stands on it"
    return None  # it came meanwhile


def _first(storage: Storage, incarnation: str) -> State:
    name = record_name(0)
    data, place = storage.read(name), f"{storage.location}/{name}"
    record = Record.decode(data, place, 0)
    if record.schema is None or record.partitions is None:
        msg = f"{place}: the first record has no schema, or no partitions"
        raise CorruptData(msg, remedy=DAMAGED)
    state = State(incarnation, schema_of(record.schema, place))
    state.apply(record, len(data))
    return state
