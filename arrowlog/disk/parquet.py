"""Segments that are Parquet files: each row group is a batch.

A segment has consecutive rows of one partition, so the offset of a row is the base of
the segment and the index of the row in the file, for every reader of Parquet.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet as pq

from streamfactory.arrowlog.disk.formats import (
    BatchesIn,
    BatchesOut,
    SegmentFormat,
    plain_times,
)
from streamfactory.arrowlog.disk.leaves import (
    children,
    expansion,
    leaves_of,
    storage,
)
from streamfactory.arrowlog.disk.names import PARQUET
from streamfactory.arrowlog.disk.pages import (
    LONGEST_FOOTER,
    TAIL,
    footer_limits,
    footer_of,
    read_codecs,
    read_groups,
    read_pages,
)
from streamfactory.arrowlog.disk.thrift import ExpandsTooFar, NotParquet
from streamfactory.conversion.required import fill_required
from streamfactory.spi import MessageTooLarge, SchemaMismatch
from streamfactory.spi.ddl import type_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamfactory.arrowlog.disk.formats import Times
    from streamfactory.arrowlog.disk.pages import Group
    from streamfactory.arrowlog.disk.settings import Settings

_APPENDED: Final = b"appended"
"""Metadata key of merged segments: by batch [first row, milliseconds] pairs, JSON."""
_CHUNK: Final = 9 << 10
"""Maximum bytes of a column of a row group in the footer; its statistics have 4096
bytes at most each."""
_FULL: Final = LONGEST_FOOTER - (4 << 20)
"""Bytes of a footer at which a segment is full: schema and batch times fit behind."""
_SAMPLE: Final = 1 << 16
"""Rows of the first batch by which dictionaries are chosen."""
_CODECS: Final = frozenset({0, 6, 7})
"""Compression of segments, in the numbers of Parquet: none, ZSTD, LZ4_RAW."""
_ALWAYS: Final = 64 << 20
"""Bytes in memory of a row group that are always allowed."""
_SURE: Final = _ALWAYS - (1 << 20)
"""The same for writers: less than a megabyte is lost where sizes are rounded."""
_PADDED: Final = 16
"""Maximum size of a list of fixed size within another list: for each null list of it,
which takes a bit in a file, so many values are counted."""
_REMEDY: Final = "cast the column, or create the topic with segment.format=arrow"


class _Checked(NamedTuple):
    """What is known of a row group that is checked."""

    encoded: frozenset[str]
    """Text columns with a dictionary."""
    left: int
    """Bytes that their values may expand to."""
    limit: int
    """What the row group may expand to; ``left`` is the rest of it."""


class _Out(BatchesOut):
    def __init__(self, sink: Any, schema: pa.Schema, settings: Settings) -> None:
        self._sink = sink
        self._schema = schema
        self._compression = settings.compression or "none"
        leaves = leaves_of(schema)
        # A name with a dot could be that of a nested column, which has none.
        texts = [leaf.column for leaf in leaves if leaf.is_text and leaf.column]
        self._texts = [name for name in texts if "." not in name]
        self._chunks = len(leaves)
        self._times: list[Times | None] = []
        self._footer = 0
        self._begun: pq.ParquetWriter | None = None

    @property
    def full(self) -> bool:
        return self._footer >= _FULL

    def write(self, rows: pa.RecordBatch, times: Times | None) -> None:
        try:
            filled = fill_required(rows)
            self._writer(rows).write_batch(filled, row_group_size=rows.num_rows)
        except pa.ArrowNotImplementedError as error:
            # The topic may be of a pyarrow that stores more, or rows of some types be
            # written in some layouts only.
            msg = f"pyarrow {pa.__version__} does not write these rows as Parquet: "
            raise SchemaMismatch(msg + str(error), remedy=_REMEDY) from error
        self._times.append(times)
        self._footer += _CHUNK * self._chunks + 32 * len(times or ())

    def close(self) -> None:
        writer = self._writer(None)
        if any(self._times):
            stored_times = json.dumps(self._times, separators=(",", ":"))
            writer.add_key_value_metadata({_APPENDED: stored_times})
        writer.close()

    def abandon(self) -> None:
        if self._begun is not None:
            # It would write its footer when it is collected, to a closed file.
            self._begun.is_open = False

    def _writer(self, rows: pa.RecordBatch | None) -> pq.ParquetWriter:
        """Return the writer; the first batch decides about dictionaries.

        A dictionary that does not fit is given up within a row group, and such a row
        group takes ten times as long to read.
        """
        if self._begun is None:
            encoded = [
                name
                for name in self._texts
                if rows is not None and _is_repetitive(rows.column(name))
            ]
            self._begun = pq.ParquetWriter(
                self._sink,
                self._schema,
                compression=self._compression,
                use_dictionary=encoded,
                write_page_checksum=True,
            )
        return self._begun


def _is_repetitive(column: pa.Array) -> bool:
    """Whether a dictionary makes a text column much smaller."""
    stored = column.storage if isinstance(column, pa.ExtensionArray) else column
    sample = stored.slice(0, _SAMPLE).cast(pa.large_binary())
    return bool(4 * pc.count_distinct(sample).as_py() <= len(sample))


class _In(BatchesIn):
    def __init__(
        self, file: Any, size: int, schema: pa.Schema, committed: Callable[[], int]
    ) -> None:
        self._file = file
        self._schema = schema
        self._committed = committed
        self._leaves = leaves_of(schema)
        tail = bytes(memoryview(self._at(max(0, size - TAIL), TAIL)))
        self._limits = {
            **footer_limits(tail, size),
            "page_checksum_verification": True,
            "pre_buffer": False,
        }
        self._reader = pq.ParquetFile(file, **self._limits)
        self._metadata = self._reader.metadata
        columns = self._metadata.num_columns
        if columns != len(self._leaves) or not self._reader.schema_arrow.equals(schema):
            msg = "its columns are not those of the topic"
            raise NotParquet(msg)
        self._place = tail, size
        self._groups = read_groups(footer_of(self._at, tail, size), columns)
        self._checked: dict[int, _Checked] = {}
        self._by_columns: tuple[frozenset[str], Any] = frozenset(), self._reader
        self._times: list[Any] | None = None

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self._groups)

    def check_all(self) -> list[RowGroup]:
        """See `check_file`."""
        found = []
        footer = footer_of(self._at, *self._place)
        for number, codecs in enumerate(read_codecs(footer)):
            self.check(number)
            checked, rows = self._checked[number], self._groups[number].rows
            if checked.encoded:
                msg = f"row group {number} has text with dictionaries"
                raise NotParquet(msg)
            if codecs - _CODECS:
                msg = f"row group {number} has the compression {min(codecs - _CODECS)}"
                raise NotParquet(msg)
            if rows:
                found.append(RowGroup(rows, checked.limit - checked.left))
        return found

    def check(self, number: int) -> None:
        group = self._groups[number]
        try:
            self._checked[number] = self._check(group, _ALWAYS)
        except NotParquet:
            limit = _ALWAYS + 2 * self._committed()
            self._checked[number] = self._check(group, limit)

    def _check(self, group: Group, limit: int) -> _Checked:
        """Check all columns."""
        rows, left, encoded = group.rows, limit, set()
        for number, leaf in enumerate(self._leaves):
            chunk = group.chunks[number]
            values = chunk.values
            if values < rows or (leaf.column is not None and values > rows):
                msg = f"column {number} has {values} values in {rows} rows"
                raise NotParquet(msg)
            left -= leaf.expanded(rows, values)
            if left >= 0:
                pages = read_pages(self._at, chunk, limit)
                if leaf.is_text:
                    left -= pages.bytes
                if leaf.is_text and pages.has_dictionary:
                    if leaf.column is None:
                        msg = f"the nested column {number} has a dictionary"
                        raise NotParquet(msg)
                    encoded.add(leaf.column)
            if left < 0:
                msg = f"{rows} rows expand to more than {limit} bytes"
                raise ExpandsTooFar(msg)
        return _Checked(frozenset(encoded), left, limit)

    def read(self, number: int) -> pa.RecordBatch:
        if number not in self._checked:
            self.check(number)
        checked = self._checked[number]
        encoded = checked.encoded
        if self._by_columns[0] != encoded:
            reader = self._reader
            if encoded:
                reader = pq.ParquetFile(
                    self._file,
                    metadata=self._metadata,
                    read_dictionary=sorted(encoded),
                    **self._limits,
                )
            self._by_columns = encoded, reader
        table = self._by_columns[1].read_row_group(number, use_threads=False)
        # Of all columns, before any is decoded.
        self._check_text([table.column(name) for name in encoded], checked)
        for name in encoded:
            at = self._schema.get_field_index(name)
            field = self._schema.field(at)
            table = table.set_column(at, field, _decoded(table.column(at), field))
        found = table.combine_chunks().to_batches()
        if len(found) != 1:
            msg = f"row group {number} has {len(found)} batches"
            raise NotParquet(msg)
        return pa.RecordBatch.from_arrays(found[0].columns, schema=self._schema)

    def _check_text(self, columns: list[pa.ChunkedArray], checked: _Checked) -> None:
        """Check dictionaries, and the bytes of text that they expand to together."""
        size, left = 0, checked.left
        for chunk in (chunk for column in columns for chunk in column.chunks):
            if pa.types.is_dictionary(chunk.type):
                chunk.validate(full=True)  # otherwise an index may be out of range
                lengths = pc.binary_length(chunk.dictionary).take(chunk.indices)
                size += pc.sum(lengths, min_count=0).as_py()
        if size > left and checked.limit == _ALWAYS:
            left += 2 * self._committed()
        if size > left:
            msg = f"the dictionaries of its text expand to {size} bytes"
            raise NotParquet(msg)

    def times(self, number: int) -> tuple[Any, int] | None:
        if self._times is None:
            stored_times = (self._metadata.metadata or {}).get(_APPENDED)
            found = [] if stored_times is None else plain_times(stored_times)
            if not isinstance(found, list):
                msg = "the times of its rows are not a list"
                raise NotParquet(msg)
            self._times = found
        times = self._times[number] if number < len(self._times) else None
        rows = self._groups[number].rows
        return None if times is None else (times, rows)

    def _at(self, offset: int, length: int) -> Any:
        self._file.seek(offset)
        return self._file.read_buffer(length)


class RowGroup(NamedTuple):
    """A row group that readers accept."""

    rows: int
    size: int
    """Bytes in memory, at most."""


def check_file(file: Any, size: int, schema: pa.Schema) -> list[RowGroup]:
    """Check all of a file that another program wrote, and return its row groups.

    Nothing in it is decoded. A row group expands to 64 MiB and twice the bytes of the
    file at most, so that readers accept what is returned here.

    Args:
        file: An Arrow random-access file.
        size: Its bytes.
        schema: Schema of the topic.

    Raises:
        ExpandsTooFar: Readers would refuse the size of a row group.
        NotParquet: Readers would refuse it.
        OSError, pa.ArrowException: It is no Parquet file.
    """
    return _In(file, size, schema, lambda: size).check_all()


def _decoded(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """Replace a dictionary by its values."""
    chunks = []
    for chunk in column.chunks:
        is_dictionary = pa.types.is_dictionary(chunk.type)
        values = chunk.dictionary_decode() if is_dictionary else chunk
        kind = storage(field.type)
        values = values if values.type == kind else values.cast(kind)
        if isinstance(field.type, pa.BaseExtensionType):
            values = pa.ExtensionArray.from_storage(field.type, values)
        chunks.append(values)
    return pa.chunked_array(chunks, field.type)


@final
class ParquetSegments(SegmentFormat):
    """Parquet files of one partition and consecutive offsets."""

    name = PARQUET
    mixed = False
    # Small segments are kept, and looked through, by partition: a few for each.
    most_partitions = 1000

    def check_schema(self, schema: pa.Schema) -> None:
        if not len(schema):
            msg = "Parquet segments require at least one column"
            raise SchemaMismatch(msg, remedy="create it with segment.format=arrow")
        for field in schema:
            if _is_kept(field):
                continue
            kind = type_text(field.type)
            msg = f"column {field.name!r} has the type {kind}, which Parquet "
            raise SchemaMismatch(msg + "segments do not store", remedy=_REMEDY)

    def cut(self, rows: pa.RecordBatch) -> list[pa.RecordBatch]:
        size = expansion(rows)
        if size <= _SURE + 2 * rows.nbytes:
            return [rows]
        if rows.num_rows == 1:
            msg = f"a row of {rows.nbytes} bytes expands to {size} bytes in Parquet, "
            msg += "mostly for lists that are null or empty: readers refuse it"
            raise MessageTooLarge(msg, remedy=_REMEDY)
        half = rows.num_rows // 2
        return [*self.cut(rows.slice(0, half)), *self.cut(rows.slice(half))]

    def create(self, sink: Any, schema: pa.Schema, settings: Settings) -> BatchesOut:
        return _Out(sink, schema, settings)

    def open(
        self, file: Any, size: int, schema: pa.Schema, committed: Callable[[], int]
    ) -> BatchesIn:
        return _In(file, size, schema, committed)


def _is_kept(field: pa.Field) -> bool:
    """Whether Arrow reads a column as it wrote it, and lists can be counted."""
    inner = list(_all_types(field.type))
    if any(map(_is_changed, inner)):
        return False
    schema, sink = pa.schema([field]), pa.BufferOutputStream()
    try:
        pq.ParquetWriter(sink, schema).close()
        found = pq.read_schema(pa.BufferReader(sink.getvalue()))
        if any(map(pa.types.is_fixed_size_list, inner)):
            # pyarrow before 26 neither writes nor reads nulls of these, and 26 does not
            # read a required one that is below a null.
            for kind in _null_types(field):
                _write_and_read(pa.record_batch({"": pa.nulls(1, kind)}))
    except (pa.ArrowException, OSError, ValueError):
        return False
    leaves = leaves_of(schema)
    countable = all(not leaf.repeated or leaf.padded <= _PADDED for leaf in leaves)
    return countable and bool(found.equals(schema))


def _write_and_read(rows: pa.RecordBatch) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(fill_required(rows)), sink)
    pq.read_table(pa.BufferReader(sink.getvalue()))


def _null_types(field: pa.Field) -> Iterator[pa.DataType]:
    """Types of which a column may have nulls, at every depth."""
    kind = storage(field.type)
    if field.nullable:
        yield kind
    for index in range(kind.num_fields):
        yield from _null_types(kind.field(index))


def _all_types(kind: pa.DataType) -> Iterator[pa.DataType]:
    kind = storage(kind)
    yield kind
    for child in children(kind):
        yield from _all_types(child)


def _is_changed(kind: pa.DataType) -> bool:
    """Whether rows of a type cannot be written, though their schema can."""
    empty = pa.types.is_fixed_size_list(kind) and kind.list_size == 0
    return bool(pa.types.is_dictionary(kind) or empty)
