"""Rows of a range of offsets, by ``COPY``."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from psycopg import sql
from streamfactory import spi

from streamfactory_postgres import columns
from streamfactory_postgres.connection import Connection

_MOST_ROWS: Final = 65_536
"""Of one result."""
_FIRST_ROWS: Final = 1024
"""Of the first result: how large rows are is not known yet."""


class ResultFull(Exception):
    """More bytes came than a result may have: the next one asks for fewer rows."""


class RangeCopier:
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

    def copy(
        self, connection: Connection, start: int, stop: int, limits: spi.FetchLimits
    ) -> tuple[pa.RecordBatch | None, pa.Int64Array | None, int]:
        """Rows of a range with their offsets, and the bytes that travelled.

        Raises:
            ResultFull: Call it again, behind a rollback.
        """
        wanted = max(1, min(self._rows, limits.max_rows))
        offset = self._offset
        schema = pa.schema([pa.field("", pa.int64()), *self._schema])
        names = (
            [offset] if not self._schema else [offset, columns.selected(self._schema)]
        )
        query = sql.SQL(
            "COPY (SELECT {} FROM {} WHERE {} >= {} AND {} < {} ORDER BY {} LIMIT {}) "
            "TO STDOUT (FORMAT csv)"
        ).format(
            sql.SQL(", ").join(names),
            self._table,
            *(offset, start, offset, stop, offset, wanted),
        )
        parts: list[Any] = []
        size = 0
        with connection.cursor().copy(query) as copy:
            for part in copy:  # a row each
                parts.append(part)
                size += len(part)
                if size > 2 * limits.max_bytes and 1 < len(parts) < wanted:
                    self._rows = max(1, len(parts) // 2)
                    raise ResultFull
        if not parts:
            return None, None, 0
        self._rows = max(1, min(_MOST_ROWS, limits.max_bytes * len(parts) // size))
        batch = columns.parse(pa.py_buffer(b"".join(parts)), schema)
        rows = pa.RecordBatch.from_arrays(batch.columns[1:], schema=self._schema)
        return rows, batch.column(0), size
