"""Small batches that come one after the other go as few messages, and none stays."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.sockets.peers import (
    PATIENCE,
    SCHEMA,
    Background,
    dialled,
    numbers_of,
    opened,
    read_plainly,
    rows,
    sink_of,
)

from streamfactory.backends.socket.encoding import StreamEncoder
from streamfactory.spi import Finished, Outgoing, WriteContext

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.spi import ProducerFactory, StreamWriter

MANY = 5_000
LARGE = 200_000
"""Rows of a batch that is not copied on its way."""


@pytest.fixture
def factory(address: str) -> Iterator[ProducerFactory]:
    with sink_of(listen=address) as sink:
        yield sink.factory


def writer_of(factory: ProducerFactory) -> StreamWriter:
    """The backend's own: the framework takes a while between two writes."""
    return factory.create_writer(WriteContext(None, 0, 0, "attempt", schema=SCHEMA))


def reading_plainly(port: int) -> Background:
    return Background(lambda: read_plainly(dialled(port)))


def test_the_rows_of_many_small_batches_come_in_few_messages(
    port: int, factory: ProducerFactory
) -> None:
    reading = reading_plainly(port)
    outgoing = [Outgoing(rows(number), 0) for number in range(MANY)]
    with closing(writer_of(factory)) as writer:
        for one in outgoing:
            writer.write(one)
        writer.commit()
    factory.end_stream(Finished())
    batches = reading.result()
    assert numbers_of(batches) == list(range(MANY))
    assert len(batches) < MANY


def test_the_last_rows_are_returned_without_later_ones(
    port: int, factory: ProducerFactory
) -> None:
    def take() -> list[int]:
        with dialled(port) as connection, connection.makefile("rb") as file:
            found: list[int] = []
            reader = pa.ipc.open_stream(file)
            while len(found) < MANY:
                found += numbers_of([reader.read_next_batch()])
            return found

    reading = Background(take)
    outgoing = [Outgoing(rows(number), 0) for number in range(MANY)]
    with closing(writer_of(factory)) as writer:
        for one in outgoing:
            writer.write(one)
        assert reading.result() == list(range(MANY))


def test_rows_keep_their_order_around_a_long_batch(
    port: int, factory: ProducerFactory
) -> None:
    reading = reading_plainly(port)
    batches = [*map(rows, range(100)), rows(*range(LARGE)), *map(rows, range(100))]
    with closing(writer_of(factory)) as writer:
        for one in batches:
            writer.write(Outgoing(one, 0))
        writer.commit()
    factory.end_stream(Finished())
    wanted = [*range(100), *range(LARGE), *range(100)]
    assert numbers_of(reading.result()) == wanted


def test_the_first_rows_wait_for_nothing() -> None:
    encoder = StreamEncoder(SCHEMA, "none")
    assert not encoder.add(rows(1))
    assert numbers_of(decoded(encoder)) == [1]


def test_rows_that_are_held_back_are_bounded() -> None:
    encoder = StreamEncoder(SCHEMA, "none")
    batch = rows(*range(1000))
    assert not encoder.add(batch)
    assert encoder.encode()
    held = []
    for _ in range(2000):
        encoder.end_write()
        held.append(encoder.add(batch))
        if not held[-1]:
            encoder.encode()
    assert any(held)
    longest = max(len(run) for run in "".join("01"[one] for one in held).split("0"))
    assert longest * batch.nbytes <= 1024 * 1024


def test_closing_ends_the_thread_that_sends_the_last_rows(
    port: int, address: str
) -> None:
    with sink_of(listen=address) as sink:
        reading = reading_plainly(port)
        outgoing = [Outgoing(rows(number), 0) for number in range(MANY)]
        with closing(writer_of(sink.factory)) as writer:
            for one in outgoing:
                writer.write(one)
            writer.commit()
        assert "socket-flusher" in {thread.name for thread in threading.enumerate()}
        sink.end_stream(Finished())
        assert len(numbers_of(reading.result())) == MANY
    assert "socket-flusher" not in {thread.name for thread in threading.enumerate()}


def test_a_failure_between_calls_is_raised_by_the_next_write(
    port: int, factory: ProducerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = StreamEncoder.encode

    def encode_unless_alone(self: StreamEncoder) -> list[memoryview]:
        if threading.current_thread().name == "socket-flusher":
            raise MemoryError
        return encode(self)

    monkeypatch.setattr(StreamEncoder, "encode", encode_unless_alone)
    outgoing = [Outgoing(rows(number), 0) for number in range(MANY)]

    def write(writer: StreamWriter) -> None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for one in outgoing:
                writer.write(one)
            time.sleep(0.02)

    with closing(writer_of(factory)) as writer, dialled(port):
        with pytest.raises(MemoryError):
            write(writer)
        with pytest.raises(MemoryError):
            writer.commit()


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_columns_with_a_dictionary_arrive(
    port: int, address: str, compression: str
) -> None:
    batches = [
        pa.record_batch({"w": pa.array(words).dictionary_encode()})
        for words in (["x", "y", "x"], ["z", None, "x"], ["z", None, "x"])
    ]

    def read() -> list[str | None]:
        with opened(connect=address) as stream:
            return [w for batch in stream for w in batch.rows["w"].to_pylist()]

    with sink_of(listen=address, readers="2", compression=compression) as sink:
        plain, ours = reading_plainly(port), Background(read)
        for batch in batches:
            sink.put(batch)
        sink.end_stream(Finished())
    wanted = [w for batch in batches for w in batch["w"].to_pylist()]
    assert [w for b in plain.result() for w in b["w"].to_pylist()] == wanted
    assert ours.result() == wanted


def decoded(encoder: StreamEncoder) -> Any:
    pieces = [*encoder.begin(), *encoder.encode()]
    return pa.ipc.open_stream(b"".join(pieces))
