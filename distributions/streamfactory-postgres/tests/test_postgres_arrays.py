"""Columns of the binary format of arrays, compared with values packed one by one."""

from __future__ import annotations

import random
import struct
from typing import Any

import pyarrow as pa
import pytest
from test_postgres_binary import BYTES, FORMATS, drawn, made, packed

from streamfactory_postgres import arrays

KINDS = [kind for kind in (*FORMATS, *BYTES) if kind not in ("varchar", "bpchar")]


def array_of(values: list[Any], kind: str) -> bytes | None:
    """An array as the server sends it; None is one without elements."""
    if not values:
        return None
    head = struct.pack(">iiiii", 1, int(None in values), 0, len(values), 1)
    return head + b"".join(packed(value, kind) for value in values)


def read(values: list[Any], kind: str, column: pa.Field) -> pa.Array:
    """What is read of a column that the server has gathered."""
    given = [value for value in values if value is not None]
    if kind in BYTES:
        parts = [v.encode() if isinstance(v, str) else v for v in given]
        lengths = [-1 if v is None else len(packed(v, kind)) - 4 for v in values]
        data = b"".join(parts) if parts else None
        return arrays.text(data, array_of(lengths, "int4"), column)
    nulls = [at for at, value in enumerate(values, start=1) if value is None]
    return arrays.fixed(
        array_of(given, kind), array_of(nulls, "int8"), column, len(values)
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("nulls", [0.0, 0.3, 1.0])
def test_columns_are_as_they_were_sent(kind: str, nulls: float) -> None:
    draw = random.Random(1)
    for rows in (1, 2, 50):
        values = [
            None if draw.random() < nulls else drawn(draw, kind) for _ in range(rows)
        ]
        wanted = made(values, kind)
        found = read(values, kind, pa.field("c", wanted.type))
        found.validate(full=True)
        assert found == wanted
        assert found.null_count == values.count(None)


@pytest.mark.parametrize(
    ("kind", "number", "named"),
    [
        ("date", 2**31 - 1, "infinity"),
        ("date", -(2**31), "-infinity"),
        ("date", -730_120, "before Christ"),
        ("timestamp", 2**63 - 1, "infinity"),
        ("timestamptz", -(2**63), "-infinity"),
        ("timestamp", -730_119 * 86_400_000_000 - 1, "before Christ"),
        ("timestamp", 2**63 - 2, "after the year"),
        ("time", 86_400_000_000, "24:00:00"),
    ],
)
def test_times_that_arrow_has_not_are_named(kind: str, number: int, named: str) -> None:
    arrow, form, _ = FORMATS[kind]
    data = struct.pack(f">iiiiii{form}", 1, 0, 0, 1, 1, struct.calcsize(form), number)
    with pytest.raises(pa.ArrowInvalid, match=f"column 'c' has .*{named}"):
        arrays.fixed(data, None, pa.field("c", arrow), 1)


def test_the_first_and_the_last_time_are_read() -> None:
    for kind, number in (("date", -730_119), ("timestamp", -730_119 * 86_400_000_000)):
        arrow, form, moved = FORMATS[kind]
        size = struct.calcsize(form)
        data = struct.pack(f">iiiiii{form}", 1, 0, 0, 1, 1, size, number)
        [found] = arrays.fixed(data, None, pa.field("c", arrow), 1)
        assert found.value == number + moved
        assert found.as_py().isoformat().startswith("0001-01-01")


def test_a_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(pa.ArrowInvalid, match=r"column .c.: .*UTF8"):
        arrays.text(b"\xff", array_of([1], "int4"), pa.field("c", pa.string()))
