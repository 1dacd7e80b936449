"""Draws links as an SVG element: nodes in columns, each right of what it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from markupsafe import Markup, escape

from streamfactory.wiring.core.shown import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamfactory.ui.links import Link, Node

MOST_NODES: Final = 200
_BOX, _HIGH = 190, 42
_ACROSS, _DOWN = 300, 58
_MARGIN: Final = 10
_LONGEST: Final = 24
"""Characters of a name in its box."""


def links_map(
    nodes: Sequence[Node],
    links: Sequence[Link],
    label: Callable[[Link], str],
    address: Callable[[Node], str | None],
    title: str = "Map",
) -> Markup:
    """A picture of links.

    Args:
        nodes: At most `MOST_NODES` are drawn.
        links: Between them; those of other nodes are left out.
        label: The text at a link.
        address: Where a node leads to; None for nowhere.
        title: What it shows, for those who do not see it.
    """
    drawn = list(nodes[:MOST_NODES])
    kept = [one for one in links if one.source in drawn and one.target in drawn]
    places = _places(drawn, kept)
    width = max((x for x, _ in places.values()), default=0) + _BOX + _MARGIN
    height = max((y for _, y in places.values()), default=0) + _HIGH + _MARGIN
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = [f'<svg class="map" {size} role="group" aria-label="{title}">']
    parts += [_line(places[one.source], places[one.target], one) for one in kept]
    parts += [_label(places[one.target], label(one)) for one in kept]
    parts += [_box(node, *places[node], address(node)) for node in drawn]
    return Markup("".join([*parts, "</svg>"]))  # noqa: S704 - numbers, escaped text


def _places(
    nodes: Sequence[Node], links: Sequence[Link]
) -> dict[Node, tuple[int, int]]:
    """The left upper corner of each node."""
    columns = dict.fromkeys(nodes, 0)
    for _ in range(len(nodes)):  # ends early, unless links form a circle
        moved = False
        for one in links:
            wanted = columns[one.source] + 1
            if columns[one.target] < wanted < len(nodes):
                columns[one.target], moved = wanted, True
        if not moved:
            break
    else:
        columns = _within_circles(nodes, links)
    used = {column: at for at, column in enumerate(sorted(set(columns.values())))}
    rows: dict[int, int] = {}
    found = {}
    for node in nodes:
        column = used[columns[node]]
        row = rows.get(column, 0)
        rows[column] = row + 1
        found[node] = (_MARGIN + _ACROSS * column, _MARGIN + _DOWN * row)
    return found


def _within_circles(nodes: Sequence[Node], links: Sequence[Link]) -> dict[Node, int]:
    """Columns by the shortest way from a first node."""
    targets = {one.target for one in links if one.source != one.target}
    found = {node: 0 for node in nodes if node not in targets} or {nodes[0]: 0}
    waiting = list(found)
    for node in waiting:
        for one in links:
            if one.source == node and one.target not in found:
                found[one.target] = found[node] + 1
                waiting.append(one.target)
    return {node: found.get(node, 0) for node in nodes}


def _line(source: tuple[int, int], target: tuple[int, int], link: Link) -> str:
    x, y = source[0] + _BOX, source[1] + _HIGH // 2
    end, low = target[0], target[1] + _HIGH // 2
    bend = max(40, (end - x) // 2)
    kind = "link bad-link" if link.what else "link"
    return (
        f'<path class="{kind}" d="M{x},{y} C{x + bend},{y} {end - bend},{low} '
        f'{end},{low}"/><path class="tip" d="M{end},{low} l-7,-4 l0,8 z"/>'
    )


def _label(target: tuple[int, int], text: str) -> str:
    if not text:
        return ""
    end, low = target[0], target[1] + _HIGH // 2
    return f'<text class="lag" x="{end - 10}" y="{low - 7}">{escape(text)}</text>'


def _box(node: Node, x: int, y: int, address: str | None) -> str:
    kind, name = node
    shown = printable(name)
    short = shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"
    box = (
        f"<title>{escape(f'{kind} {shown}')}</title>"
        f'<rect class="node {kind}" x="{x}" y="{y}" width="{_BOX}" height="{_HIGH}" '
        f'rx="6"/><text class="kind" x="{x + 10}" y="{y + 16}">{kind}</text>'
        f'<text class="name" x="{x + 10}" y="{y + 33}">{escape(short)}</text>'
    )
    if address is None:
        return f"<g>{box}</g>"
    return f'<a href="{escape(address)}">{box}</a>'
