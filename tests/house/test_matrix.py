"""``make matrix``: suites in environments of other versions, and their record."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import pytest
from tests import matrix
from tests.matrix import CELLS, Cell, Command, Outcome, Runs

FOUND = {"python": "3.12.1"}
KNOWN = [(cell.name, name) for cell in CELLS for name in cell.suites]


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


def runs(tmp_path: Path, *folders: str, seconds: float = 600) -> Runs:
    log = tmp_path / "cell.log"
    log.write_text("9 passed\n")
    end = time.monotonic() + seconds
    return Runs(Cell("cell", folders), Path(sys.executable), log, end)


@pytest.mark.parametrize(
    ("program", "state", "line"),
    [
        ("print('noise'); print('== 3 passed ==')", "passed", "3 passed"),
        ("print('1 failed'); raise SystemExit(1)", "failed", "1 failed"),
        ("import time; time.sleep(600)", matrix.NOT_RUN, "ended for want of time"),
    ],
)
def test_a_command_ends_in_its_last_line(
    program: str, state: str, line: str, tmp_path: Path
) -> None:
    seconds = 1 if state == matrix.NOT_RUN else 600
    run = runs(tmp_path, seconds=seconds)
    found = run.command(Command("one", ("-c", program)))
    assert (found.state, found.line) == (state, line)
    assert bool(found.date) is (state != matrix.NOT_RUN)


REPORT = """<testsuites><testsuite>
<testcase classname="tests.log.test_a" name="test_1"/>
<testcase classname="tests.log.test_a.Test" name="test_2"><skipped/></testcase>
<testcase classname="tests.spi.test_b" name="test_3"><failure/></testcase>
<testcase classname="" name="tests.spi.test_c"><error/></testcase>
</testsuite></testsuites>"""


def in_place_of_pytest(
    monkeypatch: pytest.MonkeyPatch, report: str, status: int = 1
) -> None:
    program = (
        "import pathlib, sys\n"
        "at = next(a for a in sys.argv if a.startswith('--junitxml='))\n"
        f"text = {report!r}\n"
        "text and pathlib.Path(at.removeprefix('--junitxml=')).write_text(text)\n"
        f"print('2 failed, 1 passed'); sys.exit({status})"
    )
    monkeypatch.setattr(matrix, "PYTEST", ("-c", program))


def test_folders_of_one_run_have_their_own_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_place_of_pytest(monkeypatch, REPORT)
    found = runs(tmp_path, "log", "spi", "zoo").tests(["log", "spi", "zoo"], "quick")
    assert [(one.suite, one.state, one.line) for one in found] == [
        ("log", "passed", "1 passed, 1 skipped"),
        ("spi", "failed", "2 failed"),
        ("zoo", "passed", "no tests in the tier quick"),
    ]
    assert {one.tier for one in found} == {"quick"}


@pytest.mark.parametrize(("report", "status"), [("", 1), (REPORT, 2), (REPORT, 3)])
def test_folders_of_a_run_that_did_not_end_are_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: str, status: int
) -> None:
    # Interrupted, or ended by an error of pytest: what is in the report is not all.
    in_place_of_pytest(monkeypatch, report, status)
    found = runs(tmp_path, "log", "spi").tests(["log", "spi"], "test")
    assert [(one.state, one.date) for one in found] == [(matrix.NOT_RUN, "")] * 2
    assert found[0].line == "2 failed, 1 passed"


def test_a_missing_python_is_a_suite_that_did_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix, "FOLDER", tmp_path)
    suites = ("one", "two")
    cell = Cell("cell", suites, python="3.99")
    asked = argparse.Namespace(keep=False, reuse=False, tier="test", minutes=1)
    found = list(matrix.run(cell, suites, asked))
    assert [one.state for one in found] == [matrix.NOT_RUN] * 2
    assert "there is no Python 3.99" in found[0].line


def test_a_cell_states_what_it_leaves_out() -> None:
    every, few = CELLS[0], next(c for c in CELLS if c.name == "pyspark-4.0")
    assert every.left_out("test") == []
    assert every.left_out("quick") == ["slow tests, servers, Spark"]
    assert few.left_out("test") == ["all but spark, pipelines, realtime"]


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
