"""Times of events, as numbers in their envelopes."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

UNITS: Final = {"ts_ns": "ns", "ts_us": "us", "ts_ms": "ms"}
"""Members of ``source`` with the time of the change, the finest first."""
_KIND: Final = pa.timestamp("us", tz="UTC")


def utc(numbers: pa.Array, unit: str) -> pa.TimestampArray:
    """Timestamps in microseconds of numbers; one that is too large is null."""
    factor = {"ms": 1_000, "us": 1}.get(unit)
    if factor is None:
        return pc.divide(numbers, 1_000).cast(_KIND)
    most = 2**63 // factor - 1
    fits = pc.less_equal(pc.abs(numbers), most)
    numbers = pc.if_else(fits, numbers, pa.scalar(None, pa.int64()))
    return pc.multiply(numbers, factor).cast(_KIND)


def commit_times(source: pa.Array) -> pa.TimestampArray:
    """When the database made the changes, of the ``source`` of events."""
    found = [
        utc(pc.struct_field(source, name).cast(pa.int64()), unit)
        for name, unit in UNITS.items()
        if name in source.type.names
    ]
    return pc.coalesce(*found) if found else pa.nulls(len(source), _KIND)
