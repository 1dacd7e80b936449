"""Writes rows to new Parquet files of a table, one for each partition."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final, final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamfactory.conversion.required import fill_required
from streamfactory.spi.computing import pc
from streamfactory.tables.form import USUAL, Form

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from streamfactory.arrowlog.disk.storage import NewBlob, Storage
    from streamfactory.tables.form import SortField

_BUFFERED: Final = 64 << 20
"""Bytes of rows that wait for a row group, over all files of an attempt."""
_OPEN: Final = 64
"""Files that are open at a time: one for each combination of partition values."""

_LARGEST: Final = 256 << 20
"""Bytes of a file: what follows goes to another one.

As it is stored: however well rows compress, a file of this size is none of the small
ones that a compaction merges.
"""
_HELD: Final = 256 << 20
"""Bytes of open files, where the storage keeps these in memory."""

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_LONGEST: Final = 255
"""Bytes of the name of a folder."""

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


def folder_of(partitions: Sequence[PartitionField], values: Values) -> str:
    """The folder of the files of a partition, as Hive names it, with a slash behind.

    A format states the values of files, but some readers take those of columns that
    are not stored from names instead (Polars 2.1 those of Delta). Empty for columns
    that are stored, and where a name would be longer than file systems allow.
    """
    left_out = [
        (one.name, _NULL if value is None else quote(value, safe=""))
        for one, value in zip(partitions, values, strict=True)
        if not one.is_stored
    ]
    names = [f"{quote(name, safe='')}={text}" for name, text in left_out]
    if any(len(name) > _LONGEST for name in names):
        return ""
    return "".join(f"{name}/" for name in names)


@final
class DataFiles:
    """New files, while rows are written to them. One thread.

    Args:
        storage: Of the folder of data files.
        prefix: Of their names.
        schema: Columns of the table.
        partitions: By what rows are divided among files.
        form: How files are written.
    """

    def __init__(
        self,
        storage: Storage,
        prefix: str,
        schema: pa.Schema,
        partitions: Sequence[PartitionField],
        form: Form = USUAL,
    ) -> None:
        self._form = form
        self._storage = storage
        self._prefix = prefix
        self._partitions = list(partitions)
        left = {one.column for one in partitions if not one.is_stored}
        self._schema = pa.schema([one for one in schema if one.name not in left])
        largest = form.largest or _LARGEST
        self._largest = min(largest, storage.largest or largest)
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
        for values, part, mine in self._split(rows, numbers):
            self._add(values, part, mine)

    def finish(self) -> list[DataFile]:
        """Close all files, and return all that are finished."""
        for values in list(self._open):
            self._finish(values)
        return self.finished

    def keep(self, numbers: NDArray[np.int64]) -> None:
        """Write finished files again, without the rows that have other numbers.

        Args:
            numbers: Those that are kept, rising.
        """
        for file in list(self.finished):
            kept = np.isin(self.numbers.pop(file.path), numbers, assume_unique=True)
            if kept.all():
                continue
            if kept.any():
                self._copy(file, kept)
            self.finished.remove(file)
            self._storage.remove([file.path])
        self.finish()

    def abandon(self) -> None:
        """Close and remove files that are not finished."""
        opened, self._open = self._open, {}
        with ExitStack() as each:
            for one in opened.values():
                each.callback(one.abandon)

    def remove(self) -> None:
        """The same, and remove the finished ones."""
        self.abandon()
        files, self.finished = self.finished, []
        self._storage.remove([one.path for one in files])

    def _add(
        self, values: Values, rows: pa.RecordBatch, numbers: NDArray[np.int64] | None
    ) -> None:
        self._file(values).add(rows, numbers)
        self._buffered += rows.nbytes
        if self._buffered >= _BUFFERED:
            for one in self._open.values():
                one.flush()
            self._buffered = 0
            self._bound()

    def _bound(self) -> None:
        """Finish the longest files, where the storage keeps open ones in memory."""
        if self._storage.largest is None:
            return
        sizes = {values: one.size for values, one in self._open.items()}
        for values in sorted(sizes, key=lambda values: sizes[values], reverse=True):
            if sum(sizes.values()) <= _HELD:
                return
            self._finish(values)
            del sizes[values]

    def _copy(self, file: DataFile, kept: NDArray[np.bool_]) -> None:
        values = tuple(file.values[one.name] for one in self._partitions)
        with self._storage.open(file.path).file as source:
            first = 0
            for rows in pq.ParquetFile(source).iter_batches():
                mask = pa.array(kept[first : first + rows.num_rows])
                self._add(values, rows.filter(mask), None)
                first += rows.num_rows

    def _file(self, values: Values) -> _NewFile:
        found = self._open.get(values)
        if found is not None and found.size >= self._largest:
            self._finish(values)
            found = None
        if found is None:
            if len(self._open) >= _OPEN:
                self._finish(next(iter(self._open)))
            path = folder_of(self._partitions, values) + self.new_path()
            blob = self._storage.create(path)
            found = _NewFile(blob, path, self._schema, self._form)
            self._open[values] = found
        return found

    def _finish(self, values: Values) -> None:
        one = self._open[values]
        size = one.finish()
        del self._open[values]
        names = [one.name for one in self._partitions]
        named = dict(zip(names, values, strict=True))
        self.finished.append(DataFile(one.path, size, one.rows, named))
        if one.numbers:
            self.numbers[one.path] = np.concatenate(one.numbers)

    def _split(
        self, rows: pa.RecordBatch, numbers: NDArray[np.int64] | None
    ) -> Iterator[tuple[Values, pa.RecordBatch, NDArray[np.int64] | None]]:
        """The rows of each combination of partition values, as files have them.

        With their numbers.
        """
        if not self._partitions:
            yield (), rows, numbers
            return
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
        order = np.argsort(codes, kind="stable")
        starts = np.flatnonzero(np.diff(codes[order], prepend=-1)).tolist()
        kept = rows.select(self._schema.names)
        ordered = kept.take(pa.array(order)) if len(starts) > 1 else kept
        for begin, end in pairwise([*starts, len(order)]):
            values = tuple(column[int(order[begin])].as_py() for column in texts)
            mine = None if numbers is None else numbers[order[begin:end]]
            yield values, ordered.slice(begin, end - begin), mine


def _order(rows: pa.Table, sort: Sequence[SortField]) -> pa.Array | None:
    """The places of the rows in their order; None if they are not sorted."""
    stored = set(rows.column_names)  # those of partitions may not be
    keys = [
        (one.column, "descending" if one.descending else "ascending")
        for one in sort
        if one.column in stored
    ]
    return pc.sort_indices(rows, keys) if keys else None


class _NewFile:
    """A Parquet file while it is written: rows are collected for a row group."""

    def __init__(self, blob: NewBlob, path: str, schema: pa.Schema, form: Form) -> None:
        self.path, self.rows = path, 0
        self._blob, self._schema, self._form = blob, schema, form
        self.numbers: list[NDArray[np.int64]] = []
        """Of the rows that are written."""
        self._waiting: list[pa.RecordBatch] = []
        self._numbers: list[NDArray[np.int64]] = []
        """Of the rows that wait."""
        self._count = 0
        self._writer = pq.ParquetWriter(
            blob.sink,
            schema,
            store_schema=False,
            compression=form.codec,
            compression_level=form.level,
        )

    def add(self, rows: pa.RecordBatch, numbers: NDArray[np.int64] | None) -> None:
        if numbers is not None:
            self._numbers.append(numbers)
        self._waiting.append(fill_required(rows))
        self._count += rows.num_rows
        self.rows += rows.num_rows
        if self._count >= self._form.rows:
            self.flush()

    @property
    def size(self) -> int:
        """Bytes that are written."""
        return int(self._blob.sink.tell())

    def flush(self) -> None:
        """Write a row group of the rows that wait."""
        if not self._waiting:
            return
        waiting, self._waiting, self._count = self._waiting, [], 0
        given, self._numbers = self._numbers, []
        numbers = np.concatenate(given) if given else None
        table, form = pa.Table.from_batches(waiting, self._schema), self._form
        for at in range(0, table.num_rows, form.rows):
            group = table.slice(at, form.rows)
            order = _order(group, form.sort)
            group = group if order is None else group.take(order)
            self._writer.write_table(group, form.rows)
            if numbers is not None:
                mine = numbers[at : at + form.rows]
                self.numbers.append(mine if order is None else mine[order.to_numpy()])

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
