"""Waiting for a word in shared memory to change: by a futex, else by polling."""

from __future__ import annotations

import ctypes
import platform
import sys
import time
from typing import Final

_NUMBERS: Final = {"x86_64": 202, "aarch64": 98}
"""Of the system call futex, by machine."""
_WAIT, _WAKE = 0, 1
_EVERY: Final = 2**31 - 1
_FIRST_POLL: Final = 0.0002
_LONGEST_POLL: Final = 0.005


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def _system_call() -> ctypes._NamedFuncPointer | None:
    if sys.platform != "linux" or platform.machine() not in _NUMBERS:
        return None
    return ctypes.CDLL(None, use_errno=True).syscall


_CALL: Final = _system_call()
_FUTEX: Final = _NUMBERS.get(platform.machine(), 0)


class Word:
    """A 32-bit word of a mapped file, on which processes wait.

    Args:
        address: Of the word, as long as this exists.
        view: The same word.
    """

    def __init__(self, address: int, view: memoryview) -> None:
        self._address = ctypes.c_void_p(address)
        self._view = view.cast("I")

    @property
    def value(self) -> int:
        return int(self._view[0])

    def close(self) -> None:
        """Release the view; the word is not used afterwards."""
        self._view.release()

    def wait(self, seen: int, timeout: float) -> None:
        """Return when the word is not ``seen``, when it was woken, or after a timeout.

        May return early.
        """
        if _CALL is not None:
            whole = int(timeout)
            limit = _Time(whole, int((timeout - whole) * 1e9))
            _CALL(_FUTEX, self._address, _WAIT, seen, ctypes.byref(limit), None, 0)
            return
        deadline, pause = time.monotonic() + timeout, _FIRST_POLL
        while self.value == seen and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_POLL)

    def wake(self) -> None:
        """Make every `wait` return."""
        if _CALL is not None:
            _CALL(_FUTEX, self._address, _WAKE, _EVERY, None, None, 0)
