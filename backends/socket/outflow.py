"""Batches into the bytes of a stream."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streamfactory.spi.soundness.senders import has_dictionary

if TYPE_CHECKING:
    from collections.abc import Callable

_COPIED: Final = 512 * 1024
"""Bytes up to which a batch is copied into one piece: that beats many small ones."""
_SMALL: Final = 128 * 1024
"""Bytes below which batches are put together: longer ones are copied in vain."""
_ENOUGH: Final = 1024 * 1024
"""Bytes up to which that is done."""
_AT_ONCE: Final = 50e-6
"""Seconds between two writes of somebody who has more at hand. Whoever waits for an
answer in between takes longer, mostly."""
_RUN: Final = 8
"""How many more of such writes than of others let more be waited for."""
_SUSPENDED: Final = -512
"""From where that is counted after a batch that waited, and was alone."""


class Outflow:
    """The bytes that every reader gets, and the batches that wait to be among them.

    While a program writes one small batch after the other they are put together: a
    message costs both sides as much as a hundred kilobytes do.
    """

    def __init__(self, schema: pa.Schema, compression: str) -> None:
        self.schema = schema
        codec = None if compression == "none" else compression
        self._options = pa.ipc.IpcWriteOptions(compression=codec)
        self._dictionaries = has_dictionary(schema.types)
        self._plain = codec is None and not self._dictionaries
        self._pieces: list[memoryview] = []
        self._writer: Any = None
        self._row_size = 0.0
        self._held: list[pa.RecordBatch] = []
        self._held_size = 0.0
        self._written = 0.0
        self._run = 0
        self.taken = 0
        """Batches so far; where it stands still nobody writes."""

    def begin(self) -> list[memoryview]:
        """What each connection begins with."""
        return [memoryview(self.schema.serialize())]

    @property
    def is_holding(self) -> bool:
        """Whether there are batches that no bytes were made of."""
        return bool(self._held)

    def take(self, rows: pa.RecordBatch) -> bool:
        """Take a batch; whether it may wait for more."""
        size = rows.num_rows * self._row_size
        at_once = time.perf_counter() - self._written < _AT_ONCE
        # A process that lost its core for a while is not slow for that.
        self._run = min(self._run + 1, 4 * _RUN) if at_once else self._run // 2
        self._held.append(rows)
        self._held_size += size
        self.taken += 1
        has_room = 0 < size <= _SMALL and self._held_size + size <= _ENOUGH
        return bool(has_room and self._plain and self._run >= _RUN)

    def rest(self) -> None:
        """Whoever wrote has come back from it."""
        self._written = time.perf_counter()

    def give_up(self) -> None:
        """No more has come for what is held."""
        if len(self._held) == 1:
            self._run = _SUSPENDED  # an answer was waited for, and comes fast

    def encode(self) -> list[memoryview]:
        """The bytes of all that is held."""
        held, self._held, self._held_size = self._held, [], 0.0
        if self._is_long(held[-1]):
            held = [*_joined(held[:-1]), held[-1]]
        else:
            held = _joined(held)
        return [piece for rows in held for piece in self._encode(rows)]

    def _is_long(self, rows: pa.RecordBatch) -> bool:
        return bool(rows.num_rows * self._row_size > _COPIED)

    def _encode(self, rows: pa.RecordBatch) -> list[memoryview]:
        """One batch; long ones are not copied."""
        if self._plain and not self._is_long(rows):
            whole = rows.serialize()
            self._row_size = whole.size / max(1, rows.num_rows)
            return [memoryview(whole)]
        if self._dictionaries:
            # They go with each batch: a reader that comes later needs them, too.
            pieces = self._written_by(self._begun().write_batch, rows)
            return behind(pieces, self.schema.serialize().size)
        if self._writer is None:
            self._writer = self._begun()
            self._writer.write_batch(rows.slice(0, 0))  # which writes the schema
        return self._written_by(self._writer.write_batch, rows)

    def _begun(self) -> Any:
        return pa.ipc.new_stream(self, self.schema, options=self._options)

    def _written_by(
        self, write: Callable[[pa.RecordBatch], None], rows: pa.RecordBatch
    ) -> list[memoryview]:
        self._pieces = []
        write(rows)
        return self._pieces

    # --- a file, to pyarrow -------------------------------------------------------

    closed = False

    def write(self, piece: pa.Buffer | bytes) -> int:
        view = memoryview(piece).cast("B")
        if len(view):
            self._pieces.append(view)
        return len(view)

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """There is nothing to close."""


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Batches as one, where Arrow can do that."""
    if len(batches) < 2:
        return batches
    try:
        return [pa.concat_batches(batches)]
    except pa.ArrowException:  # columns that are too long for one, or of a rare kind
        return batches


def behind(pieces: list[memoryview], count: int) -> list[memoryview]:
    """What is left behind the first bytes."""
    for index, piece in enumerate(pieces):
        if count < len(piece):
            return [piece[count:], *pieces[index + 1 :]]
        count -= len(piece)
    return []
