"""What a user does with a distribution of others, run against its wheel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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
RIGHTS_AND_BOUNDS = {
    "no ability: advance",
    "no ability: exceed",
    "no ability: login_that_reads",
    "no ability: login_that_writes",
    "no ability: login_without_rights",
    "no ability: staged",
}
"""The same, for harnesses without users of few rights, last offsets and staged rows."""


def run_own_tests(
    installed: Installed,
    tree: Path,
    folder: Path,
    *,
    kills: int,
    chosen: str = "not onformance",
) -> str:
    """Run the tests of a distribution, but for the kit, against its wheel.

    Returns:
        What pytest printed; a failure is raised.
    """
    return installed.run(
        "pytest",
        *("-q", "-p", "no:cacheprovider", "-k", chosen),
        *("-c", str(tree / "pyproject.toml"), str(tree / "tests")),
        cwd=folder,
        ROUNDS=str(kills),
    )


class Kit(NamedTuple):
    """What the kit reported."""

    passed: int
    """Lines of cases that passed."""
    failed: list[str]
    skipped: set[str]
    """Reasons."""


def run_kit(
    installed: Installed, kind: str, folder: Path, *arguments: str, **variables: str
) -> Kit:
    """Run the kit as a command, with more arguments and variables."""
    command = ("conformance", kind, *arguments)
    out = installed.run("streamfactory", *command, cwd=folder, **variables)
    lines = [line.split() for line in out.splitlines()]
    return Kit(
        sum(line[:1] == ["passed"] for line in lines),
        [" ".join(line[1:]) for line in lines if line[:1] == ["failed"]],
        {" ".join(line[3:]) for line in lines if line[:1] == ["skipped"]},
    )


def publish_and_copy(installed: Installed, kind: str, folder: Path) -> Any:
    """Publish a file into a topic, copy the topic twice, and read the copy.

    Returns:
        What ``commands`` prints.
    """
    lines = [json.dumps({"id": n, "name": f"row {n}"}) + "\n" for n in range(ROWS)]
    (folder / "rows.jsonl").write_text("".join(lines), encoding="utf-8")
    return _run(installed, "commands", kind, folder)


def through_spark(installed: Installed, kind: str, folder: Path) -> Any:
    """The numbers of a streaming query from a topic into another, in two runs."""
    return _run(installed, "spark_driver", kind, folder)


def _run(installed: Installed, program: str, kind: str, folder: Path) -> Any:
    """Run a program of this folder; the JSON that it prints last."""
    out = installed.run(
        f"tests.distributions.{program}",
        kind,
        cwd=folder,
        path=[str(HERE.parents[1])],
    )
    return json.loads(out.splitlines()[-1])
