"""Rows out of the messages of one file, in any order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from streamfactory.backends.file.foreign.framing import Malformed, uncompressed
from streamfactory.backends.file.foreign.medium import explained
from streamfactory.backends.file.foreign.types import plain_rows
from streamfactory.spi import (
    UNPACKED_BYTES,
    BatchValidator,
    CorruptData,
    MessageTooLarge,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.backends.file.foreign.arrowfile import ArrowFile
    from streamfactory.backends.file.foreign.framing import Frame


class Piece(NamedTuple):
    """Rows of one batch."""

    first: int
    """Where they begin in the batch."""
    rows: pa.RecordBatch
    unpacked: int
    """Bytes of the columns that were encoded."""


class Decoder:
    """Decodes the batches of a file. One thread at a time.

    Where there is anything to it, Arrow's own stream reader does it, fed with the
    messages that it needs: the schema, the dictionaries that hold for a batch, and the
    batch. Going on with the next batch feeds only what lies between.

    Args:
        file: The file; its owner closes it.
        schema: What rows are to have, in plain types.
        checked: Whether to look at values, and not only at lengths.
    """

    def __init__(
        self, file: ArrowFile, schema: pa.Schema, *, checked: bool = True
    ) -> None:
        self._file = file
        self._checked = checked
        self._schema = schema
        self._reader: pa.RecordBatchStreamReader | None = None
        self._feed = _Feed()
        self._fed = 0
        """How many dictionaries of the file the reader has."""
        self._found: tuple[int, pa.RecordBatch] | None = None
        """The batch that was read last, validated and still encoded."""
        self._widths = [file.wide, file.message] if file.wide else [file.message]
        """Schemas to try: decimals of 64 bits as they are stored, by Hop or by all
        others."""
        self._direct = not (file.wide or file.swapped) and file.written == schema
        """Whether rows come as they are to be: all columns, and nothing to convert."""
        self._validator = BatchValidator(schema, values=checked)

    def decode(self, index: int, row: int = 0) -> Piece:
        """The rows of one batch.

        Args:
            index: Of the batch.
            row: One that is wanted: where the whole batch takes very many bytes once
                its encodings are unpacked, rows from this one on are returned.

        Raises:
            CorruptData: data_loss; names the file and the batch.
            MessageTooLarge: permanent; the row alone takes too many bytes.
        """
        try:
            return self._decode(index, row)
        except MessageTooLarge as error:
            msg = f"the file {self._file.path!r}, batch {index}: {error.what}"
            raise MessageTooLarge(msg, remedy=error.remedy) from error
        except (Malformed, UnicodeDecodeError, pa.ArrowException) as error:
            self._reader = None
            frame = self._file.frames[index]
            msg = f"its batch {index} at byte {frame.offset} is damaged: {error}"
            raise explained(self._file.path, Malformed(msg)) from error
        except OSError as error:
            raise explained(self._file.path, error) from error

    def _decode(self, index: int, row: int) -> Piece:
        found = self._validated(index)
        rows, first, validator = found, 0, self._validator
        unpacked = validator.unpacked_bytes(found)
        if unpacked > UNPACKED_BYTES:
            rows, first = next(validator.split(found.slice(row))), row
            unpacked = validator.unpacked_bytes(rows)
        if not self._direct:
            rows = plain_rows(rows, self._schema)
        return Piece(first, rows, unpacked)

    def _validated(self, index: int) -> pa.RecordBatch:
        """A batch as it was written."""
        if self._found is not None and self._found[0] == index:
            return self._found[1]
        self._found = None
        while True:
            try:
                found = self._read(index)
                # Before anything else: what is not sound ends the process in a cast.
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
        except (OSError, StopIteration) as error:  # what is decoded lies in memory
            msg = str(error) or "it lacks a message"
            raise Malformed(msg) from error
        if found.num_rows != frame.rows:
            msg = f"it has {found.num_rows} rows, not {frame.rows}"
            raise Malformed(msg)
        return found

    def _feed_reader(self, index: int) -> pa.RecordBatchStreamReader:
        """Arrow's reader, with all that comes before the rows of a batch, and these."""
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
                msg = f"it unpacks to {size} bytes, and may have {self._file.longest}"
                raise Malformed(msg)
        return message


def _in_force(dictionaries: Sequence[Frame]) -> list[Frame]:
    """Of each dictionary the last that replaced it, and what was added since."""
    found: list[Frame] = []
    replaced: set[int] = set()
    for frame in reversed(dictionaries):
        if frame.dictionary not in replaced:
            found.append(frame)
            if not frame.delta:
                replaced.add(frame.dictionary)
    return found[::-1]


class _Feed:
    """What Arrow takes for a file: the messages that it was told to serve."""

    closed = False

    def __init__(self) -> None:
        self._messages: list[pa.Buffer] = []
        self._at = 0

    def serve(self, messages: Sequence[Any]) -> None:
        """Have these, and nothing else, for the next reads."""
        self._messages, self._at = list(messages[::-1]), 0

    def read_buffer(self, length: int) -> pa.Buffer:
        """So many bytes of the message at hand; none at the end of the last."""
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
        """For Arrow."""
        return True

    def close(self) -> None:
        """For Arrow."""
