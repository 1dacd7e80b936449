"""What was written, in a form that no order and no number of tasks can change."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.spi import Summary

_MODULUS: Final = 2**64
_TOGETHER: Final = 65536
"""Rows that are summed at once."""
_NULL: Final = 0x9E3779B97F4A7C15
"""What a null counts: no number that data is likely to have."""


def summarize(rows: pa.RecordBatch) -> Summary:
    """Row count, and a commutative sum for each column that has one.

    Numbers and times count by their bits, text and binary by their length: a row hash
    would cost many times the write.
    """
    sums = {}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()  # noqa: PLW2901 - the same values
        numbers = _numbers(column)
        if numbers is not None:
            total = pc.sum(numbers).as_py() or 0
            sums[name] = (total + column.null_count * _NULL) % _MODULUS
    return Summary(rows.num_rows, sums)


class Summing:
    """The summary of many batches: small ones are summed together.

    Args:
        columns: Whether anybody will compare the columns; else rows are counted only.
    """

    def __init__(self, *, columns: bool) -> None:
        self._columns = columns
        self._summed = Summary()
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Count rows."""
        if not self._columns:
            self._summed += Summary(rows.num_rows)
            return
        self._waiting.append(rows)
        self._rows += rows.num_rows
        if self._rows >= _TOGETHER:
            self._sum()

    def total(self) -> Summary:
        """Of all rows so far."""
        self._sum()
        return self._summed

    def _sum(self) -> None:
        waiting, self._waiting, self._rows = self._waiting, [], 0
        if len(waiting) > 1:
            waiting = pa.Table.from_batches(waiting).combine_chunks().to_batches()
        for rows in waiting:
            self._summed += summarize(rows)


def difference(one: Summary, other: Summary) -> str | None:
    """In words, what differs; None where nothing does."""
    if one.rows != other.rows:
        return f"{one.rows} rows against {other.rows}"
    # A task that got no batch at all has no sums: that is nothing, not a difference.
    names = sorted({*one.sums, *other.sums})
    differing = [
        name
        for name in names
        if (one.sums.get(name, 0) - other.sums.get(name, 0)) % _MODULUS
    ]
    return f"other values in {', '.join(differing)}" if differing else None


def _numbers(column: pa.Array) -> pa.Array | None:
    kind = column.type
    if pa.types.is_integer(kind):
        return column
    if pa.types.is_boolean(kind):
        return column.cast(pa.uint8())
    if pa.types.is_floating(kind) or pa.types.is_temporal(kind):
        return _bits(column)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pc.binary_length(column)
    return None


def _bits(column: pa.Array) -> pa.Array | None:
    views = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
    kind = views.get(column.type.bit_width)
    return None if kind is None else column.view(kind)
