"""The page of the record of changes, and what it needs of a request."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from flask import Blueprint, abort, render_template, request

from streamfactory.transfer.auditing import OUTCOMES, SCHEMA, Wanted, read_audit
from streamfactory.ui.asked import note, number
from streamfactory.ui.catalogue import catalogue
from streamfactory.ui.message_values import offsets_text
from streamfactory.ui.messages import parse_place
from streamfactory.ui.parameters import Parameter, takes_parameters
from streamfactory.ui.people import STREAMS, Right
from streamfactory.ui.rights import Rule, Thing, needs
from streamfactory.ui.site import site

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from streamfactory.transfer.auditing import AuditPage

audits = Blueprint("audits", __name__)

_MOST: Final = 200
"""Rows of a page."""
PARAMETERS: Final = (
    Parameter("user", "Only changes of this user."),
    Parameter("name", "Only changes of what has this name."),
    Parameter("outcome", "Only rows of this outcome.", words=OUTCOMES),
    Parameter("from", "A place: the rows before it are returned."),
    Parameter("count", "Rows, at most.", least=1, most=_MOST),
)


def _of_record() -> Iterator[Thing]:
    trail = site().trail
    if trail is None:
        abort(404, "Changes are not recorded: the setting audit.stream is not set.")
    yield Thing(STREAMS, trail.name)


RECORD: Final = Rule(Right.VALUES, "the stream of the record", _of_record)


@audits.get("/audit")
@takes_parameters(*PARAMETERS)
@needs(RECORD)
def audit() -> str:
    """Who changed what: the newest rows of the record."""
    key, function = asked_rows()
    answer = site().lookups.ask(key, function, large=True)
    note([answer])
    names = [name for name in SCHEMA.names if name not in ("before", "after", "change")]
    return render_template(
        "audit.html",
        answer=answer,
        names=names,
        outcomes=OUTCOMES,
        asked={one: request.args.get(one, "") for one in ("user", "name", "outcome")},
    )


def asked_rows() -> tuple[Hashable, Callable[[], dict[str, Any]]]:
    """The key of a look-up of what the request asks for, and what looks it up."""
    args, trail = request.args, site().trail
    assert trail is not None
    user, name, outcome = (args.get(one, "") for one in ("user", "name", "outcome"))
    wanted = Wanted(user, name, outcome)
    place, most = args.get("from", "").strip(), number("count", 50)
    marks = parse_place(place) if place else None
    definition = catalogue().get(trail.name)
    return ("audit", wanted, place, most), partial(
        _rows, partial(read_audit, definition, wanted, most=most, marks=marks)
    )


def _rows(read: Callable[[], AuditPage]) -> dict[str, Any]:
    page = read()
    previous = offsets_text(page.before)
    return {"items": page.rows, "previous": previous, "more": page.more}
