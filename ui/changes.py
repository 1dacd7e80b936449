"""Changes that a person confirms, and that may outlast the request."""

from __future__ import annotations

import logging
import secrets
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar, final

from flask import abort, g, request

from streamfactory.spi import MisuseError, PositionRefused, StreamTimeout
from streamfactory.wiring.core.bounded import Hung, bounded
from streamfactory.wiring.core.shown import all_of, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from streamfactory.spi import Position

T = TypeVar("T")
"""The result of the call."""
C = TypeVar("C", "Shown", "ShownTopic", "ShownReplay", "ShownRun", "ShownEdit")
"""The kind of a change."""

_SECONDS: Final = 30.0
"""For the plan of a change, and for its execution."""
_OPERATION: Final = "the change"

_log = logging.getLogger("streamfactory.ui")


def client() -> str:
    """Who sent the request, for the log: the address, and the name if it has one."""
    address, name = str(request.remote_addr), str(g.user.name)
    return address if name.startswith("(") else f"{name} from {address}"


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
@dataclass(frozen=True, slots=True)
class ShownTopic:
    """A planned change of a topic, or a message, that a page shows."""

    kind: str
    """``create``, ``grow``, ``truncate``, ``delete`` or ``produce``."""
    stream: str
    text: str = ""
    """What the client gave: columns, a number, a place, or a row."""
    format: str = "json"
    """Of a row."""
    seen: str = ""
    """What the change depends on, as it was shown."""
    key: str = field(default_factory=secrets.token_urlsafe)


@final
@dataclass(frozen=True, slots=True)
class ShownReplay:
    """A replay of dead letters that a page shows."""

    letters: str
    """The stream of dead letters."""
    to: str
    of: str = ""
    """The stream that the letters come from; empty for that of the first one."""
    key: str = field(default_factory=secrets.token_urlsafe)


@final
@dataclass(frozen=True, slots=True)
class ShownRun:
    """A start, stop or restart of a pipeline that a page shows."""

    kind: str
    """``start``, ``stop`` or ``restart``."""
    pipeline: str
    pace: str = ""
    """Of a start."""
    seen: str = ""
    """The run that there was, and its state."""
    key: str = field(default_factory=secrets.token_urlsafe)


@final
@dataclass(frozen=True, slots=True)
class ShownEdit:
    """A change of the file of a definition that a page shows."""

    kind: str
    """``stream`` or ``pipeline``."""
    name: str
    """Of the definition, after the change; of a deletion, before."""
    former: str
    """Its name before; empty for a new one."""
    old: str
    """The file's name; empty for a new one."""
    new: str
    """Its name after the change; empty if it is deleted."""
    before: str
    """Its text."""
    after: str
    digest: str = ""
    """Of the bytes that the change replaces."""
    key: str = field(default_factory=secrets.token_urlsafe)


AnyShown = Shown | ShownTopic | ShownReplay | ShownRun | ShownEdit


@final
class Confirmed:
    """The confirmation of one change, for the thread that makes it.

    Args:
        title: What is changed.
        client: Who confirmed it.
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
        self.perform(all_of(masks)(f"set to {after.to_json()}"), store)

    def perform(self, what: str, function: Callable[[], object]) -> None:
        """Make a change of any kind, and log its beginning and its outcome.

        Args:
            what: What is done, without secrets, after "is being": ``set to ...``.
            function: Does it.

        Raises:
            StreamTimeout: transient; the change was given up.
            StreamError: Of ``function``.
        """
        if not self._decided.acquire(blocking=False):
            msg = f"{_OPERATION} was given up before it was made"
            raise StreamTimeout(msg, remedy="go back, and try again")
        verb, _, rest = what.partition(" ")
        what = f"{rest} by {self._client}".lstrip()
        self._log(f"is being {verb} {what}")
        outcome = f"was not {verb} {what}, or not completely: look at it"
        try:
            function()
            outcome = f"was {verb} {what}"
        finally:
            self._log(outcome)
            self._ended()

    def _log(self, text: str) -> None:
        log_change(f"{self._title}: {text}", self._fields)


def shown_before(key: str, kind: type[C]) -> C:
    """The change of a key that the session of the request was shown.

    Raises:
        MisuseError: misuse; others were shown since, or there is none.
    """
    kept: tuple[object, ...] = tuple(g.session.changes)
    for one in kept:
        if isinstance(one, kind) and one.key == key:
            return one
    msg = "the change is not known any more: others were shown since"
    raise MisuseError(msg, remedy="go back, and ask for it again")


def take(key: str, kind: type[C]) -> C:
    """As `shown_before`, once: the same form sent twice makes one change.

    Raises:
        MisuseError: misuse; others were shown since, or there is none.
        Conflict: Another request takes it at this moment.
    """
    change = shown_before(key, kind)
    try:
        g.session.changes.remove(change)
    except ValueError:
        abort(409, "This change is being made already.")
    return change


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
        remedy = "look at it again; the log says when the change has ended"
        raise StreamTimeout(msg, remedy=remedy) from None
