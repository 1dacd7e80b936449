# ruff: noqa: INP001 - a script, in no package
"""Draws how costs grow, as SVG, and writes the same as a table.

``growth.json`` keeps what ``benchmarks/growth.py --record`` measured last.
"""

from __future__ import annotations

import json
import math
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GROWTH: Final = Path(__file__).parent / "growth.json"
WIDTH, HEIGHT = 640, 300
_LEFT, _TOP, _RIGHT, _BOTTOM = 60, 30, 430, 250
_COLOURS: Final = ("#4051b5", "#2e7d32", "#c62828", "#b26a00")
_STYLE: Final = """
  .page { fill: #ffffff; stroke: #d0d7de }
  .grid { stroke: #d0d7de }
  text { font: 12px "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
"""


def curves() -> list[Mapping[str, Any]]:
    """The curves that were recorded."""
    found: list[Mapping[str, Any]] = json.loads(GROWTH.read_text("utf-8"))
    return found


def growth_table() -> str:
    """A table of all curves, with their class and its reason."""
    lines = [
        "| cost | by | values | exponent | class | why |",
        "|---|---|---|---|---|---|",
    ]
    for one in curves():
        points = [f"{_number(v)} at {int(s):,}" for s, v in one["values"].items()]
        values = f"{one['unit']}: {', '.join(points)}"
        held = one["growth"] + ("" if one["met"] else " **(not met)**")
        cells = [one["name"], one["over"], values, f"{one['exponent']:.2f}", held]
        lines.append(f"| {' | '.join(cells)} | {one['reason']} |")
    dates, loads = ({one[key] for one in curves()} for key in ("date", "load"))
    when, cores = ", ".join(sorted(dates)), curves()[0]["cores"]
    load = f"a load of {min(loads):g} to {max(loads):g}"
    lines += ["", f"Measured on {when}, on {cores} cores with {load}."]
    return "\n".join(lines)


def plots() -> dict[str, str]:
    """One SVG for what the sizes count, by its name."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for one in curves():
        groups.setdefault(one["over"], []).append(one)
    return {
        f"growth-{over.replace(' ', '-')}": _svg(over, group)
        for over, group in groups.items()
    }


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _svg(over: str, group: Sequence[Mapping[str, Any]]) -> str:
    """Both axes are logarithmic: a straight line at 45 degrees is linear."""
    points = [_points(one) for one in group]
    x_range = _decades([x for line in points for x, _ in line])
    y_range = _decades([y for line in points for _, y in line])
    title = f"Cost by {over}, both axes logarithmic"
    parts = [
        (
            '<svg xmlns="http://www.w3.org/2000/svg" role="img" '
            f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">'
        ),
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        (
            f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" '
            f'height="{HEIGHT - 1}" rx="8"/>'
        ),
    ]
    for decade in range(x_range[0], x_range[1] + 1):
        x = _scaled(decade, x_range, _LEFT, _RIGHT)
        parts.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_BOTTOM}"/>'
            f'<text x="{x:.1f}" y="{_BOTTOM + 18}" text-anchor="middle">'
            f"{10**decade:,}</text>"
        )
    for decade in range(y_range[0], y_range[1] + 1):
        y = _scaled(decade, y_range, _BOTTOM, _TOP)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">'
            f"{10.0**decade:,g}</text>"
        )
    middle = (_LEFT + _RIGHT) / 2
    parts.append(
        f'<text x="{middle}" y="{_BOTTOM + 38}" text-anchor="middle">'
        f"{escape(over)}</text>"
    )
    for number, (one, line) in enumerate(zip(group, points, strict=True)):
        parts += _line(one, line, number, x_range, y_range)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _line(
    one: Mapping[str, Any],
    line: Sequence[tuple[float, float]],
    number: int,
    x_range: tuple[int, int],
    y_range: tuple[int, int],
) -> list[str]:
    """One curve, its points, and its name beside the plot."""
    colour = _COLOURS[number % len(_COLOURS)]
    places = [
        (
            _scaled(math.log10(x), x_range, _LEFT, _RIGHT),
            _scaled(math.log10(y), y_range, _BOTTOM, _TOP),
        )
        for x, y in line
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    top = _TOP + 10 + 22 * number
    return [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
        *(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
            for x, y in places
        ),
        (
            f'<text x="{_RIGHT + 12}" y="{top}" style="fill: {colour}">'
            f"{escape(one['name'])}, {escape(one['unit'])}</text>"
        ),
    ]


def _points(one: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Sizes and values; what is 0 cannot be drawn on a logarithmic axis."""
    values: Mapping[str, float] = one["values"]
    return [(float(size), max(float(v), 1e-3)) for size, v in values.items()]


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """Exponents of the powers of ten around some values."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _scaled(value: float, span: tuple[int, int], begin: float, end: float) -> float:
    return begin + (value - span[0]) / (span[1] - span[0]) * (end - begin)
