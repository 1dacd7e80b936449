"""Look-ups of slow sources for pages: cached for a short time, never waited for long.

An unreachable stream occupies one thread until its timeout. Meanwhile its pages show
what was known before, or that the answer is pending; other streams are not delayed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.spi import StreamError, StreamTimeout
from streamfactory.wiring.core.defects import InternalError
from streamfactory.wiring.core.shown import plain_error

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

WAIT: Final = 0.1
"""Seconds that a page waits for all of its look-ups together."""
FRESH: Final = 3.0
"""Seconds for which an answer is used again."""
OVERDUE: Final = 30.0
"""Seconds after which a look-up that has not returned is shown as an error."""
OLD: Final = 30.0
"""Seconds after which an answer is too old to be shown as if it were current."""
MOST_THREADS: Final = 32
"""Threads of look-ups, beside those that are overdue."""
MOST_OVERDUE: Final = 128
"""Threads of look-ups, with those that are overdue: then nothing is looked up."""
MOST_ANSWERS: Final = 10_000
MOST_LARGE: Final = 100
"""Answers that are kept of look-ups whose keys clients choose, and that are large."""

_log = logging.getLogger("streamfactory.ui")


@final
@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of one look-up at one moment."""

    value: Any = None
    """Of the last look-up that succeeded; None before."""
    error: dict[str, Any] | None = None
    """Of the last look-up, if it failed: as `StreamError.to_dict`."""
    age: float | None = None
    """Seconds since `value` or `error` was found."""
    pending: bool = False
    """Whether the answer is not known yet, or is `OLD`."""


class _Entry:
    """One key. Guarded by the lock of its `Lookups`."""

    def __init__(self) -> None:
        self.value: Any = None
        self.error: dict[str, Any] | None = None
        self.found: float | None = None
        self.began: float | None = None
        """Of the look-up under way; None if there is none."""
        self.function: Callable[[], Any] | None = None
        """Of a look-up that waits for a thread; None if there is none."""

    @property
    def overdue(self) -> bool:
        """Whether the look-up under way takes too long."""
        return self.began is not None and time.monotonic() - self.began > OVERDUE


@final
class Lookups:
    """Runs functions in threads, at most one for each key, and keeps their results.

    Thread-safe.

    Args:
        wait: Seconds that `ask` waits.
        fresh: Seconds for which a result is used again.
    """

    def __init__(self, *, wait: float = WAIT, fresh: float = FRESH) -> None:
        self._wait, self._fresh = wait, fresh
        self._changed = threading.Condition()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._large: OrderedDict[Hashable, _Entry] = OrderedDict()
        # In the order of arrival, each look-up once.
        self._soon: dict[_Entry, None] = {}
        self._later: dict[_Entry, None] = {}
        self._running: list[_Entry] = []

    def ask(
        self, key: Hashable, function: Callable[[], Any], *, large: bool = False
    ) -> Answer:
        """The result of a function; see `ask_all`."""
        return self.ask_all({key: function}, large=large)[key]

    def ask_all(
        self,
        functions: Mapping[Any, Callable[[], Any]],
        *,
        later: bool = False,
        large: bool = False,
        wait: float | None = None,
    ) -> dict[Any, Answer]:
        """The results of several functions, which run concurrently.

        Waits for ``wait`` seconds at the most. A result that is not fresh is looked up
        again, and returned until the new one is there.

        Args:
            functions: By key. A function may block; it raises `StreamError`.
            later: Whether look-ups of others come first, and nothing is waited for.
            large: Whether only `MOST_LARGE` of such answers are kept.
            wait: Seconds to wait instead of the usual ``wait``.
        """
        with self._changed:
            asked = {key: self._entry(key, large=large) for key in functions}
            for key, entry in asked.items():
                self._start(entry, functions[key], later=later)
            if not later:
                self._changed.wait_for(
                    lambda: not any(map(_is_awaited, asked.values())),
                    self._wait if wait is None else wait,
                )
            busy = len(self._running) >= MOST_OVERDUE
            return {key: _answer(entry, busy=busy) for key, entry in asked.items()}

    def forget(self, keys: Iterable[Hashable]) -> None:
        """Look these keys up again when they are asked for next."""
        with self._changed:
            for key in keys:
                entry = self._entries.get(key) or self._large.get(key)
                if entry is not None:
                    entry.found = None

    def _entry(self, key: Hashable, *, large: bool) -> _Entry:
        entries = self._large if large else self._entries
        entry = entries.setdefault(key, _Entry())
        entries.move_to_end(key)
        while len(entries) > (MOST_LARGE if large else MOST_ANSWERS):
            _, dropped = entries.popitem(last=False)
            dropped.function = None  # its answer would not be shown
        return entry

    def _start(
        self, entry: _Entry, function: Callable[[], Any], *, later: bool
    ) -> None:
        now = time.monotonic()
        if entry.found is not None and now - entry.found <= self._fresh:
            return
        if entry.began is not None or (later and entry.function is not None):
            return
        if len(self._running) >= MOST_OVERDUE:
            return  # the queue would grow with each request
        # One that waits already may be moved up: who takes it first runs it.
        entry.function = function
        (self._later if later else self._soon)[entry] = None
        if self._has_place():
            first = self._next()
            if first is not None:
                threading.Thread(
                    target=self._run, args=first, name="look-up", daemon=True
                ).start()

    def _has_place(self) -> bool:
        """Whether one more look-up may be under way."""
        if len(self._running) >= MOST_OVERDUE:
            return False
        return sum(not one.overdue for one in self._running) < MOST_THREADS

    def _next(self) -> tuple[_Entry, Callable[[], Any]] | None:
        """Take the look-up whose turn it is; None if none waits."""
        for queue in (self._soon, self._later):
            while queue:
                entry = next(iter(queue))
                del queue[entry]
                function, entry.function = entry.function, None
                if function is not None and entry.began is None:
                    entry.began = time.monotonic()
                    self._running.append(entry)
                    return entry, function
        return None

    def _run(self, entry: _Entry, function: Callable[[], Any]) -> None:
        """Look up, one after another, until none waits."""
        while True:
            value, error = _result(function)
            with self._changed:
                entry.error = error
                if error is None:
                    entry.value = value
                entry.found, entry.began = time.monotonic(), None
                self._running.remove(entry)
                self._changed.notify_all()
                # Where this one was overdue, another thread has its place.
                if not self._has_place():
                    return
                following = self._next()
                if following is None:
                    return
                entry, function = following


def _result(function: Callable[[], Any]) -> tuple[Any, dict[str, Any] | None]:
    """What a function returns, or its error."""
    try:
        return function(), None
    except StreamError as failure:
        return None, plain_error(failure)
    except Exception as failure:  # noqa: BLE001 - shown on the page
        _log.exception("a look-up failed")
        return None, InternalError(type(failure).__name__).to_dict()


def _is_awaited(entry: _Entry) -> bool:
    """Whether its look-up is under way, or waits for a thread."""
    return (entry.began is not None and not entry.overdue) or (
        entry.function is not None
    )


def _answer(entry: _Entry, *, busy: bool) -> Answer:
    age = None if entry.found is None else time.monotonic() - entry.found
    if entry.overdue:
        late = StreamTimeout(
            f"no answer within {OVERDUE:g} s",
            remedy="check that the stream's server can be reached",
        )
        return Answer(entry.value, late.to_dict(), age)
    pending = age is None or age > OLD
    if busy and pending and entry.began is None:
        full = StreamTimeout(
            "not looked up: too many look-ups have not returned",
            remedy="check that the streams' servers can be reached",
        )
        return Answer(entry.value, full.to_dict(), age)
    return Answer(entry.value, entry.error, age, pending=pending)
