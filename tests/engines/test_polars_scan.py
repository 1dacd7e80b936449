"""Polars reads streams lazily: projection, filters and row limits reach the backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pytest
from tests.everytype import EVERY_TYPE

import streamfactory.engines
from streamfactory.arrowlog.reading import LogConsumer
from streamfactory.spi import ConfigError, TopicNotFound, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable

    from polars._typing import EngineType
    from tests.engines.conftest import Request

scan = streamfactory.engines.polars.scan
PARTITION, OFFSET = pl.col("_partition"), pl.col("_offset")
BEFORE_2 = int(pl.__version__.partition(".")[0]) < 2
"""Polars 1 casts columns that it compares with a list, and wraps errors of sources."""


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_a_scan_has_every_row_once(clicks: dict[str, str], engine: EngineType) -> None:
    frame = scan(clicks)
    assert frame.collect_schema() == {
        "id": pl.Int64,
        "page": pl.String,
        "price": pl.Float64,
    }
    found = frame.collect(engine=engine).sort("id")
    assert found["id"].to_list() == list(range(300))
    assert found["price"].sum() == sum(range(300)) / 2


def test_making_a_frame_reads_nothing(
    clicks: dict[str, str], requests: list[Request]
) -> None:
    scan(clicks).filter(pl.col("id") > 3).select("page")
    assert requests == []


def test_each_collect_reads_the_stream_as_it_is_then(clicks: dict[str, str]) -> None:
    count = scan(clicks).select(pl.len())
    assert count.collect().item() == 300
    more = pa.table({"id": [300], "page": ["/"], "price": [1.0]})
    with streamfactory.open_sink(clicks) as sink:
        sink.put(more)
    assert count.collect().item() == 301


def test_only_columns_of_the_query_are_read(
    clicks: dict[str, str], requests: list[Request]
) -> None:
    assert scan(clicks).select(pl.col("id").sum()).collect().item() == 44850
    assert {request.columns for request in requests} == {("id",)}


def test_a_row_limit_reads_no_further(
    clicks: dict[str, str], requests: list[Request]
) -> None:
    assert scan(clicks).head(5).collect().height == 5
    assert {request.partition for request in requests} == {0}


@pytest.mark.parametrize(
    ("predicate", "ranges"),
    [
        (PARTITION == 1, {1: (0, 100)}),
        (
            PARTITION.is_in([0, 2]) & (OFFSET < 10),
            dict.fromkeys(range(3) if BEFORE_2 else (0, 2), (0, 10)),
        ),
        (OFFSET.is_between(20, 30), dict.fromkeys(range(3), (20, 31))),
        (pl.lit(90) <= OFFSET, dict.fromkeys(range(3), (90, 100))),
        (
            (OFFSET > 97) & (pl.col("page") != "/1") & ~(pl.col("id") == 5),
            dict.fromkeys(range(3), (98, 100)),
        ),
        (
            ((PARTITION == 0) & (OFFSET < 5)) | ((PARTITION == 2) & (OFFSET >= 95)),
            {0: (0, 5), 2: (95, 100)},
        ),
        (pl.col("_topic") == "clicks", dict.fromkeys(range(3), (0, 100))),
        (pl.col("_topic") == "others", {}),
        (OFFSET == 7, dict.fromkeys(range(3), (7, 8))),
        # What is not understood narrows nothing.
        (OFFSET % 2 == 0, dict.fromkeys(range(3), (0, 100))),
        ((OFFSET < 5) | (pl.col("id") < 5), dict.fromkeys(range(3), (0, 100))),
        (OFFSET != 7, dict.fromkeys(range(3), (0, 100))),
        (OFFSET.is_null(), dict.fromkeys(range(3), (0, 100))),
    ],
)
def test_a_filter_on_places_decides_what_is_read(
    with_places: dict[str, str],
    requests: list[Request],
    predicate: pl.Expr,
    ranges: dict[int, tuple[int, int]],
) -> None:
    found = scan(with_places).filter(predicate).collect()
    read = list(requests)
    everything = scan(with_places).collect()
    assert found.sort("id").equals(everything.filter(predicate).sort("id"))
    seen: dict[int, tuple[int, int]] = {}
    for one in read:
        low, high = seen.get(one.partition, (one.start, one.start))
        seen[one.partition] = (min(low, one.start), max(high, one.start + one.rows))
    assert seen == ranges


def test_a_filter_on_a_column_that_is_not_selected(with_places: dict[str, str]) -> None:
    frame = scan(with_places, columns=["id", "_offset"])
    assert frame.filter(OFFSET == 99).select("id").collect()["id"].sort().to_list() == [
        297,
        298,
        299,
    ]


def test_leaving_a_query_early_closes_the_stream(
    clicks: dict[str, str], open_rotations: Callable[..., int]
) -> None:
    query = scan(clicks).filter(pl.col("id") >= 0).head(3)
    assert query.collect(engine="streaming").height == 3
    # Polars drops what its threads left at a later call.
    assert open_rotations(lambda: pl.LazyFrame({"a": [1]}).collect()) == 0


def test_columns_that_are_not_there_are_refused(clicks: dict[str, str]) -> None:
    with pytest.raises(
        ConfigError, match="column 'nope' does not exist; available are id,"
    ):
        scan(clicks, columns=["nope"])


FOREIGN = {
    "decimal256(76, 2)",
    "month_day_nano_interval",
    "decimal128(5, -3)",
    "struct, equal names",
    "sparse union",
    "dense union",
    "run_end_encoded",
}


@pytest.mark.parametrize("name", EVERY_TYPE)
def test_a_type_arrives_or_is_refused_by_name(name: str) -> None:
    values = EVERY_TYPE[name]
    stream = {
        "streamType": "memory",
        "stream.memory.topic.name": "values",
        "stream.memory.store": f"polars {name}",
    }
    with streamfactory.open_sink(stream) as sink:
        sink.put(pa.table({"n": range(len(values)), "v": values}))
    if name in FOREIGN:
        with pytest.raises(Unsupported, match="the type of column 'v'"):
            scan(stream)
        assert scan(stream, columns=["n"]).collect().height == len(values)
        return
    found = scan(stream).collect()
    expected = pl.from_arrow(streamfactory.engines.arrow.dataset(stream).to_table())
    assert isinstance(expected, pl.DataFrame)
    assert found["v"].equals(expected["v"], null_equal=True)


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_an_error_of_the_stream_is_raised_as_it_is(
    clicks: dict[str, str], monkeypatch: pytest.MonkeyPatch, engine: EngineType
) -> None:
    def fail(*_: object) -> None:
        msg = "the topic 'clicks' was deleted"
        raise TopicNotFound(msg)

    frame = scan(clicks)
    monkeypatch.setattr(LogConsumer, "fetch_messages", fail)
    kind = pl.exceptions.ComputeError if BEFORE_2 else TopicNotFound
    with pytest.raises(kind, match="was deleted"):
        frame.collect(engine=engine)
