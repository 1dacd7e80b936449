"""Calling code that may hang, for commands that must not."""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Final, TypeVar

from streamfactory.spi import StreamTimeout

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
"""What the bounded call answers."""

_GRACE: Final = 0.5
"""Seconds in which a client's own time-out, which says more, may come first."""


class Hung(StreamTimeout):
    """The call did not come back, and goes on in its thread."""


def bounded(operation: str, seconds: float, function: Callable[[], T]) -> T:
    """Call a function in a thread of its own, and wait so long.

    The main thread stays free for an interrupt. A call that does not come back is left
    to end with the process.

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
