"""The script of the page on resuming: killed at any moment, and run again."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import streamfactory

PAGE = Path(__file__).parents[2] / "docs" / "concepts.md"


def test_the_script_of_the_page_resumes_wherever_it_is_killed(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (text,) = (block for block in blocks if "def chunks" in block)
    script = tmp_path / "load.py"
    script.write_text(text, "utf-8")
    topic = tmp_path / "loaded"
    killed = 0
    for run in range(4):
        program = subprocess.Popen([sys.executable, script], cwd=tmp_path)
        # From the moment when the topic is there, later in each run.
        deadline = time.monotonic() + 60
        while not topic.exists() and program.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        time.sleep(0.004 * run)
        program.kill()
        killed += program.wait(60) != 0
    assert killed, "every run ended before it was killed"
    subprocess.run([sys.executable, script], cwd=tmp_path, check=True, timeout=60)
    where = {
        "streamType": "file",
        "stream.file.path": str(topic),
        "stream.file.topic.name": "rows",
    }
    with streamfactory.open(where) as stream:
        rows = stream.to_reader().read_all().to_pylist()
    assert rows == [
        {"chunk": chunk, "row": row} for chunk in range(20) for row in range(3)
    ]
