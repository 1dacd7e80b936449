"""Decoding of a connection's bytes into batches: resumable, with all input validated.

pyarrow reads a stream only in blocking mode. `StreamDecoder` therefore splits the bytes
into complete messages first, under the limits of `headers`, and passes to pyarrow only
what it can read without blocking.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streamfactory.arrowipc import DICTIONARY, PREFIX, ROWS, SCHEMA
from streamfactory.live.messages import ENOUGH, TINY, parts, too_large
from streamfactory.live.schemas import has_dictionary
from streamfactory.spi import (
    BatchValidator,
    ConnectionFailed,
    CorruptData,
    StreamError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamfactory.arrowipc import IpcHeader
    from streamfactory.live.messages import Limits

    Receive = Callable[[list[memoryview]], int]
    """Fills views with available bytes and returns their number, 0 at the end of the
    stream. Raises BlockingIOError if no bytes are available."""

_AHEAD: Final = 4 * 1024
"""Bytes read beyond a large message: usually the next header. They have to be copied,
so few."""
_BLOCK: Final = 256 * 1024
"""Bytes read beyond small messages, so that one call receives many of them."""
_ALIGNED: Final = 64
"""Alignment of message bodies, as Arrow recommends."""


_MOST_MESSAGES: Final = 1024
"""Messages per call, so that endless messages without rows cannot block the caller."""


_MOST_WAITS: Final = 16
"""Short waits per call for the rest of a message."""


class MoreToCome(BlockingIOError):
    """Only messages without rows were received; more may be available."""


class EndedEarly(Exception):
    """The bytes ended without an end-of-stream marker."""


class StreamDecoder:
    """Decodes the stream of one connection. One thread at a time."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._data = bytearray(_AHEAD)
        self._view = memoryview(self._data)
        self._from = self._to = 0
        self._header: IpcHeader | None = None
        self._last_head = b""
        self._last_header: IpcHeader
        self._message: pa.Buffer | None = None
        self._message_view = memoryview(b"")
        self._head_size = self._filled = 0
        self._ahead = _AHEAD
        self._wait: Callable[[], bool] | None = None
        self._waits = 0
        self._held: dict[int, int] = {}
        self._feed = _Feed()
        self._reader: Any = None
        self._validator = BatchValidator(pa.schema([]))
        self._direct = False
        """Whether batches can be read without the stream reader, which is faster."""
        self._empty = False
        """Whether the last call read all available bytes."""
        self._parts: Iterator[tuple[pa.RecordBatch, int]] = iter(())
        self._part: tuple[pa.RecordBatch, int] | None = None
        """The next slice of a batch that is returned in slices."""
        self._failure: Exception | None = None
        """An error to raise after the batches received before it were returned."""
        self.schema: pa.Schema | None = None
        """Schema of the rows; None until it was received."""
        self.ended = False
        """Whether the end-of-stream marker was received."""

    def _may_join(self, last: int) -> bool:
        """Whether the next batch may be concatenated to one of ``last`` bytes."""
        # Dictionaries may change from batch to batch.
        return last < TINY and not self._held and not self.is_dry

    @property
    def is_dry(self) -> bool:
        """Whether nothing can be returned without waiting."""
        known = self.ended or self._failure is not None or self._from < self._to
        return self._empty and not known and self._part is None

    @property
    def is_torn(self) -> bool:
        """Whether a message is received partly."""
        return self._header is not None or self._to > self._from

    def receive_schema(self, receive: Receive) -> pa.Schema:
        """Receive the schema, the first message.

        Raises:
            As `receive`, and ConnectionFailed: transient; the stream ended before it.
        """
        self.receive(receive)
        if self.schema is None:
            msg = "a stream ended before its schema"
            raise ConnectionFailed(msg)
        return self.schema

    def receive_some(
        self,
        receive: Receive,
        most: int,
        wait_briefly: Callable[[], bool] | None = None,
    ) -> tuple[pa.RecordBatch, int] | None:
        """The next batches as one, as far as they are small and available.

        A batch that becomes very large when its encodings are unpacked is returned in
        slices.

        Args:
            receive: See `Receive`.
            most: Number of rows after which no further batch is added.
            wait_briefly: Waits for the rest of the first message, a few times, and
                returns whether bytes are available; None raises BlockingIOError.

        Raises:
            As `receive`, if there is no batch. MessageTooLarge also if a single row
            unpacks to too many bytes.
        """
        if self._part is not None:
            part, self._part = self._part, None
            self._look_ahead()
            return part
        self._wait, self._waits = wait_briefly, _MOST_WAITS
        try:
            found = self.receive(receive)
        finally:
            self._wait = None
        if found is None:
            return None
        rows, size = found
        batches, count = [rows], rows.num_rows
        while self._may_join(found[1]) and size < ENOUGH and count < most:
            if len(batches) == _MOST_MESSAGES:
                break
            try:
                found = self.receive(receive)
            except (BlockingIOError, EndedEarly, StreamError, OSError) as error:
                if not isinstance(error, BlockingIOError):
                    self._failure = error
                break
            if found is None:
                break
            batches.append(found[0])
            count, size = count + found[0].num_rows, size + found[1]
        if len(batches) > 1:
            rows = pa.concat_batches(batches)
        if not self._validator.is_encoded:
            return rows, size
        self._parts = parts(self._validator, rows, size)
        first = next(self._parts)
        self._look_ahead()
        return first

    def _look_ahead(self) -> None:
        try:
            self._part = next(self._parts, None)
        except StreamError as error:
            self._failure = self._failure or error

    def receive(self, receive: Receive) -> tuple[pa.RecordBatch, int] | None:
        """The next validated batch and its size; None at the end and after the schema.

        Raises:
            BlockingIOError: The next message is incomplete, or (`MoreToCome`) other
                connections should be served; call again.
            EndedEarly: The bytes ended without an end-of-stream marker.
            CorruptData: data_loss; not an Arrow stream, or invalid values.
            SchemaMismatch: permanent; the schema has unsupported types.
            MessageTooLarge: permanent; a limit is exceeded.
        """
        if self._failure is not None:
            raise self._failure
        if self.ended:
            return None
        for _ in range(_MOST_MESSAGES):
            if self._header is None and not self._begin(receive):
                self.ended = True
                return None
            header = self._header
            assert header is not None
            self._fill(receive)
            message = self._message
            assert message is not None
            size = header.body
            if header.compressed:
                size = self._limits.expanded(header, message.slice(self._head_size))
            self._header = self._message = None
            if header.kind == ROWS and self._direct:
                return self._batch(message), size
            self._feed.put(message)
            if header.kind == SCHEMA:
                self._open(header)
                return None
            if self.schema is None:
                msg = "rows were received before the schema"
                raise self._limits.corrupt(msg)
            if header.kind == DICTIONARY:
                self._hold(header, size)
                continue
            return self._batch(None), size
        raise MoreToCome

    def _begin(self, receive: Receive) -> bool:
        """Read a header; False at the end-of-stream marker."""
        self._need(PREFIX, receive)
        # Headers of small batches, or without text, are often equal: parsed once.
        head = self._last_head
        may_be_equal = 0 < len(head) <= self._to - self._from
        if not (may_be_equal and self._data.startswith(head, self._from)):
            at = self._from
            length = self._limits.header_length(self._view[at : at + PREFIX])
            if length == 0:
                self._from += PREFIX
                return False
            self._need(PREFIX + length, receive)
            at = self._from
            head = bytes(self._view[at : at + PREFIX + length])
            header = self._limits.read_header(memoryview(head)[PREFIX:])
            self._last_head, self._last_header = head, header
        header, size = self._last_header, len(head)
        if header.kind == SCHEMA and self.schema is not None:
            msg = "a second schema was received"
            raise self._limits.corrupt(msg)
        room = -size % _ALIGNED
        whole = pa.allocate_buffer(room + size + header.body)
        self._message = whole.slice(room)
        self._message_view = memoryview(whole).cast("B")[room:]
        self._head_size, self._filled = size, 0
        self._ahead = _BLOCK if header.body < TINY else _AHEAD
        self._header = header
        return True

    def _need(self, count: int, receive: Receive) -> None:
        """Read ahead until ``count`` bytes are buffered."""
        while self._to - self._from < count:
            if self._from + count > len(self._data) or self._from == self._to:
                self._make_room(count)
            end = min(max(self._from + count, self._ahead), len(self._data))
            views = [self._view[self._to : end]]
            self._to += self._received(receive, views, end - self._to)

    def _make_room(self, count: int) -> None:
        """Move the buffered bytes to the start of the buffer and ensure its size."""
        rest = self._view[self._from : self._to]
        if max(count, self._ahead) > len(self._data):
            self._data = bytearray(max(count, self._ahead))
            self._view = memoryview(self._data)
        self._view[: len(rest)] = rest
        self._from, self._to = 0, len(rest)

    def _fill(self, receive: Receive) -> None:
        """Complete the message: copy buffered bytes, receive the rest in place."""
        view = self._message_view
        ahead = min(self._to - self._from, len(view) - self._filled)
        if ahead:
            piece = self._view[self._from : self._from + ahead]
            view[self._filled : self._filled + ahead] = piece
            self._filled += ahead
            self._from += ahead
        while self._filled < len(view):
            # All buffered bytes were copied into the message: the buffer is free.
            self._from = self._to = 0
            wanted = len(view) - self._filled
            beyond = self._view[: self._ahead]
            views = [view[self._filled :], beyond]
            count = self._received(receive, views, wanted + len(beyond))
            self._filled += min(count, wanted)
            self._to = max(0, count - wanted)

    def _received(self, receive: Receive, views: list[memoryview], room: int) -> int:
        """Receive into views, which have ``room`` bytes together."""
        try:
            count = receive(views)
        except BlockingIOError:
            if not self._awaits_rest():
                raise
            count = receive(views)
        if count == 0:
            raise EndedEarly
        self._empty = count < room
        return count

    def _awaits_rest(self) -> bool:
        """Wait for the rest of a message; whether bytes are available."""
        if self._header is None or self._wait is None or not self._waits:
            return False
        self._waits -= 1
        return self._wait()

    def _open(self, header: IpcHeader) -> None:
        decode = self._limits.decode
        self._reader = decode(lambda: pa.ipc.open_stream(self._feed), "the schema")
        self._validator = BatchValidator(self._reader.schema)
        self.schema = self._reader.schema
        # Only the stream reader handles dictionaries and the other byte order.
        self._direct = not (header.foreign_order or has_dictionary(self.schema.types))

    def _hold(self, header: IpcHeader, size: int) -> None:
        before = self._held.get(header.dictionary, 0) if header.delta else 0
        self._held[header.dictionary] = before + size
        total, limit = sum(self._held.values()), self._limits.dictionary
        if total > limit:
            raise too_large(total, "max.dictionary.bytes", limit, "dictionaries")

    def _batch(self, message: pa.Buffer | None) -> pa.RecordBatch:
        """Decode the batch of a message, or the next one of the stream reader."""
        if message is None:
            rows = self._limits.decode(self._reader.read_next_batch, "a batch")
        else:
            read = pa.ipc.read_record_batch
            rows = self._limits.decode(lambda: read(message, self.schema), "a batch")
        if self._feed.parts:
            msg = "a message has unreferenced parts"
            raise self._limits.corrupt(msg)
        try:
            # Validate first: concatenation follows the offsets.
            self._validator.validate(rows)
        except CorruptData as error:
            msg = f"a batch is corrupt: {error.what}"
            raise self._limits.corrupt(msg) from error
        return rows


class _Feed:
    """A file-like object from which pyarrow reads complete messages."""

    closed = False

    def __init__(self) -> None:
        self.parts: deque[pa.Buffer] = deque()
        self._at = 0

    def put(self, part: pa.Buffer) -> None:
        self.parts.append(part)

    def read_buffer(self, count: int) -> pa.Buffer:
        if not self.parts or not count:
            return pa.py_buffer(b"")
        part, at = self.parts[0], self._at
        end = min(part.size, at + count)
        self._at = 0 if end == part.size else end
        if end == part.size:
            self.parts.popleft()
        return part if end - at == part.size else part.slice(at, end - at)

    read = read_buffer

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """Required by pyarrow."""
