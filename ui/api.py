"""``/api/v1``: what the pages show, as JSON, for programs.

Each route declares its parameters, as pages do, and the schema of its answer;
`openapi` makes the description of the interface from both. Errors are problem
details of RFC 9457, with the codes of ``docs/errors.md``.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Final

from flask import Blueprint, Response, abort, request, url_for

from streamfactory.ui import pipelines as facts
from streamfactory.ui.asked import first, number
from streamfactory.ui.audits import PARAMETERS, RECORD, asked_rows
from streamfactory.ui.catalogue import catalogue
from streamfactory.ui.messages import MOST_MESSAGES, Query, parse_place, rows_page
from streamfactory.ui.openapi import answers, described
from streamfactory.ui.parameters import PAGE_NUMBER, Parameter, takes_parameters
from streamfactory.ui.people import PIPELINES, STREAMS, Right
from streamfactory.ui.problems import ARROW
from streamfactory.ui.programs.answers import JSON, PREFIX, ask, json_answer
from streamfactory.ui.rights import (
    may,
    needs,
    of_everything,
    of_pipeline,
    of_rows,
    of_some,
    of_stream,
    the_stream,
    visible,
)
from streamfactory.ui.site import site
from streamfactory.ui.sorting import searched
from streamfactory.ui.streams import configuration, lags, partitions
from streamfactory.wiring.metrics.endpoint import plain_samples
from streamfactory.wiring.metrics.registry import registry

api = Blueprint("api", __name__, url_prefix=PREFIX)

PAGE: Final = 100
"""Streams or pipelines of one answer."""
_SEARCH: Final = Parameter("q", "Only names that contain this text.")
_ROWS: Final = (
    Parameter("from", "A place: an offset, earliest, latest, a time, a period, JSON."),
    Parameter(
        "direction",
        "Whether rows after the place are returned, or before it.",
        words=("forward", "back"),
    ),
    Parameter("where", "An SQL expression; only messages that it is true for."),
    Parameter("partition", "ID:TOPIC; all partitions if it is missing."),
    Parameter("as", "raw returns messages without decoding.", words=("raw",)),
    Parameter("count", "Messages, at most.", least=1, most=MOST_MESSAGES),
)


@api.get("/openapi.json")
@answers("OpenApi")
@needs(of_some(Right.READ))
def openapi() -> Response:
    """Describe this interface, as OpenAPI 3.1."""
    server = url_for("api.openapi").removesuffix("/openapi.json")
    return json_answer(described(PREFIX, server))


@api.get("/streams")
@takes_parameters(PAGE_NUMBER, _SEARCH)
@answers("Names")
@needs(of_some(Right.READ))
def streams() -> Response:
    """List the streams of the catalogue, by name."""
    return _names(visible(STREAMS, catalogue().names()), "api.stream")


@api.get("/streams/<name>")
@answers("Stream")
@needs(of_stream(Right.READ))
def stream(name: str) -> Response:
    """Return a definition: type, problems, guarantees, effective options.

    Connects to nothing.
    """
    name = the_stream(name).name
    found = ask(("configuration", name), partial(configuration, name))
    return json_answer(found)


@api.get("/streams/<name>/partitions")
@answers("Partitions")
@needs(of_stream(Right.READ))
def stream_partitions(name: str) -> Response:
    """Return the partitions with their offsets, and the columns."""
    name = the_stream(name).name
    return json_answer(ask(("partitions", name), partial(partitions, name)))


@api.get("/streams/<name>/lag")
@answers("Lags")
@needs(of_stream(Right.READ))
def stream_lag(name: str) -> Response:
    """Return the positions and the lag of the groups that read a stream."""
    name = the_stream(name).name
    return json_answer({"items": ask(("lags", name), partial(lags, name))})


@api.get("/streams/<name>/rows")
@takes_parameters(*_ROWS)
@answers("Rows", ARROW)
@needs(of_rows())
def rows(name: str) -> Response:
    """Return rows, as JSON or as an Arrow IPC stream, without consuming them.

    Values are those that searches see: binary values as text, secrets masked. The
    members `next` and `previous` are places for `from`.
    """
    name = the_stream(name).name
    args = request.args
    query = Query(
        name,
        args.get("from", "").strip() or "earliest",
        back=args.get("direction") == "back",
        where=args.get("where", "").strip(),
        partition=args.get("partition", ""),
        raw=args.get("as") == "raw",
        count=number("count", 50),
        masked=not may(Right.VALUES, STREAMS, name),
    )
    parse_place(query.place)
    kind = _accepted()
    found = ask(("rows", query), partial(rows_page, query), large=True)
    if kind == JSON:
        return json_answer(
            {
                "items": [json.loads(line) for line in found.lines],
                "next": found.after,
                "previous": found.before,
                "more": found.more,
            }
        )
    response = Response(found.arrow(), mimetype=ARROW)
    response.headers["Streamfactory-Next"] = found.after
    response.headers["Streamfactory-Previous"] = found.before
    return response


@api.get("/pipelines")
@takes_parameters(PAGE_NUMBER, _SEARCH)
@answers("Names")
@needs(of_some(Right.READ))
def pipelines() -> Response:
    """List the pipelines, by name."""
    return _names(
        visible(PIPELINES, sorted(facts.pipelines(site().files))), "api.pipeline"
    )


@api.get("/pipelines/<name>")
@answers("Pipeline")
@needs(of_pipeline(Right.READ))
def pipeline(name: str) -> Response:
    """Return what the file of a pipeline defines, its problems and its guarantee."""
    path = facts.find(name, facts.pipelines(site().files))
    found = ask(("definition", str(path)), partial(facts.definition, path))
    return json_answer(found)


@api.get("/pipelines/<name>/lag")
@answers("Lags")
@needs(of_pipeline(Right.READ))
def pipeline_lag(name: str) -> Response:
    """Return the positions and the lag of a pipeline in its sources."""
    path = facts.find(name, facts.pipelines(site().files))
    return json_answer({"items": ask(("lags", str(path)), partial(lags, str(path)))})


@api.get("/pipelines/<name>/checkpoint")
@answers("Checkpoint")
@needs(of_pipeline(Right.READ))
def pipeline_checkpoint(name: str) -> Response:
    """Return the checkpoint of a pipeline, with the last batches, newest first.

    The member `changes` has what changed in its files, and in streams that it uses,
    since the run of this machine began that uses the checkpoint.
    """
    path = facts.find(name, facts.pipelines(site().files))
    return json_answer(ask(("checkpoint", str(path)), partial(facts.checkpoint, path)))


@api.get("/audit")
@takes_parameters(*PARAMETERS)
@needs(RECORD)
@answers("Audit")
def audit() -> Response:
    """Return the newest rows of the record of changes, or those before a place.

    Oldest first. The member `previous` is the place, for `from`, of earlier rows.
    """
    return json_answer(ask(*asked_rows(), large=True))


@api.get("/metrics")
@answers("Metrics")
@needs(of_everything(Right.READ))
def metrics() -> Response:
    """Return the metrics of the process that serves this interface."""
    found = plain_samples(registry.samples())
    return json_answer({"items": found})


# --- parts ----------------------------------------------------------------------


def _names(names: list[str], endpoint: str) -> Response:
    """One page of names, each with the address of what it names."""
    found = searched(names, request.args.get("q", ""))
    begin = first(len(found), PAGE)
    items = [
        {"name": name, "href": url_for(endpoint, name=name)}
        for name in found[begin : begin + PAGE]
    ]
    return json_answer({"items": items, "count": len(found), "page": begin // PAGE + 1})


def _accepted() -> str:
    """The kind of the answer: JSON, unless the client wants Arrow."""
    wanted = request.accept_mimetypes
    found = wanted.best_match([JSON, ARROW]) if wanted else JSON
    if found is None:
        abort(406, f"The kinds of an answer are {JSON} and {ARROW}.")
    return str(found)
