"""Changes that a person confirms, and that may outlast the request."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar, final

from flask import abort, g, request

from streamfactory.spi import MisuseError, PositionRefused, StreamTimeout
from streamfactory.transfer.auditing import Change
from streamfactory.ui.logs import log_change
from streamfactory.ui.site import site
from streamfactory.wiring.core.bounded import Hung, bounded
from streamfactory.wiring.core.shown import all_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from streamfactory.spi import Position
    from streamfactory.ui.people import Right
    from streamfactory.ui.shown import (
        Shown,
        ShownEdit,
        ShownPlace,
        ShownPreview,
        ShownReplay,
        ShownRun,
        ShownTopic,
    )

T = TypeVar("T")
"""The result of the call."""
C = TypeVar(
    "C",
    "Shown",
    "ShownTopic",
    "ShownReplay",
    "ShownRun",
    "ShownEdit",
    "ShownPlace",
    "ShownPreview",
)
"""The kind of a change."""

_SECONDS: Final = 30.0
"""For the plan of a change, and for its execution."""
_OPERATION: Final = "the change"


def client() -> str:
    """Who sent the request, for the log: the address, and the name if it has one."""
    address, name = str(request.remote_addr), str(g.user.name)
    return address if name.startswith("(") else f"{name} from {address}"


def change_of(
    right: Right, kind: str, name: str, before: str = "", after: str = ""
) -> Change:
    """A change by the user of the request, for the record.

    Args:
        right: That it needs.
        kind: Of what is changed: ``stream``, ``pipeline`` or ``group``.
        name: Of what is changed.
        before: How it is.
        after: How it will be.
    """
    address = str(request.remote_addr)
    return Change(g.user.name, address, right.value, kind, name, before, after)


@final
class Confirmed:
    """The confirmation of one change, for the thread that makes it.

    Args:
        title: What is changed.
        change: Who confirmed what, for the record.
        shown: The position that the client saw, as JSON.
        fields: Fields of its lines in the log.
        ended: Called when the change was made, or failed.
    """

    def __init__(
        self,
        title: str,
        change: Change,
        *,
        shown: str,
        fields: dict[str, str],
        ended: Callable[[], object],
    ) -> None:
        self._title, self._client, self._shown = title, client(), shown
        self._change, self._trail = change, site().trail
        self.begun = False
        """Whether the record has its beginning."""
        g.confirmed = self
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
        mask = all_of(masks)
        self._change = replace(
            self._change, before=mask(now.to_json()), after=mask(after.to_json())
        )
        self.perform(mask(f"set to {after.to_json()}"), store)

    def perform(self, what: str, function: Callable[[], object]) -> None:
        """Make a change of any kind; log and record its beginning and its outcome.

        Args:
            what: What is done, without secrets, after "is being": ``set to ...``.
            function: Does it.

        Raises:
            StreamTimeout: transient; the change was given up.
            ConnectionFailed: transient; it cannot be recorded, so it is not made.
            StreamError: Of ``function``.
        """
        with ExitStack() as stack:
            if self._trail is not None:
                stack.enter_context(self._trail.recorded(self._change, what))
                self.begun = True
            self._perform(what, function)

    def _perform(self, what: str, function: Callable[[], object]) -> None:
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
