"""Columns of the user that have the names of metadata columns, in every reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from datafusion import SessionContext
from tests.engines.conftest import properties

import streamfactory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

engines = streamfactory.engines
EVERYTHING = {"metadata.columns": "true"}


def opened(stream: dict[str, str], options: dict[str, str]) -> pa.Table:
    with streamfactory.open(stream, options=options) as found:
        return pa.table(found)


def in_duckdb(stream: dict[str, str], options: dict[str, str]) -> pa.Table:
    with duckdb.connect() as connection:
        engines.duckdb.register(connection, stream, name="t", options=options)
        return connection.sql("select * from t").to_arrow_table()


def in_datafusion(stream: dict[str, str], options: dict[str, str]) -> pa.Table:
    context = SessionContext()
    frame = engines.datafusion.register(context, stream, name="t", options=options)
    return pa.Table.from_batches(frame.collect())


def in_pandas(stream: dict[str, str], options: dict[str, str]) -> pa.Table:
    frames = engines.pandas.chunks(stream, options=options)
    return pa.Table.from_pandas(pd.concat(frames), preserve_index=False)


READERS: dict[str, Callable[[dict[str, str], dict[str, str]], pa.Table]] = {
    "open": opened,
    "arrow": lambda stream, options: engines.arrow.dataset(
        stream, options=options
    ).to_table(),
    "polars": lambda stream, options: (
        engines.polars.scan(stream, options=options).collect().to_arrow()
    ),
    "duckdb": in_duckdb,
    "datafusion": in_datafusion,
    "pandas": in_pandas,
}


@pytest.fixture(params=["memory", "file"])
def read_and_written_on(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Rows read with their metadata, changed, and written to another topic."""
    stream = properties(request.param, tmp_path / "streams")
    rows = pa.table(
        {
            "id": [1, 2, 3],
            "_offset": [70, 80, 90],
            "_topic": ["a", "b", "c"],
            "_partition": pa.array([2, 0, 2], pa.int32()),
        }
    )
    with streamfactory.open_sink(stream) as sink:
        sink.put(rows)
    return stream


@pytest.mark.parametrize("options", [{}, EVERYTHING], ids=["plain", "metadata"])
@pytest.mark.parametrize("reader", READERS)
def test_column_of_the_user_hides_the_metadata_column_of_its_name(
    read_and_written_on: dict[str, str], reader: str, options: dict[str, str]
) -> None:
    rows = READERS[reader](read_and_written_on, options)
    assert rows.column_names == ["id", "_offset", "_topic"] + (
        ["_partition"] if options else []
    )
    own = rows.select(["id", "_offset", "_topic"]).sort_by("id").to_pydict()
    assert own == {"id": [1, 2, 3], "_offset": [70, 80, 90], "_topic": ["a", "b", "c"]}
    if options:
        assert rows.sort_by("id")["_partition"].to_pylist() == [2, 0, 2]


def test_filter_on_a_column_of_the_user_leaves_out_no_partition_and_no_offset(
    read_and_written_on: dict[str, str],
) -> None:
    dataset = engines.arrow.dataset(read_and_written_on)
    wanted = (ds.field("_offset") >= 80) & (ds.field("_topic") != "c")
    assert dataset.to_table(filter=wanted)["id"].to_pylist() == [2]
    both = wanted & (ds.field("_partition") == 0)
    assert dataset.to_table(filter=both)["id"].to_pylist() == [2]
    places = {p.id: r for p, r in dataset.plan(filter=both).ranges.items()}
    assert 2 not in places
    assert places[0] == (0, 1)
    frame = engines.polars.scan(read_and_written_on)
    assert frame.filter(pl.col("_offset") > 70).collect()["id"].to_list() == [2, 3]


def test_partition_column_of_a_foreign_file_is_the_files(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.parquet"
    pq.write_table(pa.table({"_partition": ["x", "y"], "n": [1, 2]}), foreign)
    stream = {
        "streamType": "file",
        "stream.file.path": str(foreign),
        "stream.file.format": "parquet",
    }
    dataset = engines.arrow.dataset(stream)
    assert dataset.to_table(filter=ds.field("_partition") == "y")["n"].to_pylist() == [
        2
    ]
    late = (ds.field("_partition") == "y") & (ds.field("_offset") == 1)
    assert dataset.to_table(filter=late)["n"].to_pylist() == [2]
    assert engines.polars.scan(stream).filter(pl.col("_partition") == "x").collect()[
        "n"
    ].to_list() == [1]
