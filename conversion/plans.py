"""Plans the conversion of arrays from one type to another, at every depth (rule D4).

A plan is made once per pair of types and applied to many arrays. Children of structs
are matched by name, as columns are; elements of lists, keys and items of maps, values
of dictionaries and runs, and children of unions are converted by the rules of columns.
The rest of the framework uses `conform`.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, final

import numpy as np
import pyarrow as pa

from streamfactory.conversion.arrays import (
    is_list_or_fixed,
    list_of_entries,
    list_parts,
    run_places,
    union_parts,
)
from streamfactory.conversion.leaves import leaf_cast, leaf_refusal
from streamfactory.spi import SchemaMismatch
from streamfactory.spi.causes import first_line
from streamfactory.spi.computing import pc
from streamfactory.spi.ddl import named_in_ddl, type_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Step = Callable[[pa.Array], pa.Array]
    """Converts an array; raises SchemaMismatch for a value that does not fit."""

LISTED: Final = 100
"""Maximum number of columns in a message."""
_FAULTS: Final = (
    pa.ArrowInvalid,
    pa.ArrowNotImplementedError,
    pa.ArrowTypeError,
    pa.ArrowCapacityError,
)
_types = pa.types


def apply(step: Step | None, array: pa.Array) -> pa.Array:
    """Convert an array; None is no change."""
    return array if step is None else step(array)


class Place(NamedTuple):
    """A column or a child, as messages name it."""

    path: str
    """Its dotted path."""
    have: pa.DataType
    want: pa.DataType

    def child(self, name: str, have: pa.DataType, want: pa.DataType) -> Place:
        """Return the place of a child."""
        return Place(f"{self.path}.{name}", have, want)

    def refuse(self, reason: str, cause: Exception | None = None) -> NoReturn:
        """Raise because a value, or every value, does not fit."""
        kinds = f"{type_text(self.have)}, declared {type_text(self.want)}"
        msg = f"column {self.path!r} is {kinds}: {reason}"
        error = SchemaMismatch(msg)
        error.column = self.path
        raise error from cause

    def guard(self, step: Step) -> Step:
        """Return a step whose errors name the place."""

        def convert(array: pa.Array) -> pa.Array:
            try:
                return step(array)
            except _FAULTS as error:
                self.refuse(named_in_ddl(first_line(error)), error)

        return convert


@final
class Planner:
    """Makes plans.

    Args:
        drops: Whether fields that are not declared are dropped; otherwise they are
            errors.
    """

    def __init__(self, *, drops: bool = False) -> None:
        self._drops = drops

    def match(
        self, names: Sequence[str], wanted: Sequence[pa.Field], parent: str = ""
    ) -> list[int | None]:
        """Return for each wanted field the number of the given one of its name.

        None stands for a missing one, whose values are null.

        Args:
            names: Of the given columns, or children.
            wanted: The declared ones.
            parent: The dotted path of a struct with a trailing dot; empty for columns.

        Raises:
            SchemaMismatch: permanent; a name is unknown or given twice, or a field is
                missing but not nullable.
        """
        declared = {field.name for field in wanted}
        unknown = [f"{parent}{name}" for name in names if name not in declared]
        if unknown and not self._drops:
            _refuse_unknown(unknown)
        counts = Counter(names)
        places = {name: index for index, name in enumerate(names)}
        found: list[int | None] = []
        for field in wanted:
            path, count = f"{parent}{field.name}", counts[field.name]
            if count > 1:
                msg = f"the rows have {count} columns named {path!r}"
                raise SchemaMismatch(msg)
            if not count and not field.nullable:
                msg = f"column {path!r} is missing, but not nullable"
                raise SchemaMismatch(msg)
            found.append(places[field.name] if count else None)
        return found

    def plan(self, path: str, have: pa.DataType, want: pa.DataType) -> Step | None:
        """Return the conversion of a column; None if its type is the declared one.

        Args:
            path: The dotted path, for messages.
            have: The given type.
            want: The declared type.

        Raises:
            SchemaMismatch: permanent; no array of the type can be converted.
        """
        return self._plan(have, want, Place(path, have, want))

    def _child(
        self, at: Place, name: str, have: pa.DataType, want: pa.DataType
    ) -> Step | None:
        return self._plan(have, want, at.child(name, have, want))

    def _plan(self, have: pa.DataType, want: pa.DataType, at: Place) -> Step | None:
        """Return the conversion of a place, or of what encodes its values."""
        if have == want:
            return None
        if _types.is_null(have):
            return lambda array: pa.nulls(len(array), want)
        for belongs, make in self._encodings:
            if belongs(have) or belongs(want):
                return make(self, have, want, at)
        if _types.is_struct(have) and _types.is_struct(want):
            return self._struct(have, want, at)
        if _are_lists(have, want):
            return self._list(have, want, at)
        reason = leaf_refusal(have, want)
        if reason is not None:
            at.refuse(reason)
        return at.guard(leaf_cast(have, want))

    # --- encodings ----------------------------------------------------------------

    def _extension(
        self, have: pa.DataType, want: pa.DataType, at: Place
    ) -> Step | None:
        if _is_extension(have) and _is_extension(want):
            at.refuse("they are different extension types")
        if _is_extension(have):
            step = self._plan(have.storage_type, want, at)
            return lambda array: apply(step, array.storage)
        step = self._plan(have, want.storage_type, at)
        return lambda array: pa.ExtensionArray.from_storage(want, apply(step, array))

    def _dictionary(self, have: pa.DataType, want: pa.DataType, at: Place) -> Step:
        was, becomes = _types.is_dictionary(have), _types.is_dictionary(want)
        if becomes and want.ordered and not (was and have.ordered):
            at.refuse("the order of its values is unknown")
        value = have.value_type if was else have
        values = self._plan(value, want.value_type if becomes else want, at)
        shared = was and becomes and have.index_type == want.index_type

        def convert(array: pa.Array) -> pa.Array:
            if shared:
                with suppress(SchemaMismatch):  # a value at fault may be of no row
                    words = apply(values, array.dictionary)
                    return _dictionary_of(array.indices, words, want)
            if was:
                array = array.dictionary.take(array.indices)
            array = apply(values, array)
            if not becomes:
                return array
            encoded = array.dictionary_encode()
            indices = encoded.indices.cast(want.index_type)
            return _dictionary_of(indices, encoded.dictionary, want)

        return at.guard(convert)

    def _runs(self, have: pa.DataType, want: pa.DataType, at: Place) -> Step:
        was, becomes = map(_types.is_run_end_encoded, (have, want))
        value = have.value_type if was else have
        values = self._plan(value, want.value_type if becomes else want, at)

        def convert(array: pa.Array) -> pa.Array:
            if not was:
                plain = apply(values, array)
                return pc.run_end_encode(plain, run_end_type=want.run_end_type)
            first, count = array.find_physical_offset(), array.find_physical_length()
            found = apply(values, array.values.slice(first, count))
            if not becomes:
                return found.take(pa.array(run_places(array) - first))
            ends = array.run_ends.to_numpy()[first : first + count].astype(np.int64)
            ends = np.minimum(ends - array.offset, len(array))
            made = pa.array(ends).cast(want.run_end_type)
            return pa.RunEndEncodedArray.from_arrays(made, found, type=want)

        return at.guard(convert)

    def _union(self, have: pa.DataType, want: pa.DataType, at: Place) -> Step:
        if not (_types.is_union(have) and _types.is_union(want)):
            at.refuse("only one of them is a union")
        given, fields = list(have), list(want)
        names = [field.name for field in fields]
        unknown = [f"{at.path}.{f.name}" for f in given if f.name not in names]
        if unknown:  # dropped, the row would have no value of the union
            _refuse_unknown(unknown)
        if len(set(names)) < len(names):
            at.refuse("children of a union have the same name")
        places = [names.index(field.name) for field in given]
        if len(set(places)) < len(places):
            at.refuse("children of a union have the same name")
        steps = [
            self._child(at, field.name, field.type, fields[place].type)
            for field, place in zip(given, places, strict=True)
        ]

        def convert(array: pa.Array) -> pa.Array:
            parts = [
                (places[index], rows, apply(steps[index], values))
                for index, rows, values in union_parts(array)
            ]
            return _union_of(parts, len(array), want)

        return at.guard(convert)

    _encodings: Final = (
        (lambda kind: isinstance(kind, pa.BaseExtensionType), _extension),
        (_types.is_dictionary, _dictionary),
        (_types.is_run_end_encoded, _runs),
        (_types.is_union, _union),
    )

    # --- nested types -------------------------------------------------------------

    def _struct(self, have: pa.DataType, want: pa.DataType, at: Place) -> Step:
        given, fields = list(have), list(want)
        found = self.match([f.name for f in given], fields, f"{at.path}.")
        steps = [
            None
            if index is None
            else self._child(at, field.name, given[index].type, field.type)
            for index, field in zip(found, fields, strict=True)
        ]

        def convert(array: pa.Array) -> pa.Array:
            # What is stored below a null struct is no value.
            parts = array.flatten() if array.null_count else _fields(array)
            children = [
                pa.nulls(len(array), field.type)
                if index is None
                else apply(step, parts[index])
                for index, step, field in zip(found, steps, fields, strict=True)
            ]
            return _struct_of(array, children, want)

        return at.guard(convert)

    def _list(self, have: pa.DataType, want: pa.DataType, at: Place) -> Step:
        """Lists of all kinds, and maps: these are lists of entries."""
        step: Step | None
        if _types.is_map(want):
            step = self._entries(have, want, at)
        else:
            value = pa.struct(_pair(have)) if _types.is_map(have) else have.value_type
            step = self._child(at, want.value_field.name, value, want.value_type)
        kind = _offset_type(want)
        keeps_offsets = _offset_type(have) is not None and kind is not None

        def convert(array: pa.Array) -> pa.Array:
            if keeps_offsets and not array.offset and len(array):
                values = _exact_values(array)
                if values is not None:
                    valid, offsets = array.buffers()[0], array.offsets.cast(kind)
                    return pa.Array.from_buffers(
                        want,
                        len(array),
                        [valid, offsets.buffers()[1]],
                        children=[apply(step, values)],
                    )
            lengths, values = list_parts(array)
            mask = array.is_null() if array.null_count else None
            return _list_of(lengths, apply(step, values), mask, want)

        return at.guard(convert)

    def _entries(self, have: pa.DataType, want: pa.DataType, at: Place) -> Step:
        steps = [
            self._child(at, other.name, mine.type, other.type)
            for mine, other in zip(_pair(have), _pair(want), strict=True)
        ]
        kind = pa.struct(_pair(want))

        def convert(entries: pa.Array) -> pa.Array:
            parts = zip(steps, _fields(entries), strict=True)
            return _struct_of(entries, [apply(*part) for part in parts], kind)

        return convert


# --- building of arrays ---------------------------------------------------------------


def _dictionary_of(indices: pa.Array, words: pa.Array, want: pa.DataType) -> pa.Array:
    return pa.DictionaryArray.from_arrays(indices, words, ordered=want.ordered)


def _struct_of(
    array: pa.Array, children: Sequence[pa.Array], want: pa.DataType
) -> pa.Array:
    """Return a struct with the nulls of another."""
    bitmap = array.buffers()[0] if array.null_count else None
    if bitmap is not None and array.offset:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(want, len(array), [bitmap], children=list(children))


def _list_of(
    lengths: np.ndarray, values: pa.Array, mask: pa.Array | None, want: pa.DataType
) -> pa.Array:
    """Return lists of any kind, or maps.

    Args:
        lengths: Of each list; 0 for null.
        values: Of all lists, in order.
        mask: True for null; None without nulls.
        want: The type.
    """
    if _types.is_fixed_size_list(want):
        return _fixed_size_list_of(lengths, values, mask, want)
    edges = np.concatenate([[0], np.cumsum(lengths)])
    is_large = _types.is_large_list(want) or _types.is_large_list_view(want)
    offsets = pa.array(edges).cast(pa.int64() if is_large else pa.int32())
    if _types.is_list_view(want) or _types.is_large_list_view(want):
        made = pa.LargeListViewArray if is_large else pa.ListViewArray
        sizes = pa.array(lengths, offsets.type)
        return made.from_arrays(offsets[:-1], sizes, values, type=want, mask=mask)
    if _types.is_map(want):
        parts = _fields(values)
        return pa.MapArray.from_arrays(offsets, *parts, type=want, mask=mask)
    made = pa.LargeListArray if is_large else pa.ListArray
    return made.from_arrays(offsets, values, type=want, mask=mask)


def _fixed_size_list_of(
    lengths: np.ndarray, values: pa.Array, mask: pa.Array | None, want: pa.DataType
) -> pa.Array:
    size, valid = want.list_size, np.ones(len(lengths), bool)
    if mask is not None:
        valid = ~mask.to_numpy(zero_copy_only=False)
    if (lengths[valid] != size).any():
        msg = f"some lists do not have {size} values"
        raise pa.ArrowInvalid(msg)
    if mask is not None:  # a null list has as many values as the others
        places = np.full((len(lengths), size), -1)
        places[valid] = np.arange(len(values)).reshape(-1, size)
        flat = places.ravel()
        values = values.take(pa.array(flat, mask=flat < 0))
    return pa.FixedSizeListArray.from_arrays(values, type=want, mask=mask)


def _union_of(
    parts: Sequence[tuple[int, np.ndarray, pa.Array]], count: int, want: pa.DataType
) -> pa.Array:
    """Return a union.

    Args:
        parts: Numbers of children, the rows that have a value of them, and the values.
        count: The number of rows.
        want: The type.
    """
    dense = want.mode == "dense"
    codes, places = np.zeros(count, np.int8), np.zeros(count, np.int32)
    children = [pa.nulls(0 if dense else count, field.type) for field in want]
    for number, rows, values in parts:
        codes[rows], places[rows] = want.type_codes[number], np.arange(len(rows))
        children[number] = values
        if not dense:
            index = np.full(count, -1)
            index[rows] = np.arange(len(rows))
            children[number] = values.take(pa.array(index, mask=index < 0))
    buffers = [None, pa.py_buffer(codes), *([pa.py_buffer(places)] if dense else [])]
    return pa.Array.from_buffers(want, count, buffers, children=children)


# --- types ----------------------------------------------------------------------------


def _are_lists(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether lists of a type can become lists of another.

    A map is a list of entries, but a list of entries is no map.
    """
    if _types.is_map(want):
        return bool(_types.is_map(have))
    return is_list_or_fixed(want) and (is_list_or_fixed(have) or _types.is_map(have))


def _is_extension(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.BaseExtensionType)


def _pair(kind: pa.DataType) -> tuple[pa.Field, pa.Field]:
    """Return the fields of a map's entries."""
    return kind.key_field, kind.item_field


def _offset_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the type of the offsets of lists that are stored one after another.

    None for lists that are stored otherwise.
    """
    if _types.is_list(kind) or _types.is_map(kind):
        return pa.int32()
    return pa.int64() if _types.is_large_list(kind) else None


def _fields(array: pa.Array) -> list[pa.Array]:
    return [array.field(number) for number in range(array.type.num_fields)]


def _exact_values(array: pa.Array) -> pa.Array | None:
    """Return the values of lists that start at the first value and have no gaps.

    None for others: the offsets of these lists cannot be kept.
    """
    if _types.is_map(array.type):
        array = list_of_entries(array)
    values, end = array.values, array.offsets[-1].as_py()
    if array.offsets[0].as_py() or (array.null_count and len(array.flatten()) != end):
        return None
    return values.slice(0, end)


# --- refusals -------------------------------------------------------------------------


def _refuse_unknown(paths: Sequence[str]) -> NoReturn:
    msg = f"column {paths[0]!r} is not in the declared schema"
    if len(paths) > 1:
        more = len(paths) - LISTED
        listed = ", ".join(map(repr, paths[:LISTED]))
        listed += f" and {more} more" if more > 0 else ""
        msg = f"columns {listed} are not in the declared schema"
    raise SchemaMismatch(msg)
