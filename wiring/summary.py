"""What was written, in a form that no order and no number of tasks can change."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.spi import Summary

_MODULUS: Final = 2**64


def summarize(rows: pa.RecordBatch) -> Summary:
    """Row count, and a commutative sum for each column that has one.

    Numbers and times count by their bits, text and binary by their length: a row hash
    would cost many times the write.
    """
    sums = {}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        numbers = _numbers(column)
        if numbers is not None:
            total = pc.sum(numbers).as_py() or 0
            sums[name] = (total + column.null_count) % _MODULUS
    return Summary(rows.num_rows, sums)


def difference(one: Summary, other: Summary) -> str | None:
    """In words, what differs; None where nothing does."""
    if one.rows != other.rows:
        return f"{one.rows} rows against {other.rows}"
    mine = {name: total % _MODULUS for name, total in one.sums.items()}
    theirs = {name: total % _MODULUS for name, total in other.sums.items()}
    if mine != theirs:
        names = sorted(set(mine) | set(theirs))
        differing = [name for name in names if mine.get(name) != theirs.get(name)]
        return f"other values in {', '.join(differing)}"
    return None


def _numbers(column: pa.Array) -> pa.Array | None:
    kind = column.type
    if pa.types.is_integer(kind):
        return column
    if pa.types.is_boolean(kind):
        return column.cast(pa.uint8())
    if pa.types.is_float64(kind) or pa.types.is_timestamp(kind):
        return column.view(pa.int64())
    if pa.types.is_float32(kind) or pa.types.is_date32(kind):
        return column.view(pa.int32())
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pc.binary_length(column)
    return None
