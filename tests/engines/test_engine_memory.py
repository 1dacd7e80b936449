"""Engines hold some batches of a stream, never all of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ALLOWED = 150
"""Megabytes, of a stream of 524: buffers of the engines and their first use."""


@pytest.mark.long("a child reads 500 MB seven times")
def test_no_engine_collects_a_stream_first() -> None:
    child = Path(__file__).with_name("generated.py")
    done = subprocess.run(
        [sys.executable, str(child)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    most = json.loads(done.stdout.splitlines()[-1])
    # What does collect shows that the measure finds it.
    assert most.pop("collected") > 450
    assert {name: held for name, held in most.items() if held > ALLOWED} == {}
    assert len(most) == 6
