"""Converts pushed objects to batches of the table's schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import pyarrow as pa

from streamfactory.conversion.conform import Conformer, empty_rows
from streamfactory.conversion.differences import schema_difference
from streamfactory.spi import MisuseError, SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_REMEDY: Final = "push rows of the table's schema, or pass cast=True for safe casts"


@final
class RowFitter:
    """Checks rows against one schema. Thread-safe.

    Args:
        schema: Of the table.
        cast: Whether columns of other types are cast where no value can be lost.
    """

    def __init__(self, schema: pa.Schema, *, cast: bool) -> None:
        self.schema = schema
        self._cast = cast
        self._conformer = Conformer(schema)

    def batches(self, data: Any) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a pushed object.

        Args:
            data: A record batch, a table, or any object with Arrow's C interface for
                arrays or streams. A stream is read as its batches are taken.

        Raises:
            MisuseError: misuse; the object has no Arrow C interface.
            SchemaMismatch: permanent; names the column by its dotted path, and both
                types. Metadata of the schema is not compared.
        """
        for rows in _read(data):
            yield self.fit(rows)

    def fit(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """A batch, checked. Raises as `batches` does."""
        if not self._cast:
            found = schema_difference(rows.schema, self.schema, "the table")
            if found is not None:
                raise SchemaMismatch(found, remedy=_REMEDY)
        try:
            return self._conformer.conform(rows)
        except SchemaMismatch as error:
            error.remedy = error.remedy or _REMEDY
            raise


def _read(data: Any) -> Iterable[pa.RecordBatch]:
    if isinstance(data, pa.RecordBatch):
        return (data,)
    if isinstance(data, pa.Table):
        found: list[pa.RecordBatch] = data.to_batches()
        return found or (empty_rows(data.schema),)  # its schema is checked, too
    if hasattr(data, "__arrow_c_stream__"):
        reader: Iterable[pa.RecordBatch] = pa.RecordBatchReader.from_stream(data)
        return reader
    if hasattr(data, "__arrow_c_array__"):
        return (pa.record_batch(data),)
    msg = f"{type(data).__name__!r} has no Arrow C interface"
    raise MisuseError(msg, remedy="push record batches, tables or data frames")
