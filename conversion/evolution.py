"""Adds the fields that rows have to declared columns, at every depth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Widens = Callable[[pa.DataType, pa.DataType], bool]
    """Whether the first type, a declared one, is replaced by the second."""

_types = pa.types


def _never(declared: pa.DataType, found: pa.DataType) -> bool:  # noqa: ARG001
    """Types stay as they are declared."""
    return False


def evolved(
    declared: Sequence[pa.Field],
    found: Sequence[pa.Field],
    widens: Widens = _never,
) -> list[pa.Field]:
    """Return the declared fields, with those that only the others have appended.

    Fields of structs within columns, lists and values of maps are appended, too. What
    is appended is nullable. Declared fields keep name, place, nullability and metadata.

    Args:
        declared: Columns, or fields of a struct.
        found: Those of rows.
        widens: Which types without children are replaced by those of rows.
    """
    others = {field.name: field for field in found}
    names = {field.name for field in declared}
    kept = [
        field.with_type(_evolved_type(field.type, others[field.name].type, widens))
        if field.name in others
        else field
        for field in declared
    ]
    added = [field.with_nullable(True) for field in found if field.name not in names]
    return kept + added


def _evolved_type(
    declared: pa.DataType, found: pa.DataType, widens: Widens
) -> pa.DataType:
    if _types.is_struct(declared) and _types.is_struct(found):
        return pa.struct(evolved(list(declared), list(found), widens))
    if _types.is_map(declared) and _types.is_map(found):
        item = _evolved_type(declared.item_type, found.item_type, widens)
        return pa.map_(declared.key_field, declared.item_field.with_type(item))
    for is_one, make in (
        (_types.is_list, pa.list_),
        (_types.is_large_list, pa.large_list),
    ):
        if is_one(declared) and is_one(found):
            value = _evolved_type(declared.value_type, found.value_type, widens)
            return make(declared.value_field.with_type(value))
    return found if widens(declared, found) else declared
