"""Writers' schemas of events in Avro: the columns of the table, and their encodings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.decoders.avro.schemas import SchemaRefused
from streamfactory.decoders.debezium.encodings import Encoding, by_schema, natural

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.decoders.avro.schemas import Node

STATES: Final = ("before", "after")


def connect_columns(text: str) -> dict[str, Mapping[str, Any]]:
    """The Connect schemas of a table's columns, by name, of an envelope's schema.

    Raises:
        SchemaRefused: The schema is not that of a change event.
    """
    try:
        parts = {one["name"]: one["type"] for one in json.loads(text)["fields"]}
        rows = [_branch(parts[name]) for name in STATES]
        row = next(one for one in rows if isinstance(one, dict))
        return {one["name"]: _connect(one["type"]) for one in row["fields"]}
    except (KeyError, TypeError, ValueError, StopIteration, RecursionError):
        msg = "it is not the schema of a change event"
        raise SchemaRefused(msg) from None


def _branch(kind: Any) -> Any:
    """The type of a union beside null."""
    if isinstance(kind, list):
        return next((one for one in kind if one != "null"), "null")
    return kind


def _connect(kind: Any) -> dict[str, Any]:
    kind = _branch(kind)
    if not isinstance(kind, dict):
        return {"type": kind}
    found = {
        "type": kind["type"],
        "name": kind.get("connect.name"),
        "parameters": kind.get("connect.parameters") or {},
    }
    if kind["type"] == "array":
        found["items"] = _connect(kind["items"])
    return found


def row_of(envelope: Node) -> Node:
    """The record of the table's columns.

    Raises:
        SchemaRefused: The schema is not that of a change event.
    """
    parts = dict(zip(envelope.names, envelope.children, strict=True))
    found = parts.get("after", envelope)
    if found.kind == "option":
        found = found.children[1 - found.null_at]
    if found.kind != "record" or found is envelope or "op" not in parts:
        msg = "it is not the schema of a change event"
        raise SchemaRefused(msg)
    return found


def table_of(envelope: Node, text: str) -> pa.Schema:
    """The columns of the table, with the types that their values stand for."""
    row, columns = row_of(envelope), connect_columns(text)
    return pa.schema(
        [
            pa.field(name, natural(columns[name], child.arrow), child.nullable)
            for name, child in zip(row.names, row.children, strict=True)
        ]
    )


def encodings_of(
    envelope: Node, text: str, table: pa.Schema, options: Mapping[str, Any]
) -> list[Encoding]:
    """How the columns of a table are encoded in the events of a schema."""
    row, columns = row_of(envelope), connect_columns(text)
    have = dict(zip(row.names, row.children, strict=True))
    return [
        _encoding(columns[one.name], have[one.name].arrow, one.type, options)
        if one.name in have
        else Encoding(one.type)
        for one in table
    ]


def _encoding(
    schema: Mapping[str, Any],
    have: pa.DataType,
    want: pa.DataType,
    options: Mapping[str, Any],
) -> Encoding:
    types = pa.types
    logical = types.is_temporal(have) or types.is_decimal(have)
    found = Encoding(have) if logical else by_schema(schema, want, options)
    if found.convert is not None:
        return found
    return Encoding(have) if have == want else Encoding(have, fit)


def fit(column: pa.Array, want: pa.DataType) -> pa.Array:
    """Cast at every depth; structs by the names of their fields."""
    have, types = column.type, pa.types
    if have == want:
        return column
    if types.is_struct(have) and types.is_struct(want):
        children = [
            fit(pc.struct_field(column, one.name), one.type)
            if one.name in have.names
            else pa.nulls(len(column), one.type)
            for one in want
        ]
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(want), mask=mask)
    if types.is_list(have) and types.is_list(want):
        lengths = np.asarray(pc.fill_null(pc.list_value_length(column), 0))
        places = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
        mask = column.is_null() if column.null_count else None
        values = fit(column.flatten(), want.value_type)
        return pa.ListArray.from_arrays(places, values, type=want, mask=mask)
    try:
        return column.cast(want)
    except pa.ArrowNotImplementedError:
        msg = f"{have} cannot be {want}"
        raise pa.ArrowInvalid(msg) from None
