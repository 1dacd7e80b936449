"""Rows that benchmarks move: distinct batches of about 57 bytes a row."""

from __future__ import annotations

import random

import pyarrow as pa


def batches(rows: int, size: int, *, zone: str | None = None) -> list[pa.RecordBatch]:
    """Distinct batches of so many rows, so many bytes in all.

    Args:
        rows: Of a batch.
        size: In bytes.
        zone: Of the times.
    """
    chance = random.Random(1)
    keys = pa.array(["k" * chance.randint(12, 24) for _ in range(rows)])
    notes = pa.array(
        [None if chance.random() < 0.3 else f"note {n}" for n in range(rows)]
    )
    found: list[pa.RecordBatch] = []
    left = size
    while left > 0:
        numbers = pa.arange(len(found) * rows, (len(found) + 1) * rows)
        columns = {
            "offset": numbers,
            "ts": numbers.cast(pa.timestamp("us", tz=zone)),
            "key": keys,
            "qty": numbers.cast(pa.int32()),
            "price": numbers.cast(pa.float64()),
            "note": notes,
        }
        one = pa.RecordBatch.from_pydict(columns)
        # A copy of its own, as a program that made it would have.
        message = one.serialize()
        found.append(pa.ipc.read_record_batch(message, one.schema))
        left -= message.size
    return found
