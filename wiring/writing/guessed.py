"""Types of a new topic that later rows would not fit, found before it is created."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streamfactory.spi.ddl import columns_text, to_ddl, type_text
from streamfactory.wiring.core.guard import log

if TYPE_CHECKING:
    from collections.abc import Collection

_DIGITS: Final = 38


def warn_of_guesses(
    stream: str, schema: pa.Schema, inferred: Collection[str] = ()
) -> None:
    """Log which types of the first rows fix too little, with the ``schema`` to declare.

    Args:
        stream: Its name.
        schema: Of the rows that decide the topic's columns.
        inferred: Columns whose type was inferred from the values of these rows.
    """
    wide = [
        field.with_type(_wide(field.type, inferred=field.name in inferred))
        for field in schema
    ]
    narrow = [
        f"{field.name} {type_text(field.type)}"
        for field, other in zip(schema, wide, strict=True)
        if field.type != other.type
    ]
    if not narrow:
        return
    try:
        declaration = to_ddl(pa.schema(wide))
    except ValueError:  # a type that cannot be declared
        declaration = columns_text(wide)
    text = "stream %r: the first rows create a topic with the columns %s, which values "
    text += 'of later rows may not fit; to prevent it, set schema = "%s"'
    log.warning(text, stream, ", ".join(narrow), declaration)


def _wide(kind: pa.DataType, *, inferred: bool) -> pa.DataType:
    """Return a type that has more values than one that few rows determined."""
    types = pa.types
    if types.is_null(kind):
        return pa.string()
    if inferred and types.is_decimal(kind) and kind.precision < _DIGITS:
        return pa.decimal128(_DIGITS, kind.scale)
    if types.is_struct(kind):
        return pa.struct([_wide_field(field, inferred=inferred) for field in kind])
    if types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key, _wide_field(item, inferred=inferred))
    if types.is_list(kind):
        return pa.list_(_wide_field(kind.value_field, inferred=inferred))
    return kind


def _wide_field(field: pa.Field, *, inferred: bool) -> pa.Field:
    return field.with_type(_wide(field.type, inferred=inferred))
