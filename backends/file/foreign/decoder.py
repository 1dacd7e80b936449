"""Rows out of the messages of one file, in any order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamfactory.backends.file.foreign.framing import Malformed, uncompressed
from streamfactory.backends.file.foreign.medium import explained
from streamfactory.backends.file.foreign.soundness import check, suspects
from streamfactory.backends.file.foreign.types import plain_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.backends.file.foreign.arrowfile import ArrowFile
    from streamfactory.backends.file.foreign.framing import Frame


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
        self._suspects: Sequence[int] = ()
        self._widths = [file.wide, file.message] if file.wide else [file.message]
        """Schemas to try: decimals of 64 bits as they are stored, by Hop or by all
        others."""
        self._direct = not (file.wide or file.swapped) and file.written == schema
        """Whether rows come as they are to be: all columns, and nothing to convert."""
        if self._direct and checked:
            self._suspects = suspects(schema)

    def decode(self, index: int) -> pa.RecordBatch:
        """The rows of one batch.

        Raises:
            CorruptData: data_loss; names the file and the batch.
        """
        try:
            return self._decode(index)
        except (Malformed, UnicodeDecodeError, pa.ArrowException) as error:
            self._reader = None
            frame = self._file.frames[index]
            msg = f"its batch {index} at byte {frame.offset} is damaged: {error}"
            raise explained(self._file.path, Malformed(msg)) from error
        except OSError as error:
            raise explained(self._file.path, error) from error

    def _decode(self, index: int) -> pa.RecordBatch:
        while True:
            try:
                found = self._read(index)
                check(found, self._suspects)
            except (Malformed, pa.ArrowException):
                if len(self._widths) == 1:
                    raise
                del self._widths[0]
                self._reader = None
            else:
                del self._widths[1:]
                return found if self._direct else plain_rows(found, self._schema)

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
        self._suspects = suspects(reader.schema) if self._checked else ()
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
