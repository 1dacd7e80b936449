"""One run of a pipeline at a time: a lock in its checkpoint folder.

The lock is advisory and held by the process: it ends with the process, however that
ends. On an object store, where there are no locks, recent files stand for it.
"""

from __future__ import annotations

import fcntl
import os
import socket
import threading
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from streamfactory.spark.checkpoints.reading import is_query_checkpoint, read_query
from streamfactory.spark.checkpoints.record import read_record
from streamfactory.spi import CheckpointFailed, MisuseError
from streamfactory.wiring.core.durable import make_folder
from streamfactory.wiring.core.shown import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from streamfactory.spark.checkpoints.places import Place

LOCK: Final = ".running"
_CHANGE: Final = ".changing"
_CHANGES: Final = threading.Lock()
"""One change of a position at a time in this process, on any file system."""
_NOTES: Final = threading.Lock()
_held: Final[dict[Path, int]] = {}
"""Descriptors of the locks that this process holds, by folder."""
_MOST: Final = 50
"""Lines of notes that are read."""
_LONGEST: Final = 4000
"""Characters of each."""
RECENT: Final = 60.0
"""Seconds since the last batch for which a query on an object store may be running."""


@contextmanager
def hold(place: Place) -> Iterator[None]:
    """Hold a checkpoint folder during a run.

    Does nothing for a folder that is not on a local file system.

    Raises:
        MisuseError: misuse; another process holds it.
        CheckpointFailed: permanent; the lock cannot be created.
    """
    folder = place.local
    if folder is None:
        yield
        return
    descriptor = _opened(place, folder / LOCK)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            msg = f"{place.text} is in use by {_holder(place)}"
            remedy = "stop that run first: a pipeline runs only once at a time"
            raise MisuseError(msg, remedy=remedy) from error
        _write(descriptor, ())
        with _NOTES:
            _held[folder] = descriptor
        yield
    finally:
        with _NOTES:
            if _held.get(folder) == descriptor:
                del _held[folder]
        os.close(descriptor)


def note(place: Place, lines: Sequence[str]) -> None:
    """Note facts of the run in a folder that this process holds, in place of others.

    Does nothing if it does not hold the folder, or the disk refuses it. They end with
    the run.
    """
    folder = place.local
    with _NOTES:
        descriptor = None if folder is None else _held.get(folder)
        if descriptor is not None:
            with suppress(OSError):
                _write(descriptor, lines)


def noted(place: Place) -> tuple[str, ...]:
    """The facts that the run which holds a folder has noted; none if no run does.

    Those of folders on this machine.
    """
    if place.local is None or running(place) is None:
        return ()
    found = (place.read(LOCK) or b"").decode(errors="replace").splitlines()
    return tuple(printable(line[:_LONGEST]) for line in found[1 : 1 + _MOST])


def _write(descriptor: int, lines: Sequence[str]) -> None:
    text = "\n".join([f"process {os.getpid()} on {socket.gethostname()}", *lines])
    content = text.encode(errors="replace")
    os.pwrite(descriptor, content, 0)  # first: others read it meanwhile
    os.ftruncate(descriptor, len(content))


@contextmanager
def changing(place: Place) -> Iterator[None]:
    """Make the comparison of a record and its replacement one step.

    Of other processes on this machine too, unless the folder is on an object store.

    Raises:
        CheckpointFailed: permanent; the lock cannot be created.
    """
    with _CHANGES:
        folder = place.local
        if folder is None:
            yield
            return
        descriptor = _opened(place, folder / _CHANGE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # for the time of one small file
            yield
        finally:
            os.close(descriptor)


def _opened(place: Place, path: Path) -> int:
    try:
        make_folder(path.parent)
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        msg = f"{place.text} cannot be locked: {error.strerror}"
        raise CheckpointFailed(msg, remedy="check the permissions") from error


def running(place: Place) -> str | None:
    """Why a run may be using a checkpoint folder; None if none is."""
    folder = place.local
    if folder is None:
        return _recent(place)
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return None  # never locked
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return f"it is in use by {_holder(place)}"
    finally:
        os.close(descriptor)
    return None


def _holder(place: Place) -> str:
    text = (place.read(LOCK) or b"").decode(errors="replace")
    found = text.strip().partition("\n")[0]
    return found if found.isprintable() and found else "another process"


def _recent(place: Place) -> str | None:
    record = read_record(place)
    if record is None:
        return None
    generation = place.child(str(record.generation))
    if not is_query_checkpoint(generation):
        return None
    query, times = read_query(generation), []
    for folder, numbers in (("offsets", query.planned), ("commits", query.committed)):
        if numbers:
            times.append(generation.child(folder).written(str(numbers[-1])))
    ages = [(datetime.now(UTC) - when).total_seconds() for when in times if when]
    if not ages or min(ages) > RECENT:
        return None
    return f"its last batch was written {min(ages):.0f} s ago"
