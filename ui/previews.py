"""Pages of previews: what Spark makes of a pipeline that is not saved yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Blueprint, abort, g, redirect, render_template, request, url_for

from streamfactory.spi import MisuseError
from streamfactory.ui.changes import client, shown_before
from streamfactory.ui.editing.checking import refuse_commands
from streamfactory.ui.editing.drafts import draft_of, folder_of
from streamfactory.ui.editing.files import SUFFIX, check_size, plain_lines
from streamfactory.ui.editing.needed import (
    PREVIEWED,
    SOME,
    refuse_without_edit,
)
from streamfactory.ui.logs import log_change
from streamfactory.ui.parameters import Parameter, takes_parameters
from streamfactory.ui.rights import needs
from streamfactory.ui.shown import ShownPreview
from streamfactory.ui.site import site

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

previews = Blueprint("previews", __name__, url_prefix="/edit")
previews.before_request(refuse_without_edit)


@previews.post("/preview")
@takes_parameters(
    Parameter("kind", words=("pipeline",), required=True),
    *map(Parameter, ("file", "digest", "text")),
)
@needs(SOME, *PREVIEWED)
def start() -> Response:
    """Start a preview of a text."""
    text = plain_lines(request.form.get("text", ""))
    check_size(text)
    folder, file = folder_of("pipeline"), request.form.get("file", "")
    path = folder.path / (file or f"new{SUFFIX}")
    refuse_commands(path, folder.read(file).text if file else "", text)
    draft = draft_of("pipeline", path, text)  # refuses literal secrets
    if not draft.valid:
        msg = "the pipeline has errors that are found without Spark"
        raise MisuseError(msg, remedy="go back, check it, and correct them")
    job = site().previews.start(path, text)
    log_change(
        f"pipeline {draft.name}: is being previewed by {client()}",
        {"pipeline": draft.name},
    )
    shown = ShownPreview(
        draft.name, file, request.form.get("digest", ""), text, job.number
    )
    g.session.changes.append(shown)
    return redirect(url_for("previews.preview", change=shown.key), 303)


@previews.get("/preview")
@takes_parameters(Parameter("change", required=True))
@needs(SOME, *PREVIEWED)
def preview() -> str:
    """The rows of each source and step, or the problems that Spark found."""
    shown = shown_before(request.args["change"], ShownPreview)
    job = site().previews.get(shown.job)
    if job is None:
        abort(404, "This preview is not kept any more: start it again.")
    g.pending = job.state == "running"
    return render_template("edit_preview.html", shown=shown, job=job)
