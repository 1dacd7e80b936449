"""Pauses and limits of jobs: pipelines, spools and copies, wherever they run."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from flask import Blueprint, Response, abort, g, request

from streamfactory.spark.realtime.rules import keeps_limits
from streamfactory.ui.catalogue import catalogue
from streamfactory.ui.changes import Confirmed, change_of, in_time
from streamfactory.ui.openapi import answers, takes_condition
from streamfactory.ui.parameters import takes_parameters
from streamfactory.ui.people import Right
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
from streamfactory.ui.rights import Rule, needs, of_pipeline, of_stream, the_stream
from streamfactory.ui.shown import Changed
from streamfactory.ui.site import site
from streamfactory.wiring.controls.states import (
    Controls,
    JobState,
    Pause,
    check_rate,
    copy_job,
    pipeline_job,
    spool_job,
)
from streamfactory.wiring.core.plain import moment
from streamfactory.wiring.core.throttle import Rate
from streamfactory.wiring.options.spool import PATH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.ui.rights import Thing

controls = Blueprint("controls", __name__, url_prefix=PREFIX)

_STATE: Final = takes_body(
    Field("paused", "Whether the job waits at the end of its batch.", "boolean", True),
    Field("why", "The reason, shown to others.", longest=1000),
    Field(
        "rate",
        "The most that it reads per second; null: as its stream configures.",
        "object",
        required=True,
        null=True,
        fields=(
            Field("rows", "Rows per second; null: no limit.", "integer", null=True),
            Field("bytes", "Bytes per second; null: no limit.", "integer", null=True),
        ),
    ),
)


def _of_copy(right: Right) -> Rule:
    return Rule(right, "both streams of the copy", _copied)


def _copied() -> Iterator[Thing]:
    arguments = request.view_args or {}
    yield from (the_stream(arguments["name"]), the_stream(arguments["to"]))


@controls.get("/pipelines/<name>/control")
@takes_parameters()
@answers("Control")
@needs(of_pipeline(Right.READ))
def pipeline_control(name: str) -> Response:
    """Return whether a pipeline is paused, and its limit."""
    return _control(_pipeline(name))


@controls.put("/pipelines/<name>/control")
@takes_parameters(DRY_RUN)
@_STATE
@takes_condition()
@answers("Control")
@needs(of_pipeline(Right.OPERATE))
def set_pipeline_control(name: str) -> Response:
    """Pause or resume a pipeline, and limit the offsets that it reads per second."""
    path = find(name, pipelines(site().files))
    return _changed(pipeline_job(name), limited=keeps_limits(path))


@controls.get("/streams/<name>/spool/control")
@takes_parameters()
@answers("Control")
@needs(of_stream(Right.READ))
def spool_control(name: str) -> Response:
    """Return whether the receiver of a stream's spool is paused, and its limit."""
    return _control(_spool(name))


@controls.put("/streams/<name>/spool/control")
@takes_parameters(DRY_RUN)
@_STATE
@takes_condition()
@answers("Control")
@needs(of_stream(Right.OPERATE))
def set_spool_control(name: str) -> Response:
    """Pause or resume the receiver of a stream's spool, and limit it."""
    return _changed(_spool(name))


@controls.get("/streams/<name>/copies/<to>/control")
@takes_parameters()
@answers("Control")
@needs(_of_copy(Right.READ))
def copy_control(name: str, to: str) -> Response:
    """Return whether the copy of a stream into another is paused, and its limit."""
    return _control(_copy(name, to))


@controls.put("/streams/<name>/copies/<to>/control")
@takes_parameters(DRY_RUN)
@_STATE
@takes_condition()
@answers("Control")
@needs(_of_copy(Right.OPERATE))
def set_copy_control(name: str, to: str) -> Response:
    """Pause or resume the copy of a stream into another, and limit it."""
    return _changed(_copy(name, to))


# --- parts ----------------------------------------------------------------------


def _pipeline(name: str) -> str:
    find(name, pipelines(site().files))
    return pipeline_job(name)


def _spool(name: str) -> str:
    definition = catalogue().get(name)
    if not any(one.key.lower() == PATH for one in definition.properties):
        abort(404, f"The stream {definition.name!r} has no spool.")
    return spool_job(definition.name)


def _copy(name: str, to: str) -> str:
    return copy_job(f"{the_stream(name).name}/{the_stream(to).name}")


def _control(job: str) -> Response:
    state = Controls().read(job)
    return json_answer(_document(job, state), tag=tag_of(_text(state)))


def _changed(job: str, *, limited: bool = True) -> Response:
    """Replace the state of a job, unless it has changed."""
    given = body()
    rate = None if given["rate"] is None else Rate(**given["rate"])
    check_rate(job, rate, limited=limited)
    store, before = Controls(), Controls().read(job)
    pause = before.pause
    if not given["paused"]:
        pause = None
    elif pause is None or "why" in given:
        now = moment(datetime.now(UTC)) or ""
        pause = Pause(now, g.user.name, given.get("why", ""))
    after = JobState(pause, rate)
    if not is_dry():
        expect(tag_of(_text(before)))
        with turn():
            _store(job, store, before, after)
        return json_answer(_document(job, after), tag=tag_of(_text(after)))
    return json_answer(_document(job, after), tag=tag_of(_text(before)))


def _store(job: str, store: Controls, before: JobState, after: JobState) -> None:
    lookups = site().lookups
    files = pipelines(site().files)
    shown = [
        ("pause", str(path))
        for name, path in files.items()
        if job == pipeline_job(name)
    ]
    confirmed = Confirmed(
        f"job {job}",
        change_of(Right.OPERATE, "job", job, _text(before), _text(after)),
        shown="",
        fields={"job": job},
        ended=lambda: lookups.forget([("paused",), *shown]),
    )

    def update(now: JobState) -> JobState:
        if now != before:
            msg = f"the state of {job} has changed meanwhile"
            raise Changed(msg, remedy="ask for it again")
        return after

    in_time(
        lambda: confirmed.perform("changed", lambda: store.change(job, update)),
        confirmed,
    )


def _document(job: str, state: JobState) -> dict[str, Any]:
    return {"job": job, **asdict(state)}


def _text(state: JobState) -> str:
    return json.dumps(asdict(state), sort_keys=True)
