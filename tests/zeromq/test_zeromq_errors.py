"""Bad input: each is an error that says what is wrong, and loses nothing silently."""

from __future__ import annotations

import logging
import socket
import struct
import threading
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
import zmq
from tests.proving.ports import free_port
from tests.zeromq.peers import (
    DEADLINE,
    ROWS,
    SCHEMA,
    batch,
    frame,
    new_stream,
    numbers_of,
    properties,
    rows,
)
from zmq.utils import z85

import streamfactory
from streamfactory.spi import (
    ConfigError,
    ConnectionFailed,
    CorruptData,
    MessageTooLarge,
    MisuseError,
    NotAuthorized,
    SchemaMismatch,
    StreamError,
    StreamTimeout,
)
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from pathlib import Path

    from tests.zeromq.peers import Peers


def pulling(place: str, **more: str) -> dict[str, str]:
    given = properties("push-pull", bind=place, **more)
    return {**given, "schema": "number bigint", "retry.max.attempts": "1"}


def pusher(peers: Peers, place: str) -> zmq.Socket[bytes]:
    made = peers.socket(zmq.PUSH)
    made.connect(place)
    return made


STREAM = new_stream()
GOOD = batch(STREAM, 0, range(5))
TEXTS = pa.record_batch({"number": ["a"]})
TWO = pa.schema([*SCHEMA, pa.field("other", pa.int8())])
WORDS = pa.record_batch({"number": pa.array(["a"]).dictionary_encode()})
BODY = rows([5]).serialize().to_pybytes()


def header(schema: pa.Schema | None = SCHEMA, count: int = 1) -> bytes:
    return frame(ROWS, STREAM, 5, 5 + count, schema=schema)


@pytest.mark.parametrize(
    ("frames", "error", "text"),
    [
        ([b"hello"], CorruptData, "not a sequence frame"),
        ([b""], CorruptData, "not a sequence frame"),
        ([b"SFZ2" + bytes(64), BODY], CorruptData, "not a sequence frame"),
        ([frame(99, STREAM, 5, 6), BODY], CorruptData, "unknown kind 99"),
        (
            [frame(ROWS, STREAM, 6, 5), BODY],
            CorruptData,
            "inconsistent numbers: 6, 6, 5",
        ),
        ([header()], CorruptData, "followed by 0 frames"),
        ([header(), BODY, b"more"], CorruptData, "not an Arrow batch"),
        ([header(), b""], CorruptData, "not an Arrow message"),
        ([header(), b"no Arrow at all"], CorruptData, "instead of an Arrow message"),
        ([header(), BODY[:-8]], CorruptData, "not an Arrow batch"),
        ([header(), BODY + bytes(8)], CorruptData, "not an Arrow batch"),
        ([header(count=2), BODY], CorruptData, "1 rows has sequence numbers for 2"),
        ([header() + b"x", BODY], CorruptData, "is not followed by a schema"),
        ([header(TEXTS.schema), BODY], SchemaMismatch, "column 'number' string"),
        ([header(TWO), BODY], SchemaMismatch, "2 columns, where the stream has 1"),
        ([header(WORDS.schema), BODY], SchemaMismatch, "dictionary column"),
    ],
)
def test_a_message_that_is_none_ends_reading_after_the_last_row(
    place: str,
    peers: Peers,
    frames: list[bytes],
    error: type[StreamError],
    text: str,
) -> None:
    socket = pusher(peers, place)
    socket.send_multipart(GOOD)
    with streamfactory.open(pulling(place), follow=True) as source:
        assert numbers_of(source, 5)[0] == [*range(5)]
        socket.send_multipart(frames)
        socket.send_multipart(batch(STREAM, 5, [5]))
        for _ in range(2):  # nothing is skipped by asking again
            with pytest.raises(error, match=text):
                numbers_of(source, 1)


def test_values_of_a_message_are_validated(place: str, peers: Peers) -> None:
    good = pa.record_batch({"text": ["abc", "def"]})
    body = bytearray(good.serialize().to_pybytes())
    at = body.index(b"abcdef")
    body[at] = 0xFF
    given = {**properties("push-pull", bind=place), "schema": "text string"}
    socket = pusher(peers, place)
    first = frame(ROWS, STREAM, 0, 2, schema=good.schema)
    socket.send_multipart([first, bytes(body)])
    with (
        streamfactory.open(given, follow=True) as source,
        pytest.raises(CorruptData, match="column 'text'"),
    ):
        numbers_of(source, 1)


def test_limits_hold_for_schemas_and_batches(place: str, peers: Peers) -> None:
    wide = pa.schema([pa.field(f"column {n}", pa.int8()) for n in range(100)])
    none = pa.RecordBatch.from_pylist([], wide).serialize().to_pybytes()
    socket = pusher(peers, place)
    socket.send_multipart([frame(ROWS, STREAM, 0, 0, schema=wide), none])
    given = pulling(place, max__metadata__bytes="1024")
    with (
        streamfactory.open(given, follow=True) as source,
        pytest.raises(MessageTooLarge, match=r"max\.metadata\.bytes is 1024"),
    ):
        numbers_of(source, 1)


def test_an_overlong_frame_is_not_received(place: str, peers: Peers) -> None:
    socket, given = pusher(peers, place), pulling(place, max__message__bytes="1M")
    socket.send_multipart([*GOOD[:1], bytes(4 << 20)])
    with streamfactory.open(given, follow=True) as source:
        assert source.next_batch(0.3) is None  # the peer was disconnected
        other = pusher(peers, place)
        other.send_multipart(GOOD)
        assert numbers_of(source, 5)[0] == [*range(5)]


def test_a_packed_message_has_to_have_its_columns(place: str, peers: Peers) -> None:
    socket = pusher(peers, place)
    socket.send_multipart(GOOD)
    given = pulling(place, payload="raw", decoder__class__name="json")
    with (
        streamfactory.open(given, follow=True) as source,
        pytest.raises(SchemaMismatch, match="column 'number' bigint"),
    ):
        numbers_of(source, 1)


@pytest.mark.parametrize("message", [b"", b"hello", BODY, SCHEMA.serialize(), BODY[8:]])
def test_a_plain_frame_that_is_no_arrow_stream_ends_reading(
    place: str, peers: Peers, message: bytes
) -> None:
    socket = pusher(peers, place)
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, SCHEMA) as writer:
        writer.write_batch(rows(range(5)))
    whole = stream.getvalue().to_pybytes()
    socket.send_multipart([b"anything", whole])
    given = pulling(place, framing="plain")
    with streamfactory.open(given, follow=True) as source:
        assert numbers_of(source, 5)[0] == [*range(5)]
        socket.send(SCHEMA.serialize().to_pybytes())  # a stream without a row
        assert source.next_batch(0.2) is None
        if message != SCHEMA.serialize():
            socket.send(message)
            with pytest.raises(CorruptData):
                numbers_of(source, 1)


def test_frames_of_foreign_messages_become_key_headers_and_value(
    place: str, peers: Peers
) -> None:
    socket = pusher(peers, place)
    for parts in ([b"alone"], [b"key", b"value"], [b"key", b"a", b"", b"value"]):
        socket.send_multipart(parts)
    given = properties("push-pull", bind=place, payload="raw", framing="plain")
    found: list[dict[str, object]] = []
    deadline = time.monotonic() + DEADLINE
    with streamfactory.open(
        {**given, "stream.zeromq.decoder.class.name": "raw"}, follow=True
    ) as source:
        while len(found) < 3 and time.monotonic() < deadline:
            got = source.next_batch(0.2)
            found += [] if got is None else got.rows.to_pylist()
    assert [row["key"] for row in found] == [None, b"key", b"key"]
    assert [row["value"] for row in found] == [b"alone", b"value", b"value"]
    assert [row["offset"] for row in found] == [0, 1, 2]
    headers = [{"key": "frame.1", "value": b"a"}, {"key": "frame.2", "value": b""}]
    assert [row["headers"] for row in found] == [None, None, headers]


# --- endpoints --------------------------------------------------------------------


def test_an_endpoint_in_use_is_refused(place: str, peers: Peers) -> None:
    other = peers.socket(zmq.PULL)
    other.bind(place)
    port = other.bind_to_random_port("tcp://127.0.0.1")
    for where in (place, f"tcp://127.0.0.1:{port}"):
        with (
            streamfactory.open(pulling(where), follow=True) as source,
            pytest.raises(ConnectionFailed, match="in use"),
        ):
            source.next_batch(0.2)


def test_a_path_that_is_a_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    with (
        streamfactory.open(pulling(f"ipc://{path}"), follow=True) as source,
        pytest.raises(ConnectionFailed, match="in use"),
    ):
        source.next_batch(0.2)
    assert path.read_text() == "mine"


@pytest.mark.parametrize("pattern", ["pub-sub", "push-pull", "dealer-router"])
def test_a_writer_without_readers_reports_it(place: str, pattern: str) -> None:
    given = properties(pattern, connect=place, connection__timeout__millis="300")
    given["retry.max.attempts"] = "1"
    with open_sink(given) as sink, pytest.raises(StreamTimeout, match="reader"):
        sink.put(rows([1]))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("127.0.0.1:9800", "not an endpoint"),
        ("udp://127.0.0.1:9800", "not an endpoint"),
        ("tcp://127.0.0.1", "not an endpoint"),
        ("tcp://127.0.0.1:70000", "outside of 1 to 65535"),
        ("tcp://127.0.0.1:2-1", "ends before its start"),
        ("ipc://relative", "no absolute path"),
        (f"ipc:///{'x' * 120}", "more than 100 bytes"),
        ("ipc:///x-{0-9999}", "more than 1000 partitions"),
        ("tcp://127.0.0.1:1-2,tcp://127.0.0.1:5", "different numbers of partitions"),
        ("ipc:///x,ipc:///x", "contains an endpoint twice"),
        ("tcp://10.0.0.1:9800", "can be reached from other machines"),
        ("tcp://*:9800", "can be reached from other machines"),
    ],
)
def test_endpoints_that_cannot_be_are_refused(text: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        streamfactory.open(pulling(text))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"bind": "ipc:///x", "connect": "ipc:///y"}, "excludes connect"),
        ({}, "or connect is required"),
        ({"bind": "ipc:///x", "pattern": "dealer-router"}, "acknowledgements need"),
        ({"bind": "ipc:///x", "curve.allowed.keys": "any"}, "requires curve.secret"),
        ({"bind": "ipc:///x", "curve.secret.key": "0" * 64}, "curve.allowed.keys"),
        ({"connect": "ipc:///x", "curve.secret.key": "0" * 64}, "curve.server.key"),
        ({"connect": "ipc:///x", "curve.server.key": "short"}, "not a CURVE key"),
        ({"connect": "ipc:///x", "curve.server.key": "#" * 40}, "out of range"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    options: dict[str, str], what: str
) -> None:
    given = {f"stream.zeromq.{key}": text for key, text in options.items()}
    shared = {"framing": "plain"} if "pattern" in options else {}
    base = properties("push-pull", **shared)
    with pytest.raises(ConfigError, match=what):
        streamfactory.open({**base, **given})


# --- CURVE ------------------------------------------------------------------------


def keys() -> tuple[str, str]:
    """A public and a secret key."""
    public, secret = zmq.curve_keypair()
    return z85.decode(public).hex(), z85.decode(secret).hex()


SERVER, CLIENT, OTHER = keys(), keys(), keys()


def secured(place: str, **client: str) -> tuple[dict[str, str], dict[str, str]]:
    """A reader that binds, and a writer that connects."""
    reader = properties(
        "push-pull",
        bind=place,
        curve__secret__key=SERVER[1],
        curve__allowed__keys=CLIENT[0],
    )
    options = {"curve__secret__key": CLIENT[1], "curve__server__key": SERVER[0]}
    options |= client
    given = {key: text for key, text in options.items() if text}
    writer = properties("push-pull", connect=place, **given)
    return {**reader, "schema": "number bigint"}, writer


def test_an_allowed_key_is_let_in(place: str, peers: Peers) -> None:
    reader, writer = secured(place)
    peers.write(writer, lambda sink: sink.put(rows(range(5))))
    with streamfactory.open(reader, follow=True) as source:
        assert numbers_of(source, 5)[0] == [*range(5)]
    peers.join()


CURVE_ON_ONE_SIDE = "uses CURVE"


@pytest.mark.parametrize(
    ("client", "what"),
    [
        ({"curve__secret__key": OTHER[1]}, "rejected the CURVE key"),
        ({"curve__server__key": OTHER[0]}, "the keys do not match"),
        ({"curve__secret__key": "", "curve__server__key": ""}, CURVE_ON_ONE_SIDE),
    ],
)
def test_a_wrong_key_is_an_error_of_the_side_that_connects(
    place: str,
    peers: Peers,
    client: dict[str, str],
    what: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader, writer = secured(place, connection__timeout__millis="2000", **client)
    with (
        caplog.at_level(logging.WARNING, "streamfactory"),
        streamfactory.open(reader, follow=True) as source,
        open_sink(writer) as sink,
    ):
        work = peers.run(lambda: sink.put(rows([1])))
        deadline = time.monotonic() + DEADLINE
        while not work.is_done() and time.monotonic() < deadline:
            assert source.next_batch(0.1) is None
        # Without a key of its own a side may see no more than a connection that ends.
        expected = (NotAuthorized, ConnectionFailed)[: 1 + (what == CURVE_ON_ONE_SIDE)]
        with pytest.raises(expected, match=what):
            work()
        source.next_batch(0.1)
    warnings = [r.getMessage() for r in caplog.records if "rejected" in r.getMessage()]
    assert warnings
    assert all(
        secret not in text for text in warnings for secret in (SERVER[1], OTHER[1])
    )
    if what == "rejected the CURVE key":
        assert any(OTHER[0] in text for text in warnings)


class Resetting:
    """Accepts connections and resets the first ones in their handshake."""

    def __init__(self, target: int, resets: int) -> None:
        self._target, self._resets = target, resets
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._server.getsockname()[1]}"
        self.accepted = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._server.accept()
                self.accepted += 1
                if self.accepted <= self._resets:
                    here.recv(10)
                    linger = struct.pack("ii", 1, 0)
                    here.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    here.close()
                    continue
                there = socket.create_connection(("127.0.0.1", self._target))
                for one, other in ((here, there), (there, here)):
                    work = threading.Thread(target=pump, args=(one, other), daemon=True)
                    work.start()

    def close(self) -> None:
        self._server.close()


def pump(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError), one, other:
        while data := one.recv(65536):
            other.sendall(data)


@pytest.mark.parametrize("curve", [True, False], ids=["curve", "plain"])
def test_handshakes_that_are_reset_are_tried_again(
    peers: Peers, *, curve: bool
) -> None:
    port = free_port()
    with closing(Resetting(port, resets=5)) as between:
        place = f"tcp://127.0.0.1:{port}"
        reader, writer = secured(place)
        if not curve:
            reader = pulling(place)
            writer = properties("push-pull")
        writer["stream.zeromq.connect"] = between.address
        peers.write(writer, lambda sink: sink.put(rows(range(5))))
        with streamfactory.open(reader, follow=True) as source:
            assert numbers_of(source, 5)[0] == [*range(5)]
        peers.join()
        assert between.accepted > 5


@pytest.mark.parametrize("curve", [True, False], ids=["curve", "plain"])
def test_handshakes_that_are_always_reset_are_no_wrong_key(*, curve: bool) -> None:
    with closing(Resetting(0, resets=1_000)) as between:
        _, writer = secured(between.address)
        if not curve:
            writer = properties("push-pull", connect=between.address)
        writer["stream.zeromq.connection.timeout.millis"] = "1500"
        writer["retry.max.attempts"] = "1"
        began = time.monotonic()
        with open_sink(writer) as sink, pytest.raises(ConnectionFailed) as caught:
            sink.put(rows([1]))
        assert "the connection is reset in its handshake" in str(caught.value)
        assert time.monotonic() - began >= 1.4


def test_a_secret_that_is_no_key_is_a_problem_of_the_configuration(place: str) -> None:
    _, writer = secured(place, curve__secret__key="no key")
    what = "neither Z85 nor hexadecimal"
    with open_sink(writer) as sink, pytest.raises(ConfigError, match=what):
        sink.put(rows([1]))


def test_checking_a_configuration_resolves_no_secret(place: str) -> None:
    given, _ = secured(place)
    given["stream.zeromq.curve.secret.key"] = "${env:NOT_SET_ANYWHERE}"
    with (
        streamfactory.open(given, follow=True) as source,
        pytest.raises(ConfigError, match="NOT_SET_ANYWHERE"),
    ):
        source.next_batch(0.1)


def test_a_tombstone_is_no_plain_message(place: str, peers: Peers) -> None:
    peers.socket(zmq.PULL).bind(place)
    given = properties("push-pull", connect=place, payload="raw", framing="plain")
    given["stream.zeromq.decoder.class.name"] = "raw"
    with open_sink(given) as sink, pytest.raises(MisuseError, match="tombstone"):
        sink.put(pa.record_batch({"value": pa.array([None], pa.binary())}))
