"""Every pattern, payload and framing, between a sink and a reader of ours."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
import zmq
from tests.proving.ports import free_ports
from tests.zeromq.peers import DEADLINE, numbers_of, properties, rows, subscribed

import streamfactory
from streamfactory.spi import Finished

if TYPE_CHECKING:
    from tests.zeromq.peers import Peers

    from streamfactory.wiring.writing.sink import Sink

EPOCHS, EACH = 6, 7


def write(sink: Sink) -> None:
    for epoch in range(EPOCHS):
        sink.put(rows(range(epoch * EACH, (epoch + 1) * EACH)), epoch=epoch)
    sink.factory.end_stream(Finished())


JSON = {"stream.zeromq.decoder.class.name": "json"}
PAYLOADS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "arrow": ({}, {}),
    "raw": (JSON, {**JSON, "schema": "number bigint"}),
}
"""What the writer, and what the reader, needs for a payload."""
ACKNOWLEDGED = {"stream.zeromq.acknowledge": "fetched"}
both_ways_to_connect = pytest.mark.parametrize(
    ("here", "there"), [("bind", "connect"), ("connect", "bind")]
)


@both_ways_to_connect
@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize(
    ("pattern", "more"),
    [("pub-sub", {}), ("push-pull", {}), ("dealer-router", ACKNOWLEDGED)],
)
def test_sequenced_messages_are_read_once_in_order_to_their_end(
    place: str,
    peers: Peers,
    pattern: str,
    more: dict[str, str],
    payload: str,
    here: str,
    there: str,
) -> None:
    shared = {"framing": "sequenced", "payload": payload}
    writers, readers = PAYLOADS[payload]
    peers.write(properties(pattern, **{there: place}, **shared) | writers, write)
    ours = properties(pattern, **{here: place}, **shared) | readers | more
    with streamfactory.open(ours, follow=True) as stream:
        found, losses = numbers_of(stream, EPOCHS * EACH)
        while not stream.ends:
            batch = stream.next_batch(0.2)
            assert batch is None or not batch.num_rows
        ended = [type(end) for end in stream.ends.values()]
    assert found == [*range(EPOCHS * EACH)]
    assert losses == []
    assert ended == [Finished]
    peers.join()


@both_ways_to_connect
@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("pattern", ["pub-sub", "push-pull"])
def test_plain_messages_are_read_once_in_order_and_have_no_end(
    place: str, peers: Peers, pattern: str, payload: str, here: str, there: str
) -> None:
    shared = {"framing": "plain", "payload": payload}
    writers, readers = PAYLOADS[payload]
    peers.write(properties(pattern, **{there: place}, **shared) | writers, write)
    ours = properties(pattern, **{here: place}, **shared) | readers
    with streamfactory.open(ours, follow=True) as stream:
        found, losses = numbers_of(stream, EPOCHS * EACH)
        assert not stream.ends
    assert found == [*range(EPOCHS * EACH)]
    assert losses == []
    peers.join()


def test_a_reader_selects_messages_by_their_prefixes(place: str, peers: Peers) -> None:
    publisher = peers.socket(zmq.XPUB)
    publisher.bind(place)
    ours = properties(
        "pub-sub",
        connect=place,
        framing="plain",
        payload="raw",
        prefixes="eu., asia.",
        decoder__class__name="raw",
    )
    with streamfactory.open(ours, follow=True) as stream:
        # The first look opens the socket.
        assert stream.next_batch(0.1) is None
        for _ in range(2):
            subscribed(publisher)
        for key in (b"eu.1", b"us.1", b"asia.1", b"eu", b"eu.2"):
            publisher.send_multipart([key, b"of " + key])
        values, _ = numbers_of(stream, 3, "value")
        assert stream.next_batch(0.1) is None
    wanted: list[object] = [b"of eu.1", b"of asia.1", b"of eu.2"]
    assert values == wanted


def test_inproc_connects_a_writer_and_a_reader_of_one_process(peers: Peers) -> None:
    where = f"inproc://{os.urandom(8).hex()}"
    ours = properties("push-pull", bind=where)
    peers.write(properties("push-pull", connect=where), write)
    with streamfactory.open(ours, follow=True) as stream:
        found, losses = numbers_of(stream, EPOCHS * EACH)
    assert (found, losses) == ([*range(EPOCHS * EACH)], [])
    peers.join()


def test_a_range_of_ports_has_a_partition_for_each_port(peers: Peers) -> None:
    start = free_ports(3)
    where = f"tcp://127.0.0.1:{start}-{start + 2}"

    def spread(sink: Sink) -> None:
        partitions = pa.array([n % 3 for n in range(30)], pa.int32())
        sink.put(rows(range(30)).append_column("_partition", partitions))
        sink.factory.end_stream(Finished())

    ours = properties("push-pull", bind=where)
    found: dict[int, list[int]] = {0: [], 1: [], 2: []}
    peers.write(properties("push-pull", connect=where), spread)
    with streamfactory.open(ours, follow=True) as stream:
        deadline = time.monotonic() + DEADLINE
        while len(stream.ends) < 3:
            assert time.monotonic() < deadline, found
            batch = stream.next_batch(0.2)
            if batch is not None and batch.num_rows:
                found[batch.partition.id] += batch.rows["number"].to_pylist()
    assert found == {partition: [*range(partition, 30, 3)] for partition in range(3)}
    peers.join()
