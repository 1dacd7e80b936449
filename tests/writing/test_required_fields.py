"""Required fields that are null below a null, on each way to Parquet."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.everytype import EVERY_TYPE

import streamfactory
from streamfactory.conversion.required import fill_required
from streamfactory.engines.search.outputs import RowWriter

if TYPE_CHECKING:
    from pathlib import Path

INNER = pa.struct([pa.field("x", pa.int64(), nullable=False), ("y", pa.string())])
PLAIN = pa.field("item", INNER)
SURE = pa.field("item", INNER, nullable=False)
VALUE = pa.array([{"x": 1, "y": "a"}], INNER)
BASE = pa.concat_arrays([pa.nulls(1, INNER), VALUE, pa.nulls(1, INNER), VALUE])
"""Arrow's builders, unlike its nulls, have values below a null."""
LIST = pa.ListArray.from_arrays([0, 1, 2, 4], BASE)
MASK = pa.array([True, False, True, False])
NESTS: dict[str, pa.Array] = {
    "struct": BASE,
    "struct of struct": pa.StructArray.from_arrays([BASE], fields=[PLAIN]),
    "required struct": pa.StructArray.from_arrays([BASE], fields=[SURE], mask=MASK),
    "list": LIST,
    "large_list": pa.LargeListArray.from_arrays([0, 1, 2, 4], BASE),
    "list of list": pa.ListArray.from_arrays([0, 1, 3], LIST),
    "map": pa.MapArray.from_arrays([0, 1, 2, 4], ["a", "b", "c", "d"], BASE),
    "struct of list": pa.StructArray.from_arrays([LIST], names=["l"]),
    "fixed": pa.FixedSizeListArray.from_arrays(BASE, 2),
}


@pytest.fixture(params=NESTS)
def rows(request: pytest.FixtureRequest) -> pa.RecordBatch:
    column = NESTS[request.param]
    column.validate(full=True)
    return pa.record_batch([column], names=["c"]).slice(1)


def test_arrow_refuses_to_write_them(rows: pa.RecordBatch) -> None:
    with pytest.raises(pa.ArrowInvalid, match="declared non-nullable but contains"):
        parquet.write_table(pa.table(rows), BytesIO())


def test_rows_whose_fields_are_filled_are_the_same_rows(rows: pa.RecordBatch) -> None:
    filled = fill_required(rows)
    filled.validate(full=True)
    assert filled.schema.equals(rows.schema)
    assert filled.to_pylist() == rows.to_pylist()
    parquet.write_table(pa.table(filled), BytesIO())


TYPED = sorted({*EVERY_TYPE} - {"null", "run_end_encoded"})
"""Types of fields that can be required, and be null in a struct."""


@pytest.mark.parametrize("name", TYPED)
def test_fields_of_every_type_are_filled(name: str) -> None:
    values = EVERY_TYPE[name]
    for _ in range(2):
        field = pa.field("x", values.type, nullable=False)
        mask = values.is_null()
        values = pa.StructArray.from_arrays([values], fields=[field], mask=mask)
    filled = fill_required(pa.record_batch([values], names=["c"]))
    filled.validate()
    assert filled["c"].type == values.type
    assert filled["c"].is_null().equals(values.is_null())
    inner = filled["c"].field(0).field(0)
    if pa.types.is_dictionary(inner.type):
        inner = inner.indices
    assert inner.null_count == 0
    refusal = ""
    try:
        parquet.write_table(pa.table(filled), BytesIO())
    except (pa.ArrowException, OSError) as error:
        refusal = str(error)  # Parquet lacks the type
    assert "non-nullable" not in refusal


def test_segments_of_parquet_have_them(rows: pa.RecordBatch, tmp_path: Path) -> None:
    stream = {
        "streamType": "file",
        "stream.file.path": str(tmp_path),
        "stream.file.topic.name": "t",
        "stream.file.segment.format": "parquet",
    }
    with streamfactory.open_sink(stream) as sink:
        sink.put(rows)
        sink.put(rows)
    with streamfactory.open(stream) as reader:
        found = reader.to_reader().read_all()
    assert found.to_pylist() == 2 * rows.to_pylist()


def test_exports_have_them(rows: pa.RecordBatch, tmp_path: Path) -> None:
    stream = {
        "streamType": "file",
        "stream.file.path": str(tmp_path / "log"),
        "stream.file.topic.name": "t",
    }
    with streamfactory.open_sink(stream) as sink:
        sink.put(rows)
    streamfactory.export(stream, tmp_path / "out.parquet")
    exported = parquet.read_table(tmp_path / "out.parquet")["c"]
    assert exported.to_pylist() == rows["c"].to_pylist()
    found = BytesIO()
    with RowWriter("parquet", found, rows.schema) as writer:
        writer.write(rows)
    assert parquet.read_table(found).to_pylist() == rows.to_pylist()


@pytest.mark.parametrize("name", ["uuid", "decimal32(5, 2)"])
def test_exports_have_fields_of_types_without_functions(
    name: str, tmp_path: Path
) -> None:
    values = EVERY_TYPE[name]
    field = pa.field("x", values.type, nullable=False)
    column = pa.StructArray.from_arrays([values], fields=[field], mask=values.is_null())
    rows = pa.record_batch([column], names=["c"])
    stream = {
        "streamType": "file",
        "stream.file.path": str(tmp_path / "log"),
        "stream.file.topic.name": "t",
        "stream.file.segment.format": "parquet",
    }
    with streamfactory.open_sink(stream) as sink:
        sink.put(rows)
    streamfactory.export(stream, tmp_path / "out.parquet")
    exported = parquet.read_table(tmp_path / "out.parquet")["c"]
    assert exported.to_pylist() == column.to_pylist()
