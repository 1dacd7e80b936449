"""Rows of a range of offsets: the server gathers each column, and sends no rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import psycopg
import pyarrow as pa
from psycopg import sql
from streamfactory import spi

from streamfactory_postgres import arrays, columns
from streamfactory_postgres.connection import Connection

_MOST_ROWS: Final = 65_536
"""Of one result."""
_FIRST_ROWS: Final = 1024
"""Of the first result: how large rows are is not known yet."""


class RangeReader:
    """Reads ranges of one table. One thread.

    Args:
        table: The table.
        offset: Its column of offsets.
        schema: Of the columns that are read.
    """

    def __init__(self, table: sql.Identifier, offset: str, schema: pa.Schema) -> None:
        self._table = table
        self._offset = sql.Identifier(offset)
        self._schema = schema
        self._rows = _FIRST_ROWS

    def read(
        self, connection: Connection, start: int, stop: int, limits: spi.FetchLimits
    ) -> tuple[pa.RecordBatch | None, pa.Int64Array | None, int]:
        """Rows of a range with their offsets, and the bytes that travelled.

        Raises:
            pa.ArrowInvalid: A value has no Arrow value.
        """
        wanted = max(1, min(self._rows, limits.max_rows))
        query = self._query(start, stop, wanted, limits.max_bytes)
        try:
            with connection.cursor(binary=True) as cursor:
                found = cursor.execute(query).fetchone()
        except psycopg.Error:
            # Rows may be larger than those before: the next call asks for fewer.
            self._rows = max(1, self._rows // 16)
            raise
        assert found is not None
        parts: list[bytes | None] = found[0]
        if parts[0] is None:
            return None, None, 0
        offsets = pa.array(arrays.elements(parts[0], pa.int64()))
        size = sum(len(part) for part in parts if part is not None)
        count = len(offsets)
        self._rows = max(1, min(_MOST_ROWS, limits.max_bytes * count // size))
        made = [
            arrays.fixed(data, other, column, count)
            if column.type in arrays.FIXED
            else arrays.text(data, other, column)
            for column, data, other in zip(
                self._schema, parts[1::2], parts[2::2], strict=True
            )
        ]
        if not made:
            empty = pa.StructArray.from_buffers(pa.struct([]), count, [None])
            return pa.RecordBatch.from_struct_array(empty), offsets, size
        rows = pa.RecordBatch.from_arrays(made, schema=self._schema)
        return rows, offsets, size

    def _query(self, start: int, stop: int, wanted: int, size: int) -> sql.Composed:
        """An array of bytes: an array of offsets, then two values for each column.

        It is one value: a result has fewer columns than two for each of a table's.
        """
        names = [sql.Identifier(f"c{at}") for at in range(len(self._schema))]
        chosen = [sql.Identifier(column.name) for column in self._schema]
        pairs = [*zip(names, self._schema, strict=True)]
        # The innermost query has the limit of rows, the next one the bytes up to each
        # row. OFFSET 0: a value is converted once, and used twice.
        return sql.SQL(
            """
SELECT ARRAY[{gathered}] FROM (SELECT {converted} FROM (
    SELECT *, row_number() OVER w AS n, sum({size}) OVER w AS bytes
    FROM (SELECT {chosen} FROM {table} WHERE {offset} >= {start} AND {offset} < {stop}
        ORDER BY {offset} LIMIT {wanted}) held
    WINDOW w AS (ROWS UNBOUNDED PRECEDING)) sized
WHERE bytes <= {most} OR n = 1 OFFSET 0) converted
"""
        ).format(
            gathered=_listed(
                sql.SQL("array_send(array_agg(o::int8))"), *_gathered(pairs)
            ),
            converted=_listed(
                sql.SQL("o"), sql.SQL("n"), *(_converted(*pair) for pair in pairs)
            ),
            size=sql.SQL(" + ").join([sql.SQL("8"), *(_size(*pair) for pair in pairs)]),
            chosen=_listed(
                _named(self._offset, sql.Identifier("o")),
                *map(_named, chosen, names),
            ),
            table=self._table,
            offset=self._offset,
            start=start,
            stop=stop,
            wanted=wanted,
            most=size,
        )


def _gathered(
    pairs: list[tuple[sql.Identifier, pa.Field]],
) -> Iterator[sql.Composable]:
    for name, column in pairs:
        pair = (
            "array_send(array_agg({0}) FILTER (WHERE {0} IS NOT NULL)), "
            "array_send(array_agg(n) FILTER (WHERE {0} IS NULL))"
            if column.type in arrays.FIXED
            else "string_agg({0}, ''), "
            "array_send(array_agg(coalesce(octet_length({0}), -1)))"
        )
        yield sql.SQL(pair).format(name)


def _converted(name: sql.Identifier, column: pa.Field) -> sql.Composable:
    """What is gathered of a value: of one without a width its bytes."""
    kind = column.type
    if kind in arrays.FIXED:
        return sql.SQL("{0}::{1} AS {0}").format(
            name, sql.SQL(columns.type_name(column))
        )
    if pa.types.is_binary(kind):
        return name
    # A cast would shorten `char`, and lengthen `inet`. A composite value with a field
    # that is null is not NOT NULL, and distinct from null.
    return sql.SQL(
        "CASE WHEN {0} IS DISTINCT FROM NULL"
        " THEN convert_to(format('%s', {0}), 'UTF8') END AS {0}"
    ).format(name)


def _size(name: sql.Identifier, column: pa.Field) -> sql.Composable:
    if column.type in arrays.FIXED:
        return sql.SQL(str(arrays.width_of(column.type)))
    kind = "bytea" if pa.types.is_binary(column.type) else "text"
    # Of a text or bytes the server knows it without unpacking the value.
    size = sql.SQL("coalesce(octet_length({0}::{1}), 0)::float8")
    return size.format(name, sql.SQL(kind))


def _named(value: sql.Composable, name: sql.Composable) -> sql.Composable:
    return sql.SQL("{} AS {}").format(value, name)


def _listed(*parts: sql.Composable) -> sql.Composed:
    return sql.SQL(", ").join(parts)
