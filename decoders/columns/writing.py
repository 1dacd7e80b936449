"""Conversion of rows to a schema before they are encoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.conversion.conform import conform

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa


def fitted(rows: pa.RecordBatch, schema: pa.Schema) -> Sequence[pa.Array]:
    """The columns of a schema, in its order; missing nullable columns are filled.

    Raises:
        SchemaMismatch: permanent; a column, or a child at any depth, is unknown,
            missing or null, or its values do not fit the schema's type.
    """
    columns: Sequence[pa.Array] = conform(rows, schema).columns
    return columns
