"""Finds the fields of rows that a declared schema lacks, at every depth."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from streamfactory.conversion.arrays import list_parts, run_places, union_parts

if TYPE_CHECKING:
    from collections.abc import Callable

    Mask = Callable[[pa.Array], np.ndarray]
    """Returns which values of an array have a value of the field."""


class Undeclared(NamedTuple):
    """A field that the declared type of its column or struct lacks."""

    path: str
    """Dotted."""
    mask: Mask
    column: str = ""
    """Name of the column that has it."""


def undeclared_columns(given: pa.Schema, declared: pa.Schema) -> list[Undeclared]:
    """Return the fields of rows that are not declared.

    Their masks take the column.
    """
    kinds = {field.name: field.type for field in declared}
    found = []
    for field in given:
        name = field.name
        within = [Undeclared(name, _is_valid)]
        if name in kinds:
            within = _of_type(field.type, kinds[name], name)
        found += [Undeclared(f.path, f.mask, name) for f in within]
    return found


def _of_type(have: pa.DataType, want: pa.DataType, path: str) -> list[Undeclared]:
    if have == want:
        return []
    types = pa.types
    mine, lift = _decoded(have)
    if lift is not None:
        return [
            Undeclared(inner.path, lift(inner.mask))
            for inner in _of_type(mine, _decoded(want)[0], path)
        ]
    want = _decoded(want)[0]
    if types.is_struct(have) and types.is_struct(want):
        return _of_struct(have, want, f"{path}.")
    if types.is_union(have) and types.is_union(want):
        return _of_union(have, want, path)
    if _is_listed(have) and _is_listed(want):
        return _of_lists(have, want, path)
    return []


def _of_struct(have: pa.DataType, want: pa.DataType, parent: str) -> list[Undeclared]:
    found = []
    for number, field in enumerate(have):
        path, at = f"{parent}{field.name}", want.get_field_index(field.name)
        if field.name not in want.names:
            found.append(Undeclared(path, _of_child(number, _is_valid)))
        elif at >= 0:
            inner = _of_type(field.type, want.field(at).type, path)
            found += [Undeclared(f.path, _of_child(number, f.mask)) for f in inner]
    return found


def _of_lists(have: pa.DataType, want: pa.DataType, path: str) -> list[Undeclared]:
    name = want.value_field.name if not pa.types.is_map(want) else ""
    inner = _of_type(_entries(have), _entries(want), f"{path}.{name}".rstrip("."))
    return [Undeclared(f.path, _of_values(f.mask)) for f in inner]


def _of_union(have: pa.DataType, want: pa.DataType, path: str) -> list[Undeclared]:
    kinds = {field.name: field.type for field in want}
    return [
        Undeclared(f.path, _of_choice(number, f.mask))
        for number, field in enumerate(have)
        if field.name in kinds
        for f in _of_type(field.type, kinds[field.name], f"{path}.{field.name}")
    ]


# --- masks ----------------------------------------------------------------------------


def _is_valid(array: pa.Array) -> np.ndarray:
    found: np.ndarray = array.is_valid().to_numpy(zero_copy_only=False)
    return found


def _of_child(number: int, mask: Mask) -> Mask:
    return lambda array: mask(array.flatten()[number])


def _of_values(mask: Mask) -> Mask:
    def of(array: pa.Array) -> np.ndarray:
        lengths, values = list_parts(array)
        parents = np.repeat(np.arange(len(array)), lengths)
        found = np.zeros(len(array), bool)
        found[parents[mask(values)]] = True
        return found

    return of


def _of_choice(number: int, mask: Mask) -> Mask:
    def of(array: pa.Array) -> np.ndarray:
        found = np.zeros(len(array), bool)
        for index, rows, values in union_parts(array):
            if index == number:
                found[rows[mask(values)]] = True
        return found

    return of


def _of_words(mask: Mask) -> Mask:
    def of(array: pa.Array) -> np.ndarray:
        found = np.append(mask(array.dictionary), False)
        places = array.indices.cast(pa.int64()).fill_null(-1).to_numpy()
        chosen: np.ndarray = found[places]
        return chosen

    return of


def _of_runs(mask: Mask) -> Mask:
    return lambda array: mask(array.values)[run_places(array)]


def _of_storage(mask: Mask) -> Mask:
    return lambda array: mask(array.storage)


# --- types ----------------------------------------------------------------------------


def _decoded(kind: pa.DataType) -> tuple[pa.DataType, Callable[[Mask], Mask] | None]:
    """Return the type of the values of an encoding, and the mask of its arrays."""
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type, _of_storage
    if pa.types.is_dictionary(kind):
        return kind.value_type, _of_words
    if pa.types.is_run_end_encoded(kind):
        return kind.value_type, _of_runs
    return kind, None


def _is_listed(kind: pa.DataType) -> bool:
    types = pa.types
    nested = types.is_nested(kind) and not types.is_run_end_encoded(kind)
    return nested and not types.is_struct(kind) and not types.is_union(kind)


def _entries(kind: pa.DataType) -> pa.DataType:
    """Return the type of what a list has; a map has structs."""
    if pa.types.is_map(kind):
        return pa.struct([kind.key_field, kind.item_field])
    return kind.value_type
