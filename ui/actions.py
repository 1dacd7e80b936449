"""What changes something: positions of groups and pipelines, replays of dead letters.

Every change is a POST with the secret of the
session's forms, and is logged.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from flask import Blueprint, abort, g, redirect, render_template, request, url_for

from streamfactory.spark.checkpoints import Place, apply_rewind, plan_rewind
from streamfactory.spark.checkpoints import differences as moves_of
from streamfactory.spark.locating import locate, opened
from streamfactory.spark.targets import open_groups
from streamfactory.spi import MisuseError, Position, SchemaMismatch
from streamfactory.transfer.replaying import open_replay
from streamfactory.ui.changes import (
    Confirmed,
    change_of,
    client,
    in_time,
    shown_before,
    take,
)
from streamfactory.ui.letters import outstanding
from streamfactory.ui.logs import log_change
from streamfactory.ui.masking import has_masks
from streamfactory.ui.parameters import Parameter, takes_parameters
from streamfactory.ui.people import PIPELINES, STREAMS, Right
from streamfactory.ui.pipelines import find, pipelines
from streamfactory.ui.rights import (
    Rule,
    Thing,
    may,
    needs,
    of_some,
    require,
    the_stream,
)
from streamfactory.ui.shown import Shown, ShownReplay
from streamfactory.ui.site import site
from streamfactory.wiring.config.catalogue import Catalogue
from streamfactory.wiring.core.guard import masked_errors
from streamfactory.wiring.core.plain import plain
from streamfactory.wiring.core.shown import all_of, masked
from streamfactory.wiring.reading.position_texts import parse_marks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from werkzeug.wrappers import Response

    from streamfactory.spark.checkpoints import Rewind
    from streamfactory.transfer.auditing import Change
    from streamfactory.ui.jobs import Job
    from streamfactory.wiring.reading.position_arguments import Marks
    from streamfactory.wiring.streams.positions import PositionChange

    Document = dict[str, Any]

actions = Blueprint("actions", __name__, url_prefix="/actions")

_WHY: Final = "moved in the browser"


def _of_job() -> Iterator[Thing]:
    found = site().jobs.get((request.view_args or {})["number"])
    if found is None:
        abort(404)
    return map(the_stream, found.streams)


def _of_replay() -> Iterator[Thing]:
    """What a replay reads and writes.

    Who may see the rows of the target, or see them masked, sees those of the letters
    there, with the masks of the target.
    """
    return things_of_replay(_asked_replay())


def things_of_replay(asked: ShownReplay) -> Iterator[Thing]:
    """The streams of a replay, when the values of its letters may be shown, too."""
    letters, to = the_stream(asked.letters), the_stream(asked.to)
    of = [the_stream(asked.of)] if asked.of else []
    if of != [to] and (may(Right.VALUES, *to) or has_masks(to.name)):
        require(Right.VALUES, letters)
    yield from (letters, to, *of)


def _of_move() -> Iterator[Thing]:
    asked = _asked()
    if asked.pipeline:
        yield Thing(PIPELINES, asked.pipeline)
    if asked.stream or not asked.pipeline:
        yield the_stream(asked.stream)


JOB: Final = Rule(Right.OPERATE, "the streams of the replay", _of_job)
OF_REPLAY: Final = (
    "the streams; values of the letters, for users who see rows of another target"
)
_REPLAY: Final = Rule(Right.OPERATE, OF_REPLAY, _of_replay)
_MOVED: Final = Rule(
    Right.OPERATE, "the stream of the group, or the pipeline", _of_move
)


@actions.get("/jobs")
@needs(of_some(Right.OPERATE))
def jobs() -> str:
    """The replays that were started here."""
    return render_template(
        "jobs.html", jobs=[one for one in site().jobs.list() if is_visible(one)]
    )


@actions.get("/jobs/<int:number>")
@needs(JOB)
def job(number: int) -> str:
    """The progress or the result of one replay."""
    found = site().jobs.get(number)
    if found is None:
        abort(404)
    g.pending = found.state == "running"
    return render_template("job.html", job=found)


@actions.post("/replay")
@takes_parameters(*map(Parameter, ("stream", "to", "of", "change")))
@needs(_REPLAY)
def replay() -> str | Response:
    """Show what a replay of dead letters would do; with ``change``, start it."""
    if "change" in request.form:
        started = start_replay(take(request.form["change"], ShownReplay))
        return redirect(url_for("actions.job", number=started.number), 303)
    asked = _asked_replay()
    found = plan_replay(asked)
    g.session.changes.append(asked)
    return render_template("confirm_replay.html", asked=asked, found=found)


@actions.post("/jobs/<int:number>/stop")
@needs(JOB)
def stop(number: int) -> Response:
    """Ask a replay to end; it can be continued."""
    found = site().jobs.get(number)
    if found is None:
        abort(404)
    found.stop.set()
    return redirect(url_for("actions.job", number=number), 303)


@actions.post("/offsets")
@takes_parameters(*map(Parameter, ("place", "stream", "group", "pipeline", "change")))
@needs(_MOVED)
def offsets() -> str | Response:
    """Plan a change of a position and show it; with ``confirmed``, store it."""
    asked = _asked()
    title, back = _named(asked)
    confirming = asked.before is not None
    changed = change_of_position(asked, confirmed=confirming)
    if confirming:
        return redirect(back, 303)
    shown = replace(asked, place=changed["after"], before=changed["before"])
    g.session.changes.append(shown)
    return render_template(
        "confirm.html", title=title, back=back, change=changed, key=shown.key
    )


def change_of_position(asked: Shown, *, confirmed: bool) -> Document:
    """Plan a change of a position, or make it where it was confirmed.

    Returns:
        ``before`` and ``after`` as JSON, ``moves``, and of pipelines the counts
        ``again`` and ``skipped``.

    Raises:
        MisuseError: misuse; the place is malformed.
        PositionRefused: permanent; the position is not the one that was shown.
        StreamError: As `in_time`.
    """
    place, name, group = asked.place, asked.stream, asked.group
    try:
        marks = parse_marks([place] if "{" in place else place.split())
    except ValueError as error:  # also `PositionRefused`
        msg = f"the new position is invalid: {error}"
        raise MisuseError(msg, remedy="go back, and correct it") from None
    before = asked.before if confirmed else None
    title, _ = _named(asked)
    if asked.pipeline:
        of = str(find(asked.pipeline, pipelines(site().files)))
        change = change_of(Right.OPERATE, "pipeline", asked.pipeline)
        fields = {"pipeline": asked.pipeline}
        made = _confirmed(title, of, before, fields, change)
        return in_time(lambda: _rewind(of, marks, made), made)
    change = change_of(Right.OPERATE, "group", f"{group} in {name}")
    fields = {"stream": name, "group": group}
    made = _confirmed(title, name, before, fields, change)
    return in_time(lambda: _reset(name, group, marks, made), made)


def start_replay(asked: ShownReplay) -> Job:
    """Start a replay that was confirmed, and record it until its end.

    Raises:
        MisuseError: misuse; it is running already, or too many jobs are.
        ConnectionFailed: transient; it cannot be recorded, so it is not started.
    """
    letters, to, of = asked.letters, asked.to, asked.of
    title = f"replay of {letters} into {to}"
    recorded, trail = ExitStack(), site().trail
    if trail is not None:
        change = change_of(Right.OPERATE, "stream", letters, "", to)
        begun = trail.recorded(change, f"replayed into {to}")
        in_time(lambda: recorded.enter_context(begun), None)

    def run(job: Job) -> Document:
        with recorded:  # until the replay has ended
            return _replay(job, letters, to, of)

    try:
        started = site().jobs.start(title, run, tuple(filter(None, [letters, to, of])))
    except MisuseError:
        with recorded:
            raise
    text = f"{started.title}: started by {client()}"
    log_change(text, {"stream": letters})
    return started


def plan_replay(asked: ShownReplay) -> Document:
    """What a replay would process, see `outstanding`.

    Raises:
        MisuseError: misuse; the stream is none of dead letters.
        StreamError: As `outstanding`.
    """
    catalogue = Catalogue()
    for name in (asked.letters, asked.to, *filter(None, [asked.of])):
        catalogue.get(name)
    try:
        return in_time(lambda: outstanding(asked.letters, asked.to, asked.of), None)
    except SchemaMismatch as error:  # no stream of letters: no failure of the server
        raise MisuseError(error.what, remedy=error.remedy) from error


# --- parts ----------------------------------------------------------------------


def _named(asked: Shown) -> tuple[str, str]:
    """What is moved, and its page."""
    if asked.pipeline:
        back = url_for("pages.pipeline", name=asked.pipeline)
        return f"pipeline {asked.pipeline}", back
    back = url_for("pages.group", stream=asked.stream, group=asked.group)
    return f"group {asked.group} in {asked.stream}", back


def is_visible(job: Job) -> bool:
    """Whether the user of the request may see a job."""
    return all(may(Right.OPERATE, STREAMS, one) for one in job.streams)


def _asked_replay() -> ShownReplay:
    """The replay that the request asks for, or that it confirms."""
    form = request.form
    if "change" in form:
        return shown_before(form["change"], ShownReplay)
    names = (form.get(name, "").strip() for name in ("stream", "to", "of"))
    return ShownReplay(*names)


def _asked() -> Shown:
    """The change that the request asks for, or that it confirms."""
    form = request.form
    if "change" not in form:
        names = ("place", "stream", "group", "pipeline")
        return Shown(**{name: form.get(name, "") for name in names})
    return shown_before(form["change"], Shown)


def _confirmed(
    title: str, of: str, before: str | None, fields: dict[str, str], change: Change
) -> Confirmed | None:
    """The confirmation of a change; None if it is only to be shown."""
    if before is None:
        return None
    lookups, keys = site().lookups, ("lags", "progress", "definition")
    return Confirmed(
        title,
        change,
        shown=before,
        fields=fields,
        ended=lambda: lookups.forget((key, of) for key in keys),
    )


def _reset(
    name: str, group: str, marks: Marks, confirmed: Confirmed | None
) -> Document:
    """Plan the position of a group; store it if that is confirmed."""
    masks: list[Callable[[str], str]] = []
    with masked_errors(masks), ExitStack() as stack:
        _, groups = open_groups(stack, Catalogue().get(name), masks.append)
        change: PositionChange = groups.plan(group, marks)
        if confirmed is not None:
            confirmed.make(
                change.before, change.after, lambda: groups.apply(change), masks
            )
        document = _document(change.before, change.after)
        safe: Document = masked(document, all_of(masks))
        return safe


def _rewind(path: str, marks: Marks, confirmed: Confirmed | None) -> Document:
    """Plan the position of a pipeline; store it if that is confirmed."""
    located = locate(path)
    masks: list[Callable[[str], str]] = []
    place = Place.of(located.folder)
    with (
        masked_errors(masks),
        opened(located, len(located.definitions), masks.append) as sources,
    ):
        query, source = located.asked(), sources[0]
        change: Rewind = plan_rewind(place, located.record, query, source, marks)
        offsets = {
            one.partition: one.before
            for one in change.partitions
            if one.before is not None
        }
        old = Position(offsets, change.position.only(set(offsets)).incarnations)
        if confirmed is not None:
            confirmed.make(
                old,
                change.position,
                lambda: apply_rewind(place, change, source, why=_WHY),
                masks,
            )
        document = _document(old, change.position)
        document |= {"again": change.again, "skipped": change.skipped}
        safe: Document = masked(document, all_of(masks))
        return safe


def _document(before: Position, after: Position) -> Document:
    return {
        "before": before.to_json(),
        "after": after.to_json(),
        "moves": plain(moves_of(before, after)),
        "again": None,
        "skipped": None,
    }


def _replay(job: Job, letters: str, to: str, of: str) -> Document:
    catalogue = Catalogue()
    running = open_replay(
        catalogue.get(letters),
        catalogue.get(to),
        catalogue.get,
        of=catalogue.get(of) if of else None,
    )
    masks = [] if running.copy is None else [running.copy.mask]
    with masked_errors(masks), running:

        def count_rows(rows: int) -> None:
            job.rows = rows

        return dict(plain(running.run(job.stop, count_rows)))
