"""Signals as a request to come to an end, and a line that tells how far it is."""

from __future__ import annotations

import signal
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from streamfactory.cli.printing import Printer

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_PAUSE: Final = 0.1
"""Seconds between two lines of progress."""
_BAR: Final = 20


@contextmanager
def draining(*, interrupt: bool = True) -> Iterator[threading.Event]:
    """An event that the first SIGINT or SIGTERM sets.

    The system may give a signal to any thread. Python runs handlers in the main thread
    only, which learns of such a signal when its wait has ended, and that may be never.
    So a thread reads what Python's handler in C writes at once.

    Args:
        interrupt: Whether a second signal raises `KeyboardInterrupt`.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # handlers are set by the main thread only
        return
    came = 0

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the system's signature
        nonlocal came
        came += 1
        if interrupt and came > 1:
            raise KeyboardInterrupt

    def wait_for_signal() -> None:
        while number := receiver.recv(1):
            if number[0] in _SIGNALS:
                stop.set()

    receiver, sender = socket.socketpair()
    with receiver, sender:
        sender.setblocking(False)
        thread = threading.Thread(target=wait_for_signal, name="signals", daemon=True)
        thread.start()
        wakeup = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        before = {number: signal.signal(number, handle) for number in _SIGNALS}
        try:
            yield stop
        finally:
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
            signal.set_wakeup_fd(wakeup)
            sender.shutdown(socket.SHUT_WR)
            thread.join()


class Progress:
    """A line that tells how far a command is, on a terminal.

    Args:
        printer: Shows it.
        share: Answers how much is done, from 0 to 1; None where nobody knows.
    """

    def __init__(self, printer: Printer, share: Callable[[], float | None]) -> None:
        self._printer = printer
        self._share = share
        self._begin = time.monotonic()
        self._next = self._begin

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._begin

    def report(self, rows: int) -> None:
        """Show how far it is, unless it was shown just now."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _PAUSE
        text = f"{rows:,} rows  {rate(rows, self.seconds):,} rows/s"
        share = self._share()
        if share is not None:
            filled = round(_BAR * min(1.0, share))
            bar = "#" * filled + "-" * (_BAR - filled)
            text = f"[{bar}] {min(1.0, share):4.0%}  {text}"
        self._printer.progress(text)

    def wipe(self) -> None:
        """Take the line away."""
        self._printer.progress("")


def rate(rows: int, seconds: float) -> int:
    """Rows a second, whole ones."""
    return round(rows / seconds) if seconds > 0 else 0
