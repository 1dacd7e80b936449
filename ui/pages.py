"""The pages that are read: streams, groups, pipelines, dead letters, checkpoints."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from flask import Blueprint, g, render_template, request

from streamfactory.spi import TopicNotFound, UnknownStream
from streamfactory.spi.masking import mask_userinfo
from streamfactory.ui import pipelines as facts
from streamfactory.ui.asked import first, note, number, paging, stream_name
from streamfactory.ui.catalogue import catalogue
from streamfactory.ui.letters import outstanding
from streamfactory.ui.lookups import Answer
from streamfactory.ui.mapping import link_text, links_of_catalogue, node_address
from streamfactory.ui.parameters import PAGE_NUMBER, Parameter, takes_parameters
from streamfactory.ui.people import EVERYTHING, PIPELINES, STREAMS, Right
from streamfactory.ui.plots import line_plot
from streamfactory.ui.recording import rates
from streamfactory.ui.rights import (
    Rule,
    may,
    needs,
    of_everything,
    of_pipeline,
    of_some,
    of_stream,
    the_stream,
    visible,
)
from streamfactory.ui.runs import PACES
from streamfactory.ui.site import site
from streamfactory.ui.sorting import (
    ORDERS,
    Shown,
    ShownPipeline,
    ordered,
    ordered_pipelines,
    searched,
)
from streamfactory.ui.streams import (
    configuration,
    lags,
    partitions,
    sample,
    topic_facts,
)
from streamfactory.wiring.metrics.endpoint import plain_samples
from streamfactory.wiring.metrics.registry import registry

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence
    from pathlib import Path

    from markupsafe import Markup

    from streamfactory.ui.rights import Thing

pages = Blueprint("pages", __name__)

PAGE: Final = 1000
"""Rows of a long table on one page."""
MOST_STREAMS: Final = 100
"""Streams on one page: each is looked up."""
_STREAM: Final = (Parameter("name"), Parameter("stream"))


def _letters_stream() -> Iterator[Thing]:
    if "stream" in request.args:
        yield the_stream(request.args["stream"])


def _letters_target() -> Iterator[Thing]:
    if request.args.get("to"):
        yield the_stream(request.args["to"])


_LETTERS: Final = (
    Rule(Right.VALUES, "the stream whose letters are shown", _letters_stream),
    Rule(Right.READ, "the stream that they would be replayed into", _letters_target),
)


@pages.get("/")
@takes_parameters(PAGE_NUMBER, Parameter("q"), Parameter("sort", words=tuple(ORDERS)))
@needs(of_some(Right.READ))
def overview() -> str:
    """All streams and pipelines."""
    found = catalogue()
    text, order = request.args.get("q", ""), request.args.get("sort", "problems")
    everything, files = _visible()
    names = searched(everything, text)
    files = {name: files[name] for name in searched(list(files), text)}
    begin = first(len(names), MOST_STREAMS)
    shown = names[begin : begin + MOST_STREAMS]
    wanted: dict[Hashable, Any] = {}
    for name in shown:
        wanted["configuration", name] = partial(configuration, name)
        wanted["partitions", name] = partial(partitions, name)
        wanted["facts", name] = partial(topic_facts, name)
    for path in files.values():
        wanted["definition", str(path)] = partial(facts.definition, path)
        wanted["progress", str(path)] = partial(facts.progress, path)
        wanted["lags", str(path)] = partial(lags, str(path))
        wanted["changes", str(path)] = partial(facts.changes, path)
    if may(Right.READ, PIPELINES, EVERYTHING):
        wanted["paused",] = facts.paused_jobs
    answers = _ask(wanted)
    return render_template(
        "overview.html",
        folder=str(found.folder),
        broken=_broken(),
        streams=ordered(
            [Shown(name, *(answers[k, name] for k in _OF_STREAMS)) for name in shown],
            order,
        ),
        text=text,
        order=order,
        orders=ORDERS,
        paused=answers.get(("paused",), Answer()),
        total=len(everything),
        pipelines=ordered_pipelines(
            [
                ShownPipeline(
                    name,
                    answers["definition", str(path)],
                    answers["progress", str(path)],
                    answers["lags", str(path)],
                    site().runs.last(path),
                    bool(answers["changes", str(path)].value),
                )
                for name, path in files.items()
            ],
            order,
        ),
        **paging(len(names), begin, MOST_STREAMS),
    )


_OF_STREAMS: Final = ("configuration", "partitions", "facts")


@pages.get("/stream")
@takes_parameters(*_STREAM, PAGE_NUMBER, Parameter("set", words=("only",)))
@needs(of_stream(Right.READ))
def stream() -> str:
    """One stream: guarantee, partitions, schema, groups, effective configuration."""
    name = stream_name()
    answers = _ask(
        {
            "configuration": partial(configuration, name),
            "partitions": partial(partitions, name),
            "lags": partial(lags, name),
            "facts": partial(topic_facts, name),
        },
        name,
    )
    links = links_of_catalogue()
    all_of_them = _value(answers["partitions"], "partitions")
    known = answers["partitions"].value is not None
    begin = first(len(all_of_them), PAGE, known=known)
    return render_template(
        "stream.html",
        name=name,
        configuration=answers["configuration"],
        state=answers["partitions"],
        topic=answers["facts"],
        partitions=all_of_them[begin : begin + PAGE],
        groups=answers["lags"],
        readers=[one for one in links.readers(name) if one.target[0] != "group"],
        writers=links.writers(name),
        node_address=node_address,
        link_text=link_text,
        only_set=request.args.get("set") == "only",
        plot=_rate_plot("Rows written per second", ("stream", name)),
        **paging(len(all_of_them), begin, PAGE),
    )


@pages.get("/group")
@takes_parameters(*_STREAM, Parameter("group", required=True))
@needs(of_stream(Right.READ))
def group() -> str:
    """The lag of one group in one stream, by partition."""
    name, chosen = stream_name(), request.args.get("group", "")
    answer = _ask({"lags": partial(lags, name)}, name)["lags"]
    found = next((lag for lag in answer.value or () if lag["name"] == chosen), None)
    if found is None and not answer.pending and answer.error is None:
        msg = f"no group {chosen!r} has a position in the stream {name!r}"
        raise UnknownStream(msg, remedy="the page of the stream lists its groups")
    return render_template(
        "group.html",
        stream=name,
        group=chosen,
        answer=answer,
        lag=found,
        plots=_lag_plots(("group", chosen, name)),
    )


@pages.get("/dead-letters")
@takes_parameters(
    Parameter("stream"),
    Parameter("to"),
    Parameter("end", words=("first", "last")),
    Parameter("show", words=("all", "unresolved")),
    Parameter("as", words=("raw",)),
    Parameter("partition"),
)
@needs(of_some(Right.READ), *_LETTERS)
def dead_letters() -> str:
    """The streams of dead letters, or the newest dead letters of one."""
    if "stream" in request.args:
        return _letters_page()
    names, files = _visible()
    wanted: dict[Hashable, Any] = {
        ("configuration", name): partial(configuration, name) for name in names
    }
    for path in files.values():
        wanted["definition", str(path)] = partial(facts.definition, path)
    answers = _ask(wanted)
    users: dict[str, list[str]] = {}
    for answer in answers.values():
        value = answer.value or {}
        if value.get("dead_letters"):
            users.setdefault(value["dead_letters"], []).append(value["name"])
    found = sorted(set(users) & set(names))
    held = _ask({("partitions", one): partial(partitions, one) for one in found})
    return render_template(
        "dead_letter_streams.html",
        streams=[(one, users[one], held["partitions", one]) for one in found],
        missing=sorted(set(users) - set(catalogue().names())),
    )


@pages.get("/pipeline")
@takes_parameters(Parameter("name", required=True))
@needs(of_pipeline(Right.READ))
def pipeline() -> str:
    """One pipeline: its definition, checkpoint, batches and lag."""
    name, path = _pipeline()
    answers = _ask(
        {
            "definition": partial(facts.definition, path),
            "progress": partial(facts.progress, path),
            "lags": partial(lags, str(path)),
            "pause": partial(facts.pause, path),
            "changes": partial(facts.changes, path),
        },
        str(path),
    )
    history = _value(answers["progress"], "history")
    timed = [(one["at"], one["rate"]) for one in reversed(history)]
    lasted = [(one["at"], one["seconds"]) for one in reversed(history)]
    found = (answers["lags"].value or [None])[0]
    key = None if found is None else ("pipeline", found["name"], found["stream"])
    run = site().runs.last(path)
    if run is not None and run.running and run.stopping:
        g.pending = True
    return render_template(
        "pipeline.html",
        name=name,
        definition=answers["definition"],
        progress=answers["progress"],
        lag=answers["lags"],
        pause=answers["pause"],
        changes=answers["changes"].value or (),
        history=history,
        run=run,
        paces=PACES,
        now=time.time(),
        plots=[
            line_plot("Offsets per second of batches", timed, "offsets/s"),
            line_plot("Duration of batches", lasted, "s"),
            *([] if key is None else _lag_plots(key)),
        ],
    )


@pages.get("/checkpoint")
@takes_parameters(
    Parameter("name", required=True),
    Parameter("first", least=0, required=True),
    Parameter("second", least=0, required=True),
)
@needs(of_pipeline(Right.READ))
def checkpoint() -> str:
    """The differences of two batches of a pipeline's checkpoint."""
    name, path = _pipeline()
    one, other = number("first", 0), number("second", 0)
    answer = site().lookups.ask(
        ("compared", str(path), one, other),
        partial(facts.compared, path, one, other),
        large=True,
    )
    note([answer])
    return render_template(
        "checkpoint.html", name=name, first=one, second=other, answer=answer
    )


@pages.get("/process")
@needs(of_everything(Right.READ))
def process() -> str:
    """The metrics of this process."""
    found = plain_samples(registry.samples())
    return render_template("process.html", samples=found[:PAGE], total=len(found))


# --- parts ----------------------------------------------------------------------


def _visible() -> tuple[list[str], dict[str, Path]]:
    """The streams, and the files of pipelines, that the user may read."""
    files = facts.pipelines(site().files)
    return visible(STREAMS, catalogue().names()), {
        name: files[name] for name in visible(PIPELINES, files)
    }


def _broken() -> list[tuple[str, str]]:
    """The files that cannot be read, which may define any stream."""
    if not may(Right.READ, STREAMS, EVERYTHING):
        return []
    return [
        (str(path), mask_userinfo(str(error)))
        for path, error in catalogue().broken().items()
    ]


def _letters_page() -> str:
    """Unresolved dead letters of a stream, or all; undecoded, those of a partition."""
    name, to = stream_name(), request.args.get("to", "")
    last, every = request.args.get("end") != "first", request.args.get("show") == "all"
    raw, known = request.args.get("as") == "raw", Answer()
    if not raw:
        known = site().lookups.ask(
            ("outstanding", name, to, every, last),
            partial(outstanding, name, to, every=every, last=last),
            large=True,
        )
        note([known])
    answer = _ask({"partitions": partial(partitions, name)}, name)["partitions"]
    found = _value(answer, "partitions")
    chosen = _chosen(found)
    shown = Answer(pending=answer.pending)
    if chosen is not None:
        topic, number = chosen["topic"], chosen["partition"]
        shown = site().lookups.ask(
            ("sample", name, topic, number, last, raw),
            partial(sample, name, topic, number, last=last, raw=raw),
            large=True,
        )
    note([shown])
    return render_template(
        "dead_letters.html",
        stream=name,
        state=answer,
        partitions=found[:PAGE],
        chosen=chosen,
        last=last,
        raw=raw,
        answer=shown,
        letters=_letters(answer=shown, newest_first=last),
        names=visible(STREAMS, catalogue().names()),
        known=known,
        to=to,
        every=every,
    )


def _letters(answer: Answer, *, newest_first: bool) -> list[dict[str, Any]]:
    """Rows of dead letters, as fields by name."""
    if answer.value is None:
        return []
    names = answer.value["columns"]
    found = [
        {**dict(zip(names, row["cells"], strict=True)), "row_place": row["offset"]}
        for row in answer.value["rows"]
    ]
    return found[::-1] if newest_first else found


def _chosen(found: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The partition that the request names; by default the first that has rows.

    Raises:
        TopicNotFound: permanent; the stream does not have it.
    """
    given = request.args.get("partition")
    if given and found:
        named = {f"{one['partition']}:{one['topic']}": one for one in found}
        if given not in named:
            msg = f"partition {given[:80]!r} does not exist"
            remedy = "choose one of the partitions that the stream has"
            raise TopicNotFound(msg, remedy=remedy)
        return named[given]
    return next((one for one in found if one["held"]), found[0] if found else None)


def _lag_plots(key: Hashable) -> list[Markup]:
    points = site().recorder.points(key)
    return [
        line_plot("Lag in offsets", [(p.at, p.lag) for p in points], "offsets"),
        _rate_plot("Offsets per second", key),
    ]


def _rate_plot(title: str, key: Hashable) -> Markup:
    return line_plot(title, rates(site().recorder.points(key)), "offsets/s")


def _ask(wanted: dict[Any, Any], of: str | None = None) -> dict[Any, Answer]:
    """Look up, with keys that all pages share.

    Args:
        wanted: Functions by key.
        of: What the keys are about, if they are words only.
    """
    if of is None:
        found = site().lookups.ask_all(wanted)
    else:
        keyed = {(key, of): function for key, function in wanted.items()}
        answers = site().lookups.ask_all(keyed)
        found = {key: answers[key, of] for key in wanted}
    note(found.values())
    return found


def _value(answer: Answer, key: str) -> list[Any]:
    return [] if answer.value is None else list(answer.value[key])


def _pipeline() -> tuple[str, Path]:
    name = request.args.get("name", "")
    return name, facts.find(name, facts.pipelines(site().files))
