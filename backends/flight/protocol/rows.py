"""Rows within messages: small attempts that are sent with their commit."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streamfactory import arrowipc as ipc
from streamfactory.backends.flight.protocol.codec import decode, encode
from streamfactory.backends.flight.protocol.messages import Part
from streamfactory.spi import BatchValidator, FormatRefused, MessageTooLarge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streamfactory.arrowlog import Staged
    from streamfactory.spi import SoundRows

INLINE: Final = "inline"
"""The member of the only file of an attempt whose rows travel with the commit."""
_REMEDY: Final = "write them as an Arrow IPC stream of the topic's schema, in base64"


@dataclass(frozen=True, slots=True)
class InlineRows:
    """Rows of a small attempt that are not encoded yet, unless they are pickled."""

    parts: tuple[tuple[int, pa.RecordBatch], ...]
    """Partition and rows."""
    schema: pa.Schema

    def encode(self) -> str:
        """Their text in a message."""
        return encode_rows(self.parts, self.schema)

    def __reduce__(self) -> tuple[Any, ...]:
        # Arrow would pickle whole buffers, of which these rows may be a small slice.
        return _decoded, (self.encode(), self.schema)


def _decoded(text: str, schema: pa.Schema) -> InlineRows:
    decoded = decode_rows(text, BatchValidator(schema))
    return InlineRows(tuple((number, rows.batch) for number, rows in decoded), schema)


def inline_rows(staged: Staged) -> InlineRows | None:
    """The rows of an attempt that was not uploaded; None of one that was."""
    found = staged.files[0].get(INLINE) if len(staged.files) == 1 else None
    return found if isinstance(found, InlineRows) else None


def encode_rows(parts: Iterable[tuple[int, pa.RecordBatch]], schema: pa.Schema) -> str:
    """An Arrow stream as base64 text; each batch has its `Part` as metadata."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for partition, rows in parts:
            metadata = {b"part": encode(Part(partition))}
            writer.write_batch(rows, custom_metadata=metadata)
    return base64.b64encode(sink.getvalue()).decode()


def decode_rows(
    text: str, validator: BatchValidator, most_bytes: int = 1 << 62
) -> Iterator[tuple[int, SoundRows]]:
    """Partition and rows of each batch, validated.

    Args:
        text: As `encode_rows` makes it.
        validator: Of the rows.
        most_bytes: Maximum bytes of all rows, decompressed: checked before they are.

    Raises:
        FormatRefused: permanent; it is no such text, or has another schema.
        MessageTooLarge: permanent; it expands to more than ``most_bytes``.
        CorruptData: data_loss; a value is invalid.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError as error:
        msg = f"rows in a commit are not base64: {error}"
        raise FormatRefused(msg, remedy=_REMEDY) from error
    _check_size(memoryview(data), most_bytes)
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            if not reader.schema.equals(validator.schema):
                msg = "rows in a commit have another schema than the topic"
                raise FormatRefused(msg, remedy=_REMEDY)
            while True:
                try:
                    rows, metadata = reader.read_next_batch_with_custom_metadata()
                except StopIteration:
                    return
                part = decode((metadata or {}).get(b"part", b""), Part)
                yield part.partition, validator.validated(rows)
    except (OSError, pa.ArrowException) as error:
        msg = f"rows in a commit cannot be read: {error}"
        raise FormatRefused(msg, remedy=_REMEDY) from error


def _check_size(stream: memoryview, most_bytes: int) -> None:
    """Measure the messages of a stream by their headers."""
    total = 0
    try:
        while len(stream) > ipc.PREFIX:
            length = ipc.header_length(stream[: ipc.PREFIX])
            if length == 0:
                return
            body_at = ipc.PREFIX + length
            header = ipc.read_header(stream[ipc.PREFIX : body_at])
            stream = stream[body_at:]
            total += ipc.expanded(header, stream[: header.body], most_bytes - total)
            if total > most_bytes:
                raise ipc.IpcTooLong(total, most_bytes)
            stream = stream[header.body :]
    except ipc.NotIpc as error:
        msg = f"rows in a commit cannot be read: {error}"
        raise FormatRefused(msg, remedy=_REMEDY) from error
    except ipc.IpcTooLong as error:
        msg = f"the rows of a commit expand to more than {most_bytes} bytes"
        raise MessageTooLarge(msg, remedy="send smaller batches") from error
