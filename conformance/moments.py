"""Stops a call at a chosen moment: between two calls that it makes itself.

A commit takes milliseconds, so that a look or a kill at a random time rarely falls into
it. Here the calls that a commit makes, in Python and into C, are counted; the same
commit is then stopped in front of any of them.
"""

from __future__ import annotations

import re
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence
    from types import CodeType, FrameType

T = TypeVar("T")
"""What a function answers."""

_TURNS: Final = 2
"""Calls of one place that count."""

_OUTSIDE: Final = re.compile(
    "commit|execute|executemany|fdatasync|fsync|link|mkdir|poll|produce|publish|recv"
    "|recv_bytes|recv_into|rename|request|rmdir|send|send_bytes|send_multipart|sendall"
    "|sendmsg|sendto|truncate|unlink|write|writelines"
)
"""Names of functions that reach a medium: in front of them is where it matters."""


_LONGEST: Final = 10.0
"""Seconds for which a call is held at most."""


@dataclass(frozen=True, slots=True)
class Moment:
    """In front of one of the calls that a function makes."""

    number: int
    """Counted from 0."""
    outside: bool
    """Among those that reach the medium: their number does not change with what a
    backend keeps in memory. Otherwise among all."""

    def __str__(self) -> str:
        return f"call {self.number}{' to the medium' * self.outside}"


@final
class Moments:
    """Counts the calls of one function at a time, in all threads made meanwhile.

    A context manager: within it the profile functions of threads are its own. A client
    that works in a separate thread is stopped as well, where that thread was
    made within.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._active = False
        self._moment: Moment | None = None
        self._strike: Callable[[], None] = lambda: None
        self.calls = 0
        """Calls that the last function made."""
        self.outside = 0
        """Those of them that reach the medium."""
        self.places: list[int] = []
        """Of those, numbers of the first two from each place: a function that places
        many rows reaches the medium often, and the one that decides seldom. In front of
        the second one, what happens in turns is done in part."""
        self._seen: Counter[tuple[tuple[CodeType, int], ...]] = Counter()
        self._stay = threading.Event()

    def __enter__(self) -> Moments:
        threading.setprofile(self._hook)
        return self

    def __exit__(self, *error: object) -> None:
        self._active = False
        threading.setprofile(None)

    def run(
        self,
        function: Callable[[], T],
        moment: Moment | None = None,
        strike: Callable[[], None] = lambda: None,
    ) -> T:
        """Run a function, and count its calls: `calls` and `outside` are of it then.

        Args:
            function: What is run.
            moment: When ``strike`` is called; it may never come. None for never.
            strike: What is called, in the thread of that call.
        """
        self.calls = self.outside = 0
        self.places, self._seen = [], Counter()
        self._moment, self._strike, self._active = moment, strike, True
        before = sys.getprofile()
        sys.setprofile(self._hook)
        try:
            return function()
        finally:
            sys.setprofile(before)
            self._active = False

    def held_at(
        self,
        moment: Moment,
        function: Callable[[], T],
        meanwhile: Callable[[], object],
        longest: float,
    ) -> tuple[T, bool]:
        """Run a function in another thread, held in front of one of its calls.

        Args:
            moment: When; it may never come.
            function: What is run.
            meanwhile: Called by this thread while the function is held, once.
            longest: Seconds for which it is held. Where ``meanwhile`` waits for a lock
                of it, it is let go first, and nothing can be concluded.

        Returns:
            The function's answer, and whether it was held all the time that
            ``meanwhile`` took.
        """
        reached, go = threading.Event(), threading.Event()
        self._stay = stay = threading.Event()
        kept: list[bool] = []
        outcome: list[T] = []
        errors: list[BaseException] = []

        def strike() -> None:
            reached.set()
            kept.append(stay.wait(longest) and go.wait(_LONGEST))

        def run() -> None:
            try:
                outcome.append(self.run(function, moment, strike))
            except BaseException as error:  # noqa: BLE001 - raised below
                errors.append(error)
            finally:
                reached.set()

        thread = threading.Thread(target=run, name="conformance-held", daemon=True)
        thread.start()
        reached.wait()
        try:
            meanwhile()
        finally:
            go.set()
            stay.set()
            thread.join()
        if errors:
            raise errors[0]
        return outcome[0], kept == [True]

    def stay(self) -> None:
        """Hold the function on: what is done meanwhile does not wait for it."""
        self._stay.set()

    def _hook(self, frame: Any, event: str, argument: Any) -> None:
        if not self._active or event not in ("call", "c_call"):
            return
        name = argument.__name__ if event == "c_call" else frame.f_code.co_name
        outside = _OUTSIDE.fullmatch(name) is not None
        with self._lock:
            here = (
                Moment(self.calls, outside=False),
                Moment(self.outside, outside=True),
            )
            if outside and self._seen[place := _place(frame)] < _TURNS:
                self._seen[place] += 1
                self.places.append(self.outside)
            self.calls += 1
            self.outside += outside
        if self._moment in here[: 1 + outside]:
            self._strike()


def _place(frame: FrameType | None) -> tuple[tuple[CodeType, int], ...]:
    """The functions that are being called, each with its line."""
    found = []
    while frame is not None:
        found.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)


def spread(count: int, chance: random.Random) -> list[tuple[bool, float]]:
    """Picks that cover a function evenly, in no order, for `pick`.

    Each is a fraction of the calls that reach the medium (True), or of all calls.
    """
    near = count - count // 4
    picks = [(True, (at + chance.random()) / near) for at in range(near)]
    picks += [(False, chance.random()) for _ in range(count - near)]
    chance.shuffle(picks)
    return picks


def pick(way: tuple[bool, float], calls: int, outside: Sequence[int]) -> Moment:
    """A moment.

    Args:
        way: One of `spread`.
        calls: Number of calls, as the function made when it was run last.
        outside: Numbers of those that reach the medium, among these: all, or `places`.
    """
    near, fraction = way
    if near and outside:
        return Moment(outside[int(fraction * len(outside))], outside=True)
    return Moment(int(fraction * calls), outside=False)
