"""Staging: combines the rows of an attempt into batches, and writes segments."""

from __future__ import annotations

import contextlib
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import pyarrow as pa

from streamfactory.arrowlog.carried import CarriedRows
from streamfactory.arrowlog.checks import MOST_PARTITIONS, check_schema
from streamfactory.arrowlog.decoding import (
    InvalidValue,
    flag,
    list_of,
    members_of,
    named,
    row_of,
    whole,
    wholes,
)
from streamfactory.arrowlog.disk.names import PARQUET, SEGMENT
from streamfactory.arrowlog.disk.records import MOST_BATCHES, check_single
from streamfactory.arrowlog.stages import SoundStage
from streamfactory.arrowlog.values import Staged
from streamfactory.spi import CorruptData, MisuseError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from streamfactory.arrowlog.disk.segments import RollingWriter, SegmentWriter
    from streamfactory.spi import BatchValidator, SoundRows

BATCH_ROWS: Final = 65536
BATCH_BYTES: Final = 8 << 20
_BUFFERED: Final = 32 << 20
"""Maximum bytes that a stage buffers, of all partitions."""


class StagedFile(NamedTuple):
    """A finished segment of an attempt."""

    attempt: str
    name: str
    size: int
    """Bytes on the medium."""
    full: bool
    runs: Sequence[tuple[int, int, list[int], int]]
    """Partition, first batch, rows of each batch, bytes in memory."""

    @property
    def partitions(self) -> list[int]:
        """The partitions of the rows."""
        return [run[0] for run in self.runs]

    @classmethod
    def of(cls, staged: Sequence[Staged]) -> list[StagedFile]:
        """Decode the files of attempts from commit messages, which are untrusted.

        Raises:
            CorruptData: data_loss; a message has a name that no stage has written.
        """
        found: list[StagedFile] = []
        names: set[str] = set()
        for one in staged:
            for number, plain in enumerate(one.files):
                try:
                    file = _FILE(plain)
                    if file["name"].endswith(PARQUET):
                        check_single(file["runs"], lambda run: run[1])
                    if file["name"] in names:
                        msg = "is repeated"
                        raise InvalidValue(msg, "name")
                except InvalidValue as error:
                    raise _refused(one, error.within(number)) from None
                names.add(file["name"])
                runs = [(a, b, c, d) for a, b, c, d in file["runs"]]
                values = (file["name"], file["bytes"], file["full"], runs)
                found.append(cls(one.attempt, *values))
        return found

    @classmethod
    def written(
        cls, attempt: str, done: Iterable[tuple[SegmentWriter, int]]
    ) -> list[StagedFile]:
        """Return the finished segments of a writer, with their bytes."""
        return [cls(attempt, w.name, size, w.full, w.runs) for w, size in done]

    def to_plain(self) -> dict[str, Any]:
        """Return the value for commit messages."""
        return {
            "name": self.name,
            "bytes": self.size,
            "full": self.full,
            "runs": [list(run) for run in self.runs],
        }


_FILE: Final = members_of(
    {
        "name": named(SEGMENT),
        "bytes": whole(),
        "full": flag,
        "runs": list_of(
            row_of(
                whole(0, MOST_PARTITIONS - 1),
                whole(0, MOST_BATCHES),
                wholes(1, MOST_BATCHES, fewest=1),
                whole(),
            )
        ),
    }
)


def _refused(staged: Staged, error: InvalidValue) -> CorruptData:
    msg = f"the commit message of attempt {staged.attempt!r}: files{error}"
    return CorruptData(msg, remedy="abort the epoch and write it again")


@final
class DiskStage(SoundStage):
    """Stages the rows of one attempt in segments of its own."""

    def __init__(
        self,
        attempt: str,
        incarnation: str,
        validator: BatchValidator,
        check_partition: Callable[[int], object],
        new_writer: Callable[[], RollingWriter],
        *,
        carried_size: int,
    ) -> None:
        super().__init__(validator)
        self._attempt = attempt
        self._incarnation = incarnation
        self._check_partition = check_partition
        self._new_writer = new_writer
        self._carried_size = carried_size
        self._waiting: dict[int, _Waiting] = {}
        self._buffered = 0
        self._appended = 0
        self._gone = False

    @cached_property
    def _writer(self) -> RollingWriter:
        return self._new_writer()

    def append_sound(self, partition: int, rows: SoundRows) -> None:
        self._check_whole()
        check_schema(rows.batch, self._validator.schema)
        waiting = self._waiting.get(partition)
        if waiting is None:
            self._check_partition(partition)
            waiting = self._waiting[partition] = _Waiting()
        count = rows.num_rows
        if not count:
            return
        if waiting.rows + count > BATCH_ROWS:
            self._flush(partition)
            waiting = self._waiting[partition]
        self._appended += count
        self._buffered += waiting.add(rows)
        # A large batch is written directly, without a copy.
        full = waiting.rows == BATCH_ROWS or (
            2 * count >= BATCH_ROWS and len(waiting.batches) == 1
        )
        if full or (
            waiting.size >= BATCH_BYTES and self._measured(partition) >= BATCH_BYTES
        ):
            self._flush(partition)
        while self._buffered > _BUFFERED:
            largest = max(self._waiting, key=lambda number: self._waiting[number].size)
            if not self._waiting[largest].guessed:
                self._flush(largest)
            else:
                self._measured(largest)

    def seal(self, *, carried: bool = False) -> Staged:
        self._check_whole()
        if carried and self._appended and (rows := self._carried()) is not None:
            return Staged(self._attempt, rows=rows)
        for partition in sorted(self._waiting):
            self._flush(partition)
        with self._whole_or_gone():
            self._writer.roll()
            self._check_count()
        files = StagedFile.written(self._attempt, self._writer.done)
        self._writer.done = []
        return Staged(self._attempt, tuple(file.to_plain() for file in files))

    def _carried(self) -> CarriedRows | None:
        """The rows, if all of them are waiting, and few."""
        waiting = sorted(self._waiting.items())
        written = sum(one.rows for _, one in waiting) != self._appended
        if written or not self._carried_size:
            return None
        size = sum(self._measured(partition) for partition, _ in waiting)
        if size > self._carried_size:
            return None
        parts = [
            (partition, rows) for partition, one in waiting for rows in one.batches
        ]
        return CarriedRows(self._incarnation, self._validator.schema, parts, size)

    def discard(self) -> None:
        self._waiting.clear()
        self._writer.abandon()

    def _measured(self, partition: int) -> int:
        waiting = self._waiting[partition]
        self._buffered -= waiting.size
        waiting.measure()
        self._buffered += waiting.size
        return waiting.size

    def _flush(self, partition: int) -> None:
        waiting, self._waiting[partition] = self._waiting[partition], _Waiting()
        self._buffered -= waiting.size
        with self._whole_or_gone():
            batches = [rows.batch for rows in waiting.batches]
            for rows in pieces(batches, self._writer.cut):
                self._writer.write(partition, rows)

    @contextlib.contextmanager
    def _whole_or_gone(self) -> Iterator[None]:
        """Discard the stage after an error: a part of the rows must not be sealed."""
        try:
            yield
        except BaseException:
            self._gone = True
            self.discard()
            raise

    def _check_count(self) -> None:
        """Check that the number of written rows equals that of appended rows."""
        sealed = sum(writer.rows for writer, _ in self._writer.done)
        if sealed != self._appended:
            msg = f"{self._appended} rows were appended, {sealed} are in the segments"
            raise CorruptData(msg)

    def _check_whole(self) -> None:
        if self._gone:
            msg = f"what attempt {self._attempt} staged no longer exists"
            raise MisuseError(msg, remedy="write the epoch again")


class _Waiting:
    """Buffered rows of one partition."""

    __slots__ = ("_exact", "batches", "guessed", "rows", "size")

    def __init__(self) -> None:
        self.batches: list[SoundRows] = []
        self.rows = 0
        self._exact = 0
        self.size = 0
        """Upper bound of the bytes: for slices, those of the whole."""
        self.guessed = 0
        """Number of last batches whose size is not exact."""

    def add(self, rows: SoundRows) -> int:
        """Add a batch, and return an upper bound of its bytes.

        Measuring them costs as much as copying a thousand rows.
        """
        most: int = rows.batch.get_total_buffer_size()
        self.batches.append(rows)
        self.rows += rows.num_rows
        self.size += most
        self.guessed += 1
        return most

    def measure(self) -> None:
        """Make ``size`` exact."""
        first = len(self.batches) - self.guessed
        self._exact += sum(rows.nbytes for rows in self.batches[first:])
        self.size, self.guessed = self._exact, 0


def pieces(
    waiting: Sequence[pa.RecordBatch],
    cut: Callable[[pa.RecordBatch], list[pa.RecordBatch]],
) -> list[pa.RecordBatch]:
    """Return the rows in batches of a suitable size, which the format may cut again."""
    if not waiting:
        return []
    if len(waiting) == 1:
        whole = waiting
    else:
        try:
            whole = pa.Table.from_batches(waiting).combine_chunks().to_batches()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            whole = waiting  # dictionaries that cannot be combined
    return [part for rows in whole for piece in _cut(rows) for part in cut(piece)]


def _cut(rows: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Split into batches of at most about twice the suitable size."""
    # Measuring is slow; the bytes of the whole of slices are known.
    if rows.num_rows <= BATCH_ROWS and rows.get_total_buffer_size() <= BATCH_BYTES:
        return [rows]
    many = max(rows.num_rows // BATCH_ROWS, rows.nbytes // BATCH_BYTES, 1)
    step = -(-rows.num_rows // many)
    return [rows.slice(at, step) for at in range(0, rows.num_rows, step)]
