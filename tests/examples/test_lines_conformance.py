"""The backend of the documentation passes the kit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow("the whole kit")
def test_the_example_passes_the_kit(monkeypatch: pytest.MonkeyPatch) -> None:
    # Children import the module as well: the contract asks for importable classes.
    folders = (ROOT / "examples", Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", ":".join(map(str, folders)))
    command = [sys.executable, "-m", "streamfactory", "conformance", "lines"]
    command += ["--harness", "lines_harness:LinesHarness"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " failed" not in done.stdout.splitlines()[-1]
