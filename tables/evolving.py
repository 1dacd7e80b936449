"""Adds columns to tables that are written, and widens types: ``schema.contract``."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from streamfactory.conversion.evolution import evolved
from streamfactory.spi import SchemaMismatch
from streamfactory.tables.matching import bare

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_types = pa.types


class Step(NamedTuple):
    """A field that is added to a table, or whose type is widened."""

    path: tuple[str, ...]
    """Names of the columns and fields that it is within, then its own. ``element`` is
    within a list, ``value`` within a map."""
    field: pa.Field
    is_added: bool


def evolution(columns: pa.Schema, rows: pa.Schema, *, widens: bool) -> pa.Schema:
    """The columns of a table once it has those of rows, too; bare.

    Args:
        columns: Of the table.
        rows: Columns of the rows.
        widens: Whether types of the table can be widened.
    """
    wider = (_is_wider,) if widens else ()
    return pa.schema(evolved(list(bare(columns)), list(bare(rows)), *wider))


def steps(
    columns: Iterable[pa.Field], to: Iterable[pa.Field], within: tuple[str, ...] = ()
) -> Iterator[Step]:
    """What changes the columns of a table to those of `evolution`.

    Args:
        columns: Of the table.
        to: The same, and more.
        within: Names of the columns and fields that they are in.

    Raises:
        SchemaMismatch: permanent; an added name differs from another in the case only.
    """
    known = {field.name: field for field in columns}
    lower = {name.lower(): name for name in known}
    for field in to:
        path = (*within, field.name)
        if field.name in known:
            yield from _widened(known[field.name], field, path)
            continue
        other = lower.setdefault(field.name.lower(), field.name)
        if other != field.name:
            what = f"column {'.'.join(path)!r} cannot be added: the table has {other!r}"
            remedy = "rename one: other engines ignore the case of names"
            raise SchemaMismatch(what, remedy=remedy)
        yield Step(path, field, is_added=True)


def is_grown(have: pa.Field, want: pa.Field) -> bool:
    """Whether a field is another one with more nullable fields in it, or the same."""
    (found,) = evolved([have], [want])
    return bool(found.equals(want, check_metadata=True))


def _widened(have: pa.Field, want: pa.Field, path: tuple[str, ...]) -> Iterator[Step]:
    mine, other = have.type, want.type
    if _types.is_struct(mine):
        yield from steps(mine, other, path)
    elif _types.is_list(mine):
        yield from _widened(mine.value_field, other.value_field, (*path, "element"))
    elif _types.is_map(mine):
        yield from _widened(mine.item_field, other.item_field, (*path, "value"))
    elif mine != other:
        yield Step(path, want, is_added=False)


def _is_wider(have: pa.DataType, to: pa.DataType) -> bool:
    """Whether all formats widen a type to another."""
    if _types.is_signed_integer(have) and _types.is_signed_integer(to):
        return bool(to.bit_width > have.bit_width)
    if _types.is_decimal128(have) and _types.is_decimal128(to):
        return bool(to.scale == have.scale and to.precision > have.precision)
    return bool(_types.is_float32(have) and _types.is_float64(to))
