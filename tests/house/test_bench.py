"""``make bench``: every benchmark, and one table of what they measured."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest
from benchmarks import all as every
from benchmarks.growing.curves import CONSTANT, LINEAR, LOGARITHMIC, Curve
from benchmarks.measuring.figures import AGAIN, figure, itself, turns, worse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FOUND = [
    asdict(
        figure("reads of 64k rows", [0.5, 0.75, 1.0], "x raw", ">= 0.7", ceiling=[0.9])
    )
]


def test_every_benchmark_is_run_and_can_answer_in_json() -> None:
    assert {"log", "sockets", "spark", "kafka"} <= set(every.NAMES)
    texts = {name: (every.HERE / f"{name}.py").read_text() for name in every.NAMES}
    assert [name for name, text in texts.items() if '"--json"' not in text] == []


@pytest.mark.parametrize(
    ("program", "found"),
    [
        (f"print('Spark is noisy')\nprint({json.dumps(FOUND)!r})", FOUND),
        ("import sys\nsys.exit(3)", None),
        ("print('no figures')", None),
        ("", None),
    ],
)
def test_a_benchmark_answers_figures_or_fails(
    program: str, found: object, tmp_path: Path
) -> None:
    path = tmp_path / "one.py"
    path.write_text(program)
    assert every.run(path) == found


def test_the_table_has_each_figure_and_each_failure() -> None:
    lines = every.table({"log": FOUND, "kafka": None})
    assert "of ceiling" in lines[0]
    assert lines[1:3] == ["", "log"]
    assert "reads of 64k rows" in lines[3]
    assert re.search(r"0.75 x raw +0.83 >= 0.7 +0.50 +29 %  met", lines[3]), lines[3]
    assert lines[4:] == ["", "kafka: failed"]


def test_the_file_has_the_last_figures_of_each_benchmark(tmp_path: Path) -> None:
    file = tmp_path / "new" / "bench.json"
    for name, figures, load in [("spi", FOUND, 3.0), ("log", FOUND, 1.0)]:
        every.record(file, name, figures, load)
    every.record(file, "spi", FOUND[:0], 2.0)
    found = json.loads(file.read_text())
    assert list(found) == ["log", "spi"]
    assert (found["spi"]["figures"], found["spi"]["load"]) == ([], 2.0)
    assert found["log"]["figures"] == FOUND
    every.record(file, "log", None, 1.0)
    assert list(json.loads(file.read_text())) == ["spi"]


@pytest.mark.parametrize(
    ("goal", "value", "met"),
    [
        ("<= 1.5", 1.5, True),
        ("<= 1.5", 1.6, False),
        ("< 100", 100, False),
        (">= 0.9", 0.9, True),
        ("> 1", 1, False),
        ("none", 5, None),
    ],
)
def test_a_goal_is_met_or_not(goal: str, value: float, met: bool | None) -> None:
    assert figure("one", [value], "x", goal).met is met


@pytest.mark.parametrize(
    ("goal", "value", "ceiling", "met"),
    [
        (">= 0.95 of ceiling", 0.57, [0.6], True),
        (">= 0.95 of ceiling", 0.56, [0.6], False),
        ("<= 1.1 of ceiling", 2.1, [2.0], True),
        ("<= 1.1 of ceiling", 2.3, [2.0], False),
        (">= 0.95 of ceiling", 2.0, [], None),
    ],
)
def test_a_goal_can_be_a_share_of_the_ceiling(
    goal: str, value: float, ceiling: list[float], met: bool | None
) -> None:
    assert figure("one", [value], "x", goal, ceiling=ceiling).met is met


@pytest.mark.parametrize(
    ("unit", "goal", "before", "now", "by"),
    [
        ("x raw", ">= 0.9", 1.0, 0.8, 0.2),
        ("x raw", ">= 0.9", 1.0, 0.97, None),  # within 5 %
        ("x raw", ">= 0.9", 1.0, 2.0, None),
        ("x raw", ">= 0.9 of ceiling", 1.0, 0.8, 0.2),
        ("x rows", "<= 1.5", 1.0, 1.5, 0.5),
        ("x rows", "<= 1.5", 1.0, 0.5, None),
        ("ms", "none", 10.0, 15.0, 0.5),
        ("ms", "none", 10.0, 5.0, None),
        ("x", "none", 1.0, 0.1, None),  # which direction is better?
        ("ms", "none", 0.0, 5.0, None),
    ],
)
def test_a_figure_is_worse_than_before(
    unit: str, goal: str, before: float, now: float, by: float | None
) -> None:
    found = worse(figure("one", [now], unit, goal), figure("one", [before], unit, goal))
    assert found == (None if by is None else pytest.approx(by))


def test_a_difference_within_the_noise_is_none() -> None:
    before = figure("one", [1.0, 1.4, 1.0], "x raw", ">= 0.9")
    assert worse(figure("one", [0.8], "x raw", ">= 0.9"), before) is None
    assert worse(figure("one", [0.5], "x raw", ">= 0.9"), before)


def test_what_is_worse_than_recorded_is_named() -> None:
    less = [FOUND[0] | {"value": 0.3}]
    recorded = {"log": {"date": "2026-11-26", "figures": FOUND}}
    assert every.compared({"log": FOUND, "new": FOUND, "kafka": None}, recorded) == [
        "",
        "0 of 1 recorded figures are worse by more than the noise",
    ]
    assert every.compared({"log": less}, recorded)[1:] == [
        "1 of 1 recorded figures are worse by more than the noise",
        "  log: reads of 64k rows: 0.3 x raw, 0.75 on 2026-11-26: 60% worse",
    ]


def test_sides_that_take_turns_show_their_noise() -> None:
    took = turns(3, {"peer": lambda: None, "ours": lambda: None})
    assert set(took) == {"peer", "ours", AGAIN}
    assert len(itself(took)) == 3


@pytest.mark.parametrize(
    ("cost", "growth", "met"),
    [
        (lambda _: 5.0, CONSTANT, True),
        (lambda size: size**0.5, CONSTANT, False),
        (lambda size: 1 + math.log(size), LOGARITHMIC, True),
        (lambda size: 2.0 * size, LOGARITHMIC, False),
        (lambda size: 2.0 * size, LINEAR, True),
        (lambda size: size * math.log(size), LINEAR, True),
        (lambda size: 1e-6 * size**2, LINEAR, False),
        (lambda size: 100 / size, CONSTANT, True),
    ],
)
def test_growth_has_a_class(
    cost: Callable[[int], float], growth: str, met: bool
) -> None:
    values = {size: cost(size) for size in (10, 100, 1_000, 10_000)}
    assert Curve("one", "size", "ms", values, growth, "why").figure().met is met


def test_every_benchmark_has_smallest_sizes() -> None:
    assert set(every.TINY) == set(every.NAMES)
