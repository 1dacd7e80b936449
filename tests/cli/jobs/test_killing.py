"""Commands that are killed and run again: every row once, in its order."""

from __future__ import annotations

import random
import signal
from typing import TYPE_CHECKING

import pytest
from tests.cli.jobs.victim import POINTS
from tests.proving.tiers import sample

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.jobs.conftest import Place
    from tests.proving.commands import Outcome

    Program = Callable[..., Outcome]

pytestmark = pytest.mark.slow("kills commands, and runs them again")

HERE = "tests/cli/jobs/test_killing.py"
ROWS = 4000
SMALL = "realtime.segment.flush.threshold.rows=100"
WRITING = [point for point in POINTS if "checkpoint" not in point]


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.csv"
    path.write_text("number\n" + "".join(f"{n}\n" for n in range(ROWS)))
    return path


def kill_and_repeat(
    program: Program, crashes: list[dict[str, object]], *line: object
) -> int:
    """Run a line, killed by each crash in turn, then to its end; how often it died."""
    killed = 0
    for crash in crashes:
        done = program(*line, crash=crash)
        assert done.status in (0, -signal.SIGKILL), done.err
        killed += done.status != 0
    done = program(*line)
    assert done.status == 0, done.err
    return killed


def publishing(stream: Path, numbers: Path) -> list[object]:
    small = ["--set", SMALL, "--set", "batch.bytes=400"]
    return ["publish", stream, numbers, "--writer", "w", *small]


def copying(source: Path, sink: Path) -> list[object]:
    return ["copy", source, sink, "--from-set", "batch.rows=50", "--to-set", SMALL]


def filled(place: Place) -> Path:
    """A source of two partitions."""
    source = place.stream("from", partitions=2)
    for start in range(0, ROWS, 1000):
        place.write("from", range(start, start + 500), partition=0)
        place.write("from", range(start + 500, start + 1000), partition=1)
    return source


@pytest.mark.parametrize("point", sample(WRITING, "two kills of a command"))
def test_publish_killed_at_a_point_continues(
    point: str, place: Place, program: Program, numbers: Path
) -> None:
    stream = place.stream("to")
    crashes: list[dict[str, object]] = [
        {"point": point, "count": count} for count in (1, 3)
    ]
    assert kill_and_repeat(program, crashes, *publishing(stream, numbers)) == 2
    assert place.numbers("to") == [list(range(ROWS))]


@pytest.mark.long("three kills of a command")
def test_publish_killed_at_random_continues(
    place: Place, program: Program, numbers: Path
) -> None:
    stream, chance = place.stream("to"), random.Random(7)
    crashes: list[dict[str, object]] = [
        {"after": chance.uniform(0, 0.1)} for _ in range(3)
    ]
    assert kill_and_repeat(program, crashes, *publishing(stream, numbers)) >= 2
    assert place.numbers("to") == [list(range(ROWS))]


@pytest.mark.parametrize(
    "point",
    sample(
        WRITING,
        "a copy is killed where publish is killed, too",
        shown_by=f"{HERE}::test_publish_killed_at_a_point_continues",
    ),
)
def test_copy_killed_at_a_point_continues(
    point: str, place: Place, program: Program
) -> None:
    source, sink = filled(place), place.stream("to", partitions=2)
    crashes: list[dict[str, object]] = [
        {"point": point, "count": count} for count in (1, 3)
    ]
    assert kill_and_repeat(program, crashes, *copying(source, sink)) == 2
    assert place.numbers("to") == place.numbers("from")


@pytest.mark.long("three kills of a command")
def test_copy_killed_at_random_continues(place: Place, program: Program) -> None:
    source, sink = filled(place), place.stream("to", partitions=2)
    chance = random.Random(7)
    crashes: list[dict[str, object]] = [
        {"after": chance.uniform(0, 0.1)} for _ in range(3)
    ]
    assert kill_and_repeat(program, crashes, *copying(source, sink)) >= 2
    assert place.numbers("to") == place.numbers("from")


@pytest.mark.parametrize(
    "point",
    sample(["before the checkpoint", "after the checkpoint"], "two kills of a command"),
)
def test_the_sink_beats_a_checkpoint_that_lags(
    point: str, place: Place, program: Program, tmp_path: Path
) -> None:
    source, sink = filled(place), place.stream("to", partitions=2)
    crashes: list[dict[str, object]] = [
        {"point": point, "count": count} for count in (1, 3)
    ]
    line = [*copying(source, sink), "--checkpoint", tmp_path / "checkpoints"]
    assert kill_and_repeat(program, crashes, *line) == 2
    assert place.numbers("to") == place.numbers("from")


@pytest.mark.long("three kills of a command")
def test_copy_by_a_query_killed_at_random_continues(
    place: Place, program: Program
) -> None:
    source, sink = filled(place), place.stream("to", partitions=2)
    column = "number"
    line = [*copying(source, sink), "--where", f"{column} % 3 <> 1"]
    chance = random.Random(11)
    crashes: list[dict[str, object]] = [
        {"after": chance.uniform(0, 0.15)} for _ in range(3)
    ]
    assert kill_and_repeat(program, crashes, *line) >= 1
    kept = [[n for n in part if n % 3 != 1] for part in place.numbers("from")]
    assert place.numbers("to") == kept
