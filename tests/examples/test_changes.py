"""The example of a Delta table that is streamed out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_changing_table_is_rebuilt_from_its_stream(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "changes.py"), str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout.splitlines()
    assert said[0] == "the snapshot: 2,000 changes"
    assert said[2] == "nothing new: 0 changes"
    assert said[3].endswith(
        " flights rebuilt from the stream, the same as in the table"
    )
