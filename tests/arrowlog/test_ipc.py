"""Limits on what an Arrow message announces, before anything is made of it."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from streamfactory import arrowipc as ipc

ROWS = pa.record_batch({"n": [1, 2, 3]})


def parts(message: pa.Buffer | memoryview) -> tuple[memoryview, memoryview, memoryview]:
    """The prefix, the header and the body."""
    data = memoryview(message).cast("B")
    start = ipc.PREFIX
    end = start + ipc.header_length(data[:start])
    return data[:start], data[start:end], data[end:]


def test_a_batch_reports_how_many_rows_and_bytes_it_has() -> None:
    _, head, body = parts(ROWS.serialize())
    header = ipc.read_header(head)
    assert (header.kind, header.rows, header.body) == (ipc.ROWS, 3, len(body))
    assert ipc.expanded(header, body, len(body)) == len(body)


def test_compressed_buffers_count_as_what_they_become() -> None:
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    zeros = pa.record_batch({"n": [0] * 100_000})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, zeros.schema, options=options) as stream:
        stream.write_batch(zeros)
    _, _, behind = parts(sink.getvalue())  # the schema comes first
    _, head, body = parts(behind)
    header = ipc.read_header(head)
    assert header.body < 1000
    assert ipc.expanded(header, body, 800_000) == 800_000
    with pytest.raises(ipc.IpcTooLong) as caught:
        ipc.expanded(header, body, 799_999)
    assert (caught.value.length, caught.value.limit) == (800_000, 799_999)


def test_what_is_longer_than_its_limit_is_reported_before_it_is_read() -> None:
    prefix, head, body = parts(ROWS.serialize())
    with pytest.raises(ipc.IpcTooLong) as caught:
        ipc.header_length(prefix, len(head) - 1)
    assert caught.value.length == len(head)
    with pytest.raises(ipc.IpcTooLong) as caught:
        ipc.read_header(head, len(body) - 1)
    assert caught.value.length == len(body)


@pytest.mark.parametrize(
    "prefix", [b"oops" * 2, b"\xff" * 8, struct.pack("<Ii", 2**32 - 1, 7)]
)
def test_what_begins_no_message_is_reported(prefix: bytes) -> None:
    with pytest.raises(ipc.NotIpc) as caught:
        ipc.header_length(memoryview(prefix))
    assert str(caught.value) == "no Arrow message begins here"


@pytest.mark.parametrize(
    "schema", [pa.schema([("a", pa.list_(pa.int8()))]), ROWS.schema]
)
def test_a_header_cut_anywhere_is_none(schema: Any) -> None:
    _, head, _ = parts(schema.serialize())
    assert ipc.read_header(head).kind == ipc.SCHEMA
    for end in range(16):
        with pytest.raises(ipc.NotIpc) as caught:
            ipc.read_header(head[:end])
        assert str(caught.value)


def test_a_stream_ends_with_a_header_of_no_length() -> None:
    assert ipc.header_length(memoryview(ipc.END)) == 0
