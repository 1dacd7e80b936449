"""Inference of schemas from samples, for review by a user."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from streamfactory.decoders.columns.casting import Casting

if TYPE_CHECKING:
    from collections.abc import Callable


def declarable(schema: pa.Schema, fits: Callable[[pa.Schema], bool]) -> pa.Schema:
    """An inferred schema, restricted to types that can be declared.

    Columns with only nulls become text. A timestamp gets the first of UTC, no zone and
    text with which the sample decodes. All columns are nullable, because a sample
    cannot prove otherwise.

    Args:
        schema: The schema that a library inferred.
        fits: Whether the sample decodes with a schema of one column.
    """
    fields = []
    for field in schema:
        kinds = (pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.string())
        tried = [pa.field(field.name, _declarable(field.type, kind)) for kind in kinds]
        if tried[0] != tried[-1]:
            tried = [one for one in tried if fits(pa.schema([one]))] or tried[-1:]
        fields.append(tried[0])
    return pa.schema(fields)


def fitting(texts: pa.RecordBatch) -> pa.Schema:
    """For each text column, the first type that all its values cast to."""
    kinds = (
        pa.int64(),
        pa.float64(),
        pa.bool_(),
        pa.date32(),
        pa.timestamp("us", "UTC"),
        pa.timestamp("us"),
    )
    fields = []
    for name, column in zip(texts.schema.names, texts.columns, strict=True):
        tried = (pa.field(name, kind) for kind in kinds)
        fits = (one for one in tried if not Casting().cast(column, one)[1])
        known = column.null_count < len(column)
        text = pa.field(name, pa.string())
        fields.append(next(fits, text) if known else text)
    return pa.schema(fields)


def _declarable(kind: pa.DataType, times: pa.DataType) -> pa.DataType:
    is_ = pa.types
    if is_.is_struct(kind):
        members = [(field.name, _declarable(field.type, times)) for field in kind]
        return pa.struct(members)
    if is_.is_list(kind):
        return pa.list_(_declarable(kind.value_type, times))
    if is_.is_timestamp(kind):
        return times
    return pa.string() if is_.is_time(kind) or is_.is_null(kind) else kind
