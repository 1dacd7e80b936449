"""Writes rows to new Parquet files of a table, one for each partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from streamfactory.arrowlog.disk.storage import NewBlob, Storage

_BUFFERED: Final = 64 << 20
"""Bytes of rows that wait for a row group, over all files of an attempt."""
_GROUP: Final = 1 << 20
"""Rows of a row group."""
_OPEN: Final = 64
"""Files that are open at a time: one for each combination of partition values."""

_LARGEST: Final = 1 << 30
"""Bytes of the rows of a file, in memory: what follows goes to another file."""

Values = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file that an attempt has written."""

    path: str
    """Relative to the table."""
    size: int
    rows: int
    values: Mapping[str, str | None] = field(default_factory=dict)
    """Of the partition columns, as text."""


@dataclass(frozen=True, slots=True)
class PartitionField:
    """By what the rows of a table are divided among files."""

    name: str
    """Of its value in `DataFile.values`."""
    column: str
    texts: Callable[[pa.Array], pa.Array]
    """Returns the value of each row of the column, as text."""
    is_stored: bool = True
    """Whether data files have the column, too."""


@final
class DataFiles:
    """New files, while rows are written to them. One thread.

    Args:
        storage: Of the folder of data files.
        prefix: Of their names.
        schema: Columns of the table.
        partitions: By what rows are divided among files.
    """

    def __init__(
        self,
        storage: Storage,
        prefix: str,
        schema: pa.Schema,
        partitions: Sequence[PartitionField],
    ) -> None:
        self._storage = storage
        self._prefix = prefix
        self._partitions = list(partitions)
        left = {one.column for one in partitions if not one.is_stored}
        self._schema = pa.schema([one for one in schema if one.name not in left])
        self._open: dict[Values, _NewFile] = {}
        self._buffered = 0
        self._made = 0
        self.finished: list[DataFile] = []
        self.numbers: dict[str, NDArray[np.int64]] = {}
        """By path of a finished file: the numbers that its rows were added with."""

    def new_path(self) -> str:
        """The name of another file of this prefix."""
        self._made += 1
        return f"{self._prefix}-{self._made - 1}.parquet"

    def add(
        self, rows: pa.RecordBatch, numbers: NDArray[np.int64] | None = None
    ) -> None:
        """Write rows.

        Args:
            rows: Columns of the table.
            numbers: One for each row, by which they are found again.
        """
        for values, part, chosen in self._split(rows):
            mine = numbers if numbers is None or chosen is None else numbers[chosen]
            self._file(values).add(part, mine)
            self._buffered += part.nbytes
        if self._buffered >= _BUFFERED:
            for one in self._open.values():
                one.flush()
            self._buffered = 0

    def finish(self) -> list[DataFile]:
        """Close all files, and return them."""
        for values in list(self._open):
            self._finish(values)
        return self.finished

    def keep(self, numbers: NDArray[np.int64]) -> None:
        """Write finished files again, without the rows that have other numbers.

        Args:
            numbers: Those that are kept, rising.
        """
        files, self.finished = self.finished, []
        for file in files:
            kept = np.isin(self.numbers.pop(file.path), numbers, assume_unique=True)
            if kept.all():
                self.finished.append(file)
                continue
            if kept.any():
                self.finished.append(self._rewritten(file, kept))
            self._storage.remove([file.path])

    def _rewritten(self, file: DataFile, kept: NDArray[np.bool_]) -> DataFile:
        path = self.new_path()
        made = _NewFile(self._storage.create(path), path, self._schema)
        try:
            with self._storage.open(file.path).file as source:
                first = 0
                for rows in pq.ParquetFile(source).iter_batches():
                    mask = pa.array(kept[first : first + rows.num_rows])
                    made.add(rows.filter(mask), None)
                    first += rows.num_rows
            return DataFile(path, made.finish(), made.rows, file.values)
        except BaseException:
            made.abandon()
            raise

    def abandon(self) -> None:
        """Close and remove files that are not finished."""
        opened, self._open = self._open, {}
        for one in opened.values():
            one.abandon()

    def remove(self) -> None:
        """The same, and remove the finished ones."""
        self.abandon()
        files, self.finished = self.finished, []
        self._storage.remove([one.path for one in files])

    def _file(self, values: Values) -> _NewFile:
        found = self._open.get(values)
        if found is not None and found.size >= _LARGEST:
            self._finish(values)
            found = None
        if found is None:
            if len(self._open) >= _OPEN:
                self._finish(next(iter(self._open)))
            path = self.new_path()
            found = _NewFile(self._storage.create(path), path, self._schema)
            self._open[values] = found
        return found

    def _finish(self, values: Values) -> None:
        one = self._open.pop(values)
        names = [one.name for one in self._partitions]
        named = dict(zip(names, values, strict=True))
        size = one.finish()
        self.finished.append(DataFile(one.path, size, one.rows, named))
        if one.numbers:
            self.numbers[one.path] = np.concatenate(one.numbers)

    def _split(
        self, rows: pa.RecordBatch
    ) -> Iterator[tuple[Values, pa.RecordBatch, NDArray[np.bool_] | None]]:
        """The rows of each combination of partition values, as files have them.

        With which rows they are; None means all.
        """
        if not self._partitions:
            yield (), rows, None
            return
        kept = rows.select(self._schema.names)
        codes = np.zeros(rows.num_rows, np.int64)
        texts = []
        for one in self._partitions:
            column = one.texts(rows.column(one.column))
            found = column.dictionary_encode("encode")
            texts.append(column)
            codes = codes * (len(found.dictionary) + 1)
            codes += found.indices.to_numpy(zero_copy_only=False)
            # Small again, so that no product of many columns overflows.
            _, codes = np.unique(codes, return_inverse=True)
        _, first = np.unique(codes, return_index=True)
        for code, row in enumerate(first):
            values = tuple(column[int(row)].as_py() for column in texts)
            chosen = codes == code
            yield values, kept.filter(pa.array(chosen)), chosen


class _NewFile:
    """A Parquet file while it is written: rows are collected for a row group."""

    def __init__(self, blob: NewBlob, path: str, schema: pa.Schema) -> None:
        self.path, self.rows, self.size = path, 0, 0
        self._blob, self._schema = blob, schema
        self.numbers: list[NDArray[np.int64]] = []
        self._waiting: list[pa.RecordBatch] = []
        self._count = 0
        self._writer = pq.ParquetWriter(blob.sink, schema, store_schema=False)

    def add(self, rows: pa.RecordBatch, numbers: NDArray[np.int64] | None) -> None:
        if numbers is not None:
            self.numbers.append(numbers)
        self._waiting.append(rows)
        self._count += rows.num_rows
        self.rows += rows.num_rows
        self.size += rows.nbytes
        if self._count >= _GROUP:
            self.flush()

    def flush(self) -> None:
        """Write a row group of the rows that wait."""
        if self._waiting:
            waiting, self._waiting, self._count = self._waiting, [], 0
            table = pa.Table.from_batches(waiting, self._schema)
            self._writer.write_table(table, _GROUP)

    def finish(self) -> int:
        self.flush()
        self._writer.close()
        return self._blob.finish()

    def abandon(self) -> None:
        self._waiting = []
        try:
            self._writer.close()
        finally:
            self._blob.abandon()
