"""Writers take rows of any kind, as they are, or refuse them with what they take."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pydantic
import pytest

import streamfactory
from streamfactory import MisuseError
from streamfactory.spi import SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Callable

TABLE = pa.table({"id": [1, 2, 3], "name": ["a", "b", None]})
RECORDS = TABLE.to_pylist()


@dataclasses.dataclass
class Plain:
    id: int
    name: str | None


class Model(pydantic.BaseModel):
    id: int
    name: str | None


Named = collections.namedtuple("Named", "id name")

KINDS: dict[str, Callable[[], Any]] = {
    "table": lambda: TABLE,
    "batch": lambda: TABLE.to_batches()[0],
    "reader": TABLE.to_reader,
    "dataset": lambda: ds.dataset(TABLE),
    "scanner": lambda: ds.dataset(TABLE).scanner(),
    "pandas": TABLE.to_pandas,
    "polars": lambda: pl.from_arrow(TABLE),
    "duckdb": lambda: duckdb.from_arrow(TABLE),
    "columns": TABLE.to_pydict,
    "columns of numpy": lambda: {"id": np.arange(1, 4), "name": ["a", "b", None]},
    "columns of series": lambda: {"id": pl.Series([1, 2, 3]), "name": TABLE["name"]},
    "list of dictionaries": lambda: RECORDS,
    "generator of dictionaries": lambda: (row for row in RECORDS),
    "list of batches": lambda: [TABLE.slice(0, 1), TABLE.slice(1).to_batches()[0]],
    "generator of batches": lambda: (b for b in TABLE.to_batches(max_chunksize=1)),
    "dataclasses": lambda: [Plain(**row) for row in RECORDS],
    "models": lambda: [Model(**row) for row in RECORDS],
    "named tuples": lambda: [Named(**row) for row in RECORDS],
    "structured array": lambda: np.array(
        [(1, 2.5)], dtype=[("id", "i8"), ("price", "f8")]
    ),
}


def _stream() -> dict[str, str]:
    topic = uuid.uuid4().hex
    return {"streamType": "memory", "stream.memory.topic.name": topic}


def _read(where: dict[str, str]) -> pa.Table:
    with streamfactory.open(where) as stream:
        return stream.to_reader().read_all()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_each_kind_are_written_by_put_and_by_writers(kind: str) -> None:
    expected = [{"id": 1, "price": 2.5}] if kind == "structured array" else RECORDS
    for written in ("put", "write"):
        where = _stream()
        with streamfactory.open_sink(where) as sink:
            if written == "put":
                sink.put(KINDS[kind]())
            else:
                schema = pa.Table.from_pylist(expected).schema
                with sink.committer() as committer:
                    writer = sink.writer(schema)
                    writer.write(KINDS[kind]())
                    committer.commit(0, [writer.commit()])
                    writer.close()
        assert _read(where).to_pylist() == expected


def test_rows_of_each_kind_are_pushed() -> None:
    for kind in sorted(set(KINDS) - {"structured array"}):
        sink, table = streamfactory.push_table(TABLE.schema, cast=True)
        with sink:
            sink.write(KINDS[kind]())
        assert table.to_reader().read_all().to_pylist() == RECORDS, kind


def test_a_stream_and_its_batches_are_rows() -> None:
    first, second, third = _stream(), _stream(), _stream()
    with streamfactory.open_sink(first) as sink:
        sink.put(TABLE)
    with streamfactory.open(first) as stream, streamfactory.open_sink(second) as sink:
        sink.put(stream)
    with streamfactory.open(first) as stream, streamfactory.open_sink(third) as sink:
        for batch in stream:
            sink.put(batch)
    assert _read(second).to_pylist() == _read(third).to_pylist() == RECORDS


def test_records_have_the_columns_of_all_of_them() -> None:
    where = _stream()
    with streamfactory.open_sink(where) as sink:
        sink.put([{"a": 1}, {"b": {"c": "x"}}, {"b": {"d": 2.5}}])
    assert _read(where).to_pylist() == [
        {"a": 1, "b": None},
        {"a": None, "b": {"c": "x", "d": None}},
        {"a": None, "b": {"c": None, "d": 2.5}},
    ]


@pytest.mark.parametrize(
    "rows",
    [
        *(None, 3, 2.5, "text", b"x", Path("x"), dt.date(2026, 1, 1), np.int64(3)),
        *(np.array([1]), range(3), [(1, 2)], [3], [], object(), Plain),
        *({"a": 1}, {"a": "abc"}, {1: [2]}, [{"a": 1}, 3], [TABLE, {"a": 1}]),
        pl.LazyFrame({"a": [1]}),
    ],
    ids=lambda rows: type(rows).__name__,
)
def test_what_has_no_rows_is_refused_with_what_is_taken(rows: object) -> None:
    with streamfactory.open_sink(_stream()) as sink:
        with pytest.raises(MisuseError) as caught:
            sink.put(rows)
        assert caught.value.remedy


UTC = dt.UTC
AT = dt.datetime(2026, 1, 1, 5)  # noqa: DTZ001 - without a zone by intent


@pytest.mark.parametrize(
    ("values", "row"),
    [
        ([dt.date(2026, 1, 1), AT], 1),
        ([AT.replace(tzinfo=UTC), AT], 1),
        ([AT, AT.replace(tzinfo=dt.timezone(dt.timedelta(hours=2)))], 1),
        ([dt.time(1, tzinfo=UTC)], 0),
        ([1.0, True], 1),
        (["a", b"a"], 0),
        ([pd.Timestamp(1)], 0),
        ([2**53 + 1, 0.5], 1),
        ([1, 2, "x", 3], 2),
        ([1, 2**70], 1),
        ([{"t": dt.time(1)}, {"t": dt.time(1, tzinfo=UTC)}], 1),
        ([[dt.date(2026, 1, 1), AT]], 0),
        (["\ud800"], 0),
        ([object()], 0),
    ],
)
def test_values_that_arrow_would_change_are_refused_with_row_and_column(
    values: list[Any], row: int
) -> None:
    with streamfactory.open_sink(_stream()) as sink:
        for rows in ([{"v": value} for value in values], {"v": values}):
            with pytest.raises(SchemaMismatch) as caught:
                sink.put(rows)
            assert (caught.value.column, caught.value.row) == ("v", row)


def test_nulls_of_pandas_and_no_numbers_are_kept() -> None:
    where = _stream()
    with streamfactory.open_sink(where) as sink:
        sink.put([{"n": pd.NA, "f": float("nan")}, {"n": 7, "f": 1}])
        sink.put({"n": [pd.NaT, 8], "f": [None, 2.5]})
    (_, f0), (n1, f1), (n2, f2), (n3, f3) = (
        (row["n"], row["f"]) for row in _read(where).to_pylist()
    )
    assert (n1, n2, n3, f1, f2, f3) == (7, None, 8, 1.0, None, 2.5)
    assert f0 != f0


def test_a_reader_is_written_whole_after_another_process_put_as_the_writer(
    tmp_path: Path,
) -> None:
    topic = {"stream.file.path": str(tmp_path), "stream.file.topic.name": "t"}
    where = {"streamType": "file", **topic}
    with streamfactory.open_sink(where) as one, streamfactory.open_sink(where) as other:
        one.put([{"id": 0}], writer_id="w")
        other.put([{"id": 1}], writer_id="w")
        batches = pa.table({"id": [2, 3]}).to_batches(max_chunksize=1)
        one.put(iter(batches), writer_id="w")
    assert sorted(_read(where)["id"].to_pylist()) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame([[1, 2]], columns=["a", "a"]),
        pd.DataFrame({"a": [1j]}),
        pd.DataFrame({"a": pd.arrays.SparseArray([0, 1])}),
        pl.DataFrame({"a": pl.Series([object()], dtype=pl.Object)}),
    ],
    ids=["twice", "complex", "sparse", "objects"],
)
def test_a_frame_that_arrow_cannot_read_is_refused(frame: Any) -> None:
    with streamfactory.open_sink(_stream()) as sink, pytest.raises(SchemaMismatch):
        sink.put(frame)
