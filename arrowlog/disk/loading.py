"""Where records and snapshots lie, and how a topic is opened.

Opening reads one snapshot, and the records since: as many at the millionth commit as
at the hundredth.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streamfactory.arrowlog.disk.index import PART_SCHEMA, Part
from streamfactory.arrowlog.disk.records import Record, record_name
from streamfactory.arrowlog.disk.state import State, schema_of
from streamfactory.spi import (
    BatchValidator,
    CorruptData,
    SchemaMismatch,
    StreamError,
    TopicNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streamfactory.arrowlog.disk.storage import Storage

_TRIES: Final = 8
_SNAPSHOT: Final = ".snapshot"
_NUMBER: Final = re.compile(r"[0-9]{20}")
"""Other files, as tools leave them, are not ours."""

log = logging.getLogger("streamfactory")


def snapshot_name(version: int) -> str:
    """Of the snapshot of this version."""
    return f"log/{version:020d}{_SNAPSHOT}"


def snapshots(names: Iterable[str]) -> list[int]:
    """Versions of the snapshots among the names of the folder ``log``, rising."""
    return _versions(names, _SNAPSHOT)


def records(names: Iterable[str]) -> list[int]:
    """Versions of the records among the names of the folder ``log``, rising."""
    return _versions(names, ".json")


def _versions(names: Iterable[str], suffix: str) -> list[int]:
    stems = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
    return sorted(int(stem) for stem in stems if _NUMBER.fullmatch(stem))


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
            return State.from_snapshot(
                incarnation,
                storage.read(name),
                place,
                lambda part: load_part(storage, part),
            )
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
    if left:
        name = record_name(left[-1])
        last = Record.decode(storage.read(name), f"{storage.location}/{name}")
        if last.deleted:
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
    names = sorted(storage.ages("log"))  # temporary ones, too
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


def load_part(storage: Storage, name: str) -> Part:
    """A part of the index.

    Raises:
        FileNotFoundError: A newer snapshot has other parts.
        CorruptData: data_loss.
    """
    try:
        reader = pa.ipc.open_file(storage.open(name))
        rows = reader.get_batch(0)
        BatchValidator(PART_SCHEMA).validate(rows)
        return Part(name, rows)
    except (CorruptData, SchemaMismatch) as error:
        msg = f"{storage.location}/{name}: {error.what}"
        raise CorruptData(msg) from error
    except (FileNotFoundError, StreamError):
        raise
    except (pa.ArrowException, ValueError, OSError, LookupError) as error:
        msg = f"{storage.location}/{name}: {error}"
        raise CorruptData(msg) from error


def _first(storage: Storage, incarnation: str) -> State:
    name = record_name(0)
    data = storage.read(name)
    record = Record.decode(data, f"{storage.location}/{name}")
    assert record.schema is not None
    state = State(incarnation, schema_of(record.schema))
    state.apply(record, len(data))
    return state
