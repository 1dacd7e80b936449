"""Transforms of partitions are those of Iceberg's specification, as in pyiceberg."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from streamfactory.backends.iceberg.transforms import computed, texts, value_of
from streamfactory.spi import Unsupported

_chance = random.Random(3)
LONGS = [
    0,
    -1,
    1,
    9,
    -(2**63),
    2**63 - 1,
    *(_chance.randint(-99, 99) for _ in range(9)),
]
MICROS = [0, -1, 1, -86_400_000_000, 1_700_000_000_123_456, -62_135_596_800_000_000]
DAYS = [0, -1, 1, -365, 19_000, -719_162, 2_932_896]
TEXTS = ["", "a", "äöü", "日本語です", "x" * 40]
COLUMNS: list[tuple[pa.Array, IcebergType]] = [
    (pa.array([*LONGS, None], pa.int64()), LongType()),
    (pa.array([5, -5, -(2**31), None], pa.int32()), IntegerType()),
    (pa.array([*DAYS, None], pa.int32()).cast(pa.date32()), DateType()),
    (pa.array([*MICROS, None]).cast(pa.timestamp("us")), TimestampType()),
    (pa.array([*MICROS, None]).cast(pa.timestamp("us", "UTC")), TimestamptzType()),
    (pa.array([*TEXTS, None]), StringType()),
    (pa.array([b"", b"\xff\x00", None]), BinaryType()),
    (pa.array([True, False, None]), BooleanType()),
    (pa.array([Decimal("1.10"), Decimal("-0.01"), None]), DecimalType(3, 2)),
]
TRANSFORMS = ["identity", "void", "year", "month", "day", "hour", "bucket[7]"]


@pytest.mark.parametrize("transform", [*TRANSFORMS, "truncate[4]"])
def test_values_of_partitions_are_those_of_the_specification(transform: str) -> None:
    found = 0
    for column, kind in COLUMNS:
        one: Any = parse_transform(transform)
        try:
            values = computed(one, column.type)(column)
        except Unsupported:
            continue
        assert one.can_transform(kind)
        expected = list(map(one.transform(kind), _internal(column)))
        written = texts(values).to_pylist()
        assert [value_of(text, one.result_type(kind)) for text in written] == expected
        found += 1
    assert found >= (9 if transform == "void" else 2)


@pytest.mark.parametrize(
    ("transform", "kind"),
    [
        ("hour", pa.date32()),
        ("day", pa.int64()),
        ("identity", pa.float64()),
        ("bucket[4]", pa.bool_()),
        ("truncate[4]", pa.binary()),
        ("other", pa.int64()),
    ],
)
def test_other_transforms_are_refused(transform: str, kind: pa.DataType) -> None:
    with pytest.raises(Unsupported, match="are not written"):
        computed(parse_transform(transform), kind)


def _internal(column: pa.Array) -> list[Any]:
    """Values as manifests have them."""
    if pa.types.is_temporal(column.type):
        width = pa.int32() if pa.types.is_date(column.type) else pa.int64()
        column = column.cast(width)
    found: list[Any] = column.to_pylist()
    return found


def test_dates_and_times_of_the_specification() -> None:
    """The examples that its appendix has."""
    day: Any = parse_transform("bucket[2147483647]")
    values = pa.array([date(2017, 11, 16)])
    assert computed(day, values.type)(values).to_pylist() == [-653330422 & 0x7FFFFFFF]
    times = pa.array([datetime(2017, 11, 16, 22, 31, 8, tzinfo=UTC)])
    hashed = computed(day, times.type)(times.cast(pa.timestamp("us", "UTC")))
    assert hashed.to_pylist() == [-2047944441 & 0x7FFFFFFF]
