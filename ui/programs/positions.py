"""Positions of groups and pipelines: compared by their ETag, and set."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from flask import Blueprint, Response, request

from streamfactory.spark.targets import open_groups
from streamfactory.ui.actions import change_of_position
from streamfactory.ui.changes import in_time
from streamfactory.ui.openapi import answers, takes_condition
from streamfactory.ui.parameters import Parameter, takes_parameters
from streamfactory.ui.people import Right
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
from streamfactory.ui.rights import needs, of_pipeline, of_stream, the_stream
from streamfactory.ui.shown import Shown
from streamfactory.wiring.config.catalogue import Catalogue
from streamfactory.wiring.core.guard import masked_errors
from streamfactory.wiring.core.shown import all_of, masked

if TYPE_CHECKING:
    from collections.abc import Callable

positions = Blueprint("positions", __name__, url_prefix=PREFIX)

_GROUP: Final = Parameter("group", "The group.", required=True)
_PLACE: Final = Field(
    "place",
    "An offset, earliest, latest, a time, PARTITION=PLACE for some partitions, or the "
    "JSON of a position.",
    required=True,
)


@positions.get("/streams/<name>/position")
@takes_parameters(_GROUP)
@answers("Position")
@needs(of_stream(Right.READ))
def group_position(name: str) -> Response:
    """Return the position of a group in a stream. Its ETag is that of the position."""
    name, group = the_stream(name).name, request.args["group"]
    with turn():
        text = in_time(lambda: _position(name, group), None)
    document = {"name": group, "stream": name, "position": json.loads(text)}
    return json_answer(document, tag=tag_of(text))


@positions.put("/streams/<name>/position")
@takes_parameters(_GROUP, DRY_RUN)
@takes_body(_PLACE)
@takes_condition()
@answers("Move")
@needs(of_stream(Right.OPERATE))
def set_group_position(name: str) -> Response:
    """Set the position of a group, unless it has moved. No reader may use it.

    With dry_run nothing is stored: the answer has what would be, and the ETag of the
    position.
    """
    name = the_stream(name).name
    return _moved(Shown(body()["place"], stream=name, group=request.args["group"]))


@positions.put("/pipelines/<name>/position")
@takes_parameters(DRY_RUN)
@takes_body(_PLACE)
@takes_condition()
@answers("Move")
@needs(of_pipeline(Right.OPERATE))
def set_pipeline_position(name: str) -> Response:
    """Move a pipeline that does not run, unless it has moved.

    With dry_run nothing is stored: the answer has what would be read again or left
    out, and the ETag of the position.
    """
    return _moved(Shown(body()["place"], pipeline=name))


def _moved(asked: Shown) -> Response:
    with turn():
        plan = change_of_position(asked, confirmed=False)
        tag = tag_of(plan["before"])
        if not is_dry():
            expect(tag)
            confirmed = Shown(
                plan["after"],
                asked.stream,
                asked.group,
                asked.pipeline,
                before=plan["before"],
            )
            plan = change_of_position(confirmed, confirmed=True)
            tag = tag_of(plan["after"])
    texts = {key: json.loads(plan[key]) for key in ("before", "after")}
    document = {**plan, **texts, "made": not is_dry()}
    return json_answer(document, tag=tag)


def _position(name: str, group: str) -> str:
    """The position of a group, as JSON without secrets."""
    masks: list[Callable[[str], str]] = []
    with masked_errors(masks), ExitStack() as stack:
        _, groups = open_groups(stack, Catalogue().get(name), masks.append)
        text: str = masked(groups.find([group])[group].to_json(), all_of(masks))
        return text
