"""Differences between two schemas, for messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from streamfactory.spi.ddl import type_text

if TYPE_CHECKING:
    from collections.abc import Iterable


def schema_difference(
    have: pa.Schema, want: pa.Schema, owner: str = "the declared schema"
) -> str | None:
    """Return the first difference between two schemas; None if there is none.

    Columns are named by their dotted path: ``order.items.element.price``. Metadata is
    not compared.

    Args:
        have: The given schema.
        want: The expected schema.
        owner: What has the expected schema, for the message.
    """
    if have.equals(want):
        return None
    found = _fields_differ(have, want, "", owner)
    return found or f"the schema is {have}, not {want}"


def _fields_differ(
    have: Iterable[pa.Field], want: Iterable[pa.Field], path: str, owner: str
) -> str | None:
    found, wanted = list(have), list(want)
    names = [field.name for field in found]
    for field in wanted:
        if field.name not in names:
            return f"column {path + field.name!r} is missing"
    known = [field.name for field in wanted]
    for name in names:
        if name not in known:
            return f"column {path + name!r} is not in {owner}"
    if names != known:
        where = f" of {path.rstrip('.')!r}" if path else ""
        return f"the columns{where} are in the order {names}, not {known}"
    for one, other in zip(found, wanted, strict=True):
        if text := _field_differs(one, other, path + one.name, owner):
            return text
    return None


def _field_differs(have: pa.Field, want: pa.Field, path: str, owner: str) -> str | None:
    if have.equals(want):
        return None
    if have.nullable != want.nullable:
        words = {True: "nullable", False: "required"}
        return f"column {path!r} is {words[have.nullable]}, not {words[want.nullable]}"
    if have.type.id == want.type.id and have.type.num_fields == want.type.num_fields:
        one, other = _children(have.type), _children(want.type)
        if pa.types.is_struct(have.type):
            found = _fields_differ(one, other, path + ".", owner)
        else:
            # Names of the children of lists and maps carry no meaning.
            pairs = zip(one, other, strict=True)
            differing = (
                _field_differs(a, b, f"{path}.{b.name}", owner) for a, b in pairs
            )
            found = next(filter(None, differing), None)
        if found:
            return found
    return f"column {path!r} is {type_text(have.type)}, not {type_text(want.type)}"


def _children(kind: pa.DataType) -> list[pa.Field]:
    count = 0 if pa.types.is_dictionary(kind) else kind.num_fields
    return [kind.field(number) for number in range(count)]
