"""Staged messages as Arrow IPC: how they are written and read back.

Other users can access the files of a staging folder, so input is validated before use.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streamfactory.arrowipc import (
    PREFIX,
    ROWS,
    SCHEMA,
    IpcTooLong,
    NotIpc,
    header_length,
    read_header,
)
from streamfactory.arrowlog import message_schema
from streamfactory.spi import BatchValidator, CorruptData

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Parcel = tuple[str, int, pa.RecordBatch]
"""Messages of one partition: topic, partition, rows of `message_schema`."""

_LONGEST_HEADER: Final = 1 << 20
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""Names that Kafka allows."""
_PARTITION: Final = re.compile(rb"[0-9]{1,10}")
_MOST_PARTITIONS: Final = 2**31


def write_parcels(writer: Any, parcels: Sequence[Parcel]) -> None:
    """Append batches to an IPC stream of `message_schema`."""
    for topic, partition, rows in parcels:
        where = {"topic": topic, "partition": str(partition)}
        writer.write_batch(rows, custom_metadata=pa.KeyValueMetadata(where))


def encoded(parcels: Sequence[Parcel]) -> bytes:
    """An IPC stream of the batches; empty without any."""
    if not parcels:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, parcels[0][2].schema) as writer:
        write_parcels(writer, parcels)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def read_parcels(source: Any) -> Iterator[Parcel]:
    """Read what `write_parcels` or `encoded` wrote, one batch at a time.

    Args:
        source: An Arrow file, at its beginning.

    Raises:
        CorruptData: data_loss; not such a stream, or invalid values.
        OSError: It cannot be read.
    """
    left = source.size()
    if not left:
        return
    validator = BatchValidator(message_schema())
    schema, kind = b"", SCHEMA
    while True:
        try:
            message = _message(source, left, kind)
        except (NotIpc, IpcTooLong) as error:
            msg = f"not a file of staged rows: {error}"
            raise CorruptData(msg) from error
        if not message:
            return
        left -= len(message)
        if kind == SCHEMA:
            schema, kind = message, ROWS
        else:
            yield _parcel(schema + message, validator)


def _message(source: Any, left: int, kind: int) -> bytes:
    """The next complete message; empty at the end.

    Lengths are checked before that many bytes are read.
    """
    prefix = _exactly(source, PREFIX)
    length = header_length(memoryview(prefix), _LONGEST_HEADER)
    if not length:
        return b""
    header = _exactly(source, length)
    found = read_header(memoryview(header), left)
    if found.kind != kind or found.compressed is not None:
        msg = "a message has an unexpected kind or compression"
        raise NotIpc(msg)
    return b"".join((prefix, header, _exactly(source, found.body)))


def _exactly(source: Any, count: int) -> bytes:
    found: bytes = source.read(count)
    if len(found) < count:
        msg = "the file is truncated"
        raise NotIpc(msg)
    return found


def _parcel(stream: bytes, validator: BatchValidator) -> Parcel:
    """Parse a stream of one batch, in memory: errors are never I/O errors."""
    try:
        options = pa.ipc.IpcReadOptions(use_threads=False)
        with pa.ipc.open_stream(stream, options=options) as reader:
            if not reader.schema.equals(message_schema()):
                msg = "the columns are not those of staged messages"
                raise NotIpc(msg)
            rows, metadata = reader.read_next_batch_with_custom_metadata()
        validator.validate(rows)
        topic, partition = _target(metadata or {})
    except (NotIpc, pa.ArrowException, OSError, UnicodeError) as error:
        msg = f"not a file of staged rows: {error}"
        raise CorruptData(msg) from error
    return topic, partition, rows


def _target(metadata: Mapping[bytes, bytes]) -> tuple[str, int]:
    topic = metadata.get(b"topic", b"").decode()
    partition = metadata.get(b"partition", b"")
    if _TOPIC.fullmatch(topic) is None:
        msg = "a batch has no valid topic"
        raise NotIpc(msg)
    if _PARTITION.fullmatch(partition) is None or int(partition) >= _MOST_PARTITIONS:
        msg = "a batch has no valid partition"
        raise NotIpc(msg)
    return topic, int(partition)
