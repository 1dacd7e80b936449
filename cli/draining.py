"""Signals as a request to end, and a line that shows the progress."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from streamfactory.cli.ending import ENDS
from streamfactory.cli.signals import end_in_time, watching
from streamfactory.cli.signals import interrupt as raise_signal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from streamfactory.cli.printing import Printer

_GRACE: Final = 0.9
"""Seconds from a signal to the interruption of what is under way."""
_PAUSE: Final = 0.1
"""Seconds between two lines of progress."""
_BAR: Final = 20


@contextmanager
def draining(
    *, interrupt: bool = True, patient: bool = False
) -> Iterator[threading.Event]:
    """An event that the first SIGINT or SIGTERM sets.

    The block has about a second to finish what is under way, an epoch for instance.
    Then it is interrupted, and the process ends in time, whatever is waited for.

    Args:
        interrupt: Whether the block may be interrupted, and a second signal does so at
            once.
        patient: Whether the block finishes what is under way however long that takes,
            unless a second signal interrupts it.
    """
    stop, ended = threading.Event(), threading.Event()
    main = threading.current_thread()
    if main is not threading.main_thread():
        yield stop  # handlers are set by the main thread only
        return
    before = {number: signal.getsignal(number) for number in ENDS}
    # Only a process that runs one command ends where the block has ended.
    over = None if raise_signal in before.values() else ended
    handled = watched = 0
    late = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal handled
        handled += 1
        if interrupt and (handled > 1 or late):
            raise_signal(number, frame)

    def watch(number: int) -> None:
        nonlocal watched
        watched += 1
        stop.set()
        if interrupt and patient and watched > 1:
            end_in_time(number, over)
        elif not patient and watched == 1:
            end_in_time(number, over)
            threading.Thread(target=hurry, args=(number,), daemon=True).start()

    def hurry(number: int) -> None:
        nonlocal late
        if interrupt and not ended.wait(_GRACE):
            late = True
            signal.pthread_kill(main.ident or 0, number)

    with watching(watch):
        for number in ENDS:
            signal.signal(number, handle)
        try:
            yield stop
        finally:
            ended.set()
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)


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
