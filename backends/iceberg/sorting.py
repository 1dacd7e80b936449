"""The sort order of Iceberg tables, as far as it is of columns as they are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyiceberg.table.sorting import (
    NullOrder,
    SortDirection,
    SortOrder,
)
from pyiceberg.table.sorting import SortField as IcebergSortField
from pyiceberg.transforms import IdentityTransform

from streamfactory.spi import ConfigError, Unsupported
from streamfactory.tables.form import SortField

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.schema import Schema

_FIELD: Final = re.compile(r"(.+?)(?:\s+(asc|desc))?", re.IGNORECASE)


def order_of(fields: Sequence[str], schema: Schema, rows: pa.Schema) -> SortOrder:
    """The sort order of a new table.

    Args:
        fields: Of the option ``sort.by``.
        schema: Of the table.
        rows: The same, of Arrow.

    Raises:
        ConfigError: config; one is no column of the table, or is named twice.
        Unsupported: misuse; values of a column have no order.
    """
    found, known = [], set[str]()
    for text in fields:
        match = _FIELD.fullmatch(text)
        column = "" if match is None else match[1]
        if match is None or column not in rows.names or column in known:
            what = f"sort.by has {text!r}, which is no column of the rows, or is one "
            what += "that it has already"
            raise ConfigError(what, remedy="write city, or city desc")
        known.add(column)
        if pa.types.is_nested(rows.field(column).type):
            what = f"sort.by has {column!r}, whose values have no order"
            raise Unsupported(what, remedy="name a column that has no fields")
        is_descending = (match[2] or "").lower() == "desc"
        found.append(
            IcebergSortField(
                source_id=schema.find_field(column).field_id,
                transform=IdentityTransform(),
                direction=SortDirection.DESC if is_descending else SortDirection.ASC,
                null_order=NullOrder.NULLS_LAST,
            )
        )
    return SortOrder(*found)


def sort_fields(order: SortOrder, schema: Schema) -> list[SortField]:
    """By what rows are sorted; empty if the order is of other than whole columns."""
    found = []
    for one in order.fields:
        column = schema.find_column_name(one.source_id) or ""
        is_plain = isinstance(one.transform, IdentityTransform)
        if not is_plain or column not in schema.column_names or "." in column:
            return []
        found.append(SortField(column, one.direction is SortDirection.DESC))
    return found
