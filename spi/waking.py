"""Ends a wait for descriptors from another thread: for consumers that define `wake`."""

from __future__ import annotations

import os
import threading


class Wake:
    """A pipe that is readable once it was set. From any thread, closed or not.

    A consumer or writer waits for `fileno` beside what it waits for, and sets it in
    its `wake`.
    """

    def __init__(self) -> None:
        self.is_set = False
        self._lock = threading.Lock()
        self._out, self._in = os.pipe()
        self._closed = False

    def fileno(self) -> int:
        """The descriptor that a poll waits for."""
        return self._out

    def set(self) -> None:
        """End the present wait, and each later one until `clear`."""
        # A closed descriptor may belong to another file by now.
        with self._lock:
            if not self.is_set and not self._closed:
                os.write(self._in, b"!")
            self.is_set = True

    def clear(self) -> None:
        """Let waits last again."""
        with self._lock:
            if self.is_set and not self._closed:
                os.read(self._out, 1)
            self.is_set = False

    def close(self) -> None:
        """Close the pipe; twice is allowed."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._in)
                os.close(self._out)
