"""Runs of pipelines in processes of this server: seen, started, stopped, restarted."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from flask import Blueprint, Response

from streamfactory.ui.openapi import answers, takes_condition
from streamfactory.ui.parameters import takes_parameters
from streamfactory.ui.people import PIPELINES, Right
from streamfactory.ui.pipelines import find, pipelines
from streamfactory.ui.programs.answers import (
    DRY_RUN,
    PREFIX,
    expect,
    is_dry,
    json_answer,
    tag_of,
    turn,
)
from streamfactory.ui.programs.bodies import Field, body, takes_body
from streamfactory.ui.rights import may, needs, of_pipeline
from streamfactory.ui.running import KINDS, change_of_run, state_of_run
from streamfactory.ui.runs import AS_CONFIGURED, PACES
from streamfactory.ui.shown import ShownRun
from streamfactory.ui.site import site
from streamfactory.wiring.core.plain import moment

if TYPE_CHECKING:
    from streamfactory.ui.runs import Run

runs = Blueprint("runs", __name__, url_prefix=PREFIX)


@runs.get("/pipelines/<name>/run")
@takes_parameters()
@answers("Run")
@needs(of_pipeline(Right.READ))
def run(name: str) -> Response:
    """Return the last run of a pipeline by this server. Its ETag is that of its state.

    Its output is returned to users who may see values.
    """
    found = site().runs.last(find(name, pipelines(site().files)))
    return json_answer(_document(name, found), tag=tag_of(state_of_run(found)))


@runs.post("/pipelines/<name>/run")
@takes_parameters(DRY_RUN)
@takes_body(
    Field("kind", "What is done.", required=True, words=KINDS),
    Field("pace", "When a run that is started ends.", words=tuple(PACES)),
)
@takes_condition()
@answers("Change", status=(200, 202))
@needs(of_pipeline(Right.OPERATE))
def change_run(name: str) -> Response:
    """Start, stop or restart a pipeline in a process of this server.

    A run that is stopped finishes its batch; stopped once more, it ends at once.
    If-Match has the ETag of the run.
    """
    given = body()
    asked = ShownRun(given["kind"], name, given.get("pace", AS_CONFIGURED))
    with turn():
        what, details, seen = change_of_run(asked, confirmed=False)
        if not is_dry():
            expect(tag_of(seen))
            change_of_run(replace(asked, seen=seen), confirmed=True)
    document = {"made": not is_dry(), "what": what, "details": details}
    if is_dry():
        return json_answer(document, tag=tag_of(seen))
    return json_answer(document, status=202)


def _document(name: str, run: Run | None) -> dict[str, Any]:
    if run is None:
        return dict.fromkeys(("number", "state", "pace", "began", "lines"))
    shown = may(Right.VALUES, PIPELINES, name)
    return {
        "number": run.number,
        "state": run.state,
        "pace": run.pace,
        "began": moment(datetime.fromtimestamp(run.began, UTC)),
        "lines": [*run.lines] if shown else None,
    }
