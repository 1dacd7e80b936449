"""Wakes a wait for file descriptors; for consumers that define `wake`."""

from __future__ import annotations

import os
import threading


class Wake:
    """A pipe that becomes readable when set. Thread-safe; may be closed.

    A consumer or writer waits for `fileno` in addition to its own descriptors, and
    calls `set` in its `wake`.
    """

    def __init__(self) -> None:
        self.is_set = False
        self._lock = threading.Lock()
        self._out, self._in = os.pipe()
        self._closed = False

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._out

    def set(self) -> None:
        """End the current wait, and all later ones until `clear`."""
        # A closed descriptor may have been reused for another file.
        with self._lock:
            if not self.is_set and not self._closed:
                os.write(self._in, b"!")
            self.is_set = True

    def clear(self) -> None:
        """Reset, so that waits block again."""
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
