"""Start, stop and restart of pipelines in processes of this server.

Each is shown first, done when it is confirmed,
and logged.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from flask import Blueprint, g, redirect, render_template, request, url_for

from streamfactory.spi import MisuseError
from streamfactory.ui import pipelines as facts
from streamfactory.ui.changes import Confirmed, change_of, in_time, shown_before, take
from streamfactory.ui.parameters import Parameter, takes_parameters
from streamfactory.ui.people import PIPELINES, Right
from streamfactory.ui.rights import Rule, Thing, needs
from streamfactory.ui.runs import AS_CONFIGURED, PACES, Run, Runs, command_of
from streamfactory.ui.shown import Changed, ShownRun
from streamfactory.ui.site import site

if TYPE_CHECKING:
    from pathlib import Path

    from werkzeug.wrappers import Response

Plan = tuple[str, list[str], Callable[[], object]]
"""What is done, its consequences, and what does it."""

running = Blueprint("running", __name__, url_prefix="/actions")

_LOOKED_UP: Final = ("lags", "progress", "definition", "changes")


def _of_run() -> Iterator[Thing]:
    form = request.form
    if "change" in form:
        yield Thing(PIPELINES, shown_before(form["change"], ShownRun).pipeline)
    else:
        yield Thing(PIPELINES, form.get("pipeline", ""))


_RUN: Final = Rule(Right.OPERATE, "the pipeline", _of_run)


@running.post("/run")
@takes_parameters(*map(Parameter, ("kind", "pipeline", "pace", "change")))
@needs(_RUN)
def run() -> str | Response:
    """Show what starting or stopping a pipeline would do; with ``change``, do it."""
    form = request.form
    confirming = "change" in form
    if confirming:
        asked = take(form["change"], ShownRun)
    else:
        asked = ShownRun(form.get("kind", ""), form.get("pipeline", ""))
        asked = replace(asked, pace=form.get("pace") or AS_CONFIGURED)
        if asked.kind not in _PLANS or asked.pace not in PACES:
            msg = f"{asked.kind!r} at the pace {asked.pace!r} cannot be done"
            remedy = f"use {', '.join(_PLANS)}; and the pace {', '.join(PACES)}"
            raise MisuseError(msg, remedy=remedy)
    what, details, seen = change_of_run(asked, confirmed=confirming)
    if confirming:
        return redirect(url_for("pages.pipeline", name=asked.pipeline), 303)
    shown = replace(asked, seen=seen)
    g.session.changes.append(shown)
    return render_template("confirm_run.html", asked=shown, what=what, details=details)


def change_of_run(asked: ShownRun, *, confirmed: bool) -> tuple[str, list[str], str]:
    """Plan a start, a stop or a restart, or make it where it was confirmed.

    Returns:
        What is done, its consequences, and what it depends on.

    Raises:
        MisuseError: misuse; it cannot be done.
        Changed: config; the run is not as it was shown.
        StreamError: As `in_time`.
    """
    path = facts.find(asked.pipeline, facts.pipelines(site().files))
    runs = site().runs
    seen = state_of_run(runs.last(path))
    made = _confirmed(asked, path) if confirmed else None
    if made is not None and seen != asked.seen:
        msg = "the run of the pipeline has changed since it was shown"
        raise Changed(msg, remedy="go back, and look again")
    what, details = in_time(lambda: _planned(runs, asked, path, made), made)
    return what, details, seen


def state_of_run(run: Run | None) -> str:
    """What a change of a run depends on."""
    return "" if run is None else f"{run.number} {run.state}"


# --- parts ----------------------------------------------------------------------


def _confirmed(asked: ShownRun, path: Path) -> Confirmed:
    lookups = site().lookups
    return Confirmed(
        f"pipeline {asked.pipeline}",
        change_of(Right.OPERATE, "pipeline", asked.pipeline, asked.seen, asked.kind),
        shown=asked.seen,
        fields={"pipeline": asked.pipeline},
        ended=lambda: lookups.forget((key, str(path)) for key in _LOOKED_UP),
    )


def _planned(
    runs: Runs, asked: ShownRun, path: Path, confirmed: Confirmed | None
) -> tuple[str, list[str]]:
    """What a change does; it is made if that is confirmed."""
    what, details, make = _PLANS[asked.kind](runs, asked, path)
    if confirmed is not None:
        confirmed.perform(what, make)
    return what, details


def _start(runs: Runs, asked: ShownRun, path: Path) -> Plan:
    name, definition = asked.pipeline, facts.definition(path)
    last = runs.last(path)
    if last is not None and last.running:
        msg = f"pipeline {name!r} is {last.state}"
        raise MisuseError(msg, remedy="wait for its end, or stop it")
    if any(one["level"] == "error" for one in definition["problems"]):
        msg = f"the file of pipeline {name!r} has errors"
        raise MisuseError(msg, remedy="its page shows them")
    used = facts.used(path)
    if used is not None:
        msg = f"pipeline {name!r} cannot be started: {used}"
        raise MisuseError(msg, remedy="stop that run first, where it was started")
    checkpoint = definition["checkpoint"]
    details = [
        f"Ends: {PACES[asked.pace]}",
        f"Checkpoint: {checkpoint}, where it continues if it has run before",
        *(f"Begins: {text}" for text in facts.begins_late(path)),
        f"Guarantee: {definition['guarantee']['guarantee']}",
        f"As: {shlex.join(command_of(path, asked.pace))}",
    ]
    return "started", details, lambda: runs.start(name, path, asked.pace)


def _stop(runs: Runs, asked: ShownRun, path: Path) -> Plan:
    run = _running(runs, asked, path)
    if run.stopping:
        details = ["It ends at once. The next run repeats what is not committed."]
        return "stopped at once", details, lambda: runs.stop(run)
    details = ["It finishes its batch, and ends. The next run continues from there."]
    return "stopped", details, lambda: runs.stop(run)


def _restart(runs: Runs, asked: ShownRun, path: Path) -> Plan:
    run = _running(runs, asked, path)
    what = "It finishes its batch, and ends. Then its file is read again, and another "
    details = [f"{what}run continues from there."]
    return "restarted", details, lambda: runs.restart(run)


_PLANS: Final[dict[str, Callable[[Runs, ShownRun, Path], Plan]]] = {
    "start": _start,
    "stop": _stop,
    "restart": _restart,
}
KINDS: Final = tuple(_PLANS)


def _running(runs: Runs, asked: ShownRun, path: Path) -> Run:
    run = runs.last(path)
    if run is None or not run.running:
        msg = f"pipeline {asked.pipeline!r} is not run by this server"
        raise MisuseError(msg, remedy="stop it where it was started")
    return run
