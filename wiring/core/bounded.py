"""Calls of code that may hang, in threads that end with the process."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future, wait
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakSet

from streamfactory.spi import StreamTimeout
from streamfactory.spi.waits import wait_in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

A = TypeVar("A")
"""The argument of a call."""
T = TypeVar("T")
"""The result of the call."""

_LOOK: Final = 0.1
"""Seconds between two checks of a stop."""
_GRACE: Final = 0.5
"""Seconds for a client's own timeout to come first: its message says more."""

_threads: Final = WeakSet[threading.Thread]()
"""Those of the calls, while they run."""


class Hung(StreamTimeout):
    """The call did not return, and continues in its thread."""


def concurrently(
    function: Callable[[A], T],
    arguments: Sequence[A],
    *,
    at_once: int,
    stop: threading.Event | None = None,
) -> list[T] | None:
    """Call a function for each argument, in new threads.

    The calling thread can be interrupted. A call that does not return ends with the
    process.

    Args:
        function: Called once for each argument.
        arguments: The arguments.
        at_once: Maximum number of concurrent calls.
        stop: When set, this returns without waiting for the calls.

    Returns:
        The results, in order; None after the stop.

    Raises:
        Exception: The first one of the calls, once all have ended.
    """
    outcomes: list[Future[T]] = [Future() for _ in arguments]
    waiting = deque(zip(outcomes, arguments, strict=True))

    def work() -> None:
        while True:
            try:
                outcome, argument = waiting.popleft()
            except IndexError:
                return
            _run(outcome, partial(function, argument))

    name = getattr(function, "__name__", "call")
    threads = [
        threading.Thread(target=work, name=f"{name}-{number}", daemon=True)
        for number in range(min(at_once, len(outcomes)))
    ]
    for thread in threads:
        thread.start()
    _threads.update(threads)
    # One by one: a look at all of 10,000 takes as long as some calls.
    for outcome in outcomes:
        done = False
        while not done:
            if stop is not None and stop.is_set():
                return None
            done = bool(wait([outcome], _LOOK).done)
    return [outcome.result() for outcome in outcomes]


def bounded(operation: str, seconds: float, function: Callable[[], T]) -> T:
    """Call a function in a new thread, and wait for at most ``seconds``.

    The calling thread can be interrupted. A call that does not return ends with the
    process.

    Raises:
        Hung: transient; no answer in time.
    """
    outcome: Future[T] = Future()
    thread = threading.Thread(
        target=_run, args=(outcome, function), name=operation, daemon=True
    )
    thread.start()
    _threads.add(thread)
    if not _finished(outcome, seconds + _GRACE):
        msg = f"{operation}: no answer within {seconds:g} s"
        remedy = "raise stream.<type>.connection.timeout.millis if it needs longer"
        raise Hung(msg, remedy=remedy)
    return outcome.result()


def interruptible(function: Callable[[], T], left: Callable[[Future[T]], object]) -> T:
    """Call a function that may block outside of Python; Ctrl-C ends the wait for it.

    In the main thread the call is made in a new one: no other thread is interrupted.

    Args:
        function: The call.
        left: Called with its future if an interrupt left it to its thread.
    """
    if threading.current_thread() is not threading.main_thread():
        return function()
    outcome: Future[T] = Future()
    inherited = partial(copy_context().run, function)
    thread = threading.Thread(target=_run, args=(outcome, inherited), daemon=True)
    thread.start()
    try:
        _finished(outcome, None)
    except BaseException:
        _threads.add(thread)
        left(outcome)
        raise
    return outcome.result()


def _finished(outcome: Future[T], seconds: float | None) -> bool:
    return wait_in_slices(lambda most: wait([outcome], most).done, seconds)


def calls_left() -> bool:
    """Whether a call was not waited for to the end, and still runs in its thread.

    Then the process has to end by `os._exit`: Python's last steps and those of client
    libraries free what the call uses, which has crashed gRPC.
    """
    return any(thread.is_alive() for thread in tuple(_threads))


def _run(outcome: Future[T], function: Callable[[], T]) -> None:
    try:
        outcome.set_result(function())
    except BaseException as error:  # noqa: BLE001 - raised again by `result`
        outcome.set_exception(error)
