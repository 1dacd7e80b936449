"""Peers that are silent, slow or endless hold up nobody, and cost no processor."""

from __future__ import annotations

import errno
import logging
import socket
import threading
import time
from contextlib import closing, suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.sockets.peers import (
    DIALLED,
    PATIENCE,
    SCHEMA,
    Background,
    Writer,
    dialled,
    is_cut,
    numbers_of,
    rows,
    sink_of,
    source_of,
    stream_of,
    until,
)
from tests.sockets.test_socket_safety import (
    CLIENT,
    MUTUAL,
    NAMED,
    PARTITION_0,
    SERVER,
    TLS,
)

from streamfactory.backends.socket import merging, pending
from streamfactory.spi import Failed, Finished, MessageBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from streamfactory.wiring.reading.reader import Reader
    from streamfactory.wiring.reading.source import Source

SLOTS = 64
"""Connections of a partition that may be on their way at once."""
QUEUED = 10
"""Connections above that, which the system queues."""
END = b"\xff\xff\xff\xff\0\0\0\0"


@pytest.fixture
def reader_of(address: str) -> Iterator[Callable[..., Reading]]:
    """Makes a reader that listens; all are closed in the end."""
    made: list[Reader | Source] = []

    def make(**options: str) -> Reading:
        source = source_of(**{"listen": address, "x_schema": "n bigint", **options})
        reader = source.reader(PARTITION_0)
        made.extend((source, reader))
        reader.fetch(0, timeout=0)  # which listens
        return Reading(reader)

    yield make
    for one in reversed(made):
        one.close()


class Reading:
    """A reader with its position."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.at = 0

    def fetch(self, timeout: float) -> MessageBatch:
        batch = self.reader.fetch(self.at, timeout=timeout)
        self.at = batch.next_offset
        return batch

    def until(self, wanted: Callable[[MessageBatch], Any]) -> MessageBatch:
        """The first batch of which something holds."""
        deadline = time.monotonic() + PATIENCE
        while not wanted(batch := self.fetch(0.5)):
            assert time.monotonic() < deadline
        return batch

    def some(self) -> list[int]:
        """The next rows."""
        return numbers_of([self.until(lambda batch: batch.num_rows)])

    def end(self) -> Any:
        """How the stream ended."""
        return self.until(lambda batch: batch.end).end

    def worked(self, seconds: float) -> float:
        """Seconds of processor time that a fetch takes which finds nothing."""

        def fetch() -> float:
            worked = time.thread_time()
            assert not self.fetch(seconds).num_rows
            return time.thread_time() - worked

        return float(Background(fetch).result())


def endless(peer: socket.socket, data: bytes, stop: threading.Event) -> Background:
    """Sends the same again and again."""

    def send() -> None:
        with suppress(OSError):
            while not stop.is_set():
                peer.sendall(data)

    return Background(send)


def dripping(peer: socket.socket, data: bytes) -> Background:
    """Sends some bytes now, and then one every 20 ms."""
    pause = threading.Event()

    def drip() -> None:
        with suppress(OSError):
            peer.sendall(data)
            while True:
                pause.wait(0.02)
                peer.sendall(data[:1])

    return Background(drip)


# --- silence --------------------------------------------------------------------------


@pytest.mark.parametrize("writers", ["1", "any"])
def test_silent_connections_keep_no_writer_out(
    port: int, reader_of: Callable[..., Reading], writers: str
) -> None:
    reader = reader_of(writers=writers)
    for _ in range(SLOTS):
        dialled(port)
    Writer(port).send(1)
    assert reader.some() == [1]


def test_silent_connections_keep_no_writer_out_of_a_tls_port(
    port: int, address: str, reader_of: Callable[..., Reading]
) -> None:
    reader = reader_of(**MUTUAL)
    for _ in range(SLOTS):
        dialled(port)

    def write() -> None:
        with sink_of(connect=address, **NAMED) as sink:
            sink.put(rows(1))
            sink.end_stream(Finished())

    writing = Background(write)
    assert reader.some() == [1]
    assert reader.end() == Finished()
    writing.result()


def test_silent_connections_keep_no_reader_out_of_a_tls_port(
    port: int, address: str
) -> None:
    def write() -> None:
        with sink_of(listen=address, **MUTUAL) as sink:
            sink.put(rows(1))
            sink.end_stream(Finished())

    writing = Background(write)
    for _ in range(SLOTS):
        dialled(port)
    with (
        closing(source_of(connect=address, **NAMED, x_schema="n bigint")) as source,
        closing(source.reader(PARTITION_0)) as made,
    ):
        reader = Reading(made)
        assert reader.some() == [1]
        assert reader.end() == Finished()
    writing.result()


@pytest.mark.parametrize("options", [{}, MUTUAL], ids=["plain", "tls"])
def test_a_fetch_that_waits_among_silent_connections_sleeps(
    port: int, reader_of: Callable[..., Reading], options: dict[str, str]
) -> None:
    reader = reader_of(writers="any", **options)
    for _ in range(SLOTS + QUEUED):
        dialled(port)
    assert reader.worked(2.0) < 1.0


def test_a_listener_that_is_full_is_left_out_of_the_poll(
    port: int, reader_of: Callable[..., Reading]
) -> None:
    # A place that may be taken again: the listener stays, and others queue there.
    reader = reader_of(reconnect__millis="20s")
    Writer(port).send(1)
    assert reader.some() == [1]
    dialled(port)
    assert reader.worked(1.0) < 0.5


def test_closing_is_prompt_among_silent_connections(
    port: int, reader_of: Callable[..., Reading]
) -> None:
    reader = reader_of(writers="any")
    for _ in range(SLOTS + QUEUED):
        dialled(port)
    reader.fetch(0.1)
    fetching = Background(lambda: reader.fetch(60.0))
    begin = time.monotonic()
    reader.reader.close()
    took = time.monotonic() - begin
    until(lambda: fetching.is_done)
    assert took < 3.0  # milliseconds on a machine that does nothing else


# --- deadlines ------------------------------------------------------------------------


HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""How the first message of a TLS client begins; 500 bytes have to follow."""


@pytest.mark.parametrize("data", [b"", HELLO], ids=["silent", "dripping"])
def test_a_handshake_has_a_deadline(
    port: int,
    reader_of: Callable[..., Reading],
    data: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader = reader_of(**SERVER, handshake__timeout__millis="300")
    peer = dialled(port)
    sending = dripping(peer, data) if data else None
    with caplog.at_level(logging.WARNING):
        reader.until(lambda _: "handshake" in caplog.text)
    assert (
        "the TLS handshake took longer than 300 ms (handshake.timeout.millis)"
        in caplog.text
    )
    assert is_cut(peer)
    if sending is not None:
        until(lambda: sending.is_done)


begun = pytest.mark.parametrize(
    "data", [b"", SCHEMA.serialize().to_pybytes()[:-20]], ids=["nothing", "a part"]
)
"""What comes of a schema; the rest never comes."""


@begun
def test_a_schema_has_a_deadline_and_its_slot_is_free_again(
    port: int,
    address: str,
    reader_of: Callable[..., Reading],
    data: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader = reader_of(schema__timeout__millis="300")
    dialled(port).sendall(data)
    check_slot_is_free_again(reader, address, {}, caplog)


@begun
def test_a_schema_over_tls_has_a_deadline_and_its_slot_is_free_again(
    port: int,
    address: str,
    reader_of: Callable[..., Reading],
    data: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader = reader_of(**SERVER, schema__timeout__millis="300")
    peer = dialled(port)
    peer.setblocking(False)
    wrapped = tls_client(peer)
    shaking = Background(lambda: shake(wrapped))
    reader.until(lambda _: shaking.is_done)
    shaking.result().sendall(data)
    check_slot_is_free_again(reader, address, CLIENT, caplog)


def check_slot_is_free_again(
    reader: Reading,
    address: str,
    client: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        reader.until(lambda _: "rejected" in caplog.text)
    assert (
        "receiving the schema took longer than 300 ms (schema.timeout.millis)"
        in caplog.text
    )

    def write() -> None:
        with sink_of(connect=address, **client) as sink:
            sink.put(rows(1))
            sink.end_stream(Finished())

    writing = Background(write)
    assert reader.some() == [1]
    assert reader.end() == Finished()
    writing.result()


def tls_client(peer: socket.socket) -> Any:
    import ssl

    context = ssl.create_default_context(cafile=str(TLS / "ca.pem"))
    DIALLED.remove(peer)
    wrapped = context.wrap_socket(
        peer, server_hostname="localhost", do_handshake_on_connect=False
    )
    DIALLED.append(wrapped)
    return wrapped


def shake(wrapped: Any) -> Any:
    wrapped.settimeout(PATIENCE)
    wrapped.do_handshake()
    return wrapped


def test_a_writer_that_listens_may_take_its_time_with_the_schema(
    port: int, address: str
) -> None:
    with (
        socket.create_server(("127.0.0.1", port)) as server,
        closing(
            source_of(
                connect=address, schema__timeout__millis="100", x_schema="n bigint"
            )
        ) as source,
        closing(source.reader(PARTITION_0)) as made,
    ):
        reader = Reading(made)
        reader.fetch(0.5)
        connection, _ = server.accept()
        reader.fetch(0.5)
        with connection:
            connection.sendall(stream_of(rows(1)))
            assert reader.some() == [1]


def test_deadlines_do_not_count_what_a_reader_does_between_its_fetches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(pending, "time", SimpleNamespace(monotonic=lambda: now))
    timer = pending.ActiveTimer()
    now = 100.1
    assert timer.tick() == pytest.approx(0.1)
    now = 200.0
    assert timer.tick() == pytest.approx(0.25)


def test_a_stall_counts_though_another_writer_sends(
    port: int, reader_of: Callable[..., Reading]
) -> None:
    reader = reader_of(writers="2", stall__timeout__millis="300")
    half = Writer(port)
    half.socket.sendall(rows(1).serialize().to_pybytes()[:-8])
    busy, stop = Writer(port), threading.Event()
    sending = endless(busy.socket, rows(*range(100)).serialize().to_pybytes(), stop)
    cut = Background(lambda: is_cut(half.socket))
    reader.until(lambda _: cut.is_done)
    stop.set()
    reader.until(lambda _: sending.is_done)
    busy.finish()
    end = reader.end()
    assert isinstance(end, Failed)
    assert "is incomplete after 300 ms" in end.cause


# --- probes ---------------------------------------------------------------------------


@pytest.mark.parametrize("writers", ["1", "any"])
def test_a_probe_of_the_port_is_no_writer(
    port: int, reader_of: Callable[..., Reading], writers: str
) -> None:
    reader = reader_of(writers=writers)
    dialled(port).close()
    assert reader.fetch(0.3).end is None
    writer = Writer(port)
    writer.send(1)
    writer.finish()
    assert reader.some() == [1]
    assert reader.end() == Finished()


# --- floods ---------------------------------------------------------------------------


WORDS = pa.record_batch({"n": pa.array(["x", "y"]).dictionary_encode()})


def dictionary_message() -> tuple[bytes, bytes]:
    """A schema, and a message with a dictionary that replaces itself."""
    schema = len(WORDS.schema.serialize())
    whole = stream_of(WORDS, schema=WORDS.schema)
    twice = stream_of(WORDS, WORDS, schema=WORDS.schema)
    rows_size = len(twice) - len(whole)  # an equal dictionary is not sent again
    return whole[:schema], whole[schema : len(whole) - rows_size - len(END)]


NOTHING = pa.record_batch({"n": pa.nulls(0)})
FLOODS = {
    "dictionaries": dictionary_message(),
    "batches without rows": (
        NOTHING.schema.serialize().to_pybytes(),
        NOTHING.serialize().to_pybytes(),
    ),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_messages_without_rows_keep_no_fetch(
    port: int, address: str, flood: str
) -> None:
    schema, message = FLOODS[flood]
    source = source_of(listen=address, writers="any")
    looking = Background(lambda: source.schema)
    peer, stop = dialled(port), threading.Event()
    peer.sendall(schema)
    looking.result()
    reader = source.reader(PARTITION_0)
    sending = endless(peer, message * 2000, stop)
    try:
        for _ in range(5):
            batch = Background(lambda: reader.fetch(0, timeout=0.2)).result()
            assert batch.num_rows == 0
    finally:
        stop.set()
        reader.close()
        source.close()
    until(lambda: sending.is_done)


def test_bytes_that_complete_nothing_keep_no_fetch(
    port: int, reader_of: Callable[..., Reading], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = reader_of()
    Writer(port)

    def ready(wanted: Iterable[tuple[int, int]], *_: Any, **__: Any) -> set[int]:
        # A fault: as if bytes came faster than they are read.
        return {descriptor for descriptor, _ in wanted}

    with monkeypatch.context() as fault:
        fault.setattr(merging, "wait", ready)
        fetching = Background(lambda: reader.fetch(0.3))
        until(lambda: fetching.is_done)
    assert fetching.result().num_rows == 0


def test_a_writer_that_never_pauses_starves_no_other(
    port: int, reader_of: Callable[..., Reading]
) -> None:
    reader = reader_of(writers="2")
    busy, other, stop = Writer(port), Writer(port), threading.Event()
    reader.fetch(0.2)
    sending = endless(busy.socket, rows(*range(50_000)).serialize().to_pybytes(), stop)
    reader.until(lambda batch: batch.num_rows)
    other.send(-1)

    def is_there(batch: MessageBatch) -> bool:
        threading.Event().wait(0.02)  # in which the system's buffer is filled again
        return -1 in numbers_of([batch])[:1]

    try:
        reader.until(is_there)
    finally:
        stop.set()
    reader.until(lambda _: sending.is_done)


def test_a_process_out_of_descriptors_pauses(
    port: int,
    reader_of: Callable[..., Reading],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader = reader_of()
    calls = 0

    def accept(self: socket.socket) -> Any:
        nonlocal calls
        calls += 1
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as fault:
        fault.setattr(socket.socket, "accept", accept)
        writer = Writer(port)
        reader.fetch(0.5)
    assert 1 <= calls < 5
    assert "accepting connections pauses for 1 s: Too many open files" in caplog.text
    writer.send(1)
    assert reader.some() == [1]
