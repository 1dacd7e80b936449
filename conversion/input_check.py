"""Checks of the rows that a program writes or pushes, before they are computed with."""

from __future__ import annotations

from typing import final

import pyarrow as pa

from streamfactory.conversion.conform import check_names
from streamfactory.spi import BatchValidator, CorruptData, SchemaMismatch


@final
class InputCheck:
    """Checks rows of one origin: Arrow trusts the buffers that it computes with.

    Args:
        final: Schema of rows that only pass through, and are checked where they are
            stored; None if there are none.
    """

    def __init__(self, final: pa.Schema | None) -> None:
        self._final = final
        self._validator: BatchValidator | None = None

    def check(self, rows: pa.RecordBatch) -> None:
        """Check a batch.

        Raises:
            SchemaMismatch: permanent; a buffer does not have what the type requires, or
                the type is unsupported.
        """
        final, validator = self._final, self._validator
        if final is not None and rows.schema.equals(final, check_metadata=True):
            return
        if not all(field.nullable for field in rows.schema):
            # The conversion refuses nulls with their number and row.
            fields = [field.with_nullable(True) for field in rows.schema]
            rows = pa.RecordBatch.from_arrays(rows.columns, schema=pa.schema(fields))
        if validator is None or not validator.schema.equals(rows.schema):
            check_names(rows.schema)
            validator = self._validator = BatchValidator(rows.schema)
        try:
            validator.validate(rows)
        except CorruptData as error:
            msg = f"rows cannot be written: {error.what}"
            remedy = "correct the program that created them"
            raise SchemaMismatch(msg, remedy=remedy) from error
