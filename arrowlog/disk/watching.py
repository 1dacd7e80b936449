"""Watches folders for new names, by inotify if possible, otherwise by polling."""

from __future__ import annotations

import os
import select
import sys
import threading
from typing import TYPE_CHECKING, Final, final

from streamfactory.arrowlog.disk.storage import Watch

if TYPE_CHECKING:
    from pathlib import Path

_LONGEST_LOCAL_POLL: Final = 0.005
"""Seconds between polls of a local folder without notifications."""
_LONGEST_WAIT: Final = 1.0
"""Seconds between polls: a network file system may not notify of remote changes."""


def watch_folder(path: Path) -> Watch:
    """A watch on a local folder."""
    if sys.platform == "linux":
        try:
            return KernelWatch(path)
        except (ImportError, OSError):  # too many watches, or not supported
            pass
    return PollingWatch(0.0005, _LONGEST_LOCAL_POLL)


@final
class KernelWatch(Watch):
    """Waits for notifications of Linux, which take microseconds."""

    reusable = True

    def __init__(self, path: Path) -> None:
        from inotify_simple import INotify, flags

        self._notify = INotify(nonblocking=True)
        try:
            wanted = flags.CREATE | flags.MOVED_TO | flags.ONLYDIR | flags.DONT_FOLLOW
            self._notify.add_watch(path, wanted)
            self._woken = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except BaseException:
            self._notify.close()
            raise
        self._poll = select.poll()
        self._poll.register(self._notify.fileno(), select.POLLIN)
        self._poll.register(self._woken, select.POLLIN)

    def wait(self, timeout: float) -> None:
        ready = self._poll.poll(max(0.0, min(timeout, _LONGEST_WAIT)) * 1000)
        for file, _ in ready:
            os.read(file, 65536 if file != self._woken else 8)

    def wake(self) -> None:
        os.eventfd_write(self._woken, 1)

    def close(self) -> None:
        self._notify.close()
        os.close(self._woken)


@final
class PollingWatch(Watch):
    """Polls with increasing pauses.

    Args:
        first: Seconds until the first poll.
        longest: Maximum seconds between two polls.
    """

    def __init__(self, first: float, longest: float) -> None:
        self._next = first
        self._longest = longest
        self._woken = threading.Event()

    def wait(self, timeout: float) -> None:
        self._woken.wait(max(0.0, min(timeout, self._next)))
        self._woken.clear()
        self._next = min(self._next * 1.5, self._longest)

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        """Do nothing."""
