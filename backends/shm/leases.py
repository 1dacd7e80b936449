"""Leases: which bytes of the rings of a topic are in use, by process.

Each process that reads a topic has a file of entries in the folder ``leases``, which it
keeps locked. The lock ends with the process, however it ends: a file that is not locked
belongs to no process any more, and is removed by the process that finds it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import uuid
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from streamfactory.arrowlog.disk import forks
from streamfactory.backends.shm.layout import (
    LEASE_ENTRIES,
    LEASE_HEAD,
    LEASE_MAGIC,
    LEASE_SIZE,
    LEASES,
    PAGE,
    PINNED,
    READING,
    VERSION,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ENTRY: Final = struct.Struct("<IIQ")
"""Kind (0 where the entry is free), partition, position."""


class Leases:
    """The entries of this process for one topic.

    Args:
        folder: Of the topic.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LEASES / f"{uuid.uuid4().hex}.lease"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o600)
        try:
            # Before the file has content: what is empty is not removed.
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            head = LEASE_HEAD.pack(LEASE_MAGIC, VERSION, LEASE_ENTRIES, os.getpid())
            # Written, and not only made longer: without space that is an error here,
            # and would end the process when a page is touched.
            os.pwrite(self._file, head.ljust(LEASE_SIZE, b"\0"), 0)
            self._map = mmap.mmap(self._file, LEASE_SIZE)
        except BaseException:
            self._path.unlink(missing_ok=True)
            os.close(self._file)
            raise
        self._free = deque(range(LEASE_ENTRIES))
        self._process = os.getpid()
        self._closing = False
        forks.register(self)

    @property
    def is_mine(self) -> bool:
        """Whether this process has made it, and not its parent."""
        return self._process == os.getpid()

    def add(self, kind: int, partition: int, position: int) -> int | None:
        """Add an entry, and return its number; None where there is no room."""
        try:
            entry = self._free.popleft()
        except IndexError:
            return None
        at = PAGE + entry * _ENTRY.size
        self._map[at + 8 : at + 16] = position.to_bytes(8, "little")
        self._map[at : at + 8] = struct.pack("<II", kind, partition)
        return entry

    def move(self, entry: int, position: int) -> None:
        """Change the position of an entry."""
        at = PAGE + entry * _ENTRY.size + 8
        self._map[at : at + 8] = position.to_bytes(8, "little")

    def remove(self, entry: int) -> None:
        """Free an entry. Takes no lock: Arrow calls it when a buffer is released."""
        if self._process != os.getpid():
            return  # a forked child has a copy of the object, but the entry is shared
        at = PAGE + entry * _ENTRY.size
        self._map[at : at + 8] = bytes(8)
        self._free.appendleft(entry)  # so that used ones are at the beginning
        if self._closing:
            self.close()

    def close(self) -> None:
        """Remove the file, now or when the last batch that is in use is released."""
        self._closing = True
        if self._process == os.getpid() and len(self._free) == LEASE_ENTRIES:
            file, self._file = self._file, -1
            if file >= 0:
                self._path.unlink(missing_ok=True)
                os.close(file)

    def reset_after_fork(self) -> None:
        """Close the child's copy of the file: it would keep the lock."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


class Held:
    """What one entry of any process holds."""

    __slots__ = ("kind", "partition", "position", "process")

    def __init__(self, kind: int, partition: int, position: int, process: int) -> None:
        self.kind = kind
        self.partition = partition
        self.position = position
        self.process = process


def held_by_all(folder: Path) -> Iterator[Held]:
    """The entries of all processes that live; files of dead ones are removed."""
    for path, file in _opened(folder):
        data = os.pread(file, LEASE_SIZE, 0)
        if _is_dead(file, data):
            with suppress(FileNotFoundError):
                os.unlink(path)  # noqa: PTH108
        else:
            yield from _entries(data)


def dead_leases(folder: Path) -> int:
    """How many files of dead processes there are."""
    return sum(
        _is_dead(file, os.pread(file, LEASE_HEAD.size, 0))
        for _, file in _opened(folder)
    )


def _opened(folder: Path) -> Iterator[tuple[str, int]]:
    """The lease files of a topic. Strings: a writer may look at them for each epoch."""
    place = os.path.join(folder, LEASES)  # noqa: PTH118
    for name in os.listdir(place):  # noqa: PTH208
        if not name.endswith(".lease"):
            continue
        path = f"{place}/{name}"
        with suppress(FileNotFoundError):
            file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                yield path, file
            finally:
                os.close(file)


def _is_dead(file: int, data: bytes) -> bool:
    if not data:
        return False  # its process has not locked it yet
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _entries(data: bytes) -> Iterator[Held]:
    if len(data) != LEASE_SIZE:
        return
    magic, version, _, process = LEASE_HEAD.unpack_from(data)
    if magic != LEASE_MAGIC or version != VERSION:
        return
    used = data[PAGE:].rstrip(b"\0")
    used = data[PAGE : PAGE - (-len(used) // _ENTRY.size) * _ENTRY.size]
    for kind, partition, position in _ENTRY.iter_unpack(used):
        if kind in (PINNED, READING):
            yield Held(kind, partition, position, process)
