"""Loads records, snapshots and topics.

Opening a topic reads one snapshot and the later records, whose number does not grow
with the topic.
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
from streamfactory.arrowlog.disk.records import Record
from streamfactory.arrowlog.disk.sealed import DAMAGED
from streamfactory.arrowlog.disk.snapshots import Snapshot, schema_of
from streamfactory.arrowlog.disk.state import State, apply
from streamfactory.spi import CorruptData, StreamError, TopicNotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.arrowlog.disk.storage import Storage

_TRIES: Final = 8

log = logging.getLogger("streamfactory")


def load_record(storage: Storage, version: int) -> Record:
    """Load the record of a version.

    Raises:
        FileNotFoundError: There is none.
        CorruptData: data_loss.
        FormatRefused: permanent.
    """
    name = record_name(version)
    data = storage.read(name)
    return Record.decode(data, f"{storage.location}/{name}", version)


def load_snapshot(storage: Storage, version: int) -> Snapshot:
    """Load the snapshot of a version, without its parts.

    Raises:
        FileNotFoundError: There is none.
        CorruptData: data_loss.
        FormatRefused: permanent.
    """
    name = snapshot_name(version)
    data = storage.read(name)
    return Snapshot.decode(data, f"{storage.location}/{name}", version)


def load(storage: Storage) -> State:
    """Load the topic from its newest valid snapshot, or its first record.

    Raises:
        TopicNotFound: permanent; it was deleted.
        CorruptData: data_loss; no snapshot is valid, and the first records were
            removed.
        FormatRefused: permanent.
    """
    failures: dict[str, CorruptData | None] = {}
    for _ in range(_TRIES):
        names = storage.names("log")
        try:
            state = _newest(storage, names, failures)
        except FileNotFoundError:  # removed after a newer one was written: retry
            continue
        if state is not None:
            return state
        break
    raise _unreadable(storage, [one for one in failures.values() if one])


def _newest(
    storage: Storage,
    names: Sequence[str],
    failures: dict[str, CorruptData | None],
) -> State | None:
    """Return the newest readable state; None if there is none.

    Args:
        storage: Storage of the topic.
        names: Names in the folder ``log``.
        failures: The error by snapshot; None if a part was missing at the first
            attempt.

    Raises:
        FileNotFoundError: A file was removed after the listing, or is missing.
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
            return State.from_snapshot(taken, schema, parts)
        except CorruptData as error:
            failures[name] = error
        except FileNotFoundError as error:
            if name not in failures:
                failures[name] = None
                raise
            msg = f"{place}: a part of it is missing ({error})"
            failures[name] = CorruptData(msg)
        log.warning("%s; the previous one is used", failures[name])
    if records(names)[:1] == [0]:
        return _first(storage)
    return None


def _unreadable(storage: Storage, failures: Sequence[CorruptData]) -> StreamError:
    """Return the error for a topic without readable state."""
    left = records(storage.names("log"))
    if left and load_record(storage, left[-1]).deleted:
        msg = "the topic was deleted"
        return TopicNotFound(msg)
    if failures:
        return failures[0]
    if left:
        name = record_name(left[0])
        msg = f"{storage.location}: the records before {name} are missing"
    else:
        msg = f"{storage.location}/{record_name(0)} is missing"
    return CorruptData(msg)


def strip(storage: Storage) -> None:
    """Remove the files of a deleted topic, except its last record.

    By that record, writers that are still active detect the deletion.
    """
    names = sorted(filter(is_log_name, storage.ages("log")))
    last = [record_name(version) for version in records(names)[-1:]]
    storage.remove(f"log/{n}" for n in names if f"log/{n}" not in last)
    for folder in ("data", "index"):
        storage.remove_folder(folder)


def hole(storage: Storage, state: State) -> str | None:
    """Describe a missing record before existing ones; None if there is none.

    Only a power failure causes such a gap, and only without fsync=always.
    """
    beyond = [n for n in records(storage.names("log")) if n > state.following]
    if not beyond:
        return None
    try:
        storage.size(record_name(state.following))
    except FileNotFoundError:
        place, stands = record_name(state.following), record_name(beyond[0])
        return f"{storage.location}/{place} is missing, but {stands} depends on it"
    return None  # it was published meanwhile


def _first(storage: Storage) -> State:
    name = record_name(0)
    data, place = storage.read(name), f"{storage.location}/{name}"
    record = Record.decode(data, place, 0)
    if record.schema is None or record.partitions is None:
        msg = f"{place}: the first record has no schema, or no partitions"
        raise CorruptData(msg, remedy=DAMAGED)
    state = State(schema_of(record.schema, place), record.format)
    return apply(state, record, len(data))
