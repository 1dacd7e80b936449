"""Arrow batches in message frames: limits before allocation, validation before use.

A sequenced message has the schema in its first frame and one batch, as an IPC message,
in the others. A plain Arrow message is one complete IPC stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streamfactory import arrowipc as ipc
from streamfactory.live.messages import parts, too_large
from streamfactory.live.schemas import has_dictionary
from streamfactory.spi import BatchValidator, CorruptData, SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import zmq

    from streamfactory.live.messages import Limits
    from streamfactory.live.schemas import SharedSchema

_ALIGNED: Final = 8
"""Alignment that Arrow requires."""


class BatchReader:
    """Reads the batches of one sender. One thread at a time."""

    def __init__(self, limits: Limits, holder: SharedSchema) -> None:
        self._limits = limits
        self._holder = holder
        self._text: bytes | None = None
        self._schema: pa.Schema | None = None
        self._validator = BatchValidator(pa.schema([]))

    def use_schema(self, text: bytes) -> None:
        """Set the schema of the following batches, given as an IPC message.

        Raises:
            CorruptData: data_loss; not a schema.
            MessageTooLarge: permanent; a limit is exceeded.
            SchemaMismatch: permanent; it differs from the stream's schema, or has
                unsupported types.
        """
        if text == self._text:
            return
        data = memoryview(text)
        header, size = self._header(data)
        if header.kind != ipc.SCHEMA or size != len(data):
            msg = "a sequence frame is not followed by a schema"
            raise self._limits.corrupt(msg)
        if header.foreign_order:
            msg = "a schema declares another byte order"
            raise SchemaMismatch(msg, remedy="send little-endian values")
        schema = self._limits.decode(
            lambda: pa.ipc.read_schema(pa.py_buffer(text)), "a schema"
        )
        if has_dictionary(schema.types):
            msg = "a sequenced message has a dictionary column"
            raise SchemaMismatch(msg, remedy="send the decoded values")
        self._validator = BatchValidator(schema)
        self._holder.meet(schema)
        self._text, self._schema = text, schema

    def joined(self, frames: Sequence[bytes | zmq.Frame]) -> memoryview:
        """The body of a sequenced message; copied where it has several frames.

        Raises:
            CorruptData: data_loss; there is none.
            MessageTooLarge: permanent; it is over its limit.
        """
        parts = [view_of(frame) for frame in frames]
        if not parts:
            msg = "a sequence frame is followed by 0 frames instead of one or more"
            raise self._limits.corrupt(msg)
        if len(parts) == 1:
            return parts[0]
        total, limits = sum(map(len, parts)), self._limits
        if total > limits.metadata + limits.message:
            option = "max.message.bytes"
            raise too_large(total, option, limits.message, "a message")
        return memoryview(b"".join(parts))

    def read(self, frame: memoryview) -> tuple[pa.RecordBatch, int]:
        """One batch, not validated yet, and its bytes, decompressed.

        Raises:
            CorruptData: data_loss; the frame is no batch.
            MessageTooLarge: permanent; it is over its limit.
        """
        if self._schema is None:
            msg = "rows were received before their schema"
            raise self._limits.corrupt(msg)
        header, start = self._header(frame)
        if header.kind != ipc.ROWS or start + header.body != len(frame):
            msg = "a frame is not an Arrow batch"
            raise self._limits.corrupt(msg)
        size = self._limits.expanded(header, frame[start:])
        buffer, schema = aligned(frame), self._schema
        read = pa.ipc.read_record_batch
        return self._limits.decode(lambda: read(buffer, schema), "a batch"), size

    def read_stream(self, frame: memoryview) -> list[tuple[pa.RecordBatch, int]]:
        """The batches of a whole IPC stream, validated, each with its bytes.

        Raises:
            As `use_schema` and `read`.
        """
        sizes = self._walk(frame)
        reader = self._limits.decode(
            lambda: pa.ipc.open_stream(aligned(frame)), "a schema"
        )
        if self._schema is None or not reader.schema.equals(self._schema):
            self._validator = BatchValidator(reader.schema)
            self._holder.meet(reader.schema)
            self._schema = reader.schema
        found: list[tuple[pa.RecordBatch, int]] = []
        for size in sizes:
            rows = self._limits.decode(reader.read_next_batch, "a batch")
            self._validator.validate(rows)
            found += self.parts(rows, size)
        return found

    def validated(self, batches: Sequence[pa.RecordBatch]) -> int:
        """Number of leading batches that are valid; at least one.

        Raises:
            CorruptData: data_loss; the first one is not.
        """
        try:
            self._validator.validate_all(batches)
        except CorruptData:
            pass
        else:
            return len(batches)
        for number, rows in enumerate(batches):
            try:
                self._validator.validate(rows)
            except CorruptData:
                if number:
                    return number
                raise
        return len(batches)

    def parts(
        self, rows: pa.RecordBatch, size: int
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Slices of a validated batch that are safe to convert.

        Raises:
            MessageTooLarge: permanent; one row unpacks to too much.
        """
        return parts(self._validator, rows, size)

    def _walk(self, frame: memoryview) -> list[int]:
        """Check all messages of a stream against the limits; sizes of the batches."""
        at, sizes, dictionaries, is_first = 0, [], 0, True
        while at < len(frame):
            rest = frame[at:]
            if len(rest) >= ipc.PREFIX and bytes(rest[: ipc.PREFIX]) == ipc.END:
                if len(rest) > ipc.PREFIX:
                    msg = "bytes follow the end of an Arrow stream"
                    raise self._limits.corrupt(msg)
                break
            header, start = self._header(rest)
            if start + header.body > len(rest):
                msg = "an Arrow stream ends in the middle of a message"
                raise self._limits.corrupt(msg)
            if is_first is not (header.kind == ipc.SCHEMA):
                msg = "an Arrow stream does not begin with exactly one schema"
                raise self._limits.corrupt(msg)
            is_first = False
            size = self._limits.expanded(header, rest[start : start + header.body])
            if header.kind == ipc.ROWS:
                sizes.append(size)
            dictionaries += size if header.kind == ipc.DICTIONARY else 0
            if dictionaries > self._limits.message:
                option = "max.message.bytes"
                raise too_large(
                    dictionaries, option, self._limits.message, "dictionaries"
                )
            at += start + header.body
        if is_first:
            msg = "an empty frame was received where an Arrow stream was expected"
            raise self._limits.corrupt(msg)
        return sizes

    def _header(self, data: memoryview) -> tuple[ipc.IpcHeader, int]:
        """The header of a message, and the start of its body."""
        if len(data) < ipc.PREFIX:
            msg = f"a frame of {len(data)} bytes is not an Arrow message"
            raise self._limits.corrupt(msg)
        length = self._limits.header_length(data[: ipc.PREFIX])
        start = ipc.PREFIX + length
        if not length or start > len(data):
            msg = "the header of an Arrow message is truncated"
            raise self._limits.corrupt(msg)
        return self._limits.read_header(data[ipc.PREFIX : start]), start


def bytes_of(frame: bytes | zmq.Frame) -> bytes:
    """A frame as bytes; copied where libzmq holds it."""
    return frame if isinstance(frame, bytes) else frame.bytes


def view_of(frame: bytes | zmq.Frame) -> memoryview:
    """A frame without a copy."""
    return memoryview(frame) if isinstance(frame, bytes) else memoryview(frame.buffer)


def aligned(frame: memoryview) -> pa.Buffer:
    """A frame as a buffer that Arrow may read numbers from; copied where needed."""
    buffer = pa.py_buffer(frame)
    if buffer.address % _ALIGNED:
        copy = pa.allocate_buffer(buffer.size)
        memoryview(copy).cast("B")[:] = frame
        return copy
    return buffer
