"""Rows of the binary format of COPY, compared with values packed one by one."""

from __future__ import annotations

import random
import struct
from typing import Any, Final

import pyarrow as pa
import pytest

from streamfactory_postgres import binary

DAYS: Final = 10_957
MICROS: Final = DAYS * 86_400_000_000
FORMATS: Final = {
    "bool": (pa.bool_(), "?", 0),
    "int2": (pa.int16(), "h", 0),
    "int4": (pa.int32(), "i", 0),
    "int8": (pa.int64(), "q", 0),
    "float4": (pa.float32(), "f", 0),
    "float8": (pa.float64(), "d", 0),
    "date": (pa.date32(), "i", DAYS),
    "timestamp": (pa.timestamp("us"), "q", MICROS),
    "timestamptz": (pa.timestamp("us", "UTC"), "q", MICROS),
    "time": (pa.time64("us"), "q", 0),
}
"""Types of one width: in Arrow, in `struct`, and what their numbers are moved by."""
BYTES: Final = {
    "text": pa.string(),
    "varchar": pa.string(),
    "bpchar": pa.string(),
    "bytea": pa.binary(),
}


def drawn(draw: random.Random, kind: str) -> Any:
    if kind == "bytea":
        return draw.randbytes(draw.choice([0, 1, 40]))
    if kind in BYTES:
        return draw.choice(["", "a", "é€😀", "x" * draw.randrange(3000)])
    if kind == "bool":
        return draw.random() < 0.5
    if kind.startswith("float"):
        return draw.choice([0.0, -0.0, 1.5, float("inf"), -3.0])
    if kind == "time":
        return draw.randrange(86_400_000_000)
    _, form, moved = FORMATS[kind]
    if moved:  # from the year 1 on
        return draw.randrange(-719_162 * moved // DAYS, 2**16 * moved // DAYS)
    width = struct.calcsize(form) * 8 - 1
    return draw.randrange(-(2**width), 2**width)


def made(values: list[Any], kind: str) -> pa.Array:
    if kind in BYTES:
        return pa.array(values, BYTES[kind])
    arrow, form, _ = FORMATS[kind]
    whole = {"i": pa.int32(), "q": pa.int64()}.get(form, arrow)
    return pa.array(values, whole).view(arrow)


def packed(value: Any, kind: str) -> bytes:
    if value is None:
        return struct.pack(">i", -1)
    if kind in BYTES:
        data = value.encode() if isinstance(value, str) else value
    else:
        _, form, moved = FORMATS[kind]
        data = struct.pack(f">{form}", value - moved if moved else value)
    return struct.pack(">i", len(data)) + data


@pytest.mark.parametrize("nulls", [0.0, 0.3, 1.0])
def test_rows_are_as_the_server_reads_them(nulls: float) -> None:
    assert {*FORMATS, *BYTES} == binary.KINDS
    draw = random.Random(int(nulls * 10))
    for _ in range(40):
        kinds = [draw.choice([*FORMATS, *BYTES]) for _ in range(draw.randrange(1, 7))]
        rows = draw.choice([1, 2, 50])
        columns = [
            [None if draw.random() < nulls else drawn(draw, kind) for _ in range(rows)]
            for kind in kinds
        ]
        skipped = draw.choice([0, 1])
        arrays = [
            made([None, *column], kind).slice(1) if skipped else made(column, kind)
            for column, kind in zip(columns, kinds, strict=True)
        ]
        wanted = b"".join(
            struct.pack(">h", len(kinds))
            + b"".join(packed(v, k) for v, k in zip(row, kinds, strict=True))
            for row in zip(*columns, strict=True)
        )
        assert bytes(binary.encode(arrays, kinds)) == wanted
