"""Senders of a zeromq reader that send what they want, over a real socket."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import zmq
from tests.fuzz import mutating
from tests.fuzz.entries.base import Entry, configured

from streamfactory.backends.zeromq.reading import ZeromqConsumerFactory
from streamfactory.spi import CorruptData, FetchLimits, Partition

if TYPE_CHECKING:
    import random
    from collections.abc import Generator

_NOW: Final = FetchLimits(1 << 20, 1 << 28, 0.05)
_BUFFER: Final = 100_000
_FRAME: Final = struct.Struct("<4sB3xI16s16sqqq")
_END: Final = b"the end"
"""A message that is none: all before it has been read when it is refused."""
_END_REFUSED: Final = (repr(_END), f"a frame of {len(_END)} bytes")
"""What is said of it."""


class _Zeromq(Entry):
    """What all senders share: a reader that binds, for each input."""

    FRAMING: str

    def prepare(self) -> None:
        # Paths of Unix sockets have to be short.
        self._place = tempfile.TemporaryDirectory(prefix="fuzz-")
        self._where = f"ipc://{Path(self._place.name) / 's'}"
        properties = {
            "streamType": "zeromq",
            "stream.zeromq.topic.name": "rows",
            "stream.zeromq.pattern": "push-pull",
            "stream.zeromq.framing": self.FRAMING,
            "stream.zeromq.bind": self._where,
            "stream.zeromq.max.message.bytes": "32M",
        }
        self._config = configured(properties).config

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        factory = ZeromqConsumerFactory(self._config)
        consumer = factory.create_partition_level_consumer("fuzz", Partition("rows", 0))
        try:
            with zmq.Context() as context, context.socket(zmq.PUSH) as peer:
                peer.linger = 0
                peer.connect(self._where)
                for parts in self.messages(data[:_BUFFER]):
                    peer.send_multipart(parts)
                peer.send(_END)
                at = 0
                # The last message is refused, unless the stream has ended before.
                while True:
                    found = consumer.fetch_messages(at, None, _NOW)
                    at = found.next_offset
                    if found.rows is not None:
                        yield found.rows
                    if found.end is not None:
                        return
        except CorruptData as error:
            if not any(text in str(error) for text in _END_REFUSED):
                raise
        finally:
            consumer.close()
            factory.close()

    def messages(self, data: bytes) -> list[list[bytes]]:
        """An input as the frames of messages."""
        raise NotImplementedError

    def close(self) -> None:
        self._place.cleanup()


class ZeromqStreams(_Zeromq):
    """Plain messages: whole Arrow streams, damaged anywhere."""

    NAME = "zeromq-plain"

    FRAMING = "plain"

    def make(self, chance: random.Random) -> bytes:
        return mutating.stream_of(self.seed(chance), chance, self._plain)

    def messages(self, data: bytes) -> list[list[bytes]]:
        return [[data]]


class ZeromqFrames(_Zeromq):
    """Sequenced messages: the frame, the schema and the batch are damaged."""

    NAME = "zeromq"

    FRAMING = "sequenced"

    def make(self, chance: random.Random) -> bytes:
        with pa.ipc.open_stream(self.seed(chance).stream) as reader:
            schema, batches = reader.schema, list(reader)[:3]
        message, at = bytearray(), 0
        for rows in batches:
            numbers = (at, at, at + rows.num_rows)
            frame = _FRAME.pack(b"SFZ1", 1, 0, bytes(16), bytes(16), *numbers)
            at += rows.num_rows
            for part in (frame + schema.serialize().to_pybytes(), _body(rows)):
                message += struct.pack("<I", len(part)) + part
        for _ in range(chance.choice((0, 0, 1, 2, 3))):
            message[chance.randrange(len(message))] = chance.randrange(256)
        return bytes(message)

    def messages(self, data: bytes) -> list[list[bytes]]:
        parts, at = [], 0
        while at + 4 <= len(data):
            length = min(struct.unpack_from("<I", data, at)[0], len(data) - at - 4)
            parts.append(data[at + 4 : at + 4 + length])
            at += 4 + length
        return [parts[number : number + 2] for number in range(0, len(parts), 2)]


def _body(rows: pa.RecordBatch) -> bytes:
    return bytes(rows.serialize().to_pybytes())
