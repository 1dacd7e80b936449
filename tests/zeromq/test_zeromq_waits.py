"""A writer that waits for the reader's answers ends its wait with the answer."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

from tests.zeromq.peers import DEADLINE, rows

from streamfactory.backends.zeromq.harness import ZeromqPublisherHarness
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from pathlib import Path

POLL = 0.25
"""Seconds after which a waiting writer looks at its timers."""


def test_a_commit_whose_rows_are_stored_already_returns_at_once(
    tmp_path: Path,
) -> None:
    harness = ZeromqPublisherHarness(tmp_path)
    harness.create(1)
    took = []
    try:
        with open_sink(harness.sink_properties()) as sink:
            for epoch in range(9):
                writer = sink.writer(rows([epoch]).schema, epoch=epoch)
                writer.write(rows([epoch]))
                deadline = time.monotonic() + DEADLINE
                while len(harness.visible()[0]) <= epoch:
                    assert time.monotonic() < deadline
                    time.sleep(0.001)
                time.sleep(0.02)  # in which the answer arrives
                begun = time.monotonic()
                writer.commit()
                took.append(time.monotonic() - begun)
                writer.close()
    finally:
        harness.close()
    # Not the slowest: on a busy machine a thread may be late.
    assert statistics.median(took) < POLL / 2
