"""Limits come before decoding: rows are measured before they are expanded."""

from __future__ import annotations

import base64
import uuid
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest
from tests.flight.hostile import (
    DOORS,
    HostileClient,
    connected,
    failure,
    inline_attempt,
    stream_of,
)

import streamfactory
from streamfactory.backends.flight.protocol.rows import decode_rows
from streamfactory.spi import BatchValidator, FormatRefused, MessageTooLarge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.wiring.serving.process import ServerProcess

LIMIT = 1 << 20
TEXT = pa.schema([pa.field("c", pa.string())])


def _batch(column: pa.Array) -> pa.RecordBatch:
    schema = pa.schema([pa.field("c", column.type)])
    return pa.RecordBatch.from_arrays([column], schema=schema)


def _text(size: int) -> pa.RecordBatch:
    return _batch(pa.array(["x" * size]))


def _dictionary(size: int) -> pa.RecordBatch:
    values = pa.array(["x" * size])
    return _batch(pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), values))


BOMBS = {
    "text": lambda: _text(256 << 20),
    "numbers": lambda: _batch(pa.array(np.zeros(8 << 20, np.int64))),
    "a dictionary": lambda: _dictionary(64 << 20),
    "nested text": lambda: _batch(pa.array([[{"a": "x" * (64 << 20)}]])),
}


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("kind", BOMBS)
def test_rows_of_a_commit_are_measured_before_they_are_expanded(
    kind: str, compression: str
) -> None:
    rows = BOMBS[kind]()
    stream = stream_of(rows, compression=compression)
    assert len(stream) < rows.get_total_buffer_size() / 100
    text = base64.b64encode(stream).decode()
    validator = BatchValidator(rows.schema)
    pool = pa.default_memory_pool()
    before, peak = pool.bytes_allocated(), pool.max_memory()
    with pytest.raises(MessageTooLarge, match=f"more than {LIMIT} bytes"):
        list(decode_rows(text, validator, LIMIT))
    assert pool.bytes_allocated() <= before
    assert pool.max_memory() < peak + len(stream) + 4096
    assert sum(r.num_rows for _, r in decode_rows(text, validator)) == rows.num_rows


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_batches_of_a_commit_are_measured_together(compression: str | None) -> None:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, TEXT, options=options) as writer:
        for _ in range(3):
            part = {b"part": b'{"v":1,"partition":0}'}
            writer.write_batch(_text(LIMIT // 2), custom_metadata=part)
    text = base64.b64encode(sink.getvalue()).decode()
    with pytest.raises(MessageTooLarge):
        list(decode_rows(text, BatchValidator(TEXT), LIMIT))
    assert len(list(decode_rows(text, BatchValidator(TEXT), 2 * LIMIT))) == 3


@pytest.mark.parametrize("claimed", [-2, 1 << 62])
def test_size_that_a_compressed_buffer_cannot_have_is_refused(claimed: int) -> None:
    stream = stream_of(_text(100_000), compression="zstd")
    frame = b"(\xb5/\xfd"  # what zstd begins with, behind the size
    size = (100_000).to_bytes(8, "little") + frame
    assert stream.count(size) == 1
    sent = stream.replace(size, claimed.to_bytes(8, "little", signed=True) + frame)
    with pytest.raises((FormatRefused, MessageTooLarge)):
        list(decode_rows(base64.b64encode(sent).decode(), BatchValidator(TEXT), LIMIT))


@pytest.fixture(scope="module", params=["memory", "folder"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    folder = str(tmp_path_factory.mktemp("topics"))
    place = {"memory": True} if request.param == "memory" else {"path": folder}
    with streamfactory.serve(batch_bytes=str(LIMIT), **place) as server:
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[HostileClient]:
    with connected(server.location) as client:
        yield client


def test_commit_that_expands_beyond_the_limit_of_batches_is_refused(
    client: HostileClient,
) -> None:
    topic = uuid.uuid4().hex
    client.create(topic, TEXT)
    for size in (LIMIT + 1, 64 << 20):
        stream = stream_of(_text(size), compression="zstd")
        with pytest.raises(pa.ArrowException) as caught:
            client.commit(topic, inline_attempt(stream))
        assert failure(caught.value).code == MessageTooLarge.code
    assert client.read(topic).num_rows == 0
    small = stream_of(_text(LIMIT // 2), compression="zstd")
    client.commit(topic, inline_attempt(small))
    assert client.read(topic).num_rows == 1


@pytest.mark.parametrize("door", DOORS)
def test_batch_beyond_the_limit_is_refused_at_every_door(
    client: HostileClient, door: str
) -> None:
    topic = uuid.uuid4().hex
    client.create(topic, TEXT)
    with pytest.raises((fl.FlightError, pa.ArrowException)) as caught:
        DOORS[door](client, topic, _text(LIMIT + 1))
    assert failure(caught.value).code == MessageTooLarge.code
    DOORS[door](client, topic, _text(LIMIT // 2))
    assert client.read(topic).num_rows == 1
