"""Sequence numbers: gaps, duplicates, restarts, several senders, acknowledgements."""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import pytest
import zmq
from tests.zeromq.peers import (
    DEADLINE,
    END,
    FRAME,
    HELLO,
    ROWS,
    SCHEMA,
    STORED,
    WELCOME,
    batch,
    frame,
    new_stream,
    numbers_of,
    properties,
    rows,
)

import streamfactory
from streamfactory.spi import (
    Claims,
    Finished,
    IncarnationChanged,
    Loss,
    OffsetOutOfRange,
    Partition,
    Position,
    StreamTimeout,
    WriterFenced,
)
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.source import Source
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from tests.zeromq.peers import Peers

    from streamfactory.wiring.config.settled import Configured
    from streamfactory.wiring.streams.stream import Stream

NUMBERS = Partition("numbers", 0)


def pulling(place: str, **more: str) -> dict[str, str]:
    given = properties("push-pull", bind=place, **more)
    return {**given, "schema": "number bigint"}


def pusher(peers: Peers, place: str) -> zmq.Socket[bytes]:
    made = peers.socket(zmq.PUSH)
    made.connect(place)  # what is sent waits for the reader
    return made


def test_a_gap_is_a_loss_with_its_offsets(place: str, peers: Peers) -> None:
    socket, stream = pusher(peers, place), new_stream()
    with streamfactory.open(pulling(place), follow=True) as source:
        socket.send_multipart(batch(stream, 0, range(5)))
        socket.send_multipart(batch(stream, 9, range(9, 12), after=9))
        found, losses = numbers_of(source, 8)
        assert found == [*range(5), *range(9, 12)]
        assert [(x.partition, x.start, x.end) for x in losses] == [(NUMBERS, 5, 9)]
        assert source.position[NUMBERS] == 12
        assert source.position.incarnations[NUMBERS] == stream.hex()


def test_numbers_that_were_not_given_out_are_no_loss(place: str, peers: Peers) -> None:
    socket, stream = pusher(peers, place), new_stream()
    with streamfactory.open(pulling(place), follow=True) as source:
        socket.send_multipart(batch(stream, 0, range(5)))
        socket.send_multipart(batch(stream, 1 << 32, range(5, 7), after=5))
        found, losses = numbers_of(source, 7)
        assert found == [*range(7)]
        assert losses == []
        assert source.position[NUMBERS] == (1 << 32) + 2


def test_what_comes_twice_is_read_once(place: str, peers: Peers) -> None:
    socket, stream = pusher(peers, place), new_stream()
    with streamfactory.open(pulling(place), follow=True) as source:
        for first, count in ((0, 5), (0, 5), (3, 6), (9, 2), (0, 11)):
            numbers = range(first, first + count)
            socket.send_multipart(batch(stream, first, numbers))
        socket.send_multipart(batch(stream, 11, [11]))
        found, losses = numbers_of(source, 12)
        assert found == [*range(12)]
        assert losses == []


def test_a_restarted_sender_is_another_incarnation(place: str, peers: Peers) -> None:
    socket, streams = pusher(peers, place), [new_stream(), new_stream()]
    with streamfactory.open(pulling(place), follow=True) as source:
        socket.send_multipart(batch(streams[0], 0, range(5)))
        socket.send_multipart(batch(streams[1], 0, range(3)))
        found, _ = numbers_of(source, 5)
        assert found == [*range(5)]
        with pytest.raises(IncarnationChanged) as raised:
            numbers_of(source, 1)
        assert raised.value.found == streams[1].hex()


def test_the_policy_reads_on_after_a_restart(place: str, peers: Peers) -> None:
    socket, streams = pusher(peers, place), [new_stream(), new_stream()]
    given = {**pulling(place), "out.of.range": "earliest"}
    with streamfactory.open(given, follow=True) as source:
        socket.send_multipart(batch(streams[0], 0, range(5)))
        # The first message of the successor that is received is not its first.
        socket.send_multipart(batch(streams[1], 2, range(2, 4)))
        found, losses = numbers_of(source, 7)
        assert found == [*range(5), 2, 3]
        ranges = [(x.start, x.end) for x in losses]
        assert ranges == [(5, None), (0, 2)]


def test_rows_of_a_restarted_sender_wait_for_those_of_the_old_one(
    place: str, peers: Peers
) -> None:
    socket, streams = pusher(peers, place), [new_stream(), new_stream()]
    given = {**pulling(place), "out.of.range": "earliest"}
    with streamfactory.open(given, follow=True) as source:
        # The queues of two connections are read in turns.
        for number in range(4):
            for stream, base in zip(streams, (0, 100), strict=True):
                socket.send_multipart(batch(stream, number, [base + number]))
        found, losses = numbers_of(source, 8)
    assert found == [0, 1, 2, 3, 100, 101, 102, 103]
    assert [(x.start, x.end) for x in losses] == [(4, None)]


@pytest.mark.parametrize("number", range(8))
def test_a_reader_that_comes_back_names_what_it_missed(
    place: str, peers: Peers, number: int
) -> None:
    socket, stream = pusher(peers, place), new_stream()
    start = Position({NUMBERS: 10}, {NUMBERS: stream.hex()})
    socket.send_multipart(batch(stream, 20 + number, range(5), after=20 + number))
    with streamfactory.open(pulling(place), start=start, follow=True) as source:
        found, losses = numbers_of(source, 5)
    assert found == [*range(5)]
    assert [(x.start, x.end) for x in losses] == [(10, 20 + number)]


def test_several_senders_are_merged_and_their_gaps_counted(
    place: str, peers: Peers
) -> None:
    socket, streams = pusher(peers, place), [new_stream(), new_stream()]
    with streamfactory.open(pulling(place, senders="2"), follow=True) as source:
        socket.send_multipart(batch(streams[0], 0, range(3)))
        socket.send_multipart(batch(streams[1], 7, range(10, 12)))
        socket.send_multipart(batch(streams[0], 5, range(5, 6), after=5))
        socket.send_multipart(batch(streams[1], 9, range(12, 13)))
        found, losses = numbers_of(source, 7)
        assert found == [0, 1, 2, 10, 11, 5, 12]
        [loss] = losses
        assert (loss.start, loss.end) == (5, 7)
        assert streams[0].hex() in loss.cause
        assert source.position[NUMBERS] == 9
        for stream, at in zip(streams, (6, 10), strict=True):
            assert not source.ends
            socket.send(frame(END, stream, at, at))
            source.next_batch(0.5)
        assert [*source.ends.values()] == [Finished()]


def test_a_missing_end_of_a_stream_is_a_loss(place: str, peers: Peers) -> None:
    socket, stream = pusher(peers, place), new_stream()
    with streamfactory.open(pulling(place), follow=True) as source:
        socket.send_multipart(batch(stream, 0, range(5)))
        socket.send(frame(END, stream, 8, 8))
        losses: list[Loss] = []
        deadline = time.monotonic() + DEADLINE
        while not source.ends and time.monotonic() < deadline:
            got = source.next_batch(0.2)
            losses += [] if got is None else got.losses
        assert [(x.start, x.end) for x in losses] == [(5, 8)]


# --- acknowledgements -------------------------------------------------------------


def dealer(peers: Peers, place: str) -> zmq.Socket[bytes]:
    made = peers.socket(zmq.DEALER)
    made.connect(place)
    return made


def answer(socket: zmq.Socket[bytes], kind: int) -> int:
    """The number of the next answer of a kind."""
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        found = FRAME.unpack_from(socket.recv())
        if found[1] == kind:
            return int(found[-1])
    raise AssertionError


def introduce(source: Stream, socket: zmq.Socket[bytes]) -> None:
    """Let the reader welcome a sender, at the beginning."""
    deadline = time.monotonic() + DEADLINE
    while not socket.poll(0):
        assert time.monotonic() < deadline
        assert source.next_batch(0.05) is None
    assert answer(socket, WELCOME) == 0


def bound(place: str, **more: str) -> dict[str, str]:
    given = properties("dealer-router", bind=place, **more)
    return {**given, "schema": "number bigint"}


def test_only_what_is_stored_is_acknowledged(place: str, peers: Peers) -> None:
    with streamfactory.open(bound(place), follow=True) as source:
        socket, stream = dealer(peers, place), new_stream()
        socket.send(frame(HELLO, stream, 0, 0))
        introduce(source, socket)
        for first in (0, 5):
            socket.send_multipart(batch(stream, first, range(first, first + 5)))
        found, _ = numbers_of(source, 10)
        assert found == [*range(10)]
        assert not socket.poll(200)
        factory = source._source.factory
        other = Position({NUMBERS: 9}, {NUMBERS: new_stream().hex()})
        factory.acknowledge(other)
        assert not socket.poll(200)
        factory.acknowledge(Position({NUMBERS: 5}, {NUMBERS: stream.hex()}))
        assert answer(socket, STORED) == 5
        factory.acknowledge(Position({NUMBERS: 3}, {NUMBERS: stream.hex()}))
        assert not socket.poll(200)


def test_a_missing_message_is_requested_again(place: str, peers: Peers) -> None:
    with streamfactory.open(bound(place), follow=True) as source:
        socket, stream = dealer(peers, place), new_stream()
        socket.send(frame(HELLO, stream, 0, 0))
        introduce(source, socket)
        socket.send_multipart(batch(stream, 0, range(5)))
        found, _ = numbers_of(source, 5)
        socket.send_multipart(batch(stream, 8, range(8, 9), after=8))
        assert source.next_batch(0.3) is None
        assert answer(socket, WELCOME) == 5
        socket.send_multipart(batch(stream, 5, range(5, 9)))
        more, losses = numbers_of(source, 4)
        assert found + more == [*range(9)]
        assert losses == []


def test_a_writer_waits_until_rows_are_stored(place: str, peers: Peers) -> None:
    router = peers.socket(zmq.ROUTER)
    router.bind(place)
    given = properties("dealer-router", connect=place, stall__timeout__millis="300")
    with open_sink(given) as sink:

        def serve(stored: int) -> None:
            while True:
                sender, first, *_ = router.recv_multipart()
                fields = FRAME.unpack_from(first)
                kind, stream, behind = fields[1], fields[3], fields[-1]
                if kind == HELLO:
                    # Nothing is sent, and nothing released, before a reader answers.
                    assert fields[-3:] == (0, 0, 0)
                number = behind if kind == ROWS and stored else 0
                what = {HELLO: WELCOME, ROWS: STORED}[kind]
                router.send_multipart([sender, frame(what, stream, 0, number)])
                if kind == ROWS:
                    return

        serving = peers.run(lambda: serve(stored=0))
        with pytest.raises(StreamTimeout, match="acknowledge"):
            sink.put(rows(range(5)))
        serving()
        assert SCHEMA.names == ["number"]


def test_a_later_instance_of_a_sender_fences_the_earlier(
    place: str, peers: Peers
) -> None:
    given = properties("dealer-router", connect=place, sender__id="one")
    reading = bound(place, acknowledge="fetched")
    with (
        streamfactory.open(reading, follow=True) as source,
        open_sink(given) as early,
        open_sink(given) as late,
    ):
        work = peers.run(lambda: early.put(rows(range(5)), epoch=0))
        found, _ = numbers_of(source, 5)
        source.next_batch(0.5)
        work()
        work = peers.run(lambda: late.put(rows(range(5, 8)), epoch=1))
        more, _ = numbers_of(source, 3)
        source.next_batch(0.5)
        work()
        work = peers.run(lambda: early.put(rows(range(8, 9)), epoch=2))
        deadline = time.monotonic() + DEADLINE
        while not work.is_done() and time.monotonic() < deadline:
            assert source.next_batch(0.1) is None
        with pytest.raises(WriterFenced):
            work()
        assert found + more == [*range(8)]


def test_a_repeated_epoch_of_a_named_sender_is_stored_once(
    place: str, peers: Peers
) -> None:
    given = properties("dealer-router", connect=place, sender__id="one")
    with streamfactory.open(bound(place, acknowledge="fetched"), follow=True) as source:
        found = []
        for epochs in ([0], [0, 1], [1, 2]):
            with open_sink(given) as sink:
                for epoch in epochs:
                    numbers = range(epoch * 5, epoch * 5 + 5)
                    put = partial(sink.put, rows(numbers), epoch=epoch)
                    work = peers.run(put)
                    deadline = time.monotonic() + DEADLINE
                    while not work.is_done() and time.monotonic() < deadline:
                        got = source.next_batch(0.05)
                        if got is not None:
                            found += got.rows.column("number").to_pylist()
                    work()
    assert found == [*range(15)]


def test_what_is_not_acknowledged_is_delivered_again(place: str, peers: Peers) -> None:
    writing = properties("dealer-router", connect=place)
    with (
        closing(Source(configured(bound(place)))) as source,
        open_sink(writing) as sink,
    ):
        assert source.claims == Claims(redelivers=True)
        work = peers.run(lambda: sink.put(rows(range(10))))
        first, incarnation = fetch_all(source, 0, 10)
        again, same = fetch_all(source, 0, 10)
        part, _ = fetch_all(source, 4, 6)
        assert (first, again, part) == ([*range(10)], [*range(10)], [*range(4, 10)])
        assert incarnation == same
        source.factory.acknowledge(Position({NUMBERS: 7}, {NUMBERS: incarnation}))
        with pytest.raises(OffsetOutOfRange):
            fetch_all(source, 3, 7)
        rest, _ = fetch_all(source, 7, 3)
        assert rest == [7, 8, 9]
        assert not work.is_done()
        source.factory.acknowledge(Position({NUMBERS: 10}, {NUMBERS: incarnation}))
        work()


def fetch_all(source: Source, start: int, count: int) -> tuple[list[int], str]:
    """So many numbers, by a new reader, and their incarnation."""
    found: list[int] = []
    deadline, at = time.monotonic() + DEADLINE, start
    with closing(source.reader(NUMBERS)) as reader:
        while len(found) < count:
            assert time.monotonic() < deadline
            got = reader.fetch(at, timeout=0.2)
            found += got.rows.column("number").to_pylist()
            at = got.next_offset
        assert reader.incarnation is not None
        return found, reader.incarnation


def configured(given: dict[str, str]) -> Configured:
    return configure(from_mapping(given), default_manager(), use="read")
