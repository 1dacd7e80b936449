"""Segments: files of rows in batches, written by stages and merges.

Each batch is of one partition. How a file stores batches is up to its format.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from streamfactory.arrowlog.decoding import InvalidValue, list_of, row_of, whole
from streamfactory.arrowlog.disk.format_lookup import format_of
from streamfactory.arrowlog.disk.names import new_segment
from streamfactory.arrowlog.disk.storage import failed
from streamfactory.spi import CorruptData, SchemaMismatch, StreamError

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.arrowlog.disk.formats import SegmentFormat, Times
    from streamfactory.arrowlog.disk.settings import Settings
    from streamfactory.arrowlog.disk.storage import Blobs, NewBlob, Opened
    from streamfactory.spi import BatchValidator

_MAPPED: Final = 128 << 20
"""Maximum bytes of open segments; at least one is kept open."""
_FILES: Final = 128
"""Maximum number of open segments: descriptors are limited."""
_PAIRS_KEPT: Final = 1 << 16
"""Pairs of row and time that are kept of a segment: a megabyte."""
_WRITTEN: Final = 64
"""Maximum number of segments that one writer has open."""


class SegmentWriter:
    """Writes one segment.

    Args:
        storage: Where.
        schema: Of the rows.
        settings: Size and compression.
        form: Format of the file.
    """

    def __init__(
        self,
        storage: Blobs,
        schema: pa.Schema,
        settings: Settings,
        form: SegmentFormat,
    ) -> None:
        self.name = new_segment(form.name)
        self.rows = 0
        self.size = 0
        """Bytes in memory of its rows."""
        self.runs: list[tuple[int, int, list[int], int]] = []
        """Partition, first batch, rows of each batch, bytes."""
        self._batches = 0
        self._place = f"{storage.location}/{self.name}"
        self._largest = min(settings.segment_size, storage.largest or 1 << 62)
        self._blob: NewBlob = storage.create(self.name)
        try:
            self._writer = form.create(self._blob.sink, schema, settings)
        except BaseException:
            self._blob.abandon()
            raise

    @property
    def full(self) -> bool:
        """Whether it is full: it gets no more rows and is not merged."""
        return self.size >= self._largest or self._writer.full

    def write(self, partition: int, rows: pa.RecordBatch, times: Times | None) -> None:
        """Add a batch.

        Args:
            partition: Partition of the rows.
            rows: The batch.
            times: Append times, if a merge writes it.

        Raises:
            pa.ArrowInvalid: The batch has other dictionaries; nothing was written.
        """
        try:
            self._writer.write(rows, times)
        except OSError as error:
            raise failed(self._place, error) from error
        size = rows.nbytes
        last = self.runs[-1] if self.runs else None
        if last is not None and last[0] == partition:
            last[2].append(rows.num_rows)
            self.runs[-1] = (*last[:3], last[3] + size)
        else:
            self.runs.append((partition, self._batches, [rows.num_rows], size))
        self._batches += 1
        self.rows += rows.num_rows
        self.size += size

    def finish(self) -> int:
        """Close it, as durable as the storage is, and return its bytes."""
        try:
            try:
                self._writer.close()
            except OSError as error:
                raise failed(self._place, error) from error
            return self._blob.finish()
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Forget it."""
        self._writer.abandon()
        self._blob.abandon()


class RollingWriter:
    """Writes batches to segments, and starts a new one at each threshold.

    Dictionaries grow within a segment; one that cannot grow begins another segment. In
    a format that does not mix partitions, each partition has its own segments.
    """

    def __init__(
        self,
        storage: Blobs,
        schema: pa.Schema,
        settings: Settings,
        form: SegmentFormat,
    ) -> None:
        self._new: Callable[[], SegmentWriter] = lambda: SegmentWriter(
            storage, schema, settings, form
        )
        self.cut = form.cut
        """Returns a batch in the parts in which it must be written."""
        self._storage = storage
        self._mixed = form.mixed
        self._dictionaries = [
            i for i, field in enumerate(schema) if _has_dictionary(field.type)
        ]
        self._last: dict[int, pa.Array] = {}
        self._open: OrderedDict[int, SegmentWriter] = OrderedDict()
        """By partition; a single one if partitions are mixed."""
        self.done: list[tuple[SegmentWriter, int]] = []
        """Finished segments with their bytes on the medium."""

    def write(
        self, partition: int, rows: pa.RecordBatch, times: Times | None = None
    ) -> None:
        """Add a batch."""
        slot = 0 if self._mixed else partition
        writer = self._opened(slot)
        try:
            writer.write(partition, self._grown(rows), times)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            if not writer.rows or not self._dictionaries:
                raise
            self.roll()
            writer = self._opened(slot)
            writer.write(partition, self._grown(rows), times)
        if writer.full:
            self._finish(slot)

    def part(self) -> None:
        """Begin a gap in the offsets: rows after it may need another segment."""
        if not self._mixed:
            self.roll()

    def roll(self) -> None:
        """Finish all open segments."""
        for slot in list(self._open):
            self._finish(slot)

    def abandon(self) -> None:
        """Remove all segments, including finished ones."""
        while self._open:
            self._open.popitem()[1].abandon()
        self._storage.remove([writer.name for writer, _ in self.done])
        self.done = []

    def _opened(self, slot: int) -> SegmentWriter:
        writer = self._open.get(slot)
        if writer is None:
            if len(self._open) >= _WRITTEN:
                self._finish(next(iter(self._open)))
            writer = self._open[slot] = self._new()
        self._open.move_to_end(slot)
        return writer

    def _finish(self, slot: int) -> None:
        writer, self._last = self._open.pop(slot), {}
        self.done.append((writer, writer.finish()))

    def _grown(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows, with dictionaries that extend those written before."""
        for i in self._dictionaries:
            column = rows.column(i)
            before = self._last.get(i)
            if before is not None and not _same_dictionary(before, column):
                both = pa.chunked_array([before, column]).unify_dictionaries()
                column = both.chunk(1) if both.num_chunks > 1 else both.chunk(0)
                rows = rows.set_column(i, rows.schema.field(i), column)
            self._last[i] = column.slice(0, 0)
        return rows


def _has_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    return any(_has_dictionary(kind.field(i).type) for i in range(kind.num_fields))


def _same_dictionary(before: pa.Array, column: pa.Array) -> bool:
    """Whether the dictionary is obviously unchanged."""
    if not pa.types.is_dictionary(column.type):
        return False
    return bool(before.dictionary.equals(column.dictionary))


class _Opened:
    """An open segment: its file, and the last batch that was read."""

    def __init__(
        self,
        opened: Opened,
        name: str,
        schema: pa.Schema,
        validator: BatchValidator,
        committed: Callable[[str], int],
    ) -> None:
        self._validator = validator
        self._valid: set[int] = set()
        """Validated batches, of a segment that other users cannot change."""
        self.file, self._own = opened
        self.size = self.file.size()
        try:
            self.reader = format_of(name).open(
                self.file, self.size, schema, lambda: committed(name)
            )
        except BaseException:
            self.file.close()
            raise
        self.lock = threading.Lock()
        self._last: tuple[int, pa.RecordBatch] | None = None
        self._times: dict[int, np.ndarray | None] = {}
        self._pairs = 0
        """In ``_times``."""

    def batch(self, number: int) -> pa.RecordBatch:
        with self.lock:
            last = self._last
            if last is None or last[0] != number:
                last = self._last = (number, self._read(number))
            return last[1]

    def _read(self, number: int) -> pa.RecordBatch:
        if number not in self._valid:
            self.reader.check(number)
        rows = self.reader.read(number)
        if number not in self._valid:
            # Validated first: the bytes are untrusted.
            self._validator.validate(rows)
            if self._own:
                self._valid.add(number)
        return rows

    def times(self, number: int) -> np.ndarray | None:
        with self.lock:
            if number not in self._times:
                found = self._read_times(number)
                self._pairs += 1 if found is None else len(found)
                if self._pairs > _PAIRS_KEPT:
                    self._times, self._pairs = {}, 0
                self._times[number] = found
            return self._times[number]

    def _read_times(self, number: int) -> np.ndarray | None:
        found = self.reader.times(number)
        return None if found is None else _times(*found)


def _times(plain: Any, rows: int) -> np.ndarray:
    """When rows of a batch were appended, of its metadata: first row, milliseconds.

    Raises:
        ValueError: They do not conform to the format.
    """
    try:
        found: list[tuple[int, int]] = [tuple(x) for x in _PAIRS(plain)]
    except InvalidValue as error:
        msg = f"the times of its rows: {error}"
        raise ValueError(msg) from None
    first = [row for row, _ in found]
    rising = all(a < b for a, b in itertools.pairwise(first))
    if not first or first[0] != 0 or first[-1] >= rows or not rising:
        msg = (
            f"the times of its rows do not begin at the first of {rows}, or do not rise"
        )
        raise ValueError(msg)
    return np.array(found, np.int64)


_PAIRS: Final = list_of(row_of(whole(), whole()))
"""[first row, milliseconds] of the rows of each epoch."""


class SegmentReader:
    """Reads batches of segments; keeps recent ones open. Thread-safe.

    Args:
        location: Location of the segments, for messages.
        open_segment: Opens a segment by its name.
        schema: Schema of all rows.
        validator: Validates them before anything is computed on them.
        committed: Returns the committed bytes in memory of a segment, the maximum for
            compressed batches.
    """

    def __init__(
        self,
        location: str,
        open_segment: Callable[[str], Opened],
        schema: pa.Schema,
        validator: BatchValidator,
        committed: Callable[[str], int],
    ) -> None:
        self._location = location
        self._open_segment = open_segment
        self._schema = schema
        self._committed = committed
        self._validator = validator
        self._lock = threading.Lock()
        self._open: OrderedDict[str, _Opened] = OrderedDict()
        self._size = 0

    def batch(self, name: str, number: int, rows: int) -> pa.RecordBatch:
        """One batch.

        Args:
            name: Name of the segment.
            number: Number of the batch.
            rows: Its committed number of rows.

        Raises:
            FileNotFoundError: It was merged or deleted.
            CorruptData: data_loss; it cannot be read, or a value is invalid.
        """
        found: Any = self._translated(name, lambda opened: opened.batch(number))
        if found.num_rows != rows:
            msg = f"{self._place(name)}: batch {number} has {found.num_rows} rows, "
            raise CorruptData(msg + f"but {rows} were committed")
        return found

    def convertible(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the first rows, as many as unpack to a bounded number of bytes.

        Raises:
            MessageTooLarge: permanent; the first row alone exceeds it.
        """
        return next(self._validator.split(rows))

    def times(self, name: str, number: int) -> np.ndarray | None:
        """When rows of a batch were appended, where at several times.

        Pairs of the first row and the milliseconds since 1970, of the rows of each
        epoch.
        """
        found: np.ndarray | None = self._translated(
            name, lambda opened: opened.times(number)
        )
        return found

    def rows(self, name: str) -> int:
        """How many rows a segment has, by its own metadata."""
        return int(self._translated(name, lambda opened: opened.reader.rows))

    def close(self) -> None:
        """Close open segments; batches that were read remain valid."""
        with self._lock:
            self._open.clear()
            self._size = 0

    def _translated(self, name: str, use: Callable[[_Opened], Any]) -> Any:
        try:
            return use(self._opened(name))
        except FileNotFoundError:
            raise
        except (CorruptData, SchemaMismatch) as error:
            msg = f"{self._place(name)}: {error.what}"
            raise CorruptData(msg) from error
        except StreamError:
            raise
        except (pa.ArrowException, OSError, ValueError, IndexError) as error:
            msg = f"{self._place(name)}: {error}"
            raise CorruptData(msg) from error

    def _opened(self, name: str) -> _Opened:
        with self._lock:
            found = self._open.get(name)
            if found is not None:
                self._open.move_to_end(name)
                return found
        opened = _Opened(
            self._open_segment(name),
            name,
            self._schema,
            self._validator,
            self._committed,
        )
        with self._lock:
            if name in self._open:  # opened by another thread
                return self._open[name]
            self._open[name] = opened
            self._size += opened.size
            while len(self._open) > 1 and (
                self._size > _MAPPED or len(self._open) > _FILES
            ):
                _, oldest = self._open.popitem(last=False)
                self._size -= oldest.size
        return opened

    def _place(self, name: str) -> str:
        return f"{self._location}/{name}"
