"""``python -m tests.proving.suite_times``: the tables of docs/design/suite.md.

They are made from ``.run/times-*.json``, which ``make test`` and ``make test-all``
leave. Record them on a machine without other work.
"""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "design" / "suite.md"
TIERS: Final = {"test": "make test", "rest": "make test-all"}
_BLOCK: Final = re.compile(r"(<!-- times -->\n).*?(<!-- end of times -->)", re.DOTALL)


def tables(reports: Mapping[str, dict[str, Any]]) -> str:
    """The reports of tiers as Markdown."""
    return "\n".join(line for part in _parts(reports) for line in (*part, ""))


def _parts(reports: Mapping[str, dict[str, Any]]) -> Iterator[list[str]]:
    yield _table(
        ("tier", "goal", "took", "tests", "in tests", "processors", "processes"),
        (
            (
                f"`{TIERS[tier]}`",
                _seconds(one["goal_seconds"]),
                _seconds(one["wall_seconds"]),
                f"{one['tests']:,}",
                _seconds(one["test_seconds"]),
                _seconds(one["busy_seconds"]),
                f"{one['processes']:,}",
            )
            for tier, one in reports.items()
        ),
    )
    folders = {name for one in reports.values() for name in one["folders"]}
    yield _table(
        ("folder", *(f"`{TIERS[tier]}`" for tier in reports), "processors"),
        sorted(
            (
                (
                    f"`{folder}`",
                    *(_of(one, folder, "seconds") for one in reports.values()),
                    _seconds(sum(_figure(one, folder) for one in reports.values())),
                )
                for folder in folders
            ),
            key=lambda row: -float(row[-1].removesuffix(" s").replace(",", "")),
        ),
    )
    for tier, one in reports.items():
        command = f"`{TIERS[tier]}`"
        yield _table(
            (f"tests of {command} in one process", "seconds"),
            _largest(one["groups"]),
        )
        yield _table((f"dearest of {command}", "processors"), _largest(one["dearest"]))
        yield _table((f"slowest of {command}", "seconds"), _largest(one["slowest"]))


def _figure(report: Mapping[str, Any], folder: str) -> float:
    return float(report["folders"].get(folder, {}).get("cpu", 0))


def _of(report: Mapping[str, Any], folder: str, figure: str) -> str:
    found = report["folders"].get(folder)
    return "" if found is None else _seconds(found[figure])


def _largest(figures: Mapping[str, float], count: int = 15) -> list[tuple[str, str]]:
    names = sorted(figures, key=lambda name: -figures[name])[:count]
    return [(f"`{name}`", _seconds(figures[name])) for name in names]


def _seconds(value: float) -> str:
    return f"{value:,.0f} s"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [head, tuple("---" for _ in head), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def main() -> None:
    """Write the tables of the last runs into the page."""
    paths = {tier: ROOT / ".run" / f"times-{tier}.json" for tier in TIERS}
    reports = {tier: json.loads(path.read_text()) for tier, path in paths.items()}
    last = max(path.stat().st_mtime for path in paths.values())
    day = datetime.fromtimestamp(last, UTC).date()
    note = f"Measured on {day}, on {os.cpu_count()} cores.\n"
    page, count = _BLOCK.subn(
        lambda found: f"{found[1]}\n{tables(reports)}\n{note}\n{found[2]}",
        PAGE.read_text(encoding="utf-8"),
    )
    assert count == 1, f"{PAGE} has no place for the tables"
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
