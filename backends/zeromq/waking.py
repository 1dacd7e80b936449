"""Ends a wait for sockets from another thread."""

from __future__ import annotations

import os
import threading


class Wake:
    """Makes a poll return; remembered. From any thread, closed or not."""

    def __init__(self) -> None:
        self.is_set = False
        self._lock = threading.Lock()
        self._out, self._in = os.pipe()
        self._closed = False

    def fileno(self) -> int:
        """What a poll waits for."""
        return self._out

    def set(self) -> None:
        """Make it return."""
        # A closed descriptor may belong to another file by now.
        with self._lock:
            if not self.is_set and not self._closed:
                os.write(self._in, b"!")
            self.is_set = True

    def clear(self) -> None:
        """Let polls wait again."""
        with self._lock:
            if self.is_set and not self._closed:
                os.read(self._out, 1)
            self.is_set = False

    def close(self) -> None:
        """Close the pipe."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._in)
                os.close(self._out)
