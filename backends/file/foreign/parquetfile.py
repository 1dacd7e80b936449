"""Index and decoder of one Parquet file: each row group is a batch.

A row group is decoded a part at a time. Before Arrow allocates anything, the headers of
its pages are read: they, and values within lists, may expand to ``longest`` bytes.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from pyarrow import parquet as pq

from streamfactory.arrowlog.disk.foreign import open_foreign
from streamfactory.arrowlog.disk.leaves import children, leaves_of, storage
from streamfactory.arrowlog.disk.pages import (
    PLAIN_LENGTHS,
    PREFIXES,
    SAFE_ENCODINGS,
    TAIL,
    footer_limits,
    footer_of,
    read_groups,
    read_pages,
)
from streamfactory.arrowlog.disk.thrift import (
    ExpandsTooFar,
    NotParquet,
    NotSupported,
)
from streamfactory.backends.file.foreign.decoder import Decoder, Part
from streamfactory.backends.file.foreign.framing import ROWS, Frame, Malformed
from streamfactory.backends.file.foreign.indexed import IndexedFile
from streamfactory.backends.file.foreign.types import plain_schema
from streamfactory.spi import (
    BatchValidator,
    CorruptData,
    FormatRefused,
    SchemaMismatch,
    StreamError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.arrowlog.disk.leaves import Leaf
    from streamfactory.arrowlog.disk.pages import Chunk, ColumnPages, Group
    from streamfactory.backends.file.foreign.medium import Medium, Stamp

_MAGIC: Final = b"PAR1"
_PART: Final = 1 << 16
"""Rows that are decoded at once."""
_MOST_ROWS: Final = 1 << 48
_LENGTH: Final = 4
"""Bytes of the length of a text."""
_REWRITE: Final = "write the file with other encodings, or leave it out with `names`"


class ParquetFile(IndexedFile):
    """An index of the row groups of one Parquet file. One thread at a time."""

    def __init__(self, medium: Medium, form: str, longest: int) -> None:
        self.metadata: pq.FileMetaData | None = None
        """The footer; None while the file has none."""
        self.groups: list[Group] = []
        """The row group of each batch."""
        self.numbers: list[int] = []
        """Its number in the file."""
        self.leaves: list[Leaf] = []
        """Columns as the file has them: parts of nested ones are columns too."""
        self.fields: dict[int, pa.Field] = {}
        """By number of such a column: the column of the schema."""
        self.limits: dict[str, int] = {}
        self._paths: Counter[str] = Counter()
        super().__init__(medium, form, longest)

    @property
    def needs_footer(self) -> bool:
        return True

    def grew(self, stamp: Stamp) -> bool:
        same = self._seen is not None and stamp.same_file(self._seen)
        return same and not self.whole

    def open(self, encoded: Sequence[str] = ()) -> pq.ParquetFile:
        """The file in Arrow's reader; the caller closes it.

        Args:
            encoded: Paths of text columns that are read as dictionaries.

        Raises:
            Malformed: The footer is invalid.
            OSError: As the system raises.
        """
        source = self.medium.open()
        try:
            with arrow_errors():
                return open_foreign(
                    source,
                    self.limits,
                    metadata=self.metadata,
                    read_dictionary=list(encoded),
                    page_checksum_verification=True,
                    pre_buffer=False,
                )
        except BaseException:
            source.close()
            raise

    def path_of(self, column: int) -> str:
        """Dotted path of a stored column."""
        assert self.metadata is not None
        path: str = self.metadata.schema.column(column).path
        return path

    def is_encodable(self, column: int) -> bool:
        """Whether Arrow can read a stored column of text as a dictionary."""
        return self._paths[self.path_of(column)] == 1 and not _has_extension(
            self.fields[column].type
        )

    def _identity(self) -> str:
        return self.fingerprint()

    def _extend(self, size: int) -> None:
        begin = self.medium.peek(0, len(_MAGIC))
        if not _MAGIC.startswith(begin):
            msg = f"{self.path!r} is not a Parquet file: it begins with {begin!r}"
            remedy = "remove the file, or set `format` or `names`"
            raise FormatRefused(msg, remedy=remedy)
        tail = self.medium.peek(max(0, size - TAIL), TAIL)
        try:
            self.limits = footer_limits(tail, size)
        except NotParquet:
            return
        with self.open() as reader:
            self.metadata = reader.metadata
            self._set_schema(reader.schema_arrow)
        try:
            footer = footer_of(self.medium.peek, tail, size)
            groups = read_groups(footer, self.metadata.num_columns)
        except NotParquet as error:
            raise Malformed(str(error)) from error
        self._add_groups(groups)
        self.whole = True

    def _set_schema(self, schema: pa.Schema) -> None:
        try:
            BatchValidator(schema)
        except SchemaMismatch as error:
            msg = f"the file {self.path!r} cannot be read: {error.what}"
            raise SchemaMismatch(msg, remedy=error.remedy) from error
        self.schema = plain_schema(schema)
        assert self.metadata is not None
        self._paths = Counter(map(self.path_of, range(self.metadata.num_columns)))
        for field in self.schema:
            leaves = leaves_of(pa.schema([field]))
            before = len(self.leaves)
            self.leaves += leaves
            self.fields |= dict.fromkeys(range(before, len(self.leaves)), field)
        if len(self.leaves) != self.metadata.num_columns:
            msg = f"{self.metadata.num_columns} columns are stored for the schema of "
            msg += f"{len(self.leaves)}"
            raise Malformed(msg)

    def _add_groups(self, groups: list[Group]) -> None:
        for number, group in enumerate(groups):
            if group.rows > _MOST_ROWS - self.rows:
                msg = f"the footer states {group.rows} rows for row group {number}"
                raise Malformed(msg)
            if not group.rows:
                continue
            begin = min((chunk.start for chunk in group.chunks), default=0)
            size = max(0, group.bytes)
            self.frames.append(Frame(ROWS, begin, 0, size, group.rows, compressed=True))
            self.starts.append(self.rows + group.rows)
            self.groups.append(group)
            self.numbers.append(number)


class _Plan(NamedTuple):
    """How a row group is read so that it expands to no more than is allowed."""

    encoded: tuple[str, ...]
    """Paths of text columns that are read as dictionaries."""
    rows: int
    """Rows of a part."""


class ParquetDecoder(Decoder):
    """Decodes the row groups of a file, forward a part at a time.

    Args:
        file: The file; closed by its owner.
        schema: Columns of the rows, in plain types.
        checked: Whether values are validated, and not only lengths.
    """

    def __init__(self, file: ParquetFile, schema: pa.Schema, *, checked: bool) -> None:
        super().__init__(file.path, schema)
        self._file = file
        self._checked = checked
        self._reader: tuple[tuple[str, ...], pq.ParquetFile, BatchValidator] | None
        self._reader = None
        self._parts: Iterator[pa.RecordBatch] = iter(())
        self._index = -1
        self._part: Part | None = None
        """The last part that was read: validated, not yet converted."""
        self._end = 0
        """Index of the row behind it."""
        self._names = schema.names
        wanted = frozenset(self._names)
        self._columns = [i for i in file.fields if _is_within(file.path_of(i), wanted)]

    def _validated(self, index: int, row: int) -> tuple[Part, BatchValidator]:
        if self._index != index or self._part is None or row < self._part.first:
            self._begin(index)
        assert self._reader is not None
        validator = self._reader[2]
        if self._part is None or row >= self._end:
            part = self._next(index, row)
            try:
                validator.validate(part.rows)
            except CorruptData as error:
                raise Malformed(error.what) from error
            self._part = part
        return self._part, validator

    def _next(self, index: int, row: int) -> Part:
        """Decode parts until one has a row."""
        self._part = None
        while True:
            with arrow_errors():
                rows = next(self._parts, None)
            if rows is None:
                count = self._file.frames[index].rows
                msg = f"it has {self._end} rows instead of {count}"
                raise Malformed(msg)
            first = self._end
            self._end += rows.num_rows
            if row < self._end:
                return Part(first, rows.select(self._names))

    def _forget(self) -> None:
        self._part, self._end, self._parts = None, 0, iter(())

    def _place(self, index: int) -> int:
        return self._file.frames[index].offset

    def _begin(self, index: int) -> None:
        """Start to decode a row group."""
        self._forget()
        self._index = index
        plan = self._plan(self._file.groups[index])
        reader = self._open(plan.encoded)
        group = self._file.numbers[index]
        self._parts = reader.iter_batches(
            plan.rows, row_groups=[group], columns=self._names, use_threads=False
        )

    def _open(self, encoded: tuple[str, ...]) -> pq.ParquetFile:
        if self._reader is None or self._reader[0] != encoded:
            reader = self._file.open(encoded)
            written = reader.schema_arrow
            schema = pa.schema([written.field(name) for name in self._names])
            validator = BatchValidator(schema, values=self._checked)
            self._reader = encoded, reader, validator
        return self._reader[1]

    def _plan(self, group: Group) -> _Plan:
        """Check what a row group expands to.

        Raises:
            FormatRefused: permanent; it expands to more than is allowed, or has an
                encoding that is not read.
            Malformed: It is damaged.
        """
        file, longest = self._file, self._file.longest
        total, repeated, encoded = 0, 0, []
        with file.medium.open() as source:
            for column in self._columns:
                leaf, chunk = file.leaves[column], group.chunks[column]
                path = file.path_of(column)
                try:
                    pages = _pages(source, chunk, leaf, group.rows, longest)
                except NotSupported as error:
                    msg = f"column {path!r} of {file.path!r}: {error}"
                    raise FormatRefused(msg, remedy=_REWRITE) from error
                except ExpandsTooFar as error:
                    raise self._too_large(group) from error
                except NotParquet as error:
                    msg = f"column {path!r}: {error}"
                    raise Malformed(msg) from error
                total += pages.bytes + _bytes_besides(leaf, chunk, pages)
                if leaf.column is None:
                    total += chunk.values * pages.prefixed
                else:
                    repeated += pages.prefixed
                if total > longest:
                    raise self._too_large(group)
                if not leaf.is_text or not pages.has_dictionary:
                    continue
                if file.is_encodable(column) and not (pages.is_mixed and leaf.column):
                    encoded.append(path)
                elif leaf.column is None:
                    msg = f"column {path!r} is nested and has a dictionary, but an "
                    raise Malformed(msg + "extension type or a path of two columns")
                else:
                    # Each value may be as long as the dictionary. Arrow takes ten times
                    # as long to make a dictionary of a column that has given it up.
                    repeated += pages.dictionary
        rows = min(_PART, max(1, longest // repeated)) if repeated else _PART
        return _Plan(tuple(encoded), rows)

    def _too_large(self, group: Group) -> FormatRefused:
        number = self._file.groups.index(group)
        msg = f"row group {number} of {self._file.path!r} expands to more than "
        msg += f"{self._file.longest} bytes, which is unsupported"
        return FormatRefused(
            msg, remedy="raise message.max.bytes, or write smaller ones"
        )


def _is_within(path: str, names: frozenset[str]) -> bool:
    """Whether Arrow reads a stored column for these names, or might."""
    parts = path.split(".")
    return any(".".join(parts[:count]) in names for count in range(1, len(parts) + 1))


def _has_extension(kind: pa.DataType) -> bool:
    return storage(kind) != kind or any(map(_has_extension, children(kind)))


def _pages(
    source: pa.NativeFile, chunk: Chunk, leaf: Leaf, rows: int, longest: int
) -> ColumnPages:
    def read(offset: int, length: int) -> Any:
        source.seek(offset)
        return source.read_buffer(length)

    if chunk.values < rows or (leaf.column is not None and chunk.values > rows):
        msg = f"it has {chunk.values} values in {rows} rows"
        raise NotParquet(msg)
    return read_pages(read, chunk, longest, SAFE_ENCODINGS)


def _bytes_besides(leaf: Leaf, chunk: Chunk, pages: ColumnPages) -> int:
    """Bytes that Arrow allocates at once besides pages, as far as a file can lie."""
    if leaf.column is None:  # a row may have any number of values
        return leaf.expanded(chunk.values, chunk.values)
    lengths = (PLAIN_LENGTHS in pages.encodings) + 2 * (PREFIXES in pages.encodings)
    return _LENGTH * chunk.values * lengths


@contextmanager
def arrow_errors() -> Iterator[None]:
    """Separate damage that Arrow finds from failures of the system.

    Raises:
        Malformed: Arrow cannot read the content.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None and not isinstance(error, StreamError):  # Thrift's
            raise Malformed(str(error)) from error
        raise
