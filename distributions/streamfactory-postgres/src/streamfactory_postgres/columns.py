"""Columns of a table: their Arrow types, and the text in which values travel.

Changes, and rows of types that are not written in binary, travel as CSV, with the
server's text of each value: PyArrow reads and writes it column by column.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from psycopg import sql
from streamfactory import spi

from streamfactory_postgres.connection import Connection
from streamfactory_postgres.layout import no_topic, table_of

_UTC: Final = pa.timestamp("us", tz="UTC")
_TYPES: Final[Mapping[str, pa.DataType]] = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "oid": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": _UTC,
    "time": pa.time64("us"),
}
"""Types with an Arrow type of their own; all others are strings."""
_NAMES: Final[Mapping[pa.DataType, str]] = {
    **{kind: name for name, kind in _TYPES.items() if name != "oid"},
    pa.int8(): "int2",
    pa.uint8(): "int2",
    pa.uint16(): "int4",
    pa.uint32(): "int8",
    pa.string(): "text",
}
_READ: Final = pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
_WRITE: Final = pa_csv.WriteOptions(include_header=False, quoting_style="needed")


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    type: pa.DataType
    nullable: bool
    generated: bool
    """The server computes it: it cannot be written."""
    kind: str
    """The name of its type; of a domain that of its base."""
    computed: bool
    """Its value is an expression of others: logical decoding leaves it out."""


@dataclass(frozen=True)
class Table:
    """A table as it was at one moment."""

    relation: int
    """Its object id: another one after it was recreated."""
    columns: Sequence[Column]
    chosen: Sequence[str] | None
    """Those that are read and written; None for all."""

    def has(self, name: str) -> bool:
        """Whether it has a column."""
        return any(column.name == name for column in self.columns)

    def readable(self, offset: str) -> pa.Schema:
        """The schema of its rows as readers get them."""
        return _schema(self._used(offset))

    def writable(self, offset: str) -> pa.Schema:
        """The schema of the rows that writers pass."""
        return _schema([c for c in self._used(offset) if not c.generated])

    def decoded(self) -> pa.Schema:
        """The schema of its rows in logical decoding."""
        return _schema([c for c in self._used(None) if not c.computed])

    def kinds(self, names: Sequence[str]) -> list[str]:
        """The types of columns; of those that it lacks, by what a load adds."""
        known = {column.name: column.kind for column in self.columns}
        return [known.get(name, "") for name in names]

    def _used(self, offset: str | None) -> list[Column]:
        names = self.chosen
        return [
            column
            for column in self.columns
            if column.name != offset and (names is None or column.name in names)
        ]


def describe(
    connection: Connection,
    topic: str | sql.Identifier,
    chosen: Sequence[str] | None = None,
) -> Table:
    """Look up a table.

    Args:
        connection: To the database.
        topic: The table, or its name.
        chosen: Its columns that are used; None for all.

    Raises:
        spi.TopicNotFound: permanent.
        spi.SchemaMismatch: permanent; it lacks a column that is used.
    """
    table = topic if isinstance(topic, sql.Identifier) else table_of(topic)
    found = connection.execute(
        """
SELECT a.attrelid::bigint, a.attname, coalesce(base.typname, t.typname),
    CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END,
    NOT (a.attnotnull OR t.typnotnull), a.attgenerated <> '' OR a.attidentity = 'a',
    a.attgenerated <> ''
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_type base ON t.typtype = 'd' AND base.oid = t.typbasetype
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
""",
        [table.as_string()],
    ).fetchall()
    if not found:
        raise no_topic(str(topic))
    columns = [
        Column(name, arrow_type(kind, modifier), nullable, generated, kind, computed)
        for _, name, kind, modifier, nullable, generated, computed in found
    ]
    if missing := set(chosen or ()) - {column.name for column in columns}:
        msg = f"table {topic!r} has no column {min(missing)!r}"
        raise spi.SchemaMismatch(msg, remedy="correct the option columns")
    return Table(found[0][0], columns, chosen)


def type_name(column: pa.Field) -> str:
    """The type of a new table's column.

    Raises:
        spi.Unsupported: misuse; PostgreSQL has no type for it.
    """
    kind = column.type
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    if kind not in _NAMES:
        msg = f"column {column.name!r} of type {kind} cannot be stored in PostgreSQL"
        raise spi.Unsupported(msg)
    return _NAMES[kind]


def parse(text: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """Rows of CSV, as ``COPY ... TO STDOUT (FORMAT csv)`` returns it.

    Raises:
        pa.ArrowInvalid: A value has no Arrow value, such as the date ``infinity``.
    """
    types = {column.name: _text_type(column.type) for column in schema}
    read = pa_csv.read_csv(
        pa.BufferReader(text),
        # One block: a row of any length lies in it.
        pa_csv.ReadOptions(
            column_names=schema.names, block_size=len(text) + 1, use_threads=False
        ),
        _READ,
        pa_csv.ConvertOptions(
            column_types=types,
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
            true_values=["t"],
            false_values=["f"],
        ),
    ).combine_chunks()
    arrays = [
        _from_hex(_chunk(array)) if pa.types.is_binary(column.type) else _chunk(array)
        for array, column in zip(read.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def text_of(rows: pa.RecordBatch) -> memoryview:
    """Rows as the CSV that ``COPY ... FROM STDIN (FORMAT csv)`` takes."""
    arrays = [
        _to_hex(array) if pa.types.is_binary(array.type) else array
        for array in rows.columns
    ]
    out = io.BytesIO()
    batch = pa.RecordBatch.from_arrays(arrays, names=rows.schema.names)
    pa_csv.write_csv(batch, out, _WRITE)
    return out.getbuffer()


def _schema(columns: Sequence[Column]) -> pa.Schema:
    return pa.schema([pa.field(c.name, c.type, c.nullable) for c in columns])


def arrow_type(kind: str, modifier: int) -> pa.DataType:
    """The Arrow type of a PostgreSQL type, by its name and modifier."""
    if kind == "numeric" and modifier >= 0:
        precision, scale = (modifier - 4) >> 16, (modifier - 4) & 0x7FF
        if precision <= 38 and scale <= precision:
            return pa.decimal128(precision, scale)
    return _TYPES.get(kind, pa.string())


def _text_type(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_binary(kind) else kind


def _chunk(array: pa.ChunkedArray) -> pa.Array:
    return array.chunk(0) if array.num_chunks else pa.array([], array.type)


def _from_hex(array: pa.StringArray) -> pa.BinaryArray:
    """Bytes of their hexadecimal text; nulls stay."""
    offsets, data = _parts(array)
    return _made(array, pa.binary(), offsets // 2, bytes.fromhex(data.decode("ascii")))


def _to_hex(array: pa.BinaryArray) -> pa.StringArray:
    """The text ``\\x00ff`` of bytes; nulls stay."""
    offsets, data = _parts(array)
    digits = _made(array, pa.string(), offsets * 2, data.hex().encode("ascii"))
    return pc.binary_join_element_wise("\\x", digits, "")


def _parts(array: pa.Array) -> tuple[np.ndarray[Any, np.dtype[np.int32]], bytes]:
    """Offsets of values, from 0, and the bytes of all of them."""
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[array.offset :][: len(array) + 1]
    text = b"" if data is None else data[int(ends[0]) : int(ends[-1])].to_pybytes()
    return ends - ends[0], text


def _made(
    array: pa.Array,
    kind: pa.DataType,
    offsets: np.ndarray[Any, np.dtype[np.int32]],
    data: bytes,
) -> pa.Array:
    """An array of values, null where another array is."""
    ends = pa.py_buffer(offsets.astype(np.int32).tobytes())
    buffers = [None, ends, pa.py_buffer(data)]
    values = pa.Array.from_buffers(kind, len(array), buffers)
    return pc.if_else(array.is_valid(), values, pa.scalar(None, kind))
