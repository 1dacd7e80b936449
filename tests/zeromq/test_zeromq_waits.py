"""A writer that waits for the reader's answers ends its wait with the answer."""

from __future__ import annotations

import socket
import statistics
import threading
import time
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
import zmq
from tests.proving.ports import free_port
from tests.zeromq.peers import DEADLINE, numbers_of, properties, rows

import streamfactory
from streamfactory.backends.zeromq.harness import ZeromqPublisherHarness
from streamfactory.spi import Finished, MessageTooLarge, ReaderFinished
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
    options = {"when__full": "drop", "readers": "2", "linger__millis": "100"}
    writer = properties("pub-sub", bind=place, buffer__bytes="1M", **options)
    reader = {**properties("pub-sub", connect=place), "schema": "number bigint"}
    # Paced by the reader: it is no slow one.
    with streamfactory.open(reader, follow=True) as source, open_sink(writer) as sink:
        for epoch in range(epochs):
            numbers = range(epoch * many, epoch * many + many)
            work = peers.run(partial(sink.put, rows(numbers)))
            assert numbers_of(source, many)[0] == [*numbers]
            work()


def test_what_was_dropped_last_is_known_at_the_end(peers: Peers) -> None:
    place, many = f"tcp://127.0.0.1:{free_port()}", 4_000_000
    writer = properties("pub-sub", bind=place, buffer__bytes="1M", when__full="drop")
    reader = properties("pub-sub", connect=place, buffer__bytes="1M")

    def write() -> None:
        with open_sink(writer) as sink:
            sink.put(rows(range(many)))
            sink.end_stream(Finished())

    with streamfactory.open(reader | {"schema": "number bigint"}) as source:
        first = threading.Event()
        work = peers.run(write)
        read = lost = 0
        for batch in source:
            first.wait(0 if read else 1)  # it is slow once, while all is written
            read += batch.num_rows
            lost += sum((one.end or 0) - one.start for one in batch.losses)
    work()
    assert lost > 0
    assert read + lost == many


def pump(one: socket.socket, other: socket.socket, rate: float) -> None:
    """Pass bytes on, at most ``rate`` of them in a second."""
    with suppress(OSError), one, other:
        while data := one.recv(16384):
            other.sendall(data)
            time.sleep(len(data) / rate)


def slow_link(server: socket.socket, target: int, rate: float) -> list[None]:
    """Connect what comes to a port; returns an item for each connection."""
    accepted: list[None] = []

    def accept() -> None:
        with suppress(OSError):
            while True:
                here, _ = server.accept()
                try:
                    there = socket.create_connection(("127.0.0.1", target))
                except ConnectionRefusedError:  # the reader is not up yet
                    here.close()
                    continue
                accepted.append(None)
                for one, other in ((here, there), (there, here)):
                    passing = threading.Thread(target=pump, args=(one, other, rate))
                    passing.daemon = True
                    passing.start()

    threading.Thread(target=accept, daemon=True).start()
    return accepted


LONG = pa.record_batch({"text": [b"x" * 3_000_000]})
"""A row that takes 3 seconds at the rate of the link: more than three heartbeats."""


@pytest.mark.parametrize("sent", ["many rows", "one row", "one row, pub-sub"])
def test_a_large_epoch_over_a_slow_link_is_not_cut_by_the_heartbeat(
    peers: Peers, sent: str
) -> None:
    pattern = "pub-sub" if "pub-sub" in sent else "dealer-router"
    batch = rows(range(375_000)) if sent == "many rows" else LONG
    port, beat = free_port(), {"heartbeat__millis": "700"}
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        accepted = slow_link(server, port, rate=1_000_000)
        place = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        reader = properties(pattern, bind=f"tcp://127.0.0.1:{port}", **beat)
        writer = properties(pattern, connect=place, **beat)
        if pattern == "dealer-router":
            reader["stream.zeromq.acknowledge"] = "fetched"
        peers.write(writer, lambda sink: sink.put(batch))
        received: list[pa.RecordBatch] = []
        with streamfactory.open(reader, follow=True) as source:
            deadline = time.monotonic() + 4 * DEADLINE
            while sum(part.num_rows for part in received) < batch.num_rows:
                assert time.monotonic() < deadline
                found = source.next_batch(1.0)
                received += [] if found is None else [found.rows]
            source.next_batch(0.1)  # acknowledges the rows
            peers.join()
        assert pa.Table.from_batches(received).equals(pa.Table.from_batches([batch]))
        assert len(accepted) == 1


def test_parts_of_a_row_that_exceed_the_limit_together_are_refused(
    peers: Peers,
) -> None:
    place = f"tcp://127.0.0.1:{free_port()}"
    reader = properties("push-pull", bind=place, max__message__bytes="2M")
    writer = properties("push-pull", connect=place)
    peers.write(writer, lambda sink: sink.put(LONG))
    with (
        pytest.raises(MessageTooLarge, match=r"max\.message\.bytes is 2097152"),
        streamfactory.open(reader, follow=True) as source,
    ):
        numbers_of(source, 1)


def test_closing_before_a_subscriber_has_received_everything_is_a_warning(
    peers: Peers, caplog: pytest.LogCaptureFixture
) -> None:
    place = f"tcp://127.0.0.1:{free_port()}"
    writer = properties("pub-sub", bind=place, linger__millis="300")
    slow = peers.socket(zmq.SUB, rcvhwm=1, rcvbuf=4096)
    slow.connect(place)
    slow.subscribe(b"")
    begun = time.monotonic()
    with open_sink(writer) as sink:
        for _ in range(5):
            sink.put(LONG)
        assert isinstance(sink.end_stream(Finished()), ReaderFinished)
    assert 0.3 <= time.monotonic() - begun < DEADLINE
    assert "have not received every message within linger.millis" in caplog.text
