"""Arrow messages of records: encoded without a copy, checked, and decoded in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, final

import pyarrow as pa

from streamfactory import arrowipc as ipc
from streamfactory.backends.shm.layout import MESSAGE, STREAM, Damaged
from streamfactory.live.schemas import has_dictionary

if TYPE_CHECKING:
    from collections.abc import Sequence

    Octets: TypeAlias = bytes | pa.Buffer

_MOST_HEADER: Final = 64 << 20
_SMALL: Final = 1 << 16
"""Bytes of a message that is copied faster at once than column by column."""


class _Parts:
    """A file of Python that keeps what Arrow writes where it is."""

    closed = False

    def __init__(self) -> None:
        self.parts: list[Octets] = []

    def write(self, data: Octets) -> int:
        if len(data):
            self.parts.append(data)
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Called by Arrow."""


@final
class RowEncoder:
    """Encodes the batches of one schema. Not thread-safe.

    Args:
        schema: Of all batches.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.kind = STREAM if has_dictionary(schema.types) else MESSAGE
        """Of the records."""
        self._sink = _Parts()
        self._writer: pa.RecordBatchStreamWriter | None = None

    def encode(self, rows: pa.RecordBatch) -> Sequence[Octets]:
        """The messages of a batch: buffers of the batch, and what is between them.

        One message, or a stream with its schema where that has dictionaries.
        """
        if self.kind == MESSAGE and pa.ipc.get_record_batch_size(rows) <= _SMALL:
            return [rows.serialize()]
        if self.kind == STREAM:
            self._sink.parts = []
            with self._opened() as writer:
                writer.write_batch(rows)
            return self._sink.parts
        if self._writer is None:
            self._writer = self._opened()
            # Arrow writes the schema before the first batch.
            self._writer.write_batch(pa.RecordBatch.from_pylist([], self._schema))
        self._sink.parts = []
        self._writer.write_batch(rows)
        return self._sink.parts

    def _opened(self) -> pa.RecordBatchStreamWriter:
        return pa.ipc.new_stream(pa.PythonFile(self._sink, "w"), self._schema)


def check_messages(payload: pa.Buffer, kind: int) -> None:
    """Check the headers of all messages of a record, before Arrow reads them.

    Raises:
        ipc.NotIpc, ipc.IpcTooLong: They are not those of a record.
    """
    data, at = memoryview(payload), 0
    kinds: list[int] = []
    while at < len(data):
        if len(data) - at < ipc.PREFIX:
            msg = "a message ends before its header"
            raise ipc.NotIpc(msg)
        length = ipc.header_length(data[at : at + ipc.PREFIX], _MOST_HEADER)
        begin, at = at + ipc.PREFIX, at + ipc.PREFIX + length
        if length == 0:
            break
        header = ipc.read_header(data[begin:at], len(data) - at)
        if header.compressed is not None or header.foreign_order:
            msg = "a message is compressed, or of another order of bytes"
            raise ipc.NotIpc(msg)
        kinds.append(header.kind)
        at += header.body
    single = kinds == [ipc.ROWS]
    stream = kinds[:1] == [ipc.SCHEMA] and kinds[-1:] == [ipc.ROWS]
    if at != len(data) or not (single if kind == MESSAGE else stream):
        msg = f"a record has messages of kinds {kinds[:10]}"
        raise ipc.NotIpc(msg)


def decode_rows(payload: pa.Buffer, kind: int, schema: pa.Schema) -> pa.RecordBatch:
    """The batch of a record, in the memory of its payload.

    Raises:
        Damaged: Arrow cannot read the messages.
    """
    try:
        if kind == STREAM:
            with pa.ipc.open_stream(payload) as reader:
                return reader.read_next_batch()
        return pa.ipc.read_record_batch(payload, schema)
    except (pa.ArrowException, ValueError, OSError, StopIteration) as error:
        msg = f"the messages of a record cannot be read: {error}"
        raise Damaged(msg) from error
