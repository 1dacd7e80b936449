"""The backends of the documentation pass the kit, and the one that writes is proved."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.conformance.parts import slow_cases

ROOT = Path(__file__).parents[2]
LINES = ("lines", "--harness", "lines_harness:LinesHarness")
LEDGER = ("ledger", "--harness", "ledger_harness:LedgerHarness")


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    # Children import the module as well: the contract asks for importable classes.
    folders = (ROOT / "examples", Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", ":".join(map(str, folders)))


def printed(*words: str) -> str:
    """What a command prints; its last line is the verdict."""
    done = subprocess.run(
        [sys.executable, "-m", "streamfactory", *words],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.slow("the kit, without its slow cases")
def test_the_example_that_reads_passes_the_quick_kit() -> None:
    assert " failed" not in printed("conformance", *LINES, "--quick")


@pytest.mark.repeated(
    "the slow cases, on the example that only reads",
    shown_by="tests/examples/test_lines_conformance.py::test_the_example_that_writes_passes_the_kit",
)
def test_the_example_that_reads_passes_the_slow_cases() -> None:
    slow = [word for case in slow_cases() for word in ("--only", case.name)]
    assert " failed" not in printed("conformance", *LINES, *slow)


@pytest.mark.long("the slow cases kill processes")
def test_the_example_that_writes_passes_the_kit() -> None:
    assert " failed" not in printed("conformance", *LEDGER)


@pytest.mark.long("kills processes")
def test_the_example_that_writes_is_proved() -> None:
    assert printed("prove", *LEDGER, "--rounds", "3") == "lost=0 twice=0"


def test_the_page_shows_the_example_as_it_is() -> None:
    page = (ROOT / "docs" / "write-your-stream.md").read_text()
    assert (ROOT / "examples" / "ledger.py").read_text() in page
