"""Who reads and writes what: streams, spools, pipelines, tables and groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streamfactory.ui.lookups import Answer

    Node = tuple[str, str]
    """Kind and name. Kinds: ``stream``, ``transport``, ``spool``, ``pipeline``,
    ``table``, ``group`` (with the name ``GROUP in STREAM``)."""


@dataclass(frozen=True, slots=True)
class Link:
    """Rows go from one node to another."""

    source: Node
    target: Node
    what: str = ""
    """Empty for rows; ``dead letters``."""
    lag: int | None = None
    """Offsets that the target has not read; None if unknown."""
    has_lag: bool = False
    """Whether the target has a position in the source."""
    series: tuple[str, str, str] | None = None
    """Key of the history of the position."""


@dataclass
class Links:
    """All links of the catalogue, and nodes without one."""

    nodes: list[Node] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)

    def readers(self, name: str) -> list[Link]:
        """The links from a stream, or from its spool."""
        found = {("stream", name), ("transport", name), ("spool", name)}
        return [one for one in self.links if one.source in found]

    def writers(self, name: str) -> list[Link]:
        """The links to a stream."""
        return [one for one in self.links if one.target == ("stream", name)]

    def add(self, link: Link) -> None:
        """Add a link, and its nodes."""
        self.links.append(link)
        for node in (link.source, link.target):
            if node not in self.nodes:
                self.nodes.append(node)


def catalogue_links(
    streams: Iterable[tuple[str, Answer, Answer]],
    pipelines: Iterable[tuple[str, Answer, Answer]],
) -> Links:
    """The links that configurations, checkpoints and groups show.

    Args:
        streams: Name, configuration and lags of each stream.
        pipelines: Name, definition and lags of each pipeline.
    """
    found = Links()
    for name, configuration, lags in streams:
        facts: Mapping[str, Any] = configuration.value or {}
        node: Node = ("stream", name)
        found.nodes.append(node)
        if facts.get("spool"):
            found.add(Link(("transport", name), ("spool", name)))
            found.add(Link(("spool", name), node))
        if facts.get("dead_letters"):
            found.add(Link(node, ("stream", facts["dead_letters"]), "dead letters"))
        for one in lags.value or ():
            series = one["kind"], one["name"], one["stream"]
            group: Node = ("group", f"{one['name']} in {name}")
            found.add(Link(node, group, "", one["behind"], True, series))
    for name, definition, lags in pipelines:
        _add_pipeline(found, name, definition.value or {}, lags.value or ())
    return found


def _add_pipeline(
    found: Links, name: str, facts: Mapping[str, Any], lags: Iterable[Mapping[str, Any]]
) -> None:
    node: Node = ("pipeline", name)
    by_stream = {one["stream"]: one for one in lags}
    for name_of_source in facts.get("sources", ()):
        source: Node = ("stream", name_of_source)
        lag = by_stream.get(name_of_source)
        if lag is None:
            found.add(Link(source, node))
        else:
            series = lag["kind"], lag["name"], lag["stream"]
            found.add(Link(source, node, "", lag["behind"], True, series))
    if node not in found.nodes:
        found.nodes.append(node)
    for sink in facts.get("sinks", ()):
        kind = "table" if sink["table"] else "stream"
        found.add(Link(node, (kind, sink["to"])))
    if facts.get("dead_letters"):
        found.add(Link(node, ("stream", facts["dead_letters"]), "dead letters"))
