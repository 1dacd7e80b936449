"""The pytest class: on memory here, and its guards in runs of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamfactory.backends.memory.harness import MemoryHarness
from streamfactory.conformance.runner import all_cases, decoder_cases
from streamfactory.conformance.suite import ConformanceSuite

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]


class TestMemory(ConformanceSuite):
    """Every case, on the memory backend."""

    harness = MemoryHarness


HEAD = """
import pytest
from streamfactory.backends import memory
from streamfactory.backends.memory.harness import MemoryHarness
from streamfactory.conformance.suite import ConformanceSuite
from streamfactory.spi import Backend, hookimpl

class Broken(MemoryHarness):
    def numbers(self, rows):
        raise RuntimeError("no numbers")
"""


@pytest.fixture
def author(tmp_path: Path) -> Callable[..., str]:
    """Runs an author's test module in a process of its own; answers what it prints."""

    def run(body: str, *arguments: str) -> str:
        (tmp_path / "test_mine.py").write_text(HEAD + body)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-rA", "-q", *arguments, "test_mine.py"],
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "400"},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        return done.stdout + done.stderr

    return run


OWN_PYTEST = pytest.mark.slow("runs pytest in a process of its own")
MINE = "class TestMine(ConformanceSuite):\n    harness = MemoryHarness\n"
SOME = ("-k", "a_factory_pickles or reading_continues_after_a_fork")


@OWN_PYTEST
def test_words_of_the_kit_become_words_of_pytest(author: Callable[..., str]) -> None:
    out = author(MINE, *SOME)
    node = "test_mine.py::TestMine::test_conformance"
    assert f"PASSED {node}[a_factory_pickles]" in out
    assert re.search(r"SKIPPED \[1\] .*: not claimed: shared", out)
    assert "1 passed, 1 skipped, " in out


@OWN_PYTEST
def test_a_failure_is_explained(author: Callable[..., str]) -> None:
    body = MINE.replace("MemoryHarness", "Broken")
    out = author(body, "-k", "a_start_is_inclusive")
    assert "failed: a_start_is_inclusive (rule R1)" in out
    happened = "the harness failed, not the backend: Broken.numbers raised "
    assert f"  happened   {happened}RuntimeError: no numbers" in out
    node = "test_mine.py::TestMine::test_conformance[a_start_is_inclusive]"
    assert f"  run again  pytest '{node}'" in out


@OWN_PYTEST
def test_a_plugin_that_no_entry_point_names_is_proved(
    author: Callable[..., str],
) -> None:
    body = """
class Plugin:
    @hookimpl
    def streamfactory_backend(self):
        found = memory.streamfactory_backend()
        return Backend(
            name="private", doc="Mine.", spi_level=1, options=found.options,
            consumer_factory=found.consumer_factory,
        )

class Private(MemoryHarness):
    def properties(self):
        found = super().properties()
        moved = {k.replace(".memory.", ".private."): v for k, v in found.items()}
        return {**moved, "streamType": "private"}

class TestMine(ConformanceSuite):
    harness = Private
    plugin = Plugin()
"""
    out = author(body, "-k", "a_factory_pickles or an_empty_epoch_commits")
    assert "1 passed, 1 skipped, " in out
    assert ": the type cannot be written" in out


@OWN_PYTEST
def test_a_waived_failure_is_an_expected_one(
    author: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "waivers.toml").write_text(
        "[[waiver]]\ncase = 'a_start_is_inclusive'\nreason = 'issue 7'\n"
        "expires = 2999-12-31\n"
    )
    body = MINE.replace("MemoryHarness", "Broken") + "    waivers = 'waivers.toml'\n"
    out = author(body, "-k", "a_start_is_inclusive")
    assert "waived until 2999-12-31: issue 7" in out
    assert "1 xfailed" in out


WAIVE = "a known failure is waived, with a reason and a last day, in `waivers`"


REDUCED = [
    (
        f"{MINE}    def test_conformance(self, case): pass\n",
        "overrides test_conformance of the kit",
    ),
    (
        f"{MINE}    def test_every_case_is_there(self): pass\n",
        "overrides test_every_case_is_there of the kit",
    ),
    (
        f"{MINE}    def a_factory_pickles(self): pass\n",
        "overrides a_factory_pickles of the kit",
    ),
    (
        f"{MINE}    test_a_factory_pickles = None\n",
        "overrides test_a_factory_pickles of the kit",
    ),
    (
        (
            "class Mixin:\n    def test_conformance(self, case): pass\n"
            f"{MINE.replace('(', '(Mixin, ')}"
        ),
        "overrides test_conformance of the kit",
    ),
    (f"{MINE}    cases = ['a_factory_pickles']\n", "sets cases"),
    (
        f"{MINE}    def pytest_generate_tests(self, metafunc): pass\n",
        "sets pytest_generate_tests",
    ),
    (
        f"{MINE}    pytestmark = pytest.mark.skip(reason='x')\n",
        "is marked skip",
    ),
    (
        f"{MINE}    pytestmark = [pytest.mark.xfail]\n",
        "is marked xfail",
    ),
]
"""Classes that run less than the kit, and what is wrong with each."""


@OWN_PYTEST
def test_a_class_that_takes_cases_away_is_refused(
    author: Callable[..., str], tmp_path: Path
) -> None:
    for number, (body, _) in enumerate(REDUCED):
        (tmp_path / f"test_reduced{number}.py").write_text(HEAD + body)
    out = author(MINE, "--collect-only", "--continue-on-collection-errors", ".")
    for number, (_, what) in enumerate(REDUCED):
        report = out.partition(f" ERROR collecting test_reduced{number}.py ")[2]
        error = f"TypeError: TestMine {what}: all cases run, as they are; {WAIVE}"
        assert error in report.partition(" ERROR collecting ")[0]
    assert f"{len(REDUCED)} errors" in out


@OWN_PYTEST
def test_tests_of_the_author_stand_beside_the_cases(author: Callable[..., str]) -> None:
    out = author(
        f"{MINE}    def test_mine(self): pass\n", "-k", "test_mine and not conf"
    )
    assert "PASSED test_mine.py::TestMine::test_mine" in out


@OWN_PYTEST
def test_deselecting_a_case_is_reported(author: Callable[..., str]) -> None:
    case = "test_mine.py::TestMine::test_conformance[a_factory_pickles]"
    out = author(MINE, f"--deselect={case}", "-k", "every_case_is_there or pickles")
    assert "deselected: " in out
    assert ", a_factory_pickles, " in out
    assert WAIVE in out
    assert "1 failed" in out


@OWN_PYTEST
def test_an_expected_failure_by_decorator_is_reported(
    author: Callable[..., str],
) -> None:
    body = f"@pytest.mark.xfail(raises=ZeroDivisionError)\n{MINE}"
    out = author(body, "-k", "a_factory_pickles")
    assert f"marked xfail: {WAIVE}" in out
    assert "1 failed" in out


@OWN_PYTEST
def test_a_class_without_a_harness_is_reported(author: Callable[..., str]) -> None:
    out = author("class TestMine(ConformanceSuite): pass\n", "-k", "a_factory_pickles")
    assert "TestMine has no `harness`" in out


def test_the_pages_cite_cases_that_there_are() -> None:
    page = (ROOT / "docs" / "write-your-stream.md").read_text(encoding="utf-8")
    cited = re.findall(r"^\| (?:([RMWDP]\d+)|`\w+`) \| `(\w+)` \|", page, re.MULTILINE)
    rules = {case.name: case.rule for case in all_cases()}
    rules |= {case.name: case.rule for case in decoder_cases()}
    assert len(cited) > 25
    assert [n for _, n in cited if n not in rules] == []
    # A row may name a claim in place of a rule.
    assert [n for rule, n in cited if rule and rule != rules[n]] == []
