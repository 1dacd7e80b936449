"""Encoding of batches into the bytes of a stream."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streamfactory.live.schemas import has_dictionary

if TYPE_CHECKING:
    from collections.abc import Callable

_COPIED: Final = 512 * 1024
"""Bytes up to which a batch is copied into one buffer, which is faster to send."""
_SMALL: Final = 512 * 1024
"""Bytes up to which batches are coalesced. Whatever its length, a message costs its
reader more than copying that many bytes."""
_ENOUGH: Final = 1024 * 1024
"""Bytes of coalesced batches. Joining more does not fit the caches of processors."""
_AT_ONCE: Final = 50e-6
"""Seconds between two writes of a program that has more rows ready. A program that
waits for a reply in between usually takes longer."""
_SECONDS_PER_BYTE: Final = 0.25e-9
"""Added for the rows of the second write, which take time to make: a copy from memory.
No reply to the first can be there as soon."""
_RUN: Final = 8
"""Surplus of such writes over others after which batches are held back."""
_SUSPENDED: Final = -512
"""Start of the count after a held batch was not followed by another one."""


class StreamEncoder:
    """Encodes the batches that every reader gets, and coalesces small ones.

    Small batches written in quick succession are combined: a message costs both sides
    as much as 100 kB of data. Not thread-safe.
    """

    def __init__(self, schema: pa.Schema, compression: str) -> None:
        self.schema = schema
        codec = None if compression == "none" else compression
        self._options = pa.ipc.IpcWriteOptions(compression=codec)
        self._dictionaries = has_dictionary(schema.types)
        self._plain = codec is None and not self._dictionaries
        self._pieces: list[pa.Buffer | bytes] = []
        # Called by pyarrow for each of some twenty pieces of a batch: no Python there.
        self.write = self._pieces.append
        self._writer: Any = None
        self._row_size = 0.0
        self._held: list[pa.RecordBatch] = []
        self._held_size = 0.0
        self._written = 0.0
        self._run = 0
        self.taken = 0
        """Number of batches so far. It does not change while nothing is written."""

    def begin(self) -> list[memoryview]:
        """The bytes that each connection starts with: the schema."""
        return [memoryview(self.schema.serialize())]

    @property
    def is_holding(self) -> bool:
        """Whether there are batches that are not encoded yet."""
        return bool(self._held)

    def add(self, rows: pa.RecordBatch) -> bool:
        """Add a batch; returns whether it may be held back."""
        size = rows.num_rows * self._row_size
        pause = time.perf_counter() - self._written
        at_once = pause < _AT_ONCE + size * _SECONDS_PER_BYTE
        # Halved, not reset: a pause may be due to the scheduler.
        self._run = min(self._run + 1, 4 * _RUN) if at_once else self._run // 2
        self._held.append(rows)
        self._held_size += size
        self.taken += 1
        has_room = 0 < size <= _SMALL and self._held_size + size <= _ENOUGH
        return bool(has_room and self._plain and self._run >= _RUN)

    def end_write(self) -> None:
        """Record the time at which a write returned."""
        self._written = time.perf_counter()

    def stop_waiting(self) -> None:
        """No further batch came for the held ones."""
        if len(self._held) == 1:
            self._run = _SUSPENDED  # the program waits for replies: do not hold batches

    def encode(self) -> list[memoryview]:
        """The bytes of all held batches."""
        held, self._held, self._held_size = self._held, [], 0.0
        if self._is_long(held[-1]):
            held = [*_joined(held[:-1]), held[-1]]
        else:
            held = _joined(held)
        return [piece for rows in held for piece in self._encode(rows)]

    def _is_long(self, rows: pa.RecordBatch) -> bool:
        return bool(rows.num_rows * self._row_size > _COPIED)

    def _encode(self, rows: pa.RecordBatch) -> list[memoryview]:
        """The bytes of one batch. Large ones are not copied."""
        if self._plain and not self._is_long(rows):
            whole = rows.serialize()
            self._row_size = whole.size / max(1, rows.num_rows)
            return [memoryview(whole)]
        if self._dictionaries:
            # Repeated with each batch: a reader that connects later needs them.
            pieces = self._written_by(self._begun().write_batch, rows)
            return drop_prefix(pieces, self.schema.serialize().size)
        if self._writer is None:
            self._writer = self._begun()
            self._written_by(self._writer.write_batch, rows.slice(0, 0))  # the schema
        return self._written_by(self._writer.write_batch, rows)

    def _begun(self) -> Any:
        return pa.ipc.new_stream(self, self.schema, options=self._options)

    def _written_by(
        self, write: Callable[[pa.RecordBatch], None], rows: pa.RecordBatch
    ) -> list[memoryview]:
        self._pieces.clear()
        write(rows)
        views = [memoryview(piece) for piece in self._pieces if len(piece)]
        self._pieces.clear()
        return views

    # --- file interface for pyarrow -----------------------------------------------

    closed = False

    def flush(self) -> None:
        """Required by pyarrow."""

    def close(self) -> None:
        """Required by pyarrow."""


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Concatenate batches, if Arrow supports it."""
    if len(batches) < 2:
        return batches
    try:
        return [pa.concat_batches(batches)]
    except pa.ArrowException:  # columns too long for one batch, or an unsupported type
        return batches


def drop_prefix(pieces: list[memoryview], count: int) -> list[memoryview]:
    """The pieces without their first ``count`` bytes."""
    for index, piece in enumerate(pieces):
        if count < len(piece):
            return [piece[count:], *pieces[index + 1 :]]
        count -= len(piece)
    return []
