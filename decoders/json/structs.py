"""Decoding of JSON with msgspec: a class per schema, and columns from its instances.

Columns have the JSON form of their type: text for times and bytes, 64-bit integers and
doubles for numbers. `columns.casting` casts them to the schema, as for the other
formats.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Build = Callable[[Sequence[Any]], pa.Array]
    Getter = tuple[Callable[[Sequence[Any]], list[Any]], Build]

FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
"""Decodes the field names of a message and leaves the values undecoded."""
_INTEGER: Final = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_FLOAT: Final = float | Literal["NaN", "Infinity", "-Infinity"]
"""JSON has no number for three of the floating-point values."""
_KEY: Final = int | float | bool | str
_NONE: Final = type(None)
_FLAT: Final = {
    bool: pa.bool_(),
    _INTEGER: pa.int64(),
    _FLOAT: pa.float64(),
    str: pa.string(),
}
"""Types of columns by what msgspec decodes."""


class Structs:
    """A msgspec decoder for messages of a schema, and the conversion to columns.

    Args:
        schema: The decoder's schema.
        strict_fields: Whether an undeclared field is an error.
        all_fields: Whether a missing field is an error.
        numbers_as_text: Whether numbers may be in quotes.
        numeric_times: Whether timestamps may be integers.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        strict_fields: bool,
        all_fields: bool,
        numbers_as_text: bool,
        numeric_times: bool,
    ) -> None:
        self._schema = schema
        self._strict_fields = strict_fields
        self._all_fields = all_fields
        self._numbers_as_text = numbers_as_text
        self._numeric_times = numeric_times
        self._row, self._columns = self._struct(list(schema))
        self.decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(self._row)
        self._members = [
            (field.name, msgspec.json.Decoder(member.type), member.default)
            for field, member in zip(
                schema, msgspec.structs.fields(self._row), strict=True
            )
        ]

    def salvage(self, text: memoryview) -> tuple[Any, list[int], bool]:
        """Decode a message; values that do not fit become null.

        Returns:
            The row, the indices of the columns that became null, and whether the
            message has an undeclared field.

        Raises:
            msgspec.DecodeError: The message is not an object, or has missing or
                undeclared fields where that is an error.
        """
        found, values, wrong = FIELDS.decode(text), [], []
        names = {name for name, _, _ in self._members}
        undeclared = not found.keys() <= names
        lacking = self._all_fields and not names <= found.keys()
        if lacking or (undeclared and self._strict_fields):
            msg = "the fields are not those of the schema"
            raise msgspec.ValidationError(msg)
        for index, (name, decoder, default) in enumerate(self._members):
            value = None if default is msgspec.NODEFAULT else default
            if name in found:
                try:
                    value = decoder.decode(found[name])
                except msgspec.MsgspecError:
                    wrong.append(index)
            values.append(value)
        return self._row(*values), wrong, undeclared

    @property
    def flat(self) -> dict[str, pa.DataType] | None:
        """The type of each of `columns`, if every value is what JSON calls it.

        None if there are nested values, numbers that are kept as text, or values of
        several types.
        """
        found = {
            field.name: _FLAT.get(self._type(field.type)[0]) for field in self._schema
        }
        return None if None in found.values() else found

    def columns(self, rows: Sequence[Any]) -> list[pa.Array]:
        """The columns of decoded messages."""
        return [build(values(rows)) for values, build in self._columns]

    def _struct(self, fields: Sequence[pa.Field]) -> tuple[Any, list[Getter]]:
        members: list[Any] = []
        columns: list[Getter] = []
        names = {}
        for index, field in enumerate(fields):
            kind, build = self._type(field.type)
            name = f"f{index}"
            names[name] = field.name
            missing = msgspec.Raw() if kind is msgspec.Raw else None
            wanted = kind if kind is msgspec.Raw else kind | _NONE
            members.append(
                (name, wanted) if self._all_fields else (name, wanted, missing)
            )
            columns.append((_member(index), build))
        made = msgspec.defstruct(
            "Row",
            members,
            rename=names,
            gc=False,
            forbid_unknown_fields=self._strict_fields,
        )
        return made, columns

    def _type(self, kind: pa.DataType) -> tuple[Any, Build]:
        """The Python type to decode, and a function that builds a column of it."""
        is_ = pa.types
        if is_.is_struct(kind):
            made, columns = self._struct(list(kind))
            return made, lambda values: _structs(values, kind, columns)
        if is_.is_map(kind):
            item, build = self._type(kind.item_type)
            item = item if item is msgspec.Raw else item | _NONE
            pair = tuple.__class_getitem__((_KEY, item))
            made = dict.__class_getitem__((str, item)) | list.__class_getitem__(pair)
            return made, lambda values: _maps(values, build)
        if is_.is_list(kind) or is_.is_large_list(kind):
            item, build = self._type(kind.value_type)
            item = item if item is msgspec.Raw else item | _NONE
            return list.__class_getitem__(item), lambda values: _lists(values, build)
        if is_.is_boolean(kind):
            return bool, lambda values: pa.array(values, pa.bool_())
        if is_.is_decimal(kind) or kind == pa.uint64():
            return msgspec.Raw, _tokens
        if is_.is_integer(kind):
            return self._number(_INTEGER, _integers)
        if is_.is_floating(kind):
            return self._number(_FLOAT, _floats)
        if is_.is_timestamp(kind) and self._numeric_times:
            return _INTEGER | str, _mixed
        return str, lambda values: pa.array(values, pa.string())

    def _number(self, kind: Any, build: Build) -> tuple[Any, Build]:
        return (kind | str, _mixed) if self._numbers_as_text else (kind, build)


def _member(index: int) -> Callable[[Sequence[Any]], list[Any]]:
    """A function that lists one member of all rows. Generated code: twice as fast."""
    made: Callable[[Sequence[Any]], list[Any]] = eval(  # noqa: S307, of a number
        f"lambda rows: [row.f{index} for row in rows]"
    )
    return made


def _integers(values: Sequence[int | None]) -> pa.Array:
    try:
        return pa.array(np.fromiter(values, np.int64, len(values)))
    except TypeError:  # one is null
        return pa.array(values, pa.int64())


def _floats(values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values, pa.float64())
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # one is a text
        numbers = [None if value is None else float(value) for value in values]
        return pa.array(numbers, pa.float64())


def _mixed(values: Iterable[Any]) -> pa.Array:
    """Numbers and texts, all as text."""
    texts = [None if value is None else str(value) for value in values]
    return pa.array(texts, pa.string())


def _tokens(values: Iterable[Any]) -> pa.Array:
    """Numbers as text, for types with more digits than 64-bit numbers."""
    return pa.array([_token(bytes(value)) for value in values], pa.string())


def _token(raw: bytes) -> str | None:
    if raw in (b"", b"null"):
        return None
    if raw[:1] == b'"':
        return str(msgspec.json.decode(raw))
    return raw.decode()


def _structs(
    values: Sequence[Any],
    kind: pa.DataType,
    columns: Sequence[Getter],
) -> pa.Array:
    names = [field.name for field in kind]
    nulls = _nulls(values)
    if nulls is None:
        children = [build(get(values)) for get, build in columns]
        return pa.StructArray.from_arrays(children, names=names)
    valid = [value for value in values if value is not None]
    at = pa.array(np.cumsum(~nulls) - 1, pa.int64(), mask=nulls)
    children = [build(get(valid)).take(at) for get, build in columns]
    return pa.StructArray.from_arrays(children, names=names, mask=pa.array(nulls))


def _lists(values: Sequence[Any], build: Build) -> pa.Array:
    filled, mask = _filled(values, ())
    found = build(list(chain.from_iterable(filled)))
    return pa.ListArray.from_arrays(_offsets(filled), found, mask=mask)


def _maps(values: Sequence[Any], build: Build) -> pa.Array:
    """Maps, of objects or of arrays of keys and values: not all keys are text."""
    filled, mask = _filled(values, {})
    pairs = [one.items() if isinstance(one, dict) else one for one in filled]
    keys = pa.array([_key(key) for key, _ in chain.from_iterable(pairs)], pa.string())
    items = build([item for _, item in chain.from_iterable(pairs)])
    kind = pa.map_(pa.string(), items.type)
    return pa.MapArray.from_arrays(_offsets(filled), keys, items, type=kind, mask=mask)


def _key(key: str | float) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key)


def _filled(values: Sequence[Any], empty: Any) -> tuple[Sequence[Any], pa.Array | None]:
    """Lists or maps with empty ones for nulls, and the mask of nulls, if any."""
    nulls = _nulls(values)
    if nulls is None:
        return values, None
    return [empty if value is None else value for value in values], pa.array(nulls)


def _nulls(values: Sequence[Any]) -> np.ndarray | None:
    """The mask of nulls; None if there is none."""
    nulls = [value is None for value in values]
    return np.array(nulls) if any(nulls) else None


def _offsets(values: Sequence[Any]) -> pa.Array:
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
