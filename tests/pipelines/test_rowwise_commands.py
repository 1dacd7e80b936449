"""Commands for pipelines without Spark: none of them starts Java."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from tests.pipelines.test_rowwise_pipelines import (
    EXPECTED,
    SINKS,
    STEPS,
    filled,
    folder,
    ids,
    put,
)
from tests.proving.commands import command_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.pipelines.conftest import Works
    from tests.proving.commands import Outcome

    Command = Callable[..., Outcome]

__all__ = ["folder"]

TESTS = """
[[tests]]
name = "even ids"
given.input = [[{ id = 1 }, { id = 2 }], [], [{ id = 4 }]]
expect.even = [[{ id = 2 }], [], [{ id = 4 }]]
expect.words = [{ id = 1, Word = "1" }, { id = 2, Word = "2" }, { id = 4, Word = "4" }]
[[tests]]
name = "wrong"
given.input = [{ id = 1 }]
expect.even = [{ id = 1 }]
[[tests]]
name = "fails"
given.input = [{ id = 17 }]
fails = "expectation 'low' of step 'words' failed for the row"
"""


@pytest.fixture
def command(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    for module in ("pyspark", "py4j"):
        monkeypatch.setitem(sys.modules, module, None)
    return command_of(capfd)


def made(works: Works) -> str:
    text = STEPS + EXPECTED.format(way="fail") + SINKS
    path = works.pipeline(text, "quick", engine="datafusion")
    return str(path)


def test_a_pipeline_runs_from_its_file_to_its_lag(
    folder: Works, command: Command
) -> None:
    topic, path = filled(folder, 12), made(folder)
    assert command("validate", path).status == 0
    shown = command("preview", path, "--rows", 4, "--json").json
    rows = {one["id"]: len(one["rows"]) for one in shown["ids"]}
    assert rows == {"input": 4, "words": 4, "even": 2}
    lines = command("run", path, "--json").out.splitlines()
    batch, end = map(json.loads, lines)
    assert (batch["rows"], batch["expectations"]) == (12, {"low": 0})
    [one] = end["pipelines"]
    assert (one["status"], one["rows"], one["error"]) == ("finished", 12, None)
    assert ids(folder, "even") == [*range(0, 12, 2)]
    put(topic, [8, 13])
    lag = command("lag", path, "--json").json
    assert (lag["behind"], lag["lags"][0]["kind"]) == (2, "pipeline")
    shown = command("checkpoint", "show", path, "--json").json
    assert shown["pipeline"]["name"] == "quick"
    assert {o["offset"] for o in shown["groups"][0]["offsets"]} == {6}
    for other in (["next"], ["rewind", "--batch", 0]):
        outcome = command("checkpoint", *other, path)
        assert "a pipeline without Spark, which have no batches" in outcome.err
    put(topic, [40])
    failed = command("run", path)
    assert failed.status == 1
    assert "[expectation_failed]" in failed.out
    listed = command("backfill", path, "--list", "--json").json
    assert listed["ranges"] == []
    refused = command("backfill", path, "--writer", "w")
    assert "are those of a copy" in refused.err


def test_tests_need_no_spark(folder: Works, command: Command) -> None:
    filled(folder)
    path = made(folder)
    (folder.folder / "quick.test.toml").write_text(TESTS)
    found = command("test", path, "--json")
    assert found.status == 1
    passed = {one["name"]: one["passed"] for one in found.json["tests"]}
    assert passed == {"even ids": True, "wrong": False, "fails": True}


def test_pipelines_of_two_engines_need_a_command_each(
    folder: Works, command: Command
) -> None:
    filled(folder)
    other = folder.pipeline(STEPS + SINKS, "other")
    outcome = command("run", made(folder), other)
    assert "need a command each" in outcome.err
