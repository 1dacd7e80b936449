"""A writer that waits for the reader's answers ends its wait with the answer."""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import TYPE_CHECKING

import zmq
from tests.proving.ports import free_port
from tests.zeromq.peers import DEADLINE, numbers_of, properties, rows

import streamfactory
from streamfactory.backends.zeromq.harness import ZeromqPublisherHarness
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from pathlib import Path

    from tests.zeromq.peers import Peers

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


def test_a_subscriber_that_does_not_read_delays_no_other_where_messages_are_dropped(
    peers: Peers,
) -> None:
    place, many, epochs = f"tcp://127.0.0.1:{free_port()}", 20_000, 12
    slow = peers.socket(zmq.SUB, rcvhwm=1, rcvbuf=4096)
    slow.connect(place)
    slow.subscribe(b"")
    writer = properties(
        "pub-sub", bind=place, buffer__bytes="1M", when__full="drop", readers="2"
    )
    reader = {**properties("pub-sub", connect=place), "schema": "number bigint"}
    # Paced by the reader: it is no slow one.
    with streamfactory.open(reader, follow=True) as source, open_sink(writer) as sink:
        for epoch in range(epochs):
            numbers = range(epoch * many, epoch * many + many)
            work = peers.run(partial(sink.put, rows(numbers)))
            assert numbers_of(source, many)[0] == [*numbers]
            work()
