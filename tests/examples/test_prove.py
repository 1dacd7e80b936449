"""``make prove`` counts what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "prove.py"


@pytest.mark.long("15 kills and faults")
def test_rounds_lose_nothing_and_repeat_nothing() -> None:
    # Kills of Spark's drivers take half a minute each: tests/spark has some.
    command = [sys.executable, str(SCRIPT), "--rounds", "3", "--seed", "7"]
    command += ["--paths", "steps", "processes", "file", "power", "faults"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["lost=0 twice=0"], done.stderr
    assert done.returncode == 0
    assert " drop" in done.stdout
