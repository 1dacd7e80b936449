"""Calls of code that may hang, in threads that end with the process."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future, wait
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from streamfactory.spi import StreamTimeout

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

    for number in range(min(at_once, len(outcomes))):
        name = f"{getattr(function, '__name__', 'call')}-{number}"
        threading.Thread(target=work, name=name, daemon=True).start()
    while wait(outcomes, _LOOK).not_done:
        if stop is not None and stop.is_set():
            return None
    return [outcome.result() for outcome in outcomes]


def bounded(operation: str, seconds: float, function: Callable[[], T]) -> T:
    """Call a function in a new thread, and wait for at most ``seconds``.

    The calling thread can be interrupted. A call that does not return ends with the
    process.

    Raises:
        Hung: transient; no answer in time.
    """
    outcome: Future[T] = Future()

    threading.Thread(
        target=_run, args=(outcome, function), name=operation, daemon=True
    ).start()
    if not wait([outcome], seconds + _GRACE).done:
        msg = f"{operation}: no answer within {seconds:g} s"
        remedy = "raise stream.<type>.connection.timeout.millis if it needs longer"
        raise Hung(msg, remedy=remedy)
    return outcome.result()


def _run(outcome: Future[T], function: Callable[[], T]) -> None:
    try:
        outcome.set_result(function())
    except BaseException as error:  # noqa: BLE001 - raised again by `result`
        outcome.set_exception(error)
