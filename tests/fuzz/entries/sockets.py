"""Peers of a socket reader that send what they want, over a real connection."""

from __future__ import annotations

import itertools
import random
import socket
import tempfile
import threading
import zlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.fuzz import mutating
from tests.fuzz.entries.base import Entry, configured

import streamfactory
from streamfactory.backends.socket.reading import SocketConsumerFactory
from streamfactory.spi import FetchLimits, Partition

if TYPE_CHECKING:
    from collections.abc import Generator

    import pyarrow as pa

_NOW: Final = FetchLimits(1 << 20, 1 << 28, 0.0)
_TURNS: Final = 300
"""Answers without rows, one after another."""
_LIMITS: Final = {"max.message.bytes": "32M", "max.dictionary.bytes": "32M"}
_BUFFER: Final = 100_000
"""Bytes that a connection takes before somebody reads them."""


class _Socket(Entry):
    """What all peers share."""

    def prepare(self) -> None:
        # Paths of Unix sockets have to be short.
        self._place = tempfile.TemporaryDirectory(prefix="fuzz-")
        self.path = Path(self._place.name) / "s"
        self.properties = {
            "streamType": "socket",
            "stream.socket.listen": f"unix:{self.path}",
            **{f"stream.socket.{key}": text for key, text in _LIMITS.items()},
        }
        self._config = configured(self.properties).config

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        """Sent in parts, as a network would deliver it; the reader looks in between."""
        data = data[:_BUFFER]
        factory = SocketConsumerFactory(self._config)
        consumer = factory.create_partition_level_consumer("fuzz", Partition("rows", 0))
        chance = random.Random(zlib.crc32(data))
        cuts = sorted(
            chance.randrange(len(data) + 1) for _ in range(chance.choice((0, 0, 1, 3)))
        )
        parts = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        at = 0
        try:
            consumer.fetch_messages(0, None, _NOW)
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(str(self.path))
                empty = 0
                for turn in itertools.count():
                    if turn < len(parts) and not _sent(peer, parts[turn]):
                        parts = parts[:turn]
                    if turn == len(parts):
                        peer.shutdown(socket.SHUT_WR)
                    found = consumer.fetch_messages(at, None, _NOW)
                    at = found.next_offset
                    empty = 0 if found.rows is not None else empty + 1
                    if found.rows is not None:
                        yield found.rows
                    if found.end is not None:
                        return
                    if empty > _TURNS and not data:
                        return  # a look at the port, which is no writer
                    if empty > _TURNS:
                        msg = "the stream does not end"
                        raise TimeoutError(msg)
        finally:
            consumer.close()
            factory.close()

    def close(self) -> None:
        self._place.cleanup()


def _sent(peer: socket.socket, data: bytes) -> bool:
    """Whether the reader still takes data."""
    try:
        peer.sendall(data)
    except OSError:
        return False
    return True


class SocketStreams(_Socket):
    """Damage anywhere in the stream."""

    NAME = "socket"
    SHARE = 3

    def make(self, chance: random.Random) -> bytes:
        return mutating.stream_of(self.seed(chance), chance, self._plain)


class SocketBodies(_Socket):
    """Damage in bodies alone, of several small batches that are joined."""

    NAME = "socket-bodies"
    SHARE = 5

    def make(self, chance: random.Random) -> bytes:
        return mutating.bodies_of(self.seed(chance), chance)


class SocketHeaders(_Socket):
    """Damage in headers alone."""

    NAME = "socket-headers"
    SHARE = 2

    def make(self, chance: random.Random) -> bytes:
        return mutating.headers_of(self.seed(chance), chance)


class SocketOpened(_Socket):
    """The whole way, through `streamfactory.open`; the reader connects."""

    NAME = "socket-open"

    def prepare(self) -> None:
        super().prepare()
        del self.properties["stream.socket.listen"]
        self.properties["stream.socket.connect"] = f"unix:{self.path}"
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(self.path))
        self._server.listen()

    def make(self, chance: random.Random) -> bytes:
        return mutating.stream_of(self.seed(chance), chance, self._plain)

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        writer = threading.Thread(target=self._write, args=(data,))
        writer.start()
        try:
            with streamfactory.open(self.properties) as stream:
                for batch in stream:
                    yield batch.rows
        finally:
            writer.join()

    def _write(self, data: bytes) -> None:
        peer, _ = self._server.accept()
        with peer:
            if _sent(peer, data):
                with suppress(ConnectionError):  # the reader may have ended
                    peer.shutdown(socket.SHUT_WR)
                    peer.recv(1)

    def close(self) -> None:
        self._server.close()
        super().close()
