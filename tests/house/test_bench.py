"""``make bench``: every benchmark, and one table of what they measured."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest
from benchmarks import all as every
from benchmarks.measuring.figures import figure

if TYPE_CHECKING:
    from pathlib import Path

FOUND = [asdict(figure("reads of 64k rows", [0.5, 0.75, 1.0], "x raw", ">= 0.7"))]


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
    assert lines[0] == "log"
    assert "reads of 64k rows" in lines[1]
    assert "0.75 x raw    goal >= 0.7" in lines[1]
    assert lines[2:] == ["", "kafka: failed"]
