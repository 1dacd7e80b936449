"""Decoder of the record batches of one file, in any order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from streamfactory.backends.file.foreign.framing import Malformed, uncompressed
from streamfactory.backends.file.foreign.medium import translated
from streamfactory.backends.file.foreign.types import plain_rows
from streamfactory.spi import (
    BatchValidator,
    CorruptData,
    MessageTooLarge,
    StreamError,
)
from streamfactory.spi.soundness import UNPACKED_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.backends.file.foreign.arrowfile import ArrowFile
    from streamfactory.backends.file.foreign.framing import Frame


class Piece(NamedTuple):
    """Decoded rows of one batch."""

    first: int
    """Index of the first row in the batch."""
    rows: pa.RecordBatch
    unpacked: int
    """Bytes of the encoded columns after unpacking."""


class Part(NamedTuple):
    """Rows of one batch, in the types of the file."""

    first: int
    """Index of the first row in the batch."""
    rows: pa.RecordBatch


class Decoder(ABC):
    """Decodes the batches of a file. One thread at a time.

    Args:
        path: The file, for messages.
        schema: Schema of the returned rows, in plain types.
    """

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._path = path
        self._schema = schema

    def decode(self, index: int, row: int = 0) -> Piece:
        """The rows of one batch.

        Args:
            index: Index of the batch.
            row: The wanted row. If the batch is large, or becomes very large when its
                encodings are unpacked, a part that contains this row is returned.

        Raises:
            CorruptData: data_loss; names the file and the batch.
            MessageTooLarge: permanent; a single row is too large.
        """
        try:
            return self._decode(index, row)
        except MessageTooLarge as error:
            msg = f"batch {index} of the file {self._path!r} is too large: {error.what}"
            raise MessageTooLarge(msg, remedy=error.remedy) from error
        except (Malformed, UnicodeDecodeError, pa.ArrowException) as error:
            self._forget()
            msg = f"batch {index} at byte {self._place(index)} is corrupt: {error}"
            raise translated(self._path, Malformed(msg)) from error
        except StreamError:
            self._forget()
            raise
        except OSError as error:
            raise translated(self._path, error) from error

    def _decode(self, index: int, row: int) -> Piece:
        part, validator = self._validated(index, row)
        first, rows = part.first, part.rows
        unpacked = validator.unpacked_bytes(rows)
        if unpacked > UNPACKED_BYTES:
            rows, first = next(validator.split(rows.slice(row - first))), row
            unpacked = validator.unpacked_bytes(rows)
        return Piece(first, plain_rows(rows, self._schema), unpacked)

    @abstractmethod
    def _validated(self, index: int, row: int) -> tuple[Part, BatchValidator]:
        """A validated part of a batch that contains a row, in the types of the file."""

    @abstractmethod
    def _forget(self) -> None:
        """Drop what was read, after an error."""

    @abstractmethod
    def _place(self, index: int) -> int:
        """First byte of a batch in the file."""


class ArrowDecoder(Decoder):
    """Decodes the record batches of an Arrow IPC file, in any order.

    Files with dictionaries or conversions are read by Arrow's stream reader, which is
    fed only the messages that it needs: the schema, the dictionaries valid for a batch,
    and the batch.

    Args:
        file: The file; closed by its owner.
        schema: Schema of the returned rows, in plain types.
        checked: Whether values are validated, and not only lengths.
    """

    def __init__(self, file: ArrowFile, schema: pa.Schema, *, checked: bool) -> None:
        super().__init__(file.path, schema)
        self._file = file
        self._checked = checked
        self._reader: pa.RecordBatchStreamReader | None = None
        self._feed = _MessageFeed()
        self._fed = 0
        """Number of dictionaries that were fed to the reader."""
        self._found: tuple[int, pa.RecordBatch] | None = None
        """The last batch that was read: validated, not yet converted."""
        self._widths = [file.wide, file.message] if file.wide else [file.message]
        """Schemas to try: widened decimals as Hop stores them, then as declared."""
        self._direct = not (file.wide or file.swapped) and file.written == schema
        """Whether batches need no conversion: all columns, plain types."""
        self._validator = BatchValidator(schema, values=checked)

    def _validated(self, index: int, row: int) -> tuple[Part, BatchValidator]:
        del row  # a batch is read as a whole
        return Part(0, self._whole(index)), self._validator

    def _forget(self) -> None:
        self._reader = None

    def _place(self, index: int) -> int:
        return self._file.frames[index].offset

    def _whole(self, index: int) -> pa.RecordBatch:
        """A validated batch in the types of the file."""
        if self._found is not None and self._found[0] == index:
            return self._found[1]
        self._found = None
        while True:
            try:
                found = self._read(index)
                # Validate first: casting invalid offsets can crash the process.
                self._validator.validate(found)
            except (Malformed, CorruptData, pa.ArrowException) as error:
                if len(self._widths) == 1:
                    if isinstance(error, CorruptData):
                        raise Malformed(error.what) from error
                    raise
                del self._widths[0]
                self._reader = None
            else:
                del self._widths[1:]
                self._found = (index, found)
                return found

    def _read(self, index: int) -> pa.RecordBatch:
        frame = self._file.frames[index]
        try:
            if self._direct:
                message = pa.ipc.read_message(self._message(frame))
                found = pa.ipc.read_record_batch(message, self._schema)
            else:
                found = self._feed_reader(index).read_next_batch()
        except StreamError:  # of an object store, and an OSError
            raise
        except (OSError, StopIteration) as error:  # the messages are in memory
            msg = str(error) or "a message is missing"
            raise Malformed(msg) from error
        if found.num_rows != frame.rows:
            msg = f"the batch has {found.num_rows} rows instead of {frame.rows}"
            raise Malformed(msg)
        return found

    def _feed_reader(self, index: int) -> pa.RecordBatchStreamReader:
        """Arrow's reader, fed with a batch and the dictionaries that it needs."""
        file = self._file
        known = file.known[index]
        if self._reader is None or known < self._fed:
            self._reader = self._open()
            needed = _in_force(file.dictionaries[:known])
        else:
            needed = file.dictionaries[self._fed : known]
        self._fed = known
        messages = map(self._message, (*needed, file.frames[index]))
        self._feed.serve(list(messages))
        return self._reader

    def _open(self) -> pa.RecordBatchStreamReader:
        self._feed.serve([self._widths[0]])
        schema = pa.ipc.read_schema(self._widths[0])
        wanted = [schema.get_field_index(name) for name in self._schema.names]
        options = pa.ipc.IpcReadOptions(included_fields=wanted, use_threads=False)
        reader = pa.ipc.open_stream(
            pa.PythonFile(self._feed, mode="r"), options=options
        )
        self._validator = BatchValidator(reader.schema, values=self._checked)
        return reader

    def _message(self, frame: Frame) -> pa.Buffer:
        message = self._file.medium.read(frame.offset, frame.size)
        if frame.compressed:
            view = memoryview(message)
            head = bytes(view[: frame.head])
            size = uncompressed(head, view[frame.head :])
            if size > self._file.longest:
                msg = (
                    f"the decompressed message has {size} bytes, message.max.bytes is "
                    f"{self._file.longest}"
                )
                raise Malformed(msg)
        return message


def _in_force(dictionaries: Sequence[Frame]) -> list[Frame]:
    """The valid dictionaries: the last replacement of each, and its later deltas."""
    found: list[Frame] = []
    replaced: set[int] = set()
    for frame in reversed(dictionaries):
        if frame.dictionary not in replaced:
            found.append(frame)
            if not frame.delta:
                replaced.add(frame.dictionary)
    return found[::-1]


class _MessageFeed:
    """A file-like object from which Arrow reads the messages given to `serve`."""

    closed = False

    def __init__(self) -> None:
        self._messages: list[pa.Buffer] = []
        self._at = 0

    def serve(self, messages: Sequence[Any]) -> None:
        """Provide these messages to the next reads."""
        self._messages, self._at = list(messages[::-1]), 0

    def read_buffer(self, length: int) -> pa.Buffer:
        """At most ``length`` bytes of the current message; empty after the last."""
        if not self._messages:
            return pa.py_buffer(b"")
        part = self._messages[-1].slice(self._at, length)
        self._at += part.size
        if self._at == self._messages[-1].size:
            self._messages.pop()
            self._at = 0
        return part

    read = read_buffer

    def readable(self) -> bool:
        """Required by Arrow."""
        return True

    def close(self) -> None:
        """Required by Arrow."""
