"""``make matrix``: suites in environments of other versions, and their record."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pytest
from tests import matrix
from tests.matrix import CELLS, Cell, Outcome, Suite

FOUND = {"python": "3.12.1"}
KNOWN = [(cell.name, suite.name) for cell in CELLS for suite in cell.suites]


def keys(path: Path) -> list[tuple[str, str]]:
    return [(one["cell"], one["suite"]) for one in json.loads(path.read_text())]


def test_the_record_has_each_suite_of_each_environment_once() -> None:
    assert keys(matrix.RECORD) == KNOWN


def test_the_record_states_versions_and_date_of_each_run() -> None:
    for one in json.loads(matrix.RECORD.read_text()):
        ran = one["state"] != matrix.NOT_RUN
        assert bool(one["date"]) is ran
        assert ("python" in one["versions"]) is ran


def test_a_run_replaces_its_own_record_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix, "RECORD", tmp_path / "versions.json")
    cell, suite = KNOWN[0]
    for name in (cell, "no-such"):
        ran = Outcome(name, suite, "passed", "3 passed", "test", "2026-01-02", FOUND)
        matrix.record([ran])
    # A Python that is missing today does not undo the run of another day.
    matrix.record([Outcome(cell, suite, matrix.NOT_RUN, "no Python 3.12")])
    assert keys(matrix.RECORD) == KNOWN
    first, *others = json.loads(matrix.RECORD.read_text())
    assert (first["state"], first["date"]) == ("passed", "2026-01-02")
    assert {one["state"] for one in others} == {matrix.NOT_RUN}


@pytest.mark.parametrize(
    ("program", "state", "line"),
    [
        ("print('noise'); print('== 3 passed ==')", "passed", "3 passed"),
        ("print('1 failed'); raise SystemExit(1)", "failed", "1 failed"),
        (
            "import time; print('so far', flush=True); time.sleep(600)",
            "failed",
            "ended",
        ),
    ],
)
def test_a_suite_ends_in_its_last_line(
    program: str,
    state: str,
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(matrix, "LONGEST", 1 if line == "ended" else 600)
    suite = Suite("one", ("-c", program), tiers=False)
    log = tmp_path / "log"
    log.write_text("9 passed\n")
    cell = Cell("cell", (suite,))
    found = matrix.run_suite(cell, suite, "test", Path(sys.executable), log)
    assert (found.state, found.line[: len(line)]) == (state, line)


def test_a_folder_runs_in_its_tier_and_may_have_no_tests_of_it(tmp_path: Path) -> None:
    program = "import sys; print(*sys.argv[1:]); sys.exit(5)"
    suite = Suite("one", ("-c", program))
    log = tmp_path / "log"
    log.write_text("")
    cell = Cell("cell", (suite,))
    found = matrix.run_suite(cell, suite, "quick", Path(sys.executable), log)
    assert (found.state, found.line) == ("passed", "--tier quick")
    assert found.tier == "quick"


def test_suites_that_cannot_run_are_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix, "FOLDER", tmp_path)
    monkeypatch.setattr(matrix, "build", lambda *_, **__: Path(sys.executable))
    suites = tuple(Suite(name, ("-c", ""), tiers=False) for name in ("one", "two"))
    asked = argparse.Namespace(keep=False, reuse=False, tier="test", minutes=-1)
    found = list(matrix.run(Cell("cell", suites), suites, asked))
    assert [(one.suite, one.state) for one in found] == [
        ("one", matrix.NOT_RUN),
        ("two", matrix.NOT_RUN),
    ]
    assert found[0].line == "after -1 minutes"


def test_a_missing_python_is_a_suite_that_did_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix, "FOLDER", tmp_path)
    suites = (Suite("one", ("-c", "")), Suite("two", ("-c", "")))
    cell = Cell("cell", suites, python="3.99")
    asked = argparse.Namespace(keep=False, reuse=False, tier="test", minutes=1)
    found = list(matrix.run(cell, suites, asked))
    assert [one.state for one in found] == [matrix.NOT_RUN] * 2
    assert "there is no Python 3.99" in found[0].line


def test_a_cell_states_what_it_leaves_out() -> None:
    every, few = CELLS[0], next(c for c in CELLS if c.name == "pyspark-4.0")
    assert every.left_out("test") == []
    assert every.left_out("quick") == ["slow tests, servers, Spark"]
    assert few.left_out("test") == ["all but spark, pipelines"]


def test_suites_get_no_packages_of_another_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("PYSPARK_PYTHON", "/elsewhere/python")
    monkeypatch.setenv("HOME_OF_TESTS", "/here")
    found = matrix.variables()
    assert {"PYTHONPATH", "PYSPARK_PYTHON"} & set(found) == set()
    assert found["HOME_OF_TESTS"] == "/here"


def test_java_of_make_is_that_of_the_suites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "java").mkdir()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert matrix.variables()["JAVA_HOME"] == str(tmp_path / "java")
