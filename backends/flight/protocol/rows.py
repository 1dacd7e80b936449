"""Rows inside messages: small attempts that travel with their commit."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streamfactory.backends.flight.protocol.codec import decode, encode
from streamfactory.backends.flight.protocol.messages import Part
from streamfactory.spi import FormatRefused

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_REMEDY: Final = "write them as an Arrow IPC stream of the topic's schema, in base64"


def encode_rows(parts: Iterable[tuple[int, pa.RecordBatch]], schema: pa.Schema) -> str:
    """An Arrow stream as base64 text; each batch has its `Part` as metadata."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for partition, rows in parts:
            metadata = {b"part": encode(Part(partition))}
            writer.write_batch(rows, custom_metadata=metadata)
    return base64.b64encode(sink.getvalue()).decode()


def decode_rows(text: str, schema: pa.Schema) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Partition and rows of each batch.

    Raises:
        FormatRefused: permanent; it is no such text, or has another schema.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError as error:
        msg = f"rows in a commit are not base64: {error}"
        raise FormatRefused(msg, remedy=_REMEDY) from error
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            if not reader.schema.equals(schema):
                msg = "rows in a commit have another schema than the topic"
                raise FormatRefused(msg, remedy=_REMEDY)
            while True:
                try:
                    rows, metadata = reader.read_next_batch_with_custom_metadata()
                except StopIteration:
                    return
                yield decode((metadata or {}).get(b"part", b""), Part).partition, rows
    except (OSError, pa.ArrowException) as error:
        msg = f"rows in a commit cannot be read: {error}"
        raise FormatRefused(msg, remedy=_REMEDY) from error
