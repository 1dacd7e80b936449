"""Strangers at the port of a reader: other mechanisms, junk, and half handshakes."""

from __future__ import annotations

import os
import random
import socket
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
import zmq
from tests.proving.ports import free_port
from tests.zeromq.peers import batch, new_stream, numbers_of, rows
from tests.zeromq.test_zeromq_errors import CLIENT, OTHER, SERVER, secured
from zmq.utils import z85

import streamfactory
from streamfactory.live.messages import parts
from streamfactory.spi import BatchValidator, MessageTooLarge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.zeromq.peers import Peers

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00"
FORGED = batch(new_stream(), 0, [666])
"""What a stranger sends, if it is let in."""


@pytest.fixture
def place() -> str:
    return f"tcp://127.0.0.1:{free_port()}"


def greeting(mechanism: bytes, more: bytes = b"") -> bytes:
    """Of a raw peer; as a server or not, with what follows."""
    return GREETING + mechanism.ljust(20, b"\0") + bytes(32) + more


def plain(peers: Peers) -> Iterator[zmq.Socket[bytes]]:
    yield peers.socket(zmq.PUSH, plain_username=b"admin", plain_password=b"admin")


def null(peers: Peers) -> Iterator[zmq.Socket[bytes]]:
    yield peers.socket(zmq.PUSH)


def curve(peers: Peers) -> Iterator[zmq.Socket[bytes]]:
    """Other keys; the keys of the server; a public key without its secret one."""
    other, server, client = (
        [z85.encode(bytes.fromhex(key)) for key in pair]
        for pair in (OTHER, SERVER, CLIENT)
    )
    for public, secret in (other, server, (client[0], other[1])):
        yield peers.socket(
            zmq.PUSH,
            curve_serverkey=server[0],
            curve_publickey=public,
            curve_secretkey=secret,
        )


@pytest.mark.parametrize("strangers", [plain, null, curve])
def test_strangers_are_not_let_in_and_delay_nobody(
    strangers: Callable[[Peers], Iterator[zmq.Socket[bytes]]], place: str, peers: Peers
) -> None:
    reader, writer = secured(place)
    with streamfactory.open(reader, follow=True) as source:
        assert source.next_batch(0.1) is None
        for stranger in strangers(peers):
            stranger.connect(place)
            with suppress(zmq.Again):
                stranger.send_multipart(FORGED, zmq.NOBLOCK)
        peers.write(writer, lambda sink: sink.put(rows(range(5))))
        assert numbers_of(source, 5)[0] == [*range(5)]
        assert source.next_batch(0.3) is None
    peers.join()


def test_junk_and_half_handshakes_delay_nobody(place: str, peers: Peers) -> None:
    chance = random.Random(4)
    reader, writer = secured(place)
    host, port = place.removeprefix("tcp://").split(":")
    sent = [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        GREETING[:5],
        greeting(b"CURVE"),
        greeting(b"CURVE", b"\x04\xc8\x05HELLO" + bytes(194)),
        greeting(b"CURVE", b"\x06\xff\xff\xff\xff\xff\xff\xff\xff\x05HELLO"),
        greeting(b"NULL", b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x04PUSH"),
        greeting(b"PLAIN", b"\x04\x12\x05HELLO\x05admin\x05admin"),
        *(os.urandom(chance.randrange(1, 300)) for _ in range(40)),
    ]
    with ExitStack() as stack:
        source = stack.enter_context(streamfactory.open(reader, follow=True))
        assert source.next_batch(0.1) is None
        for data in sent * 3:
            one = socket.create_connection((host, int(port)), timeout=10)
            stack.enter_context(one)
            with suppress(ConnectionError):
                one.sendall(data)
        peers.write(writer, lambda sink: sink.put(rows(range(5))))
        assert numbers_of(source, 5)[0] == [*range(5)]
        assert source.next_batch(0.3) is None
    peers.join()


def test_a_run_of_more_rows_than_any_machine_holds_is_refused() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1 << 62], pa.int64()), ["a"])
    rows = pa.record_batch({"a": runs})
    validator = BatchValidator(rows.schema)
    validator.validate(rows)
    with pytest.raises(MessageTooLarge, match="4611686018427387904 rows unpacks to"):
        list(parts(validator, rows, 100))
