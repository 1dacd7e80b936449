"""Rows as they arrive, by server-sent events."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Final

from flask import Blueprint, Response, request

from streamfactory.ui.feeds import sent_events
from streamfactory.ui.messages import Query
from streamfactory.ui.openapi import answers
from streamfactory.ui.parameters import Parameter, takes_parameters
from streamfactory.ui.people import STREAMS, Right
from streamfactory.ui.programs.answers import PREFIX, patience, waiting
from streamfactory.ui.rights import may, needs, of_rows, the_stream
from streamfactory.ui.site import site

live = Blueprint("live", __name__, url_prefix=PREFIX)

EVENTS: Final = "text/event-stream"
MOST_SECONDS: Final = 10
MOST_LIVE: Final = 2
"""Answers that wait for rows at a time: changes need the turns of the others."""
_live = threading.BoundedSemaphore(MOST_LIVE)
_QUERY: Final = (
    Parameter("where", "An SQL expression; only messages that it is true for."),
    Parameter("partition", "ID:TOPIC; all partitions if it is missing."),
    Parameter("as", "raw returns messages without decoding.", words=("raw",)),
    Parameter("after", "The id of the last event; Last-Event-ID has it, too."),
    Parameter(
        "wait", "Seconds until an answer without rows.", least=0, most=MOST_SECONDS
    ),
)


@live.get("/streams/<name>/events")
@takes_parameters(*_QUERY)
@answers("Events", only=EVENTS)
@needs(of_rows())
def events(name: str) -> Response:
    """Return rows that arrived since an event, from the latest one on.

    An answer ends when it has rows, or after the time to wait: a client of server-sent
    events asks again with the id of the last event. Messages are in the form of the
    pages. Where too many answers wait, it ends at once.
    """
    name, args = the_stream(name).name, request.args
    query = Query(
        name,
        where=args.get("where", "").strip(),
        partition=args.get("partition", ""),
        raw=args.get("as") == "raw",
        masked=not may(Right.VALUES, STREAMS, name),
    )
    last = request.headers.get("Last-Event-ID") or args.get("after", "")
    with ExitStack() as held:
        # One after the other: an answer that does not wait takes no turn of others.
        patient = all(held.enter_context(patience(one)) for one in (_live, waiting))
        wait = float(args.get("wait") or 5) if patient else 0.0
        found = site().feeds.poll(query, last[:100], wait)
    return Response(sent_events(found), mimetype=EVENTS)
