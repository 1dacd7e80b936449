"""Topics, and messages that are written by hand: planned, compared, and changed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final

from flask import Blueprint, Response, request

from streamfactory.spi import MisuseError, TopicNotFound
from streamfactory.ui.administration import change_of_topic, state_of_topic
from streamfactory.ui.changes import in_time
from streamfactory.ui.openapi import answers, takes_condition
from streamfactory.ui.parameters import Parameter, takes_parameters
from streamfactory.ui.people import Right
from streamfactory.ui.programs.answers import (
    DRY_RUN,
    PREFIX,
    expect,
    expect_nothing,
    is_dry,
    json_answer,
    tag_of,
    turn,
)
from streamfactory.ui.programs.bodies import Field, body, takes_body
from streamfactory.ui.rights import needs, of_stream, the_stream
from streamfactory.ui.shown import ShownTopic

topics = Blueprint("topics", __name__, url_prefix=PREFIX)

_MOST_PARTITIONS: Final = 10_000
_COUNT: Final = "The number of partitions."


@topics.get("/streams/<name>/topic")
@takes_parameters()
@answers("Topic")
@needs(of_stream(Right.READ))
def topic(name: str) -> Response:
    """Return what the type shows of a topic. Its ETag is that of the partitions."""
    name = the_stream(name).name
    with turn():
        document, seen = in_time(lambda: state_of_topic(name), None)
    return json_answer(document, tag=tag_of(seen))


@topics.put("/streams/<name>/topic")
@takes_parameters(DRY_RUN)
@takes_body(
    Field("columns", "Names and types, as 'id bigint, name string'."),
    Field("partitions", _COUNT, "integer", most=_MOST_PARTITIONS),
)
@takes_condition(creates=True)
@answers("Change", status=(200, 201))
@needs(of_stream(Right.EDIT))
def create_topic(name: str) -> Response:
    """Create the topic of a stream, with If-None-Match: *.

    By default it has the columns and the number of partitions that are configured.
    """
    given = body()
    count = given.get("partitions", "")
    text = f"{_no_bars(given.get('columns', ''))}|{count}"
    asked = ShownTopic("create", the_stream(name).name, text)
    return _changed(asked, creates=True)


@topics.patch("/streams/<name>/topic")
@takes_parameters(DRY_RUN)
@takes_body(Field("partitions", _COUNT, "integer", True, most=_MOST_PARTITIONS))
@takes_condition()
@answers("Change")
@needs(of_stream(Right.EDIT))
def grow_topic(name: str) -> Response:
    """Give a topic more partitions. Rows are not moved."""
    text = str(body()["partitions"])
    return _changed(ShownTopic("grow", the_stream(name).name, text))


@topics.delete("/streams/<name>/topic")
@takes_parameters(Parameter("topic", "Its name, once more.", required=True), DRY_RUN)
@takes_condition()
@answers("Change")
@needs(of_stream(Right.EDIT))
def delete_topic(name: str) -> Response:
    """Delete a topic with all its rows; the definition of the stream stays."""
    text = request.args["topic"]
    return _changed(ShownTopic("delete", the_stream(name).name, text))


@topics.post("/streams/<name>/truncation")
@takes_parameters(DRY_RUN)
@takes_body(
    Field("before", "A place: rows before it are deleted.", required=True),
)
@takes_condition()
@answers("Change")
@needs(of_stream(Right.EDIT))
def truncate_topic(name: str) -> Response:
    """Delete the rows before a place: an offset, a time, a period, or latest.

    The ETag for If-Match is that of the same request with dry_run, which counts the
    rows.
    """
    return _changed(ShownTopic("truncate", the_stream(name).name, body()["before"]))


@topics.post("/streams/<name>/messages")
@takes_parameters(DRY_RUN)
@takes_body(
    Field("row", "Values by column; _key, _partition and others, too.", "object"),
    Field("text", "The value of an undecoded message."),
)
@answers("Change", status=(200, 201))
@needs(of_stream(Right.EDIT))
def write_message(name: str) -> Response:
    """Write one message: a row, or the text of an undecoded message.

    Sent again, it is written again.
    """
    given = body()
    if len(given) != 1:
        msg = "the body has no row and no text, or both"
        raise MisuseError(msg, remedy="give one of them")
    format, text = "text", given.get("text", "")
    if "row" in given:
        format, text = "json", json.dumps(given["row"], ensure_ascii=False)
    asked = ShownTopic("produce", the_stream(name).name, text, format)
    return _changed(asked, conditional=False, status=201)


def _changed(
    asked: ShownTopic,
    *,
    conditional: bool = True,
    creates: bool = False,
    status: int = 200,
) -> Response:
    """Plan a change, compare what it depends on, and make it."""
    with turn():
        if creates and not is_dry():
            expect_nothing(exists=_exists(asked.stream))
            status = 201
        what, details, seen = change_of_topic(asked, confirmed=False)
        if not is_dry():
            if conditional and not creates:
                expect(tag_of(seen))
            asked = replace(asked, seen=seen)
            what, details, seen = change_of_topic(asked, confirmed=True)
    document = {"made": not is_dry(), "what": what, "details": details}
    if is_dry():
        return json_answer(document, tag=tag_of(seen))
    return json_answer(document, status=status)


def _exists(name: str) -> bool:
    try:
        in_time(lambda: state_of_topic(name), None)
    except TopicNotFound:
        return False
    return True


def _no_bars(columns: str) -> str:
    """Columns for the text of a plan, in which a bar ends them."""
    if "|" in columns:
        msg = "the columns have a bar"
        raise MisuseError(msg, remedy="write them as 'id bigint, name string'")
    return columns
