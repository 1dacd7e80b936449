"""Plots as SVG elements of a page, which need no script and no style."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH, _HEIGHT = 640, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 10, 12, 24


def line_plot(
    title: str, points: Sequence[tuple[float, float | None]], unit: str
) -> Markup:
    """A line over time, as an SVG element.

    Args:
        title: What is plotted.
        points: Seconds since 1970 and values, by time; None interrupts the line.
        unit: Of the values, for the description.

    Returns:
        The element; a sentence if there are fewer than two values.
    """
    known = [(at, value) for at, value in points if value is not None]
    if len(known) < 2:
        return Markup("<p>{}: {}</p>").format(title, "no history yet")
    begin, end = points[0][0], points[-1][0]
    most = _ceiling(max(value for _, value in known))
    last = known[-1][1]
    text = f"From {_time(begin)} to {_time(end)} UTC; highest "
    text += f"{_number(max(v for _, v in known))}, last {_number(last)} {unit}."
    parts = [
        f'<svg class="plot" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
        f"<title>{escape(title)}</title><desc>{escape(text)}</desc>",
    ]
    for share in (0, 0.5, 1):
        y = _y(most * share, most)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" '
            f'y2="{y}"/><text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">'
            f"{_number(most * share)}</text>"
        )
    for at, anchor in ((begin, "start"), (end, "end")):
        x = _x(at, begin, end)
        parts.append(
            f'<text x="{x}" y="{_HEIGHT - 6}" text-anchor="{anchor}">{_time(at)}</text>'
        )
    for run in _runs(points):
        line = " ".join(f"{_x(at, begin, end)},{_y(v, most)}" for at, v in run)
        parts.append(f'<polyline class="line" points="{line}"/>')
    figure = "".join([*parts, "</svg>"])
    return Markup("<figure>{}<figcaption>{}: {}</figcaption></figure>").format(
        Markup(figure),  # noqa: S704 - made of numbers and escaped text
        title,
        text,
    )


def _runs(
    points: Sequence[tuple[float, float | None]],
) -> list[list[tuple[float, float]]]:
    """The points between interruptions; single ones are drawn as a short line."""
    runs: list[list[tuple[float, float]]] = [[]]
    for at, value in points:
        if value is None:
            runs.append([])
        else:
            runs[-1].append((at, value))
    return [run if len(run) > 1 else run * 2 for run in runs if run]


def _x(at: float, begin: float, end: float) -> float:
    width = _WIDTH - _LEFT - _RIGHT
    return round(_LEFT + width * (at - begin) / max(end - begin, 1e-9), 1)


def _y(value: float, most: float) -> float:
    height = _HEIGHT - _TOP - _BOTTOM
    return round(_TOP + height * (1 - value / most), 1)


def _ceiling(value: float) -> float:
    """The next round number, for the top of the axis."""
    size = 1.0
    while size * 10 <= value:
        size *= 10
    return next(size * step for step in (1, 2, 5, 10) if size * step >= value)


_SIZES: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def _number(value: float) -> str:
    for size, letter in _SIZES:
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")
