"""Consumer of Arrow files of other programs."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streamfactory.backends.file.foreign.layout import LostFile, decoder_of
from streamfactory.backends.file.foreign.medium import Replaced
from streamfactory.spi import (
    BatchState,
    CorruptData,
    DataLossError,
    Fetched,
    FetchLimits,
    Finished,
    IncarnationChanged,
    PartitionLevelConsumer,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.backends.file.foreign.decoder import Decoder
    from streamfactory.backends.file.foreign.indexed import IndexedFile
    from streamfactory.backends.file.foreign.layout import Layout

log = logging.getLogger("streamfactory")

_SHORTEST: Final = 0.0002
_LONGEST: Final = 0.005
"""Seconds between two polls of the file system."""
_SMALL: Final = 16_384
"""Batches with fewer rows are concatenated."""


class ForeignConsumer(PartitionLevelConsumer):
    """Reads the one partition of a layout.

    Args:
        layout: The files; closed with the consumer.
        fields: Columns to read; None for all.
        checked: Whether values are validated.
    """

    def __init__(
        self,
        layout: Layout,
        fields: Sequence[str] | None,
        *,
        checked: bool,
    ) -> None:
        self._layout = layout
        self._fields = fields
        self._checked = checked
        self._woken = threading.Event()
        self._incarnation: str | None = None
        self._decoder: tuple[IndexedFile, Decoder] | None = None
        self._held: tuple[int, pa.RecordBatch, int | None] | None = None
        """The last returned batch, with its first offset and its bytes."""

    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        layout, pause = self._layout, _SHORTEST
        deadline = time.monotonic() + limits.timeout
        while True:
            layout.refresh()
            if start >= layout.latest and not layout.ended:
                layout.discover(end=end)
            if self._was_recreated():
                return self._empty(layout.earliest)
            if start < layout.latest:
                found = self._rows(start, end, limits)
                if found is not None:
                    return found
                continue
            if start == layout.latest and layout.ended:
                return self._empty(start, ended=True)
            left = deadline - time.monotonic()
            if start > layout.latest or left <= 0:
                return self._empty(start)
            if self._woken.wait(min(pause, left)):
                self._woken.clear()
                return self._empty(start)
            pause = min(pause * 2, _LONGEST)

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        self._decoder = self._held = None
        self._layout.close()

    def _was_recreated(self) -> bool:
        """Whether the incarnation changed since the last call."""
        found, before = self._layout.incarnation, self._incarnation
        if found == before:
            return False
        self._held = None
        if found is None:
            # An empty file has no incarnation, so a batch cannot report the change.
            msg = (
                f"the file was recreated and is empty: expected incarnation {before!r}"
            )
            raise IncarnationChanged(msg, expected=before)
        self._incarnation = found
        return before is not None

    def _empty(self, next_offset: int, *, ended: bool = False) -> Fetched:
        state = BatchState.END_OF_PARTITION if ended else BatchState.CAUGHT_UP
        return Fetched(
            None,
            next_offset,
            state=state,
            latest=self._layout.latest,
            held_from=self._layout.earliest,
            incarnation=self._layout.incarnation,
            end=Finished() if ended else None,
        )

    def _rows(self, start: int, end: int | None, limits: FetchLimits) -> Fetched | None:
        """Rows; None if the file was overwritten while it was read."""
        try:
            first, rows, size = self._batch(start, end, limits)
        except LostFile as loss:
            raise _error(loss) from loss
        except Replaced:
            self._decoder = self._held = None
            self._layout.drop()
            return None
        except CorruptData:
            before = self._layout.incarnation
            self._layout.refresh()
            if self._layout.incarnation == before and start < self._layout.latest:
                raise
            return None
        skipped = start - first
        if skipped or rows.num_rows > limits.max_rows:
            size = None
            rows = rows.slice(skipped, limits.max_rows)
        return Fetched(
            rows,
            start + rows.num_rows,
            latest=self._layout.latest,
            held_from=min(start, self._layout.earliest),
            incarnation=self._layout.incarnation,
            size=size,
        )

    def _batch(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> tuple[int, pa.RecordBatch, int | None]:
        """The batch that contains an offset: first offset, rows, and bytes if known."""
        file, base = self._layout.find(start)
        held = self._held
        if held is not None and self._decoder is not None and self._decoder[0] is file:
            first, rows, _ = held
            if first <= start < first + rows.num_rows:
                return held
        decoder = self._decoder_of(file)
        index = file.find(start - base)
        until = file.rows if end is None else min(file.rows, end - base)
        last = self._last(file, index, until, limits)
        begin = file.starts[index]
        piece = decoder.decode(index, start - base - begin)
        first = begin + piece.first
        parts, end, unpacked = [piece.rows], first + piece.rows.num_rows, piece.unpacked
        for number in range(index + 1, last):
            if end != file.starts[number] or unpacked > limits.max_bytes:
                break
            piece = decoder.decode(number)
            parts.append(piece.rows)
            end, unpacked = end + piece.rows.num_rows, unpacked + piece.unpacked
        rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        size = None
        if not unpacked and first == begin:
            size = self._size(file, index, index + len(parts))
        self._held = (base + first, rows, size)
        return self._held

    def _last(
        self, file: IndexedFile, index: int, until: int, limits: FetchLimits
    ) -> int:
        """Index of the batch at which concatenation stops."""
        frames, starts, last = file.frames, file.starts, index + 1
        if frames[index].rows >= _SMALL:
            return last
        size = frames[index].body
        while (
            last < len(frames)
            and starts[last] < until
            and starts[last + 1] - starts[index] <= limits.max_rows
            and size + frames[last].body <= limits.max_bytes
        ):
            size += frames[last].body
            last += 1
        return last

    def _size(self, file: IndexedFile, index: int, last: int) -> int | None:
        """Bytes of some batches, if known without decoding."""
        frames = file.frames[index:last]
        if self._fields is not None or any(frame.compressed for frame in frames):
            return None
        return sum(frame.body for frame in frames)

    def _decoder_of(self, file: IndexedFile) -> Decoder:
        if self._decoder is None or self._decoder[0] is not file:
            schema = self._layout.schema
            assert schema is not None
            if self._fields is not None:
                schema = pa.schema([schema.field(name) for name in self._fields])
            self._decoder = (file, decoder_of(file, schema, checked=self._checked))
        return self._decoder[1]


def _error(loss: LostFile) -> DataLossError:
    """The error for a file that is not as it was listed; reading can resume behind."""
    remedy = "restore the file, or set out.of.range=earliest to record the loss and "
    remedy += "continue"
    if loss.found is None:
        return CorruptData(loss.what, remedy=remedy, resume=loss.end)
    return IncarnationChanged(
        loss.what,
        expected=loss.expected,
        found=loss.found,
        remedy=remedy,
        resume=loss.end,
    )
