"""Resets objects in a forked child that other threads of the parent were using.

Only the forking thread exists in the child. Locks of other threads are never released
there, in Python and in libraries, where even freeing an object may block.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from typing import Protocol


class Forkable(Protocol):
    """An object that works in a forked child as well."""

    def reset_after_fork(self) -> None:
        """Replace locks and abandon clients; called once in the child, at its start."""


_objects: weakref.WeakSet[Forkable] = weakref.WeakSet()


def register(thing: Forkable) -> None:
    """Have an object reset in each forked child for as long as it exists."""
    _objects.add(thing)


class Lock:
    """A `threading.Lock` that no thread holds in a forked child."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        register(self)

    def reset_after_fork(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *failure: object) -> None:
        self._lock.release()


def abandon(thing: object) -> None:
    """Never free an object, not even at exit.

    A client's own threads are missing in the child. What its destructor waits for is
    never released: `obstore`, for one, closes its connections under a lock of its
    scheduler, which a thread of the parent may hold at the fork.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _reset() -> None:
    for thing in list(_objects):
        thing.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset)
