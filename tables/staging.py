"""Data files of one attempt, beside the table: no commit names them yet."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamfactory.arrowlog.decoding import (
    InvalidValue,
    list_of,
    mapping_of,
    members_of,
    optional,
    text,
    whole,
)
from streamfactory.conversion.conform import Conformer
from streamfactory.spi import CorruptData, SchemaMismatch, StreamWriter
from streamfactory.spi.computing import pc
from streamfactory.tables.matching import bare

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streamfactory.arrowlog.disk.storage import NewBlob, Storage
    from streamfactory.spi import CommitMessage, Outgoing, WriteContext

_BUFFERED: Final = 64 << 20
"""Bytes of rows that wait for a row group, over all files of an attempt."""
_GROUP: Final = 1 << 20
"""Rows of a row group."""
_OPEN: Final = 64
"""Files that are open at a time: one for each combination of partition values."""

_NAME: Final = re.compile(r"part-\d{5,10}-[0-9a-f]{32}-\d{1,10}\.parquet")
"""Of a data file: no other one is ever committed, or removed."""

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
class Staged:
    """What an attempt has staged: the payload of its commit message."""

    attempt: str
    files: Sequence[DataFile]
    table: str
    """Identity of the table."""
    columns: str
    """Columns of the table as of the attempt, as the format writes them."""

    def payload(self) -> dict[str, Any]:
        """As plain values."""
        files = [
            {
                "path": one.path,
                "size": one.size,
                "rows": one.rows,
                "values": dict(one.values),
            }
            for one in self.files
        ]
        return {
            "attempt": self.attempt,
            "files": files,
            "table": self.table,
            "columns": self.columns,
        }

    @classmethod
    def of(cls, message: CommitMessage) -> Staged:
        """What a commit message has.

        Raises:
            CorruptData: data_loss; the payload is not that of a writer of a table.
        """
        try:
            found = _PAYLOAD(message.payload)
        except InvalidValue as error:
            what = f"the commit message of task {message.context.task}: {error}"
            remedy = "abort the epoch, and write it again"
            raise CorruptData(what, remedy=remedy) from None
        files = tuple(DataFile(**one) for one in found.pop("files"))
        return cls(files=files, **found)


def _name(value: Any) -> str:
    """The name of a data file."""
    found = text(value)
    if _NAME.fullmatch(found) is None:
        msg = f"{found[:80]!r} is no name of a data file"
        raise InvalidValue(msg)
    return found


_PAYLOAD: Final = members_of(
    {
        "attempt": text,
        "files": list_of(
            members_of(
                {
                    "path": _name,
                    "size": whole(),
                    "rows": whole(),
                    "values": mapping_of(text, optional(text)),
                }
            )
        ),
        "table": text,
        "columns": text,
    }
)


@final
class TableWriter(StreamWriter):
    """Writes the rows of one attempt to new Parquet files.

    Args:
        storage: Of the table's folder.
        context: Of the attempt.
        schema: Columns of the table.
        partitioned: Names of the partition columns: files do not have them.
        table: Identity of the table.
        columns: Columns of the table, as the format writes them.
    """

    def __init__(
        self,
        storage: Storage,
        context: WriteContext,
        schema: pa.Schema,
        partitioned: Sequence[str],
        table: str,
        columns: str,
    ) -> None:
        self._storage = storage
        # The table may have been created by another process, with other columns; and
        # a format may have fewer types.
        self._fitting = Conformer(bare(schema))
        self._prefix = f"part-{context.task:05}-{context.attempt}"
        self._attempt = context.attempt
        self._partitioned = list(partitioned)
        kept = [one for one in schema if one.name not in self._partitioned]
        self._schema = pa.schema(kept)
        self._table, self._columns = table, columns
        self._open: dict[Values, _NewFile] = {}
        self._buffered = 0
        self._made = 0
        self._files: list[DataFile] = []

    def write(self, outgoing: Outgoing) -> None:
        fitting = self._fitting.conform(outgoing.rows)
        for values, rows in self._split(fitting):
            self._file(values).add(rows)
            self._buffered += rows.nbytes
        if self._buffered >= _BUFFERED:
            for one in self._open.values():
                one.flush()
            self._buffered = 0

    def commit(self) -> Any:
        for values in list(self._open):
            self._finish(values)
        staged = Staged(self._attempt, self._files, self._table, self._columns)
        return staged.payload()

    def abort(self) -> None:
        self.close()
        files, self._files = self._files, []
        self._storage.remove([one.path for one in files])

    def close(self) -> None:
        opened, self._open = self._open, {}
        for one in opened.values():
            one.abandon()

    def _file(self, values: Values) -> _NewFile:
        found = self._open.get(values)
        if found is None:
            if len(self._open) >= _OPEN:
                self._finish(next(iter(self._open)))
            path = f"{self._prefix}-{self._made}.parquet"
            self._made += 1
            found = _NewFile(self._storage.create(path), path, self._schema)
            self._open[values] = found
        return found

    def _finish(self, values: Values) -> None:
        one = self._open.pop(values)
        named = dict(zip(self._partitioned, values, strict=True))
        size = one.finish()
        self._files.append(DataFile(one.path, size, one.rows, named))

    def _split(self, rows: pa.RecordBatch) -> Iterator[tuple[Values, pa.RecordBatch]]:
        """The rows of each combination of partition values, without these columns."""
        if not self._partitioned:
            yield (), rows
            return
        kept = rows.select(self._schema.names)
        codes = np.zeros(rows.num_rows, np.int64)
        texts = []
        for name in self._partitioned:
            column = partition_texts(rows.column(name), name)
            found = column.dictionary_encode("encode")
            texts.append(column)
            codes = codes * (len(found.dictionary) + 1)
            codes += found.indices.to_numpy(zero_copy_only=False)
            # Small again, so that no product of many columns overflows.
            _, codes = np.unique(codes, return_inverse=True)
        _, first = np.unique(codes, return_index=True)
        for code, row in enumerate(first):
            values = tuple(column[int(row)].as_py() for column in texts)
            yield values, kept.filter(pa.array(codes == code))


class _NewFile:
    """A Parquet file while it is written: rows are collected for a row group."""

    def __init__(self, blob: NewBlob, path: str, schema: pa.Schema) -> None:
        self.path, self.rows = path, 0
        self._blob, self._schema = blob, schema
        self._waiting: list[pa.RecordBatch] = []
        self._count = 0
        self._writer = pq.ParquetWriter(blob.sink, schema, store_schema=False)

    def add(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        self._count += rows.num_rows
        self.rows += rows.num_rows
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


def partition_texts(column: pa.Array, name: str) -> pa.Array:
    """The values of a partition column as text, as Delta's protocol and Hive have it.

    Raises:
        SchemaMismatch: permanent; empty text would be read as null, or the type is none
            that a partition column has.
    """
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp(kind.unit)).cast(pa.string())
    if pa.types.is_string(kind):
        if pc.any(pc.equal(column, "")).as_py():
            what = f"partition column {name!r} has empty text, which is read as null"
            raise SchemaMismatch(what, remedy="write null, or other text")
        return column
    if pa.types.is_decimal(kind):
        found = column.dictionary_encode()
        # Arrow's cast writes small ones with an exponent, which other readers refuse.
        texts = [format(value, "f") for value in found.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(found.indices)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date(kind):
        return column.cast(pa.string())
    what = f"partition column {name!r} is {kind}: its values are not written as text"
    raise SchemaMismatch(what, remedy="partition the table by another column")
