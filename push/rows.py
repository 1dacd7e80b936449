"""Converts pushed objects to batches of the table's schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.conversion.conform import Conformer, empty_rows
from streamfactory.conversion.differences import schema_difference
from streamfactory.conversion.input_check import InputCheck
from streamfactory.conversion.tabular import rows_of
from streamfactory.spi import SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

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
        self._input = InputCheck(schema)

    def batches(self, data: Any) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a pushed object.

        Args:
            data: What `rows_of` takes. A stream is read as its batches are taken.

        Raises:
            MisuseError: misuse; the object has no rows.
            SchemaMismatch: permanent; names the column by its dotted path, and both
                types. Metadata of the schema is not compared.
        """
        rows, count = rows_of(data), 0
        for count, batch in enumerate(rows.batches, 1):  # noqa: B007
            yield self.fit(batch)
        if not count:
            yield self.fit(empty_rows(rows.schema))  # its schema is checked, too

    def fit(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """A batch, checked. Raises as `batches` does."""
        if not self._cast:
            found = schema_difference(rows.schema, self.schema, "the table")
            if found is not None:
                raise SchemaMismatch(found, remedy=_REMEDY)
        try:
            self._input.check(rows)
            return self._conformer.conform(rows)
        except SchemaMismatch as error:
            error.remedy = error.remedy or _REMEDY
            raise
