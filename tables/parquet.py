"""Streams the rows of a Parquet file, a batch at a time."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, final

import pyarrow as pa

from streamfactory.arrowlog.disk.foreign import open_foreign
from streamfactory.arrowlog.disk.pages import TAIL, footer_limits
from streamfactory.spi import CorruptData
from streamfactory.spi.causes import first_line
from streamfactory.tables.errors import store_failure
from streamfactory.tables.table import PieceGone

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow.parquet as pq

    from streamfactory.spi import StreamError
    from streamfactory.tables.places import TableFiles


class Rows(NamedTuple):
    """Rows of a file."""

    rows: pa.RecordBatch
    first: int
    """Number of the first row in the file."""


@final
class DataFile:
    """An open Parquet file. One thread.

    Args:
        path: Of the file, for messages.
        file: In Arrow's reader.
    """

    def __init__(self, path: str, file: pq.ParquetFile) -> None:
        self._path, self._file = path, file
        self.count: int = file.metadata.num_rows
        """Rows, by the footer."""
        self.schema: pa.Schema = file.schema_arrow
        """With the field ids that the file states."""

    def check_count(self, stated: int) -> None:
        """Refuse a file that has fewer rows than its commit states: they are lost.

        Raises:
            CorruptData: data_loss.
        """
        if self.count < stated:
            what = f"file {self._path!r} has {self.count} rows, not the {stated} that "
            what += "its commit states"
            raise CorruptData(what, remedy="restore the file from a copy")

    def bounds(self, name: str) -> tuple[Any, Any] | None:
        """The least and the greatest value of a column, or less and more.

        By the statistics of the row groups; None where one has none. Nulls count not.
        """
        metadata = self._file.metadata
        least, greatest = [], []
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            columns = map(group.column, range(group.num_columns))
            column = next((c for c in columns if c.path_in_schema == name), None)
            found = None if column is None else column.statistics
            if found is None or not found.has_min_max:
                return None
            least.append(found.min)
            greatest.append(found.max)
        return (min(least), max(greatest)) if least else None

    def stream(
        self, columns: Sequence[str] | None, skip: int, most: int
    ) -> Iterator[Rows]:
        """The rows, in the order of the file.

        Row groups before ``skip`` are not read; of others one batch at a time is
        decoded.

        Args:
            columns: Names wanted, or dotted paths; None means all. Those that the file
                does not have are left out.
            skip: Rows that are left out at the beginning.
            most: Rows of a batch.

        Raises:
            CorruptData: data_loss; the file is damaged.
        """
        file = self._file
        first, groups = 0, list(range(file.num_row_groups))
        while groups:
            count = file.metadata.row_group(groups[0]).num_rows
            if first + count > skip:
                break
            first, groups = first + count, groups[1:]
        if not groups:
            return
        if columns is not None:
            known = set(self.schema.names)
            columns = [n for n in columns if n in known or n.partition(".")[0] in known]
            if not columns:
                yield from _no_columns(self.count, skip, most)
                return
        batches = file.iter_batches(most, row_groups=groups, columns=columns)
        while True:
            try:
                batch = next(batches, None)
            except (pa.ArrowException, OSError) as error:
                raise _failed(self._path, error) from error
            if batch is None:
                return
            before, first = first, first + batch.num_rows
            if first > skip:
                drop = max(0, skip - before)
                yield Rows(batch.slice(drop), before + drop)


def count_rows(files: TableFiles, path: str) -> int:
    """Rows of a file, by its footer.

    Raises:
        PieceGone: The file does not exist.
        CorruptData: data_loss; it is no Parquet file.
    """
    with open_parquet(files, path) as file:
        return file.count


def stream_rows(
    files: TableFiles,
    path: str,
    *,
    columns: Sequence[str] | None,
    skip: int,
    most: int,
) -> Iterator[Rows]:
    """The rows of a file: see `DataFile.stream`.

    Raises:
        PieceGone: The file does not exist.
        CorruptData: data_loss; it is no Parquet file, or is damaged.
    """
    with open_parquet(files, path) as file:
        yield from file.stream(columns, skip, most)


def _no_columns(count: int, skip: int, most: int) -> Iterator[Rows]:
    """Rows of which only the number is wanted."""
    for first in range(skip, count, most):
        struct = pa.StructArray.from_buffers(
            pa.struct([]), min(most, count - first), [None]
        )
        yield Rows(pa.RecordBatch.from_struct_array(struct), first)


@contextmanager
def open_parquet(files: TableFiles, path: str) -> Iterator[DataFile]:
    """Open a Parquet file; closed by the context.

    Raises:
        PieceGone: The file does not exist.
        CorruptData: data_loss; it is no Parquet file.
    """
    try:
        source = files.open(path)
    except FileNotFoundError as error:
        what = f"{path!r} does not exist"
        raise PieceGone(what) from error
    with source:
        try:
            size = source.size()
            tail = source.read_at(min(size, TAIL), max(0, size - TAIL))
            file = open_foreign(source, footer_limits(tail, size))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _failed(path, error) from error
        yield DataFile(path, file)


def _failed(path: str, error: Exception) -> StreamError:
    """The error for a file that cannot be read: of its storage, or of its content."""
    failure = store_failure(error, path)
    if failure is not None:
        return failure
    what = f"the data file {path!r} cannot be read: {first_line(error)}"
    return CorruptData(what, remedy="restore the file from a copy")
