"""The time limit of a case: where it strikes, the report names what did not return."""

from __future__ import annotations

import sys
import sysconfig
import threading
import traceback
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

SECONDS: Final = 120.0
"""Default time limit of a case: far more than any of them takes."""

T = TypeVar("T")
"""What the function answers."""

_OURS: Final = ("streamfactory.conformance.", "streamfactory.wiring.")
_STDLIB: Final = sysconfig.get_path("stdlib")


class Stuck(Exception):
    """A function did not return in its time."""

    def __init__(self, what: str, trace: str) -> None:
        super().__init__(what)
        self.what = what
        """The time limit, and the call that did not return."""
        self.trace = trace
        """The stack of the thread."""


def run_within(seconds: float, function: Callable[[], T]) -> T:
    """Call a function in a separate thread.

    Args:
        seconds: That it may take.
        function: What is called; what it raises is raised here.

    Raises:
        Stuck: The time limit has passed. The thread ends with the process.
    """
    answers: list[T] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            answers.append(function())
        except BaseException as error:  # noqa: BLE001 - raised by the caller's thread
            errors.append(error)

    thread = threading.Thread(target=call, name="conformance-case", daemon=True)
    thread.start()
    thread.join(seconds)
    frame = sys._current_frames().get(thread.ident or 0) if thread.is_alive() else None
    if frame is not None:
        where = _innermost(frame)
        msg = f"the case did not end within {seconds:g} s: {where} has not returned"
        raise Stuck(msg, "".join(traceback.format_stack(frame)))
    thread.join()
    if errors:
        raise errors[0]
    return answers[0]


def _innermost(frame: FrameType) -> str:
    """The call to name: the innermost of the author's, else of the kit's."""
    frames = [walked for walked, _ in traceback.walk_stack(frame)]
    own = [f for f in frames if not f.f_code.co_filename.startswith(_STDLIB)]
    authors = [f for f in own if not f.f_globals.get("__name__", "").startswith(_OURS)]
    found = (authors or own or frames)[0]
    code = found.f_code
    return f"{code.co_qualname} ({code.co_filename}:{found.f_lineno})"
