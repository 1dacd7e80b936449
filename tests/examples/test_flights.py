"""``make run``: killed on its way and run again, it ends as if nothing had been."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE = 600


@pytest.fixture
def job(tmp_path: Path, own_spark: None) -> list[str]:
    """The job in a folder of its own, as a checkout would have it."""
    for name in ("configs", "examples"):
        shutil.copytree(ROOT / name, tmp_path / name)
    return [sys.executable, str(tmp_path / "examples" / "flights.py")]


@pytest.mark.long("336,776 flights through two Sparks")
@pytest.mark.timeout(2 * PATIENCE)
def test_the_main_job_continues_after_a_kill(job: list[str], tmp_path: Path) -> None:
    with subprocess.Popen(
        job,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as first:
        assert first.stdout is not None
        seen = next(line for line in first.stdout if line.startswith("  batch   0"))
        os.killpg(first.pid, signal.SIGKILL)
    again = subprocess.run(
        job, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert again.returncode == 0, again.stdout + again.stderr
    said = again.stdout
    assert "119,999 rows" in seen or "120,000 rows" in seen
    assert "336,776 were there already" in said
    assert "continues from the checkpoint" in said
    assert "60,142 sums by carrier and hour, the same as by pyarrow" in said
    picture = ET.parse(tmp_path / ".run" / "delays.svg")
    assert picture.getroot().tag.endswith("svg")
    _, _, following = said.partition("next, from this folder:\n")
    commands = [shlex.split(line) for line in following.splitlines()]
    assert len(commands) == 2
    for program, *words in commands:
        assert program == ".venv/bin/streamfactory"
        done = subprocess.run(
            [sys.executable, "-m", "streamfactory", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout
