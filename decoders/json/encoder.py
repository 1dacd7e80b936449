"""Encoder of JSON: one object per row, with all columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.decoders.columns.buffers import glued
from streamfactory.decoders.columns.rendering import (
    as_lists,
    listed,
    rendered,
)
from streamfactory.spi import MessageEncoder, SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Sequence

_CONTROL: Final = "[\\x00-\\x1f]"
_NULL: Final = "null"


class JsonEncoder(MessageEncoder):
    """Encodes each row as an object: nulls included, times ISO 8601, bytes base64."""

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        named = list(zip(rows.schema.names, rows.columns, strict=True))
        if not named:
            return pa.array([b"{}"] * rows.num_rows, pa.binary())
        return _object(named, "").cast(pa.binary())


def _object(named: Sequence[tuple[str, pa.Array]], path: str) -> pa.StringArray:
    parts: list[pa.Array | str] = []
    for index, (name, column) in enumerate(named):
        key = _quoted(pa.array([name]))[0].as_py()
        parts += [f"{',' if index else '{'}{key}:", _json(column, f"{path}{name}")]
    return glued(*parts, "}")


def _json(column: pa.Array, path: str) -> pa.StringArray:
    """The JSON of each value, ``null`` where it is null."""
    return pc.fill_null(_values(column, path), _NULL)


def _values(column: pa.Array, path: str) -> pa.StringArray:
    kind = column.type
    is_ = pa.types
    if is_.is_struct(kind):
        if not kind.num_fields:
            texts = pa.repeat("{}", len(column))
        else:
            names = [field.name for field in kind]
            texts = _object(list(zip(names, column.flatten(), strict=True)), f"{path}.")
        return pc.if_else(column.is_valid(), texts, None)
    if is_.is_map(kind):
        return _map(column, path)
    if is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind):
        if is_.is_fixed_size_list(kind):
            column = column.cast(pa.list_(kind.value_field))
        texts = _json(column.flatten(), f"{path}.")
        return glued("[", listed(column, texts, ","), "]")
    texts = rendered(column, path)
    if is_.is_dictionary(kind):
        kind = kind.value_type
    if is_.is_floating(kind):
        _check_finite(column, path)
    bare = is_.is_boolean(kind) or is_.is_integer(kind) or is_.is_decimal(kind)
    return texts if bare or is_.is_floating(kind) else _quoted(texts)


def _map(column: pa.MapArray, path: str) -> pa.StringArray:
    lists = as_lists(column)
    keys, items = lists.flatten().flatten()
    texts = glued(_quoted(rendered(keys, path)), ":", _json(items, f"{path}."))
    return glued("{", listed(lists, texts, ","), "}")


def _check_finite(column: pa.Array, path: str) -> None:
    if pc.all(pc.is_finite(column)).as_py() is False:
        msg = (
            f"column {path!r} contains NaN or an infinity, which JSON cannot represent"
        )
        raise SchemaMismatch(msg, remedy="replace it by null, or use another format")


def _quoted(texts: pa.StringArray) -> pa.StringArray:
    texts = pc.replace_substring(texts, "\\", "\\\\")
    texts = pc.replace_substring(texts, '"', '\\"')
    if pc.any(pc.match_substring_regex(texts, _CONTROL)).as_py():
        for code in range(0x20):
            texts = pc.replace_substring(texts, chr(code), f"\\u{code:04x}")
    return glued('"', texts, '"')
