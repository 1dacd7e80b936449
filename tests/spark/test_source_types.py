"""Every type that Arrow has, on Spark: as it is, widened, or refused in words."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.ipc
import pytest
from tests.proving.triggers import PYSPARK_4_0

from streamfactory.conversion.conform import conform
from streamfactory.spark.types import arrow_schema, spark_schema
from streamfactory.spi import SchemaMismatch

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

NOON = dt.datetime(2026, 3, 1, 12, 30, 0, 250, tzinfo=dt.UTC)
NAIVE = NOON.replace(tzinfo=None)
WHOLE = NAIVE.replace(microsecond=0)
DAY = dt.date(2026, 3, 1)

# Name; Arrow's type; a value; Spark's type; what Spark reads, where that differs.
KINDS: list[tuple[str, pa.DataType, Any, str, Any]] = [
    ("flag", pa.bool_(), True, "boolean", None),
    ("i8", pa.int8(), -8, "tinyint", None),
    ("i16", pa.int16(), -16, "smallint", None),
    ("i32", pa.int32(), -32, "int", None),
    ("i64", pa.int64(), -64, "bigint", None),
    ("u8", pa.uint8(), 2**8 - 1, "smallint", None),
    ("u16", pa.uint16(), 2**16 - 1, "int", None),
    ("u32", pa.uint32(), 2**32 - 1, "bigint", None),
    ("u64", pa.uint64(), 2**64 - 1, "decimal(20,0)", Decimal(2**64 - 1)),
    ("f16", pa.float16(), 1.5, "float", None),
    ("f32", pa.float32(), 2.5, "float", None),
    ("f64", pa.float64(), 0.1, "double", None),
    ("d32", pa.date32(), DAY, "date", None),
    ("d64", pa.date64(), DAY, "date", None),
    ("time_s", pa.time32("s"), dt.time(1, 2, 3), "time(6)", None),
    ("time_us", pa.time64("us"), dt.time(1, 2, 3, 4), "time(6)", None),
    ("naive_s", pa.timestamp("s"), WHOLE, "timestamp_ntz", None),
    ("naive_ns", pa.timestamp("ns"), NAIVE, "timestamp_ntz", None),
    ("utc", pa.timestamp("us", tz="UTC"), NOON, "timestamp", None),
    ("paris", pa.timestamp("ns", tz="Europe/Paris"), NOON, "timestamp", None),
    ("span", pa.duration("ms"), dt.timedelta(1, 2), "interval day to second", None),
    ("bytes", pa.large_binary(), b"x", "binary", bytearray(b"x")),
    ("fixed", pa.binary(3), b"abc", "binary", bytearray(b"abc")),
    ("text", pa.large_string(), "t", "string", None),
    ("view", pa.string_view(), "v", "string", None),
    ("word", pa.dictionary(pa.int8(), pa.string()), "w", "string", None),
    ("money", pa.decimal128(9, 2), Decimal("1.50"), "decimal(9,2)", None),
    ("small", pa.decimal64(9, 2), Decimal("1.50"), "decimal(9,2)", None),
    ("wide", pa.decimal256(38, 3), Decimal("1.500"), "decimal(38,3)", None),
    ("round", pa.decimal128(5, -2), Decimal(12300), "decimal(7,0)", None),
    ("list", pa.list_(pa.uint8()), [1, None], "array<smallint>", None),
    ("large", pa.large_list(pa.large_string()), ["a"], "array<string>", None),
    ("pair", pa.list_(pa.int8(), 2), [1, 2], "array<tinyint>", None),
    ("row", pa.struct([("a", pa.uint16())]), {"a": 1}, "struct<a:int>", (1,)),
    (
        "map",
        pa.map_(pa.string(), pa.int8()),
        [("k", 1)],
        "map<string,tinyint>",
        {"k": 1},
    ),
    ("nothing", pa.null(), None, "void", None),
]
if PYSPARK_4_0:  # 4.1 brought TIME
    KINDS = [one for one in KINDS if not one[0].startswith("time_")]


def table() -> pa.Table:
    return pa.table({name: pa.array([value], kind) for name, kind, value, *_ in KINDS})


@pytest.mark.parametrize(("name", "kind", "value", "wanted", "read"), KINDS)
def test_a_type_becomes_one_that_holds_all_of_its_values(
    name: str, kind: pa.DataType, value: object, wanted: str, read: object
) -> None:
    schema = pa.schema([(name, kind)])
    found = spark_schema(schema)
    assert found[0].dataType.simpleString() == wanted
    batch = pa.record_batch([pa.array([value, None], kind)], schema=schema)
    rows = conform(batch, arrow_schema(found))
    assert rows.num_rows == 2
    if read is None and not pa.types.is_nested(kind):
        assert rows.column(0).to_pylist() == [value, None]


@pytest.mark.parametrize(
    "kind",
    [
        pa.month_day_nano_interval(),
        pa.decimal256(60, 3),
        pa.decimal128(38, -2),
        pa.dense_union([pa.field("a", pa.int8())]),
        pa.run_end_encoded(pa.int32(), pa.int64()),
        pa.list_(pa.month_day_nano_interval()),
        pa.struct([("a", pa.list_(pa.month_day_nano_interval()))]),
        pa.map_(pa.string(), pa.decimal256(60, 3)),
    ],
    ids=str,
)
def test_a_type_without_counterpart_is_refused_by_column(kind: pa.DataType) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        spark_schema(pa.schema([("fine", pa.int8()), ("odd", kind)]))
    assert str(caught.value).startswith("column 'odd' has the type ")
    assert "name the others in .schema(...)" in str(caught.value)


def test_extension_types_are_read_as_what_they_are_stored_in() -> None:
    found = spark_schema(pa.schema([("id", pa.uuid()), ("doc", pa.json_())]))
    assert found.simpleString() == "struct<id:binary,doc:string>"


@pytest.mark.skipif(PYSPARK_4_0, reason="PySpark 4.1 keeps it")
def test_whether_nulls_are_allowed_is_kept() -> None:
    item = pa.field("x", pa.int8(), nullable=False)
    schema = pa.schema(
        [pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.list_(item))]
    )
    found = spark_schema(schema)
    assert not found["a"].nullable
    assert arrow_schema(found).field("b").type.value_field.nullable is False


@pytest.mark.parametrize("large", ["false", "true"])
def test_foreign_files_are_read_by_spark_with_every_type(
    spark: SparkSession, tmp_path: Path, large: str
) -> None:
    for number in range(2):
        rows = table()
        if number:  # another writer, other types that hold the same
            rows = rows.set_column(0, "flag", pa.array([False]))
            at = rows.schema.get_field_index("text")
            rows = rows.set_column(at, "text", pa.array(["t"], pa.large_string()))
        with pa.ipc.new_file(tmp_path / f"{number}.arrow", rows.schema) as writer:
            writer.write_table(rows)
    zone = spark.conf.get("spark.sql.session.timeZone")
    assert zone is not None
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", large)
    try:
        frame = (
            spark.read.format("streamfactory")
            .option("streamType", "file")
            .option("stream.file.path", str(tmp_path))
            .option("stream.file.format", "file")
            .load()
        )
        types = {field.name: field.dataType.simpleString() for field in frame.schema}
        found = frame.selectExpr("*", "unix_micros(utc) AS micros").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
    assert types == {name: wanted for name, _, _, wanted, _ in KINDS}
    assert len(found) == 2
    for name, _, value, _, read in KINDS:
        wanted = value if read is None else read
        if name in ("utc", "paris"):  # handed out as times of this machine
            wanted = NOON.astimezone().replace(tzinfo=None)
        assert found[0][name] == wanted, name
    assert found[0].micros == round(NOON.timestamp() * 1e6)
    assert [row.flag for row in found] == [True, False]
