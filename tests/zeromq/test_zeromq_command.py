"""``tail`` of a zeromq stream, as another program reads it."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from tests.zeromq.peers import DEADLINE, properties, rows

from streamfactory.spi import Finished

if TYPE_CHECKING:
    from pathlib import Path

    from tests.zeromq.peers import Peers

    from streamfactory.wiring.writing.sink import Sink


def test_tail_writes_each_row_to_a_pipe_at_once_and_gives_the_reason_it_ends(
    place: str, peers: Peers, tmp_path: Path
) -> None:
    path = tmp_path / "numbers.json"
    given = {**properties("push-pull", bind=place), "schema": "number bigint"}
    path.write_text(json.dumps({"name": "numbers", "properties": given}))
    shown = threading.Event()

    def work(sink: Sink) -> None:
        sink.put(rows([7]))
        assert shown.wait(4 * DEADLINE)
        sink.factory.end_stream(Finished())

    line = [sys.executable, "-m", "streamfactory", "tail", str(path), "--json"]
    process = subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        peers.write(properties("push-pull", connect=place), work)
        assert process.stdout is not None
        # The sender has not ended: what is held back would not arrive.
        ready, _, _ = select.select([process.stdout], [], [], 3 * DEADLINE)
        assert ready, "no row arrived"
        assert json.loads(process.stdout.readline()) == {"number": 7}
        shown.set()
        out, err = process.communicate(timeout=2 * DEADLINE)
    finally:
        shown.set()
        process.kill()
        process.communicate()
    assert (process.returncode, out) == (0, "")
    assert "numbers: the source ended its partition" in err
    peers.join()
