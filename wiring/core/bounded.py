"""Calls with a deadline, of code that may hang."""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Final, TypeVar

from streamfactory.spi import StreamTimeout

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
"""The result of the call."""

_GRACE: Final = 0.5
"""Seconds for a client's own timeout to come first: its message says more."""


class Hung(StreamTimeout):
    """The call did not return, and continues in its thread."""


def bounded(operation: str, seconds: float, function: Callable[[], T]) -> T:
    """Call a function in a new thread, and wait for at most ``seconds``.

    The calling thread can be interrupted. A call that does not return ends with the
    process.

    Raises:
        Hung: transient; no answer in time.
    """
    outcome: Future[T] = Future()

    def work() -> None:
        try:
            outcome.set_result(function())
        except BaseException as error:  # noqa: BLE001 - raised again by `result`
            outcome.set_exception(error)

    threading.Thread(target=work, name=operation, daemon=True).start()
    if not wait([outcome], seconds + _GRACE).done:
        msg = f"{operation}: no answer within {seconds:g} s"
        remedy = "raise stream.<type>.connection.timeout.millis if it needs longer"
        raise Hung(msg, remedy=remedy)
    return outcome.result()
