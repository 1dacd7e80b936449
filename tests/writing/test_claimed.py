"""Committers that are kept between puts belong to the process that made them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FORK = """
import os, signal, sys
import pyarrow as pa
import streamfactory

stream = {
    "streamType": "file",
    "stream.file.path": sys.argv[1],
    "stream.file.topic.name": "numbers",
}
rows = pa.table({"number": [1, 2, 3]})
sink = streamfactory.open_sink(stream)
assert sink.put(rows, writer_id="w", epoch=0)
(kept,) = sink._claimed._own.kept.values()
with sink._claimed._own.lock:  # of a thread that the child does not have
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        assert sink._claimed.take("w") is None
        assert sink.put(rows, writer_id="w", epoch=1)
        (own,) = sink._claimed._own.kept.values()
        assert own[1] is not kept[1]
        sink._claimed.close()
        os._exit(0)
    _, status = os.waitpid(child, 0)
assert status == 0, status
assert not sink.put(rows, writer_id="w", epoch=1)
assert sink.put(rows, writer_id="w", epoch=2)
sink.close()
with streamfactory.open(stream) as stored:
    print(stored.to_reader().read_all().num_rows)
"""


def test_a_forked_child_claims_the_writer_itself(tmp_path: Path) -> None:
    source = str(Path(__file__).parents[2] / "src")
    done = subprocess.run(
        # Python 3.12 warns of a fork beside threads, which PyArrow has.
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,  # what went wrong is in its output
        env={**os.environ, "PYTHONPATH": source},
    )
    assert (done.stderr, done.stdout) == ("", "9\n")
