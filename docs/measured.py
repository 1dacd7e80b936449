# ruff: noqa: INP001 - a script, in no package
"""Tables of what the benchmarks measured last, for the pages.

``benchmarks.json`` keeps it: ``make bench BENCH="--output docs/benchmarks.json"``.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FIGURES: Final = Path(__file__).parent / "benchmarks.json"


def tables() -> dict[str, Callable[[], str]]:
    """What writes the table of each benchmark, by its name on a page."""
    found: Mapping[str, Mapping[str, Any]] = json.loads(FIGURES.read_text("utf-8"))
    return {
        f"benchmark-{name}": partial(_table, run)
        for name, run in found.items()
        if name != "growth"  # `plots` shows its curves
    }


def _table(run: Mapping[str, Any]) -> str:
    """All figures of a run, and when and where it was."""
    lines = [
        "| figure | measured | of ceiling | goal | | spread | noise | rounds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in run["figures"]:
        value = f"{_number(one['value'])} {_escaped(one['unit'])}"
        share = f"{one['value'] / one['ceiling']:.2f}" if one["ceiling"] else ""
        noise = "" if one["noise"] is None else f"{100 * one['noise']:.0f} %"
        cells = [_named(one), value, share, _escaped(one["goal"]), _verdict(one["met"])]
        cells += [_number(one["spread"]), noise, str(one["rounds"])]
        lines.append(f"| {' | '.join(cells)} |")
    where = f"on {run['cores']} cores with a load of {run['load']:g}"
    return "\n".join([*lines, "", f"Measured on {run['date']}, {where}."])


def _named(one: Mapping[str, Any]) -> str:
    """The name of a figure, with the other numbers of the same rounds."""
    beside = [f"{what} {_number(value)}" for what, value in one["beside"].items()]
    return _escaped(one["name"]) + (
        f" ({', '.join(map(_escaped, beside))})" if beside else ""
    )


def _verdict(met: bool | None) -> str:
    return {True: "met", False: "**not met**", None: ""}[met]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _escaped(text: str) -> str:
    """As text of a cell: a bar would end it, an angle bracket could begin HTML."""
    return text.replace("|", r"\|").replace("<", "&lt;").replace(">", "&gt;")
