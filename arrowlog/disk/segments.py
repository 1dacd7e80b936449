"""Files of rows: written by stages and merges, read by everybody.

A segment is an Arrow IPC file of at most one message a batch, each of one partition.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, final

import pyarrow as pa

from streamfactory.arrowlog.checks import check_schema
from streamfactory.arrowlog.log import LogStage, Staged
from streamfactory.spi import CorruptData

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamfactory.arrowlog.disk.settings import Settings
    from streamfactory.arrowlog.disk.storage import NewBlob, Storage

BATCH_ROWS: Final = 65536
BATCH_BYTES: Final = 8 << 20
_BUFFERED: Final = 32 << 20
"""Bytes that a stage holds back, of all partitions."""
_MAPPED: Final = 128 << 20
"""Bytes of the segments that a log keeps open; at least one is."""
_APPENDED: Final = b"appended"
"""Of a batch that has rows of several epochs: [row, milliseconds] pairs, as JSON."""


class SegmentWriter:
    """Writes one segment.

    Args:
        storage: Where.
        schema: Of the rows.
        settings: Thresholds and compression.
    """

    def __init__(self, storage: Storage, schema: pa.Schema, settings: Settings) -> None:
        self.name = f"data/{uuid.uuid4().hex}.arrow"
        self.rows = 0
        self.size = 0
        """Bytes in memory of what it holds."""
        self.runs: list[tuple[int, int, list[int], int]] = []
        """Partition, first batch, rows of each batch, bytes."""
        self._batches = 0
        self._largest = min(settings.segment_size, storage.largest or 1 << 62)
        self._settings = settings
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
        """Whether a threshold is reached."""
        rows = self._settings.segment_rows
        return self.size >= self._largest or (rows is not None and self.rows >= rows)

    def write(
        self, partition: int, rows: pa.RecordBatch, times: list[tuple[int, int]] | None
    ) -> None:
        """Add a batch.

        Raises:
            pa.ArrowInvalid: The batch has other dictionaries; nothing was written.
        """
        if times is not None and len(times) > 1:
            said = {_APPENDED: json.dumps(times, separators=(",", ":")).encode()}
            self._writer.write_batch(rows, custom_metadata=said)
        else:
            self._writer.write_batch(rows)
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
            self._writer.close()
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
            i for i, field in enumerate(schema) if pa.types.is_dictionary(field.type)
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
        except pa.ArrowInvalid:
            if not writer.rows:
                raise
            self.roll()
            writer = self._open = self._new()
            writer.write(partition, rows, times)
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
            if before is not None and not before.dictionary.equals(column.dictionary):
                both = pa.chunked_array([before, column]).unify_dictionaries()
                column = both.chunk(1) if both.num_chunks > 1 else both.chunk(0)
                rows = rows.set_column(i, rows.schema.field(i), column)
            self._last[i] = column.slice(0, 0)
        return rows


@final
class DiskStage(LogStage):
    """Rows of one attempt, on their way into segments of its own."""

    def __init__(
        self,
        attempt: str,
        schema: pa.Schema,
        check_partition: Callable[[int], None],
        writer: RollingWriter,
    ) -> None:
        self._attempt = attempt
        self._schema = schema
        self._check_partition = check_partition
        self._writer = writer
        self._waiting: dict[int, list[pa.RecordBatch]] = {}
        self._rows: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self._buffered = 0

    def append(self, partition: int, rows: pa.RecordBatch) -> None:
        check_schema(rows, self._schema)
        if partition not in self._waiting:
            self._check_partition(partition)
            self._waiting[partition] = []
            self._rows[partition] = self._sizes[partition] = 0
        if not rows.num_rows:
            return
        size = rows.nbytes
        self._waiting[partition].append(rows)
        self._rows[partition] += rows.num_rows
        self._sizes[partition] += size
        self._buffered += size
        if self._rows[partition] >= BATCH_ROWS or self._sizes[partition] >= BATCH_BYTES:
            self._flush(partition)
        while self._buffered > _BUFFERED:
            self._flush(max(self._sizes, key=lambda lane: self._sizes[lane]))

    def seal(self) -> Staged:
        for partition in sorted(self._waiting):
            self._flush(partition)
        self._writer.roll()
        files = [
            {
                "name": writer.name,
                "bytes": size,
                "full": writer.full,
                "runs": [list(run) for run in writer.runs],
            }
            for writer, size in self._writer.done
        ]
        self._writer.done = []
        return Staged(self._attempt, tuple(files))

    def discard(self) -> None:
        self._waiting.clear()
        self._writer.abandon()

    def _flush(self, partition: int) -> None:
        waiting = self._waiting[partition]
        self._buffered -= self._sizes[partition]
        self._waiting[partition] = []
        self._rows[partition] = self._sizes[partition] = 0
        for rows in pieces(waiting):
            self._writer.write(partition, rows)


def pieces(waiting: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The same rows in batches of a good size."""
    if not waiting:
        return []
    if len(waiting) == 1:
        whole = waiting
    else:
        whole = pa.Table.from_batches(waiting).combine_chunks().to_batches()
    return [piece for rows in whole for piece in _cut(rows)]


def _cut(rows: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Batches of at most about twice the good size."""
    many = max(rows.num_rows // BATCH_ROWS, rows.nbytes // BATCH_BYTES, 1)
    step = -(-rows.num_rows // many)
    return [rows.slice(at, step) for at in range(0, rows.num_rows, step)]


class _Opened:
    """A segment that is read: its file, and the batch read last."""

    def __init__(self, storage: Storage, name: str) -> None:
        self.file = storage.open(name)
        self.size = self.file.size()
        try:
            self.reader = pa.ipc.open_file(self.file)
        except BaseException:
            self.file.close()
            raise
        self.lock = threading.Lock()
        self._last: tuple[int, pa.RecordBatch] | None = None

    def batch(self, number: int) -> pa.RecordBatch:
        with self.lock:
            last = self._last
            if last is None or last[0] != number:
                last = self._last = (number, self.reader.get_batch(number))
            return last[1]

    def times(self, number: int) -> list[tuple[int, int]] | None:
        with self.lock:
            said = self.reader.get_batch_with_custom_metadata(number).custom_metadata
        found = None if said is None else said.get("appended")
        return None if found is None else [tuple(pair) for pair in json.loads(found)]


class SegmentReader:
    """Reads batches of segments; keeps the last ones open. Thread-safe."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
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
            CorruptData: data_loss.
        """
        found: Any = self._told(name, lambda opened: opened.batch(number))
        if found.num_rows != rows:
            msg = f"{self._place(name)}: batch {number} has {found.num_rows} rows, "
            raise CorruptData(msg + f"and {rows} were committed")
        return found

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
        except (pa.ArrowException, OSError, ValueError, IndexError) as error:
            msg = f"{self._place(name)}: {error}"
            raise CorruptData(msg) from error

    def _opened(self, name: str) -> _Opened:
        with self._lock:
            found = self._open.get(name)
            if found is not None:
                self._open.move_to_end(name)
                return found
        opened = _Opened(self._storage, name)
        with self._lock:
            self._open[name] = opened
            self._size += opened.size
            while self._size > _MAPPED and len(self._open) > 1:
                _, oldest = self._open.popitem(last=False)
                self._size -= oldest.size
        return opened

    def _place(self, name: str) -> str:
        return f"{self._storage.location}/{name}"
