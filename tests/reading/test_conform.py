"""D4: exactly the declared schema, or the column and both types."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from streamfactory.conversion.conform import Conformer, conform
from streamfactory.spi import SchemaMismatch
from streamfactory.spi.ddl import type_text

MICROS, UTC_MICROS = pa.timestamp("us"), pa.timestamp("us", tz="UTC")
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC).replace(tzinfo=None)


def one(values: list[Any], have: pa.DataType) -> pa.RecordBatch:
    return pa.record_batch({"x": pa.array(values, have)})


def wanting(kind: pa.DataType, *, nullable: bool = True) -> pa.Schema:
    return pa.schema([pa.field("x", kind, nullable=nullable)])


def refusal(values: list[Any], have: pa.DataType, want: pa.DataType) -> str:
    with pytest.raises(SchemaMismatch) as caught:
        conform(one(values, have), wanting(want))
    return caught.value.what


def test_rows_that_fit_are_the_same_rows() -> None:
    rows = one([1], pa.int64())
    assert conform(rows, wanting(pa.int64())) is rows


@pytest.mark.parametrize(
    ("values", "have", "want"),
    [
        ([1, None], pa.int32(), pa.int64()),
        ([1], pa.int64(), pa.int8()),
        ([1, 2**53], pa.int64(), pa.float64()),
        ([0.5, float("nan"), None], pa.float64(), pa.float32()),
        (["a"], pa.large_string(), pa.string()),
        (["a", None], pa.dictionary(pa.int32(), pa.string()), pa.string()),
        (["a"], pa.string(), pa.dictionary(pa.int32(), pa.string())),
        (["a"], pa.string(), pa.binary()),
        ([b"a"], pa.binary(), pa.string()),
        ([None], pa.null(), pa.string()),
        ([Decimal("1.20")], pa.decimal128(5, 2), pa.decimal128(9, 4)),
        ([NOON], pa.timestamp("s"), MICROS),
        (
            [NOON.replace(tzinfo=UTC)],
            pa.timestamp("ms", tz="Europe/Berlin"),
            UTC_MICROS,
        ),
        ([date(2024, 5, 1)], pa.date32(), MICROS),
        ([[1]], pa.list_(pa.int8()), pa.large_list(pa.int16())),
        ([{"a": 1}], pa.struct([("a", pa.int8())]), pa.struct([("a", pa.int64())])),
    ],
)
def test_casts_that_lose_nothing_are_made(
    values: list[Any], have: pa.DataType, want: pa.DataType
) -> None:
    rows = conform(one(values, have), wanting(want))
    assert rows.schema.equals(wanting(want))
    assert rows.num_rows == len(values)


@pytest.mark.parametrize(
    ("values", "have", "want", "reason"),
    [
        ([300], pa.int64(), pa.int8(), "Integer value 300 not in range: -128 to 127"),
        ([0.1], pa.float64(), pa.float32(), "some values have more digits"),
        (
            [0.5],
            pa.float64(),
            pa.int64(),
            "Float value 0.500000 was truncated converting to bigint",
        ),
        (["7"], pa.string(), pa.int64(), "text is not parsed"),
        (["2024-05-01"], pa.string(), pa.date32(), "text is not parsed"),
        ([7], pa.int64(), MICROS, "a number is not a timestamp"),
        ([NOON], MICROS, pa.int64(), "a number is not a timestamp"),
        (
            [Decimal("1.20")],
            pa.decimal128(5, 2),
            pa.float64(),
            "a floating-point number is not an exact decimal",
        ),
        (
            [Decimal("1E+20")],
            pa.decimal128(38, -20),
            pa.decimal128(38, 30),
            "their scales are too far apart",
        ),
        ([NOON], MICROS, UTC_MICROS, "a timestamp without time zone is not in UTC"),
        (
            [NOON.replace(tzinfo=UTC)],
            UTC_MICROS,
            MICROS,
            "a timestamp without time zone is not in UTC",
        ),
        (
            [date(2024, 5, 1)],
            pa.date32(),
            UTC_MICROS,
            "date is not converted to timestamp",
        ),
        ([7], pa.int64(), pa.date32(), "bigint is not converted to date"),
        ([7], pa.int64(), pa.string(), "values are not converted to text"),
        ([2], pa.int64(), pa.bool_(), "bigint is not converted to boolean"),
        ([NOON], MICROS, pa.date32(), "some values have a time of day"),
        ([2049], pa.int16(), pa.float16(), "some values have more digits"),
        (
            [0.15],
            pa.float64(),
            pa.decimal128(5, 1),
            "a floating-point number is not an exact decimal",
        ),
        ([b"7"], pa.binary(), pa.int64(), "binary is not converted to bigint"),
        (
            [[1]],
            pa.list_(pa.int8()),
            pa.string(),
            "array<tinyint> is not converted to string",
        ),
    ],
)
def test_other_casts_name_the_column_both_types_and_why(
    values: list[Any], have: pa.DataType, want: pa.DataType, reason: str
) -> None:
    message = refusal(values, have, want)
    kinds = f"{type_text(have)}, declared {type_text(want)}"
    assert message.startswith(f"column 'x' is {kinds}: {reason}")


def test_columns_are_put_in_order() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    rows = pa.record_batch({"b": ["x"], "a": [1]})
    assert conform(rows, schema).to_pylist() == [{"a": 1, "b": "x"}]
    assert conform(rows, schema).schema.names == ["a", "b"]


def test_missing_column_is_null_where_it_may_be() -> None:
    rows = pa.record_batch({"x": [1]})
    wide = pa.schema([("x", pa.int64()), ("y", pa.string())])
    assert conform(rows, wide).to_pylist() == [{"x": 1, "y": None}]
    strict = pa.schema([("x", pa.int64()), pa.field("y", pa.string(), nullable=False)])
    with pytest.raises(SchemaMismatch) as caught:
        conform(rows, strict)
    assert caught.value.what == "column 'y' is missing, but not nullable"


def test_unknown_and_double_columns_are_named() -> None:
    rows = pa.record_batch({"x": [1], "z": [2]})
    with pytest.raises(SchemaMismatch) as caught:
        conform(rows, wanting(pa.int64()))
    assert caught.value.what == "column 'z' is not in the declared schema"
    twice = pa.RecordBatch.from_arrays([pa.array([1])] * 2, ["x", "x"])
    with pytest.raises(SchemaMismatch) as caught:
        conform(twice, wanting(pa.int64()))
    assert caught.value.what == "the rows have 2 columns named 'x'"


@pytest.mark.parametrize("have", [pa.int32(), pa.int64()])
def test_nulls_where_there_may_be_none_are_reported(have: pa.DataType) -> None:
    strict = wanting(pa.int64(), nullable=False)
    field = pa.field("x", have, nullable=have != pa.int64())
    rows = pa.RecordBatch.from_arrays(
        [pa.array([1, None], have)], schema=pa.schema([field])
    )
    with pytest.raises(SchemaMismatch) as caught:
        conform(rows, strict)
    assert caught.value.what == "column 'x' is not nullable, but has 1 nulls"


def test_metadata_of_a_schema_is_left_behind() -> None:
    rows = one([1], pa.int64()).replace_schema_metadata({"pandas": "{}"})
    schema = conform(rows, wanting(pa.int64())).schema
    assert schema.equals(wanting(pa.int64()), check_metadata=True)


def test_batches_of_several_schemas_are_converted_in_turn() -> None:
    conformer = Conformer(pa.schema([("x", pa.int64()), ("y", pa.string())]))
    swapped = pa.record_batch({"y": ["a"], "x": pa.array([1], pa.int32())})
    missing = one([2], pa.int64())
    for _ in range(2):
        assert conformer.conform(swapped).to_pylist() == [{"x": 1, "y": "a"}]
        assert conformer.conform(missing).to_pylist() == [{"x": 2, "y": None}]
        with pytest.raises(SchemaMismatch, match="'z' is not in the declared"):
            conformer.conform(pa.record_batch({"z": [1]}))


@pytest.mark.parametrize("kind", [pa.int64(), pa.int32()])
def test_columns_in_order_get_every_property_of_their_field(kind: pa.DataType) -> None:
    wanted = pa.schema(
        [
            pa.field("x", pa.int64(), nullable=False, metadata={"a": "b"}),
            pa.field("y", pa.string()),
        ],
        metadata={"c": "d"},
    )
    conformer = Conformer(wanted)
    values = [pa.array([1, 2], kind), pa.array(["u", None])]
    fields = [pa.field("x", kind), pa.field("y", pa.string())]
    # Each differs from the declared schema in something else, and from the one before.
    for given in (
        pa.schema(fields),
        pa.schema(fields, metadata={"c": "e"}),
        pa.schema([fields[0].with_metadata({"a": "b"}), fields[1]]),
        pa.schema([fields[0], fields[1].with_metadata({"f": "g"})]),
        pa.schema([fields[0].with_nullable(False), fields[1]]),
        pa.schema([wanted.field("x").with_type(kind), wanted.field("y")]),
    ):
        rows = conformer.conform(pa.RecordBatch.from_arrays(values, schema=given))
        assert rows.schema.equals(wanted, check_metadata=True)
        assert rows.to_pydict() == {"x": [1, 2], "y": ["u", None]}


def test_values_are_refused_after_others_that_fit() -> None:
    field = pa.field("x", pa.int32(), nullable=False)
    conformer = Conformer(pa.schema([field]))
    assert conformer.conform(one([1], pa.int64())).to_pylist() == [{"x": 1}]
    with pytest.raises(SchemaMismatch, match="2147483648 not in range"):
        conformer.conform(one([2**31], pa.int64()))
    with pytest.raises(SchemaMismatch, match="is not nullable, but has 1 nulls"):
        conformer.conform(one([None], pa.int64()))


def test_another_zone_is_another_name_of_the_same_values() -> None:
    rows = one([0, None, 1], pa.timestamp("us", tz="Europe/Vienna")).slice(1)
    found = conform(rows, wanting(UTC_MICROS)).column(0)
    assert found.equals(pa.array([None, 1], UTC_MICROS))
    # Nothing is copied.
    assert found.buffers()[1].address == rows.column(0).buffers()[1].address


def test_list_views_keep_all_their_values() -> None:
    # pyarrow 26 casts [[1], [2, 3]] to [[1], []], without a word.
    views = pa.array([[1], None, [2, 3]], pa.list_view(pa.int64()))
    nested = pa.StructArray.from_arrays([views], names=["x"])
    rows = pa.record_batch([views, nested], names=["a", "b"])
    lists = pa.list_(pa.int64())
    wanted = pa.schema([("a", lists), ("b", pa.struct([("x", lists)]))])
    assert conform(rows, wanted).to_pydict() == {
        "a": [[1], None, [2, 3]],
        "b": [{"x": [1]}, {"x": None}, {"x": [2, 3]}],
    }


@pytest.mark.parametrize("at", [0, 1, 5, 99])
def test_the_first_row_that_does_not_fit_is_named(at: int) -> None:
    values: list[Any] = [1] * 100
    values[at] = 300
    values[99] = 400
    other = [1000] * 100  # refused as well, but of a later column
    rows = pa.record_batch({"x": values, "y": other})
    wanted = pa.schema([("x", pa.int8()), ("y", pa.int8())])
    with pytest.raises(SchemaMismatch) as caught:
        conform(rows, wanted)
    assert (caught.value.column, caught.value.row) == ("x", at)
    assert f"row {at}" in str(caught.value)
    assert caught.value.to_dict()["row"] == at


@pytest.mark.parametrize(
    ("value", "have", "want", "path"),
    [
        ([1, 300], pa.list_(pa.int64()), pa.list_(pa.int8()), "x.item"),
        ({"a": 300}, pa.struct([("a", "int64")]), pa.struct([("a", "int8")]), "x.a"),
        (
            [("k", 300)],
            pa.map_("string", "int64"),
            pa.map_("string", "int8"),
            "x.value",
        ),
    ],
)
def test_the_row_of_a_value_within_another_is_named(
    value: Any, have: pa.DataType, want: pa.DataType, path: str
) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        conform(one([None, None, value, None], have), wanting(want))
    assert (caught.value.column, caught.value.row) == (path, 2)


def test_the_row_of_a_null_that_may_not_be_is_named() -> None:
    rows = one([1, 2, None, None], pa.int64())
    with pytest.raises(SchemaMismatch, match="2 nulls") as caught:
        conform(rows, wanting(pa.int64(), nullable=False))
    assert (caught.value.column, caught.value.row) == ("x", 2)


def test_where_no_row_fits_none_is_named() -> None:
    with pytest.raises(SchemaMismatch) as caught:
        conform(one(["1"], pa.string()), wanting(pa.int64()))
    assert caught.value.row is None
