"""The page of the map, and who reads and writes a stream."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from flask import Blueprint, render_template, url_for

from streamfactory.ui import pipelines as facts
from streamfactory.ui.asked import note
from streamfactory.ui.catalogue import catalogue
from streamfactory.ui.drawing import MOST_NODES, links_map
from streamfactory.ui.links import Links, catalogue_links
from streamfactory.ui.people import PIPELINES, STREAMS, Right
from streamfactory.ui.recording import rates
from streamfactory.ui.rights import may, needs, of_some, visible
from streamfactory.ui.site import site
from streamfactory.ui.streams import configuration, lags

if TYPE_CHECKING:
    from collections.abc import Hashable

    from streamfactory.ui.links import Link, Node

mapping = Blueprint("mapping", __name__)

MOST_STREAMS: Final = 200
"""Streams whose configuration and groups are looked up for the map."""
_PAGES: Final = {
    "stream": "pages.stream",
    "transport": "pages.stream",
    "spool": "pages.stream",
    "pipeline": "pages.pipeline",
}


@mapping.get("/map")
@needs(of_some(Right.READ))
def map_page() -> str:
    """Streams, spools, pipelines, tables and groups, and what is between them."""
    found = links_of_catalogue()
    return render_template(
        "map.html",
        drawing=links_map(found.nodes, found.links, link_text, node_address),
        links=found.links[:1000],
        text=link_text,
        address=node_address,
        count=len(found.nodes),
        most=MOST_NODES,
    )


def links_of_catalogue() -> Links:
    """All links of the first streams, and of all pipelines, that the user may read."""
    names = visible(STREAMS, catalogue().names())[:MOST_STREAMS]
    files = facts.pipelines(site().files)
    files = {name: files[name] for name in visible(PIPELINES, files)}
    wanted: dict[Hashable, Any] = {}
    for name in names:
        wanted["configuration", name] = partial(configuration, name)
        wanted["lags", name] = partial(lags, name)
    for path in files.values():
        wanted["definition", str(path)] = partial(facts.definition, path)
        wanted["lags", str(path)] = partial(lags, str(path))
    answers = site().lookups.ask_all(wanted)
    note(answers.values())
    found = catalogue_links(
        [
            (name, answers["configuration", name], answers["lags", name])
            for name in names
        ],
        [
            (name, answers["definition", str(path)], answers["lags", str(path)])
            for name, path in files.items()
        ],
    )
    return Links(
        [one for one in found.nodes if _is_visible(one)],
        [
            one
            for one in found.links
            if _is_visible(one.source) and _is_visible(one.target)
        ],
    )


def _is_visible(node: Node) -> bool:
    kind, name = node
    if kind in ("pipeline", "table"):
        return kind == "table" or may(Right.READ, PIPELINES, name)
    return may(Right.READ, STREAMS, name.rpartition(" in ")[2])


def link_text(link: Link) -> str:
    """What a link transfers, its lag and its rate."""
    if not link.has_lag:
        return link.what
    text = "lag unknown" if link.lag is None else f"lag {link.lag:,}"
    known = [] if link.series is None else rates(site().recorder.points(link.series))
    rate = known[-1][1] if known else None
    return text if rate is None else f"{text}, {rate:,.0f}/s"


def node_address(node: Node) -> str | None:
    """The page of a node; None if it has none."""
    kind, name = node
    if kind == "group":
        group, _, stream = name.rpartition(" in ")
        return url_for("pages.group", stream=stream, group=group)
    return url_for(_PAGES[kind], name=name) if kind in _PAGES else None
