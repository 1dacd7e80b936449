"""Streams the rows of a Parquet file, a batch at a time."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from streamfactory.arrowlog.disk.pages import TAIL, footer_limits
from streamfactory.spi import CorruptData, SchemaMismatch
from streamfactory.spi.ddl import type_text
from streamfactory.tables.errors import store_failure
from streamfactory.tables.table import PieceGone

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streamfactory.spi import StreamError
    from streamfactory.tables.places import TableFiles


class Rows(NamedTuple):
    """Rows of a file."""

    rows: pa.RecordBatch
    first: int
    """Number of the first row in the file."""


def count_rows(files: TableFiles, path: str) -> int:
    """Rows of a file, by its footer.

    Raises:
        PieceGone: The file does not exist.
        CorruptData: data_loss; it is no Parquet file.
    """
    with _opened(files, path) as file:
        count: int = file.metadata.num_rows
    return count


def file_schema(files: TableFiles, path: str) -> pa.Schema:
    """The schema of a file, with the field ids that it states.

    Raises:
        PieceGone: The file does not exist.
        CorruptData: data_loss; it is no Parquet file.
    """
    with _opened(files, path) as file:
        return file.schema_arrow


def stream_rows(
    files: TableFiles,
    path: str,
    *,
    columns: Sequence[str] | None,
    skip: int,
    most: int,
) -> Iterator[Rows]:
    """The rows of a file, in its order.

    Row groups before ``skip`` are not read; of others one batch at a time is decoded.

    Args:
        files: Has the file.
        path: Its path.
        columns: Names wanted; None means all.
        skip: Rows that are left out at the beginning.
        most: Rows of a batch.

    Raises:
        PieceGone: The file does not exist.
        CorruptData: data_loss; it is no Parquet file, or is damaged.
    """
    with _opened(files, path) as file:
        names = file.schema_arrow.names
        wanted = None if columns is None else [n for n in columns if n in names]
        first, groups = 0, list(range(file.num_row_groups))
        while groups:
            count = file.metadata.row_group(groups[0]).num_rows
            if first + count > skip:
                break
            first, groups = first + count, groups[1:]
        if not groups:
            return
        if wanted == []:
            yield from _no_columns(file.metadata.num_rows, skip, most)
            return
        batches = file.iter_batches(most, row_groups=groups, columns=wanted)
        while True:
            try:
                batch = next(batches, None)
            except (pa.ArrowException, OSError) as error:
                raise _failed(path, error) from error
            if batch is None:
                return
            before, first = first, first + batch.num_rows
            if first > skip:
                drop = max(0, skip - before)
                yield Rows(batch.slice(drop), before + drop)


def conform_rows(
    rows: pa.RecordBatch,
    schema: pa.Schema,
    constants: Mapping[str, pa.Scalar],
    path: str,
) -> pa.RecordBatch:
    """Rows with the columns of a schema: cast where nothing is lost, null where absent.

    Args:
        rows: As the file has them.
        schema: Wanted.
        constants: Values of columns that are not in the file (partition columns).
        path: Of the file, for messages.

    Raises:
        SchemaMismatch: permanent; a column of the file cannot become the table's.
    """
    count = rows.num_rows
    columns = []
    for field in schema:
        if field.name in constants:
            column = pa.repeat(constants[field.name], count)
        elif (index := rows.schema.get_field_index(field.name)) >= 0:
            column = rows.column(index)
        else:
            column = pa.nulls(count, field.type)
        if column.type != field.type:
            try:
                column = column.cast(field.type)
            except pa.ArrowException as error:
                kinds = f"{type_text(column.type)}, and {type_text(field.type)}"
                what = f"column {field.name!r} of {path!r} is {kinds} in the table: "
                what += str(error)
                raise SchemaMismatch(what) from error
        columns.append(column)
    # Files need not repeat what the table states of nulls: the framework checks.
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _no_columns(count: int, skip: int, most: int) -> Iterator[Rows]:
    """Rows of which only the number is wanted."""
    for first in range(skip, count, most):
        struct = pa.StructArray.from_buffers(
            pa.struct([]), min(most, count - first), [None]
        )
        yield Rows(pa.RecordBatch.from_struct_array(struct), first)


@contextmanager
def _opened(files: TableFiles, path: str) -> Iterator[pq.ParquetFile]:
    try:
        source = files.open(path)
    except FileNotFoundError as error:
        what = f"{path!r} does not exist"
        raise PieceGone(what) from error
    with source:
        try:
            size = source.size()
            tail = source.read_at(min(size, TAIL), max(0, size - TAIL))
            # 96-bit timestamps in nanoseconds, the default, end in the year 2262.
            file = pq.ParquetFile(
                source, coerce_int96_timestamp_unit="us", **footer_limits(tail, size)
            )
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _failed(path, error) from error
        yield file


def _failed(path: str, error: Exception) -> StreamError:
    """The error for a file that cannot be read: of its storage, or of its content."""
    failure = store_failure(error, path)
    if failure is not None:
        return failure
    what = f"the data file {path!r} cannot be read: {str(error).splitlines()[0]}"
    return CorruptData(what, remedy="restore the file from a copy")
