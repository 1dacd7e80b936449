"""Draws the parts of a pipeline, from its sources to its sinks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from streamfactory.spark.pipelines.definition import parse_pipeline
from streamfactory.spark.pipelines.model import Table
from streamfactory.spi import ConfigError
from streamfactory.ui.catalogue import catalogue
from streamfactory.ui.drawing import links_map
from streamfactory.ui.links import Link, Links
from streamfactory.wiring.config.documents import Document

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from markupsafe import Markup

    from streamfactory.spark.pipelines.model import Draft, Step
    from streamfactory.ui.links import Node

MOST: Final = 60
"""Parts of a pipeline that is drawn."""
_QUOTED: Final = re.compile(
    # Without an end it extends to the end of the text: a search for each is quadratic.
    r"""--[^\n]*|/\*.*?(?:\*/|\Z)|'[^']*(?:'|\Z)|"[^"]*(?:"|\Z)""",
    re.DOTALL,
)
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def picture_of(path: Path, text: str) -> Markup | None:
    """A picture of a pipeline; None if its text cannot be read, or has many parts.

    A step is linked to the ids that its query names as words: Spark is not asked.

    Args:
        path: Of its file, for messages.
        text: The text.
    """
    try:
        draft = parse_pipeline(Document(path, text), catalogue())
    except ConfigError:
        return None
    if not 0 < len(draft.steps) + len(draft.targets) + len(draft.entries) <= MOST:
        return None
    links = Links()
    for one in _links(draft):
        links.add(one)
    if not links.nodes:
        return None
    return links_map(
        links.nodes, links.links, lambda link: link.what, lambda _: None, "Pipeline"
    )


def _links(draft: Draft) -> Iterator[Link]:
    nodes: dict[str, Node] = {}
    for entry in draft.entries:
        stream = getattr(entry, "stream", None)
        nodes[entry.id.lower()] = ("source", entry.id)
        if stream is not None:
            yield Link(("stream", stream.name), ("source", entry.id))
    for lookup in draft.lookups:
        nodes[lookup.id.lower()] = ("lookup", lookup.id)
    for step in draft.steps:
        nodes.setdefault(step.id.lower(), ("step", step.shown))
    seen = set[tuple[object, object]]()
    for step in draft.steps:
        for name in _inputs(step):
            ends = nodes.get(name.lower()), nodes[step.id.lower()]
            if ends[0] is None or ends[0] == ends[1] or ends in seen:
                continue  # a column, or a part of the step itself
            seen.add((ends[0], ends[1]))
            yield Link(ends[0], ends[1])
    for target in draft.targets:
        kind, name = "table", target.name
        if not isinstance(target, Table):
            kind, name = "sink", target.name
        source = nodes.get(target.rows.lower())
        if source is not None:
            yield Link(source, (kind, name))


def _inputs(step: Step) -> list[str]:
    if step.python is not None:
        return [*step.inputs]
    return [*dict.fromkeys(_WORD.findall(_QUOTED.sub(" ", step.sql)))]
