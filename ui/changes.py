"""Changes of positions that a person confirms, and that may outlast the request."""

from __future__ import annotations

import logging
import secrets
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar, final

from streamfactory.spi import PositionRefused, StreamTimeout
from streamfactory.wiring.core.bounded import Hung, bounded
from streamfactory.wiring.core.shown import all_of, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from streamfactory.spi import Position

T = TypeVar("T")
"""The result of the call."""

_SECONDS: Final = 30.0
"""For the plan of a change, and for its execution."""
_OPERATION: Final = "the change of the position"

_log = logging.getLogger("streamfactory.ui")


def log_change(text: str, fields: dict[str, str]) -> None:
    """Log who changes what; such lines are never suppressed.

    Args:
        text: The line.
        fields: Fields of the record, as stream and group.
    """
    _log.warning("%s", printable(text), extra={"audit": True, **fields})


@final
@dataclass(frozen=True, slots=True)
class Shown:
    """A planned change that a page shows, until it is confirmed.

    It stays in the server: with many partitions a form of it would be too large.
    """

    place: str
    """The new position, as a client writes it or as JSON."""
    stream: str = ""
    group: str = ""
    pipeline: str = ""
    before: str | None = None
    """The position that it replaces, as JSON; None until it is planned."""
    key: str = field(default_factory=secrets.token_urlsafe)
    """By which the form that confirms it names it."""


@final
class Confirmed:
    """The confirmation of one change, for the thread that makes it.

    Args:
        title: What is changed.
        client: The address of who confirmed it.
        shown: The position that the client saw, as JSON.
        fields: Fields of its lines in the log.
        ended: Called when the change was made, or failed.
    """

    def __init__(
        self,
        title: str,
        client: str,
        *,
        shown: str,
        fields: dict[str, str],
        ended: Callable[[], object],
    ) -> None:
        self._title, self._client, self._shown = title, client, shown
        self._fields, self._ended = fields, ended
        self._decided = threading.Lock()
        """Acquired once: by who makes the change, or by who gives it up."""

    def give_up(self) -> bool:
        """Prevent the change; False if it is being made, or was made."""
        return self._decided.acquire(blocking=False)

    def make(
        self,
        now: Position,
        after: Position,
        store: Callable[[], object],
        masks: Iterable[Callable[[str], str]],
    ) -> None:
        """Make the change, and log its beginning and its outcome.

        Args:
            now: The position now.
            after: The position that is stored.
            store: Stores it.
            masks: Remove the secrets of the streams from a text.

        Raises:
            PositionRefused: permanent; the position is not the one that was shown.
            StreamTimeout: transient; the change was given up.
            StreamError: Of ``store``.
        """
        if now.to_json() != self._shown:
            msg = "the position has changed since it was shown"
            raise PositionRefused(msg, remedy="go back, and look again")
        if not self._decided.acquire(blocking=False):
            msg = f"{_OPERATION} was given up before it was made"
            raise StreamTimeout(msg, remedy="go back, and try again")
        what = all_of(masks)(f"to {after.to_json()} by {self._client}")
        self._log(f"is being set {what}")
        outcome = f"was not set {what}, or not completely: look at the position"
        try:
            store()
            outcome = f"was set {what}"
        finally:
            self._log(outcome)
            self._ended()

    def _log(self, text: str) -> None:
        log_change(f"{self._title}: {text}", self._fields)


def in_time(function: Callable[[], T], confirmed: Confirmed | None) -> T:
    """Plan a change, or make it, and wait for a limited time.

    Args:
        function: Plans, and makes the change if there is a confirmation.
        confirmed: The confirmation that ``function`` uses, if any.

    Raises:
        StreamTimeout: transient; no answer in time: nothing is changed later either, or
            the change is being made, and its outcome is unknown.
        StreamError: Of the function.
    """
    try:
        return bounded(_OPERATION, _SECONDS, function)
    except Hung:
        if confirmed is None or confirmed.give_up():
            msg = f"{_OPERATION}: no answer within {_SECONDS:g} s; nothing is changed"
            remedy = "check that the stream's server can be reached, and try again"
            raise StreamTimeout(msg, remedy=remedy) from None
        msg = f"{_OPERATION}: the outcome is unknown, as it takes more than "
        msg += f"{_SECONDS:g} s"
        remedy = "look at the position; the log says when the change has ended"
        raise StreamTimeout(msg, remedy=remedy) from None
