"""SIGINT and SIGTERM: watched by a thread, and raised in the main thread."""

from __future__ import annotations

import signal
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from streamfactory.cli.ending import ENDS, end_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType
    from typing import NoReturn

LIMIT: Final = 1.5
"""Seconds from a signal to the end of the process, which costs no more than a kill.
Python runs handlers between two instructions, so not while a client blocks in C, and
what a signal interrupted may wait again while it closes."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, where no command takes it for a request to come to an end."""


def interrupt(number: int, frame: FrameType | None = None) -> NoReturn:  # noqa: ARG001 - a handler
    """Raise a signal; called by Python in the main thread."""
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


def end_in_time(number: int, over: threading.Event | None = None) -> None:
    """End the process `LIMIT` seconds from now, whatever its threads wait for.

    Args:
        number: The signal that ends it.
        over: Prevents it when set; without it nothing does but an earlier end.
    """

    def wait() -> None:
        if not (over or threading.Event()).wait(LIMIT):
            end_process(number)

    threading.Thread(target=wait, name="end-in-time", daemon=True).start()


@contextmanager
def raising_on_signals() -> Iterator[None]:
    """Have signals interrupt the main thread, except those that are ignored.

    For a process that runs one command: the first signal ends it within `LIMIT`. The
    handlers remain after the block.
    """
    for number in ENDS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    with watching(end_in_time):
        yield


@contextmanager
def watching(on_signal: Callable[[int], None]) -> Iterator[None]:
    """Call a function for each signal, in a thread.

    The system may give a signal to any thread, and Python runs handlers in the main
    thread only, when its wait has ended, and that may be never. So a thread reads what
    Python's handler in C writes at once.

    Args:
        on_signal: Called with the number of a SIGINT or SIGTERM that has a handler.
    """

    def wait_for_signal() -> None:
        while number := receiver.recv(1):
            if number[0] in ENDS:
                on_signal(number[0])

    receiver, sender = socket.socketpair()
    with receiver, sender:
        sender.setblocking(False)
        thread = threading.Thread(target=wait_for_signal, name="signals", daemon=True)
        thread.start()
        before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            sender.shutdown(socket.SHUT_WR)
            thread.join()
