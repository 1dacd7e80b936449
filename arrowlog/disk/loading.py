"""Where records and snapshots lie, and how a topic is opened.

Opening reads one snapshot, and the records since: as many at the millionth commit as
at the hundredth.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streamfactory.arrowlog.disk.index import Part
from streamfactory.arrowlog.disk.records import Record
from streamfactory.arrowlog.disk.state import State, schema_of
from streamfactory.spi import CorruptData, TopicNotFound

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamfactory.arrowlog.disk.storage import Storage

_TRIES: Final = 8
_RECORD: Final = ".json"
_SNAPSHOT: Final = ".snapshot"

log = logging.getLogger("streamfactory")


def record_name(version: int) -> str:
    """Of the record that makes this version."""
    return f"log/{version:020d}{_RECORD}"


def snapshot_name(version: int) -> str:
    """Of the snapshot of this version."""
    return f"log/{version:020d}{_SNAPSHOT}"


def snapshots(names: Iterable[str]) -> list[int]:
    """Versions of the snapshots among the names of the folder ``log``, rising."""
    return sorted(
        int(name.removesuffix(_SNAPSHOT)) for name in names if name.endswith(_SNAPSHOT)
    )


def records(names: Iterable[str]) -> list[int]:
    """Versions of the records among the names of the folder ``log``, rising."""
    return sorted(
        int(name.removesuffix(_RECORD)) for name in names if name.endswith(_RECORD)
    )


def load(storage: Storage, incarnation: str) -> State:
    """The topic as of its newest good snapshot, or of its first record.

    Raises:
        TopicNotFound: permanent; nothing is there.
        CorruptData: data_loss; no snapshot is good, and the first records are gone.
        FormatRefused: permanent.
    """
    failure: CorruptData | None = None
    for _ in range(_TRIES):
        names = storage.names("log")
        if not names:
            break
        for version in reversed(snapshots(names)):
            name = snapshot_name(version)
            try:
                return State.from_snapshot(
                    incarnation,
                    storage.read(name),
                    f"{storage.location}/{name}",
                    lambda part: load_part(storage, part),
                )
            except FileNotFoundError:
                break  # removed after a newer one came: look again
            except CorruptData as error:
                log.warning("%s; the one before is read", error.what)
                failure = error
        else:
            first = records(names)[:1]
            if first != [0]:
                break
            return _first(storage, incarnation)
    if failure is not None:
        raise failure
    ended = [number for number in records(storage.names("log")) if number]
    if ended:
        name = record_name(ended[-1])
        if Record.decode(storage.read(name), f"{storage.location}/{name}").deleted:
            msg = "the topic was deleted"
            raise TopicNotFound(msg)
        msg = f"{storage.location}/log: the records before {ended[0]} are missing"
        raise CorruptData(msg)
    msg = f"there is no topic in {storage.location}"
    raise TopicNotFound(msg)


def load_part(storage: Storage, name: str) -> Part:
    """A part of the index.

    Raises:
        FileNotFoundError: A newer snapshot has other parts.
        CorruptData: data_loss.
    """
    try:
        reader = pa.ipc.open_file(storage.open(name))
        return Part(name, reader.get_batch(0))
    except (pa.ArrowException, ValueError) as error:
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
