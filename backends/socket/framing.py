"""Bytes of a connection into batches: resumable, and nothing is believed.

pyarrow reads a stream from its beginning to its end or not at all. `Inflow` therefore
cuts the bytes into whole messages first, as they come, under the limits of `headers`,
and gives pyarrow only what it can read without waiting.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from streamfactory.backends.socket.headers import (
    DICTIONARY,
    PREFIX,
    SCHEMA,
    Header,
    Limits,
    corrupt,
    expanded,
    header_length,
    read_header,
    too_large,
)
from streamfactory.spi import ConnectionFailed, StreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Receive = Callable[[list[memoryview]], int]
    """Fills views with what is there; answers how much, 0 at the end of all bytes.
    Raises BlockingIOError where nothing is there yet."""

_AHEAD: Final = 64 * 1024
"""Bytes read beyond what is known to come: many small messages cost one call."""
_ENOUGH: Final = 1024 * 1024
"""Bytes up to which small batches are put together."""
_TINY: Final = 128 * 1024
"""Bytes below which a batch is small: looking at each costs more than copying them."""
_SMALL: Final = 4096
"""Rows below which pyarrow's own validation is the cheaper one."""


class EndedEarly(Exception):
    """The bytes ended without the marker of the end."""


class Inflow:
    """The stream of one connection. One thread at a time."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._data = bytearray(_AHEAD)
        self._view = memoryview(self._data)
        self._from = self._to = 0
        self._header: Header | None = None
        self._head: pa.Buffer | None = None
        self._body: pa.Buffer | None = None
        self._body_view = memoryview(b"")
        self._filled = 0
        self._held: dict[int, int] = {}
        self._feed = _Feed()
        self._reader: Any = None
        self._empty = False
        """Whether the last call left nothing behind in the connection."""
        self._failure: Exception | None = None
        """What came after batches that had to be handed out first."""
        self.schema: pa.Schema | None = None
        """Of the rows; None until it has come."""
        self.ended = False
        """Whether the marker of the end has come."""

    def _may_join(self, last: int) -> bool:
        """Whether the next batch may be put to a last one of that many bytes."""
        # Dictionaries may change from batch to batch.
        return last < _TINY and not self._held and not self.is_dry

    @property
    def is_dry(self) -> bool:
        """Whether there is nothing to be had without waiting."""
        known = self.ended or self._failure is not None or self._from < self._to
        return self._empty and not known

    @property
    def is_torn(self) -> bool:
        """Whether a message has begun that is not whole."""
        return self._header is not None or self._to > self._from

    def receive_schema(self, receive: Receive) -> pa.Schema:
        """The schema, which comes first.

        Raises:
            As `receive`, and ConnectionFailed: transient; the end came instead.
        """
        self.receive(receive)
        if self.schema is None:
            msg = "a stream ended before its schema"
            raise ConnectionFailed(msg)
        return self.schema

    def receive_some(
        self, receive: Receive, most: int
    ) -> tuple[pa.RecordBatch, int] | None:
        """The next batches as one, as far as they are small and there already.

        Args:
            receive: See `Receive`.
            most: Rows that need not be exceeded.

        Raises:
            As `receive`, where there is no batch at all.
        """
        found = self.receive(receive)
        if found is None:
            return None
        rows, size = found
        batches, count = [rows], rows.num_rows
        while self._may_join(found[1]) and size < _ENOUGH and count < most:
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
        try:
            check_rows(rows)
        except pa.ArrowException as error:
            msg = f"a batch is damaged: {_first_line(error)}"
            raise corrupt(msg) from error
        return rows, size

    def receive(self, receive: Receive) -> tuple[pa.RecordBatch, int] | None:
        """The next batch and its bytes; None at the end, and when the schema came.

        Its values are not looked at yet: `check_rows` does.

        Raises:
            BlockingIOError: The next message is not whole yet; call again.
            EndedEarly: The bytes ended without a word.
            CorruptData: data_loss; they are no Arrow stream.
            MessageTooLarge: permanent; something is over its limit.
        """
        if self._failure is not None:
            raise self._failure
        if self.ended:
            return None
        while True:
            if self._header is None and not self._begin(receive):
                self.ended = True
                return None
            header = self._header
            assert header is not None
            self._fill(receive)
            size = expanded(header, self._body, self._limits)
            self._feed.put(self._head)
            self._feed.put(self._body)
            self._header = self._head = self._body = None
            if header.kind == SCHEMA:
                self._open()
                return None
            if self.schema is None:
                msg = "rows came before the schema"
                raise corrupt(msg)
            if header.kind == DICTIONARY:
                self._hold(header, size)
                continue
            return self._batch(), size

    def _begin(self, receive: Receive) -> bool:
        """Read a header; False where the end came instead."""
        self._need(PREFIX, receive)
        at = self._from
        length = header_length(self._view[at : at + PREFIX], self._limits)
        if length == 0:
            self._from += PREFIX
            return False
        self._need(PREFIX + length, receive)
        at = self._from
        head = bytes(self._view[at : at + PREFIX + length])
        header = read_header(memoryview(head)[PREFIX:], self._limits)
        if header.kind == SCHEMA and self.schema is not None:
            msg = "a second schema came"
            raise corrupt(msg)
        self._from += len(head)
        self._head = pa.py_buffer(head)
        self._body = pa.allocate_buffer(header.body)
        self._body_view = memoryview(self._body).cast("B")
        self._filled = 0
        self._header = header
        return True

    def _need(self, count: int, receive: Receive) -> None:
        """Have so many bytes ahead."""
        while self._to - self._from < count:
            if self._from + count > len(self._data):
                rest = self._view[self._from : self._to]
                grown = bytearray(max(_AHEAD, count))
                grown[: len(rest)] = rest
                self._data, self._view = grown, memoryview(grown)
                self._from, self._to = 0, len(rest)
            elif self._from == self._to:
                self._from = self._to = 0
            self._to += self._received(receive, [self._view[self._to :]])

    def _fill(self, receive: Receive) -> None:
        """Have the whole body: what is ahead first, the rest in its place."""
        view = self._body_view
        ahead = min(self._to - self._from, len(view) - self._filled)
        if ahead:
            piece = self._view[self._from : self._from + ahead]
            view[self._filled : self._filled + ahead] = piece
            self._filled += ahead
            self._from += ahead
        while self._filled < len(view):
            # All that was ahead is in the body by now: the room is free.
            self._from = self._to = 0
            wanted = len(view) - self._filled
            count = self._received(receive, [view[self._filled :], self._view])
            self._filled += min(count, wanted)
            self._to = max(0, count - wanted)

    def _received(self, receive: Receive, views: list[memoryview]) -> int:
        count = receive(views)
        if count == 0:
            raise EndedEarly
        self._empty = count < sum(map(len, views))
        return count

    def _open(self) -> None:
        try:
            self._reader = pa.ipc.open_stream(self._feed)
            _check_names(self._reader.schema)
        except (pa.ArrowException, ValueError, OSError) as error:
            msg = f"the schema cannot be read: {_first_line(error)}"
            raise corrupt(msg) from error
        self.schema = self._reader.schema

    def _hold(self, header: Header, size: int) -> None:
        before = self._held.get(header.dictionary, 0) if header.delta else 0
        self._held[header.dictionary] = before + size
        total, limit = sum(self._held.values()), self._limits.dictionary
        if total > limit:
            raise too_large(total, "max.dictionary.bytes", limit, "dictionaries")

    def _batch(self) -> pa.RecordBatch:
        try:
            rows = self._reader.read_next_batch()
            rows.validate()
        except (pa.ArrowException, ValueError, OSError, StopIteration) as error:
            msg = f"a batch cannot be read: {_first_line(error)}"
            raise corrupt(msg) from error
        if self._feed.parts:
            msg = "a message has parts that nothing refers to"
            raise corrupt(msg)
        return rows


class _Feed:
    """A file, to pyarrow: whole messages that are there already."""

    closed = False

    def __init__(self) -> None:
        self.parts: deque[pa.Buffer] = deque()
        self._at = 0

    def put(self, part: pa.Buffer | None) -> None:
        if part is not None and part.size:
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
        """There is nothing to close."""


def _check_names(fields: Iterable[pa.Field]) -> None:
    """Look whether every name is text, also where pyarrow looks only when it is asked.

    Raises:
        ValueError: One is not.
    """
    for field in fields:
        kind = field.type
        _ = field.name, getattr(kind, "tz", None)
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        _check_names(kind.field(number) for number in range(kind.num_fields))


def check_rows(rows: pa.RecordBatch) -> None:
    """Look whether every value of a batch lies where the batch says.

    As ``rows.validate(full=True)``, but faster for long columns of ASCII text.

    Raises:
        pyarrow.ArrowInvalid: It does not.
    """
    if rows.num_rows < _SMALL:
        rows.validate(full=True)
        return
    rows.validate()
    for column in rows.columns:
        if not _is_plain(column):
            column.validate(full=True)


def _is_plain(column: pa.Array) -> bool:
    """Whether a column is sound at a glance."""
    kind = column.type
    if pa.types.is_primitive(kind) and not pa.types.is_decimal(kind):
        # Times of day have a range of their own; all else takes any bits.
        return not pa.types.is_time(kind) and not pa.types.is_date64(kind)
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return False
    _, offsets, data = column.buffers()
    places = np.frombuffer(
        offsets, np.int32, len(column) + 1, column.offset * np.dtype(np.int32).itemsize
    )
    if places[0] < 0 or (places[1:] < places[:-1]).any():
        return False  # pyarrow says what is wrong
    if data is None or not data.size or pa.types.is_binary(kind):
        return True
    text = np.frombuffer(data, np.int8)[places[0] : places[-1]]
    return not len(text) or bool(text.min() >= 0)


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
