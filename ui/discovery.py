"""Pages that begin a stream from what is at a place: they look, and propose."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from flask import Blueprint, g, redirect, render_template, request, url_for

from streamfactory.spi import MisuseError
from streamfactory.ui.asked import note
from streamfactory.ui.catalogue import catalogue
from streamfactory.ui.changes import shown_before
from streamfactory.ui.editing.drafts import folder_of
from streamfactory.ui.editing.needed import PLACED, SOME, refuse_without_edit
from streamfactory.ui.editing.proposing import proposed
from streamfactory.ui.editing.secrets import is_literal
from streamfactory.ui.parameters import Parameter, takes_parameters
from streamfactory.ui.rights import needs
from streamfactory.ui.shown import ShownPlace
from streamfactory.ui.site import site

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

discovery = Blueprint("discovery", __name__, url_prefix="/edit")
discovery.before_request(refuse_without_edit)

_LONGEST: Final = 4096
"""Characters of a place."""


@discovery.post("/look")
@takes_parameters(
    Parameter("name", "Name of the stream.", required=True),
    *map(Parameter, ("place", "type", "topic", "like")),
)
@needs(SOME, *PLACED)
def look() -> Response:
    """Take a place; the next page has looked at it."""
    name, text = request.form["name"].strip(), request.form.get("place", "").strip()
    like = request.form.get("like", "")
    folder_of("stream").file_name(name)
    if bool(text) == bool(like):
        msg = "a place and a stream are given" if text else "no place is given"
        raise MisuseError(msg, remedy="give a place, or a stream of the same server")
    if len(text) > _LONGEST or is_literal(text, secret=False):
        msg = "the place is too long, or has a literal secret"
        raise MisuseError(msg, remedy="use the options of the type for credentials")
    shown = ShownPlace(
        name,
        text,
        request.form.get("type", "").lower(),
        request.form.get("topic", "").strip(),
        like,
    )
    g.session.changes.append(shown)
    return redirect(url_for("discovery.found", change=shown.key), 303)


@discovery.get("/found")
@takes_parameters(Parameter("change", required=True))
@needs(SOME, *PLACED)
def found() -> str:
    """What is at a place: its topics, or a definition with columns and rows."""
    shown = shown_before(request.args["change"], ShownPlace)
    like = catalogue().get(shown.like) if shown.like else None
    answer = site().lookups.ask(
        ("place", shown.key), partial(proposed, shown, like), large=True
    )
    note([answer])
    return render_template("edit_found.html", shown=shown, answer=answer)
