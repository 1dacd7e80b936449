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

REACTION: Final = 1.0
"""Seconds for the main thread to react to a signal. Python runs handlers between two
instructions, so not while a client blocks in C; then the process ends, which costs no
more than a kill."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, where no command takes it for a request to come to an end."""


class Interruption:
    """Raises a signal in the main thread, or ends the process if that is blocked."""

    def __init__(self) -> None:
        self._reacted = threading.Event()

    def handle(self, number: int, frame: FrameType | None = None) -> None:  # noqa: ARG002 - a handler
        """Raise; called by Python in the main thread."""
        self._reacted.set()
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    def watch(self, number: int) -> None:
        """Wait for the main thread to raise, in another thread."""
        if not self._reacted.wait(REACTION):
            end_process(number)


@contextmanager
def raising_on_signals() -> Iterator[None]:
    """Have signals interrupt the main thread, except those that are ignored.

    The handlers remain after the block.
    """
    interruption = Interruption()
    for number in ENDS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interruption.handle)
    with watching(interruption.watch):
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
