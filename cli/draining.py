"""Signals as a request to end, and a line that shows the progress."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from streamfactory.cli.ending import ENDS, end_process
from streamfactory.cli.signals import REACTION, Interruption, watching

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from streamfactory.cli.printing import Printer

_PAUSE: Final = 0.1
"""Seconds between two lines of progress, and two checks of a command that ends."""
_BAR: Final = 20


@contextmanager
def draining(
    *, interrupt: bool = True, idle: Callable[[], bool] | None = None
) -> Iterator[threading.Event]:
    """An event that the first SIGINT or SIGTERM sets.

    Args:
        interrupt: Whether a second signal interrupts the main thread.
        idle: Returns whether the block only waits for a source, so that nothing is lost
            if the process ends: it does if that lasts for a second after a signal. A
            client that blocks does not see the event.
    """
    stop, ended = threading.Event(), threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # handlers are set by the main thread only
        return
    second = Interruption()
    handled = watched = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal handled
        handled += 1
        if interrupt and handled > 1:
            second.handle(number, frame)

    def watch(number: int) -> None:
        nonlocal watched
        watched += 1
        stop.set()
        if interrupt and watched > 1:
            second.watch(number)
        elif idle is not None:
            threading.Thread(
                target=_end_if_idle, args=(number, idle, ended), daemon=True
            ).start()

    with watching(watch):
        before = {number: signal.signal(number, handle) for number in ENDS}
        try:
            yield stop
        finally:
            ended.set()
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _end_if_idle(number: int, idle: Callable[[], bool], ended: threading.Event) -> None:
    """End the process once a block has been idle for `REACTION`."""
    since = time.monotonic()
    while not ended.wait(_PAUSE):
        now = time.monotonic()
        if not idle():
            since = now
        elif now - since >= REACTION:
            end_process(number)


class Progress:
    """A line that shows the progress of a command, on a terminal.

    Args:
        printer: Shows it.
        share: Returns the share that is done, from 0 to 1; None if it is unknown.
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
        """Show the progress, unless it was shown just now."""
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
        """Remove the line."""
        self._printer.progress("")


def rate(rows: int, seconds: float) -> int:
    """Rows a second, whole ones."""
    return round(rows / seconds) if seconds > 0 else 0
