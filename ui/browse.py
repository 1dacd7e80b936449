"""The pages of messages: all partitions, one message, downloads, and a live view."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from flask import Blueprint, Response, g, render_template, request

from streamfactory.engines.search.outputs import FORMATS
from streamfactory.ui.asked import note, number, stream_name
from streamfactory.ui.feeds import sent_events
from streamfactory.ui.messages import (
    MOST_MESSAGES,
    PAGE,
    Query,
    download,
    message,
    messages,
    parse_place,
)
from streamfactory.ui.parameters import Parameter, takes_parameters
from streamfactory.ui.people import STREAMS, Right
from streamfactory.ui.problems import refuse_other_sites
from streamfactory.ui.rights import may, needs, of_rows
from streamfactory.ui.site import site
from streamfactory.ui.streams import partitions

if TYPE_CHECKING:
    from streamfactory.ui.lookups import Answer

browse = Blueprint("browse", __name__)

_KINDS: Final = {
    "json": ("jsonl", "application/x-ndjson"),
    "csv": ("csv", "text/csv; charset=utf-8"),
    "parquet": ("parquet", "application/vnd.apache.parquet"),
}
_QUERY: Final = (
    Parameter("stream"),
    Parameter("name"),
    Parameter("from"),
    Parameter("direction", words=("back", "forward")),
    Parameter("where"),
    Parameter("partition"),
    Parameter("as", words=("raw",)),
    Parameter("count", least=1, most=MOST_MESSAGES),
)


@browse.get("/messages")
@takes_parameters(*_QUERY)
@needs(of_rows())
def messages_page() -> tuple[str, int]:
    """Messages of all partitions, or of one, merged by time."""
    query = _query()
    if query.place:
        parse_place(query.place)  # an error of the client is no answer of a look-up
    lookups = site().lookups
    state = lookups.ask(("partitions", query.stream), partial(partitions, query.stream))
    answer = lookups.ask(("messages", query), partial(messages, query), large=True)
    note([state, answer])
    return render_template(
        "messages.html",
        query=query,
        asked=_arguments(query),
        state=state,
        partitions=(state.value or {}).get("partitions", [])[:1000],
        answer=answer,
        formats=FORMATS,
        most=MOST_MESSAGES,
    ), _status(answer)


@browse.get("/message")
@takes_parameters(
    Parameter("stream"),
    Parameter("name"),
    Parameter("topic", required=True),
    Parameter("partition", least=0),
    Parameter("offset", least=0, required=True),
)
@needs(of_rows())
def message_page() -> tuple[str, int]:
    """One message, whole within a bound."""
    name, topic = stream_name(), request.args.get("topic", "")
    partition, offset = number("partition", 0), number("offset", 0)
    masked = not may(Right.VALUES, STREAMS, name)
    answer = site().lookups.ask(
        ("message", name, topic, partition, offset, masked),
        partial(message, name, topic, partition, offset, masked=masked),
        large=True,
    )
    note([answer])
    return render_template(
        "message.html",
        stream=name,
        topic=topic,
        partition=partition,
        offset=offset,
        answer=answer,
    ), _status(answer)


@browse.get("/download")
@takes_parameters(*_QUERY, Parameter("format", words=FORMATS, required=True))
@needs(of_rows())
def download_file() -> Response:
    """The messages of a page and those after it, or before it, as a file."""
    refuse_other_sites()
    query, format = _query(), request.args["format"]
    ending, kind = _KINDS[format]
    if request.method == "HEAD":
        return Response(mimetype=kind)
    found = download(query, format)
    name = f"{query.stream}{'' if found.complete else '.part'}.{ending}"
    response = Response(found.content, mimetype=kind)
    response.headers["Content-Type"] = kind
    response.headers["Content-Disposition"] = (
        f"attachment; filename*=UTF-8''{quote(name, safe='')}"
    )
    return response


@browse.get("/follow")
@takes_parameters(*_QUERY)
@needs(of_rows())
def follow() -> str:
    """The live view: its script asks for messages as they arrive."""
    query = _query()
    g.scripts = True
    return render_template("follow.html", query=query, asked=_arguments(query))


@browse.get("/events")
@takes_parameters(*_QUERY, Parameter("after"))
@needs(of_rows())
def events() -> Response:
    """Messages since the last request, as server-sent events.

    It answers at once: a browser asks again by itself, with the last id. So a live view
    occupies no thread of the pages between two answers.
    """
    refuse_other_sites()
    query = _query()
    if request.method == "HEAD":
        return Response(mimetype="text/event-stream")
    last = request.headers.get("Last-Event-ID") or request.args.get("after", "")
    found = site().feeds.poll(query, last[:100])
    return Response(sent_events(found), mimetype="text/event-stream")


# --- parts ----------------------------------------------------------------------


def _query() -> Query:
    args, name = request.args, stream_name()
    return Query(
        name,
        args.get("from", "").strip(),
        back=args.get("direction", "back") != "forward",
        where=args.get("where", "").strip(),
        partition=args.get("partition", ""),
        raw=args.get("as") == "raw",
        count=number("count", PAGE.messages),
        masked=not may(Right.VALUES, STREAMS, name),
    )


def _arguments(query: Query) -> dict[str, Any]:
    """The arguments of links to the same query; those of its defaults are left out."""
    found = {
        "stream": query.stream,
        "where": query.where,
        "partition": query.partition,
        "as": "raw" if query.raw else "",
        "count": "" if query.count == PAGE.messages else query.count,
    }
    return {name: value for name, value in found.items() if value}


def _status(answer: Answer) -> int:
    """That of the page: 4xx where the client has to change what it asks for."""
    if answer.error is None or answer.value is not None:
        return 200
    if answer.error["error"] == "topic_not_found":
        return 404
    return 400 if answer.error.get("class") == "misuse" else 200
