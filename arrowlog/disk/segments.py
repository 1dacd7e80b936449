"""Files of rows: written by stages and merges, read by everybody.

A segment is an Arrow IPC file of at most one message a batch, each of one partition.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections import OrderedDict
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streamfactory.arrowlog.decoding import InvalidValue, list_of, row_of, whole
from streamfactory.arrowlog.disk.expanding import Expansion
from streamfactory.arrowlog.disk.names import new_segment
from streamfactory.arrowlog.disk.storage import failed
from streamfactory.spi import (
    BatchValidator,
    CorruptData,
    SchemaMismatch,
    StreamError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.arrowlog.disk.settings import Settings
    from streamfactory.arrowlog.disk.storage import NewBlob, Storage

_MAPPED: Final = 128 << 20
"""Bytes of the segments that a log keeps open; at least one is."""
_FILES: Final = 128
"""So many it keeps open at the most: descriptors are few."""
_APPENDED: Final = b"appended"
"""Of a batch that a merge wrote: [first row, milliseconds] pairs, as JSON."""


class SegmentWriter:
    """Writes one segment.

    Args:
        storage: Where.
        schema: Of the rows.
        settings: Size and compression.
    """

    def __init__(self, storage: Storage, schema: pa.Schema, settings: Settings) -> None:
        self.name = new_segment()
        self.rows = 0
        self.size = 0
        """Bytes in memory of what it holds."""
        self.runs: list[tuple[int, int, list[int], int]] = []
        """Partition, first batch, rows of each batch, bytes."""
        self._batches = 0
        self._place = f"{storage.location}/{self.name}"
        self._largest = min(settings.segment_size, storage.largest or 1 << 62)
        self._blob: NewBlob = storage.create(self.name)
        try:
            self._writer = pa.ipc.new_file(
                self._blob.sink, schema, options=settings.ipc_options()
            )
        except BaseException:
            self._blob.abandon()
            raise

    @property
    def full(self) -> bool:
        """Whether it takes no more rows, and no part in merges."""
        return self.size >= self._largest

    def write(
        self, partition: int, rows: pa.RecordBatch, times: list[tuple[int, int]] | None
    ) -> None:
        """Add a batch.

        Args:
            partition: That its rows are of.
            rows: The batch.
            times: When rows were appended, where a merge writes it.

        Raises:
            pa.ArrowInvalid: The batch has other dictionaries; nothing was written.
        """
        if times is not None:
            said = {_APPENDED: json.dumps(times, separators=(",", ":")).encode()}
        else:
            said = None
        try:
            self._writer.write_batch(rows, custom_metadata=said)
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
        """Close it, as safe as the storage is; answers its bytes."""
        try:
            try:
                self._writer.close()
            except OSError as error:
                raise failed(self._place, error) from error
            return self._blob.finish()
        except BaseException:
            self._blob.abandon()
            raise

    def abandon(self) -> None:
        """Forget it."""
        self._blob.abandon()


class RollingWriter:
    """Writes batches into segments, a new one at each threshold.

    Dictionaries grow within a segment; one that cannot grow begins another segment.
    """

    def __init__(self, storage: Storage, schema: pa.Schema, settings: Settings) -> None:
        self._new: Callable[[], SegmentWriter] = lambda: SegmentWriter(
            storage, schema, settings
        )
        self._storage = storage
        self._dictionaries = [
            i for i, field in enumerate(schema) if _has_dictionary(field.type)
        ]
        self._last: dict[int, pa.Array] = {}
        self._open: SegmentWriter | None = None
        self.done: list[tuple[SegmentWriter, int]] = []
        """Finished segments with their bytes on the medium."""

    def write(
        self,
        partition: int,
        rows: pa.RecordBatch,
        times: list[tuple[int, int]] | None = None,
    ) -> None:
        """Add a batch."""
        writer = self._open = self._open or self._new()
        try:
            writer.write(partition, self._grown(rows), times)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            if not writer.rows:
                raise
            self.roll()
            writer = self._open = self._new()
            writer.write(partition, self._grown(rows), times)
        if writer.full:
            self.roll()

    def roll(self) -> None:
        """Finish the open segment, if there is one."""
        writer, self._open, self._last = self._open, None, {}
        if writer is not None:
            self.done.append((writer, writer.finish()))

    def abandon(self) -> None:
        """Forget everything, finished segments too."""
        writer, self._open = self._open, None
        if writer is not None:
            writer.abandon()
        self._storage.remove([writer.name for writer, _ in self.done])
        self.done = []

    def _grown(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows, with dictionaries that begin with those written before."""
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
    """Whether it is seen at a glance that nothing has to grow."""
    if not pa.types.is_dictionary(column.type):
        return False
    return bool(before.dictionary.equals(column.dictionary))


class _Opened:
    """A segment that is read: its file, and the batch read last."""

    def __init__(
        self,
        storage: Storage,
        name: str,
        schema: pa.Schema,
        committed: Callable[[str], int],
        *,
        values: bool,
    ) -> None:
        self._validator = BatchValidator(schema, values=values)
        self._valid: set[int] = set()
        """Batches that were validated, of a segment that nobody else can change."""
        self.file, self._own = storage.open(name)
        self.size = self.file.size()
        try:
            self.reader = pa.ipc.open_file(self.file)
            self._expansion = Expansion(self.file, self.size, lambda: committed(name))
        except BaseException:
            self.file.close()
            raise
        self.lock = threading.Lock()
        self._last: tuple[int, pa.RecordBatch] | None = None

    def batch(self, number: int) -> pa.RecordBatch:
        with self.lock:
            last = self._last
            if last is None or last[0] != number:
                last = self._last = (number, self._read(number))
            return last[1]

    def _read(self, number: int) -> pa.RecordBatch:
        if number not in self._valid:
            self._expansion.check(number)
        rows = self.reader.get_batch(number)
        if number not in self._valid:
            # Before anything else: whoever may write the folder wrote these bytes.
            self._validator.validate(rows)
            if self._own:
                self._valid.add(number)
        return rows

    def times(self, number: int) -> list[tuple[int, int]] | None:
        with self.lock:
            self._expansion.check(number)
            found = self.reader.get_batch_with_custom_metadata(number)
        said = found.custom_metadata
        times = None if said is None else said.get(_APPENDED)
        return None if times is None else _times(times, found.batch.num_rows)


def _times(data: bytes, rows: int) -> list[tuple[int, int]]:
    """When rows of a batch were appended, of its metadata.

    Raises:
        ValueError: That is not of the format.
    """
    try:
        found: list[tuple[int, int]] = [tuple(x) for x in _PAIRS(json.loads(data))]
    except (InvalidValue, ValueError, RecursionError) as error:
        msg = f"the times of its rows: {error}"
        raise ValueError(msg) from None
    first = [row for row, _ in found]
    rising = all(a < b for a, b in itertools.pairwise(first))
    if not first or first[0] != 0 or first[-1] >= rows or not rising:
        msg = (
            f"the times of its rows do not begin at the first of {rows}, or do not rise"
        )
        raise ValueError(msg)
    return found


_PAIRS: Final = list_of(row_of(whole(), whole()))
"""[first row, milliseconds] of the rows of each epoch."""


class SegmentReader:
    """Reads batches of segments; keeps the last ones open. Thread-safe.

    Args:
        storage: Where.
        schema: Of all rows.
        committed: Answers the bytes in memory of what a segment holds, as committed: it
            bounds what compressed batches may unpack to.
        values: Whether values are checked; False checks the lengths of buffers only.
    """

    def __init__(
        self,
        storage: Storage,
        schema: pa.Schema,
        committed: Callable[[str], int],
        *,
        values: bool = True,
    ) -> None:
        self._storage = storage
        self._schema = schema
        self._committed = committed
        self._values = values
        self._lock = threading.Lock()
        self._open: OrderedDict[str, _Opened] = OrderedDict()
        self._size = 0

    def batch(self, name: str, number: int, rows: int) -> pa.RecordBatch:
        """One batch.

        Args:
            name: Of the segment.
            number: Of the batch.
            rows: That it has, as committed.

        Raises:
            FileNotFoundError: It was merged or let go.
            CorruptData: data_loss; it cannot be read, or a value is not sound.
        """
        found: Any = self._told(name, lambda opened: opened.batch(number))
        if found.num_rows != rows:
            msg = f"{self._place(name)}: batch {number} has {found.num_rows} rows, "
            raise CorruptData(msg + f"and {rows} were committed")
        return found

    def convertible(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The first of some rows: as many as unpack to a bounded number of bytes.

        Raises:
            MessageTooLarge: permanent; the first row alone unpacks to too many.
        """
        return next(self._validator.split(rows))

    @cached_property
    def _validator(self) -> BatchValidator:
        return BatchValidator(self._schema)

    def times(self, name: str, number: int) -> list[tuple[int, int]] | None:
        """When rows of a batch were appended, where at several times."""
        found: list[tuple[int, int]] | None = self._told(
            name, lambda opened: opened.times(number)
        )
        return found

    def batches(self, name: str) -> int:
        """How many batches a segment has."""
        return int(self._told(name, lambda opened: opened.reader.num_record_batches))

    def close(self) -> None:
        """Let go of what is open; batches that were read stay good."""
        with self._lock:
            self._open.clear()
            self._size = 0

    def _told(self, name: str, use: Callable[[_Opened], Any]) -> Any:
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
            self._storage, name, self._schema, self._committed, values=self._values
        )
        with self._lock:
            if name in self._open:  # another thread was first
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
        return f"{self._storage.location}/{name}"
