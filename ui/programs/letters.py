"""Dead letters and their replays, which are jobs of the server."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from flask import Blueprint, Response, abort, request, url_for

from streamfactory.ui.actions import (
    JOB,
    OF_REPLAY,
    is_visible,
    plan_replay,
    start_replay,
    things_of_replay,
)
from streamfactory.ui.letters import outstanding
from streamfactory.ui.openapi import answers
from streamfactory.ui.parameters import Parameter, takes_parameters
from streamfactory.ui.people import Right
from streamfactory.ui.programs.answers import (
    DRY_RUN,
    PREFIX,
    ask,
    is_dry,
    json_answer,
    turn,
)
from streamfactory.ui.programs.bodies import Field, body, takes_body
from streamfactory.ui.rights import Rule, Thing, needs, of_some, of_stream, the_stream
from streamfactory.ui.shown import ShownReplay
from streamfactory.ui.site import site

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.ui.jobs import Job

letters = Blueprint("letters", __name__, url_prefix=PREFIX)


def _target() -> Iterator[Thing]:
    if request.args.get("to"):
        yield the_stream(request.args["to"])


def _replay() -> ShownReplay:
    given, name = body(), (request.view_args or {})["name"]
    return ShownReplay(the_stream(name).name, given["to"], given.get("of", ""))


_TARGET: Final = Rule(
    Right.READ, "the stream that they would be replayed into", _target
)
_REPLAY: Final = Rule(Right.OPERATE, OF_REPLAY, lambda: things_of_replay(_replay()))


@letters.get("/streams/<name>/letters")
@takes_parameters(
    Parameter("to", "The target of a replay; the stream that they come from."),
    Parameter("show", "Whether resolved letters are returned.", ("all", "unresolved")),
    Parameter("end", "Whether the last ones are returned.", ("first", "last")),
)
@answers("Letters")
@needs(of_stream(Right.VALUES), _TARGET)
def dead_letters(name: str) -> Response:
    """Return dead letters of a stream, with the counts of those that are unresolved."""
    name, args = the_stream(name).name, request.args
    to, every = args.get("to", ""), args.get("show") == "all"
    last = args.get("end") != "first"
    find = partial(outstanding, name, to, every=every, last=last)
    found = ask(("outstanding", name, to, every, last), find, large=True)
    return json_answer({"to": to, **found})


@letters.post("/streams/<name>/replays")
@takes_parameters(DRY_RUN)
@takes_body(
    Field("to", "The stream that they are written to.", required=True),
    Field("of", "The stream that they come from; by default that of the first one."),
)
@answers("Replay", status=(200, 202))
@needs(_REPLAY)
def replay_letters(name: str) -> Response:
    """Begin to replay the unresolved dead letters of a stream: a job does it.

    Letters that were replayed are not written again. With dry_run they are counted.
    """
    del name
    asked = _replay()
    with turn():
        found = plan_replay(asked)
        job = None if is_dry() else start_replay(asked).number
    document = {
        "made": job is not None,
        "to": asked.to,
        "resolved": found.get("resolved"),
        "unresolved": found.get("unresolved"),
        "job": job,
    }
    response = json_answer(document, status=200 if job is None else 202)
    if job is not None:
        response.headers["Location"] = url_for("letters.job", number=job)
    return response


@letters.get("/jobs")
@takes_parameters()
@answers("Jobs")
@needs(of_some(Right.OPERATE))
def jobs() -> Response:
    """List the replays that were started here, newest first."""
    found = [_document(one) for one in site().jobs.list() if is_visible(one)]
    return json_answer({"items": found})


@letters.get("/jobs/<int:number>")
@takes_parameters()
@answers("Job")
@needs(JOB)
def job(number: int) -> Response:
    """Return the progress or the result of a replay."""
    return json_answer(_document(_job(number)))


@letters.post("/jobs/<int:number>/stop")
@takes_parameters()
@answers("Job", status=(202,))
@needs(JOB)
def stop_job(number: int) -> Response:
    """Have a replay end; the same replay continues it."""
    found = _job(number)
    found.stop.set()
    return json_answer(_document(found), status=202)


def _job(number: int) -> Job:
    found = site().jobs.get(number)
    if found is None:
        abort(404)
    return found


def _document(job: Job) -> dict[str, Any]:
    return {
        "number": job.number,
        "title": job.title,
        "state": job.state,
        "rows": job.rows,
        "streams": list(job.streams),
        "result": job.result,
        "error": job.error,
    }
