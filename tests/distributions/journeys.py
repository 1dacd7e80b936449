"""What a user does with a distribution of others, run against its wheel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.distributions.installing import Installed

HERE = Path(__file__).parent
ROWS = 500
LACKING = {
    "not claimed: epoch_visibility=task",
    "no ability: finish",
    "no ability: publish_position, fetch_groups, fetch_positions",
    "no ability: refused_certificate",
    "no ability: unreachable",
    "no ability: wake",
    "the medium sets the times of messages",
}
"""Why cases of the kit may be skipped."""


def run_own_tests(
    installed: Installed, tree: Path, folder: Path, *, kills: int
) -> None:
    """Run the tests of a distribution, but for the kit, against its wheel."""
    out = installed.run(
        "pytest",
        *("-q", "-p", "no:cacheprovider", "-k", "not onformance"),
        *("-c", str(tree / "pyproject.toml"), str(tree / "tests")),
        cwd=folder,
        ROUNDS=str(kills),
    )
    assert "skipped" not in out


def run_kit(installed: Installed, kind: str, folder: Path) -> None:
    """Run the kit: no case fails, and none is skipped but for `LACKING`."""
    out = installed.run("streamfactory", "conformance", kind, cwd=folder)
    lines = [line.split() for line in out.splitlines()]
    assert [line for line in lines if line[:1] == ["failed"]] == []
    assert sum(line[:1] == ["passed"] for line in lines) > 3
    skipped = [" ".join(line[3:]) for line in lines if line[:1] == ["skipped"]]
    assert set(skipped) <= LACKING


def publish_and_copy(installed: Installed, kind: str, folder: Path) -> None:
    """Publish a file into a topic, copy the topic twice, and read the copy."""
    lines = [json.dumps({"id": n, "name": f"row {n}"}) + "\n" for n in range(ROWS)]
    (folder / "rows.jsonl").write_text("".join(lines), encoding="utf-8")
    found = _run(installed, "commands", kind, folder)
    assert found["first"]["rows"] == found["copied"]["rows"] == ROWS
    assert found["again"]["rows"] == 0
    assert sorted(found["values"]) == list(range(ROWS))
    assert found["copied"]["guarantee"] == "exactly-once"
    assert found["described"]["name"] == kind


def through_spark(installed: Installed, kind: str, folder: Path) -> None:
    """A streaming query from a topic into another, in two runs."""
    assert _run(installed, "spark_driver", kind, folder) == list(range(2 * ROWS))


def _run(installed: Installed, program: str, kind: str, folder: Path) -> Any:
    """Run a program of this folder; the JSON that it prints last."""
    out = installed.run(
        f"tests.distributions.{program}",
        kind,
        cwd=folder,
        path=[str(HERE.parents[1])],
    )
    return json.loads(out.splitlines()[-1])
