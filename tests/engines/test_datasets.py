"""Streams as Arrow datasets, in DataFusion and in pandas."""

from __future__ import annotations

import asyncio
import datetime as dt
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.dataset as ds
import pytest
from datafusion import SessionContext
from tests.specimens import PARTITION_0, Author, envelopes, rows

import streamfactory.engines
from streamfactory.spi import (
    BatchState,
    ConfigError,
    Fetched,
    MisuseError,
    NotInstalled,
    Partition,
    PartitionVanished,
    Position,
    Unsupported,
    Yields,
    envelope_schema,
)
from streamfactory.wiring.reading.metadata import Metadata

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.engines.conftest import Request

engines = streamfactory.engines
FIELD = ds.field


# --- datasets -------------------------------------------------------------------------


def test_a_dataset_has_every_row_once(clicks: dict[str, str]) -> None:
    dataset = engines.arrow.dataset(clicks)
    assert isinstance(dataset, ds.Dataset)
    assert dataset.schema.names == ["id", "page", "price"]
    assert dataset.count_rows() == 300
    assert sorted(dataset.to_table()["id"].to_pylist()) == list(range(300))
    assert dataset.head(5).num_rows == 5
    assert sum(batch.num_rows for batch in dataset.to_batches()) == 300
    assert dataset.sort_by("id").to_table()["id"].to_pylist() == list(range(300))


def test_counting_reads_one_column(
    clicks: dict[str, str], requests: list[Request]
) -> None:
    assert engines.arrow.dataset(clicks).count_rows() == 300
    assert {request.columns for request in requests} == {("id",)}


def test_filters_narrow_the_dataset(clicks: dict[str, str]) -> None:
    dataset = engines.arrow.dataset(clicks)
    narrow = dataset.filter(FIELD("id") < 10).filter(FIELD("_partition") == 0)
    assert narrow.to_table(columns=["id"])["id"].to_pylist() == [0, 3, 6, 9]
    assert narrow.count_rows(filter=FIELD("page") == "/3") == 1


def test_a_plan_reports_what_is_read(clicks: dict[str, str]) -> None:
    dataset = engines.arrow.dataset(clicks)
    plan = dataset.plan(["price"], (FIELD("_partition") == 2) & (FIELD("_offset") > 96))
    assert str(plan).endswith(
        ": columns price, _partition, _offset; ranges clicks-2 [97, 100)"
    )
    assert dataset.counters.rows == 0
    assert dataset.plan(filter=FIELD("_partition") > 8).ranges == {}


def test_counters_report_what_was_read(clicks: dict[str, str]) -> None:
    dataset = engines.arrow.dataset(clicks)
    wanted = (FIELD("_offset") < 10) & (FIELD("id") > 5)
    found = dataset.to_table(filter=wanted)
    assert (found.num_rows, dataset.counters.rows) == (24, 30)


def test_counters_have_the_bytes_of_the_columns_that_were_read(
    clicks: dict[str, str],
) -> None:
    def read(columns: list[str] | None) -> int:
        dataset = engines.arrow.dataset(clicks)
        dataset.to_table(columns=columns)
        return dataset.counters.bytes

    assert read(["id"]) == 300 * 8
    assert read(["id", "price"]) == 2 * read(["id"]) < read(None)
    counted = engines.arrow.dataset(clicks)
    assert counted.count_rows() == 300
    assert counted.counters.bytes == 300 * 8, "one column, the narrowest"


def test_more_partitions_than_are_searched_one_by_one_are_pruned() -> None:
    stream = {
        "streamType": "memory",
        "stream.memory.topic.name": "wide",
        "stream.memory.store": "wide",
        "stream.memory.partitions": "70",
    }
    with streamfactory.open_sink(stream) as sink:
        numbers = pa.array([n % 70 for n in range(700)], pa.int32())
        sink.put(pa.table({"id": pa.arange(0, 700), "_partition": numbers}))
    dataset = engines.arrow.dataset(stream)
    plan = dataset.plan(filter=FIELD("_offset").isin([3, 5]))
    assert set(plan.ranges.values()) == {(3, 6)}
    assert len(plan.ranges) == 70


def test_a_start_is_that_of_open(clicks: dict[str, str]) -> None:
    places = {Partition("clicks", n): 90 for n in range(3)}
    dataset = engines.arrow.dataset(clicks, start=Position(places))
    assert dataset.count_rows() == 30
    assert engines.arrow.dataset(clicks, start="latest").count_rows() == 0


def test_metadata_columns_are_read_by_name(clicks: dict[str, str]) -> None:
    dataset = engines.arrow.dataset(clicks, columns=["_offset", "_partition"])
    table = dataset.to_table(filter=FIELD("id") >= 297)
    assert table.schema.names == ["_offset", "_partition"]
    assert table["_offset"].to_pylist() == [99, 99, 99]


def test_what_a_stream_cannot_do_is_refused(clicks: dict[str, str]) -> None:
    dataset = engines.arrow.dataset(clicks)
    refused: list[Callable[[], Any]] = [
        lambda: dataset.join(dataset, "id"),
        lambda: dataset.join_asof(dataset, "id", "id", 1, "id"),
        lambda: dataset.replace_schema(dataset.schema),
        lambda: dataset.take([0]),
        lambda: dataset.scanner(columns={"twice": FIELD("id") * 2}),  # type: ignore[arg-type]
        lambda: dataset.scanner().scan_batches(),
    ]
    for call in refused:
        with pytest.raises(Unsupported, match="as a dataset does not support"):
            call()


def test_a_scan_in_arrows_own_code_is_an_error_with_the_remedy(
    clicks: dict[str, str], tmp_path: Path
) -> None:
    dataset = engines.arrow.dataset(clicks)
    both = ds.UnionDataset(dataset.schema, [dataset, dataset])
    scan = acero.Declaration("scan", acero.ScanNodeOptions(dataset))
    scans: list[Callable[[], Any]] = [
        lambda: ds.Scanner.from_dataset(dataset).to_table(),
        both.to_table,
        scan.to_table,
    ]
    for call in scans:
        with pytest.raises(Unsupported, match=r"scanner\(\)\.to_reader\(\)"):
            call()
    with pytest.raises(TypeError, match="StreamScanner"):
        ds.write_dataset(dataset, tmp_path / "out", format="parquet")
    reader = dataset.scanner().to_reader()
    ds.write_dataset(reader, tmp_path / "out", format="parquet")
    assert ds.dataset(tmp_path / "out").count_rows() == dataset.count_rows()


def test_a_filter_that_is_no_expression_is_refused(clicks: dict[str, str]) -> None:
    for call in (
        lambda: list(engines.pandas.chunks(clicks, filter="id > 1")),
        lambda: engines.arrow.dataset(clicks).scanner(filter="id > 1").to_table(),
    ):
        with pytest.raises(MisuseError, match="a filter is an Arrow expression"):
            call()


def test_options_are_taken_as_programs_write_them(clicks: dict[str, str]) -> None:
    options = {"metadata.columns": True}
    assert "_offset" in engines.arrow.dataset(clicks, options=options).schema.names
    with pytest.raises(ConfigError, match="expected a string"):
        engines.arrow.dataset(clicks, options={"metadata.columns": 1.5})


def test_a_group_is_refused(clicks: dict[str, str]) -> None:
    kind = clicks["streamType"]
    options = {
        f"stream.{kind}.consumer.type": "highlevel",
        "group.id": "g",
        "checkpoint.location": "checkpoints",
    }
    with pytest.raises(Unsupported, match=r"set consumer\.type=lowlevel"):
        engines.arrow.dataset(clicks, options=options)


# --- times ----------------------------------------------------------------------------


def messages() -> Author:
    """A backend of 20 messages: offset n has the time n milliseconds."""
    author = Author(schema=envelope_schema(), latest=20)
    author.yields = Yields.ENVELOPE

    def fetch(start: int, end: int | None, _: object) -> Fetched:
        return envelopes(*[b"x"] * (min(end or 20, 20) - start), start=start)

    author.always = fetch
    return author


def described(author: Author) -> dict[str, str]:
    return author.properties(
        stream__script__decoder__class__name="raw", metadata__columns="true"
    )


def timed(author: Author) -> Any:
    return engines.arrow.dataset(described(author), plugins=author.manager())


def millis(number: float) -> pa.Scalar:
    return pa.scalar(int(number * 1000), pa.timestamp("us", tz="UTC"))


@pytest.mark.parametrize(
    ("wanted", "asked", "found"),
    [
        (FIELD("_timestamp") >= millis(12), 12, 8),
        (FIELD("_timestamp") > millis(12.5), 12, 7),
        (FIELD("_timestamp") == millis(12), 12, 1),
        ((FIELD("_timestamp") >= millis(12)) & (FIELD("_offset") < 14), 12, 2),
    ],
)
def test_a_filter_on_time_is_looked_up_in_the_stream(
    wanted: ds.Expression, asked: int, found: int
) -> None:
    author = messages()
    author.times = {PARTITION_0: 12}
    assert timed(author).to_table(filter=wanted).num_rows == found
    assert author.times_asked == [asked]
    assert author.starts == [12]


@pytest.mark.parametrize(
    ("bound", "starts"),
    [
        (dt.datetime(1970, 1, 1, 0, 0, 0, 12_000, dt.UTC), [12]),
        (dt.date(1970, 1, 1), [0]),
    ],
)
def test_polars_looks_times_up_too(bound: dt.date, starts: list[int]) -> None:
    author = messages()
    author.times = {PARTITION_0: 12}
    frame = engines.polars.scan(described(author), plugins=author.manager())
    late = frame.filter(pl.col("_timestamp") >= pl.lit(bound))
    assert late.collect().height == 20 - starts[0]
    assert author.starts == starts


def test_a_time_later_than_every_message_reads_nothing() -> None:
    author = messages()
    author.times = {PARTITION_0: None}
    late = FIELD("_timestamp") >= millis(100)
    assert timed(author).to_table(filter=late).num_rows == 0
    assert author.calls == []


@pytest.mark.parametrize(
    "wanted",
    [
        FIELD("_timestamp") < millis(12),
        FIELD("_timestamp").is_null(),
        (FIELD("_timestamp") >= millis(12)) | FIELD("_timestamp").is_null(),
        (FIELD("_timestamp") >= millis(12)) | (FIELD("_offset") == 3),
    ],
)
def test_a_filter_that_early_messages_match_is_not_looked_up(
    wanted: ds.Expression,
) -> None:
    author = messages()
    timed(author).to_table(filter=wanted)
    assert author.times_asked == []
    assert author.starts == [0]


def test_a_stream_that_cannot_find_times_filters_rows_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        msg = "this stream cannot find offsets by time"
        raise Unsupported(msg)

    monkeypatch.setattr(Metadata, "offsets_at", refuse)
    author = messages()
    late = FIELD("_timestamp") >= millis(12)
    assert timed(author).to_table(filter=late).num_rows == 8
    assert author.starts == [0]


def test_times_that_rows_only_carry_are_not_looked_up() -> None:
    # A log of messages knows when each was stored, not the time that it carries.
    author = messages()
    author.yields = Yields.EITHER
    late = FIELD("_timestamp") >= millis(12)
    assert timed(author).to_table(filter=late).num_rows == 8
    assert author.times_asked == []


# --- ends that are not known ----------------------------------------------------------


def test_an_unknown_end_is_refused_with_the_option_that_bounds_it() -> None:
    end = Fetched(None, 5, state=BatchState.END_OF_PARTITION)
    author = Author(rows(0, 5), end, latest=None)
    dataset = engines.arrow.dataset(author.properties(), plugins=author.manager())
    with pytest.raises(MisuseError) as caught:
        dataset.to_table()
    assert "set endingOffsets, or spool.path" in str(caught.value)
    assert author.made == []


def test_an_unknown_end_is_bounded_by_an_option_a_filter_or_a_sender() -> None:
    def dataset(*, ended: bool = False, **how: Any) -> Any:
        end = Fetched(None, 5, state=BatchState.END_OF_PARTITION)
        author = Author(rows(0, 5), *([end] if ended else []), latest=None)
        plugins = author.manager()
        return engines.arrow.dataset(author.properties(), plugins=plugins, **how)

    bound = {"endingOffsets": '{"script": {"0": 3}}'}
    assert dataset(options=bound).to_table()["id"].to_pylist() == [0, 1, 2]
    assert dataset().to_table(filter=FIELD("_offset") < 4).num_rows == 4
    assert dataset(ended=True, unbounded=True).to_table().num_rows == 5


# --- DataFusion -----------------------------------------------------------------------


def test_datafusion_reads_a_stream_by_name(with_places: dict[str, str]) -> None:
    context = SessionContext()
    table = engines.datafusion.register(context, with_places, name="clicks")
    assert table.schema().names[0] == "id"
    query = "select count(*) as n, sum(id) as s from clicks"
    assert context.sql(query).to_pydict() == {"n": [300], "s": [44850]}


@pytest.mark.parametrize("name", ["Clicks", 'we"ird; drop', "a.b", "select", "ä-1"])
def test_any_name_is_a_name_in_sql(clicks: dict[str, str], name: str) -> None:
    quoted = '"{}"'.format(name.replace('"', '""'))
    query = f"select count(*) as n from {quoted}"
    context = SessionContext()
    with duckdb.connect() as connection:
        for _ in range(2):  # a second time replaces the first
            engines.datafusion.register(context, clicks, name=name)
            engines.duckdb.register(connection, clicks, name=name)
        assert context.sql(query).to_pydict() == {"n": [300]}
        assert connection.sql(query).fetchall() == [(300,)]


def test_datafusion_pushes_columns_and_filters_down(
    with_places: dict[str, str], requests: list[Request]
) -> None:
    context = SessionContext()
    engines.datafusion.register(context, with_places, name="clicks")
    query = "select sum(id) as s from clicks where _partition = 1 and _offset >= 98"
    assert context.sql(query).to_pydict() == {"s": [295 + 298]}
    assert {(one.partition, one.start, one.rows) for one in requests} == {(1, 98, 2)}
    assert {one.columns for one in requests} == {("id",)}


def test_datafusion_hands_out_batches_while_it_reads(
    clicks: dict[str, str], open_rotations: Callable[..., int]
) -> None:
    context = SessionContext()
    engines.datafusion.register(context, clicks, name="clicks")

    async def first() -> int:
        async for batch in context.sql("select id from clicks").execute_stream():
            return int(batch.to_pyarrow().num_rows)
        return 0

    assert asyncio.run(first()) > 0
    # DataFusion drops what its threads left at a later call.
    assert open_rotations(lambda: SessionContext().sql("select 1").collect()) == 0


# --- pandas ---------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 70, 100, 300, 1000])
def test_pandas_gets_chunks_of_so_many_rows(clicks: dict[str, str], size: int) -> None:
    frames = list(engines.pandas.chunks(clicks, rows=size))
    assert [len(frame) for frame in frames[:-1]] == [size] * (len(frames) - 1)
    whole = pd.concat(frames, ignore_index=True)
    assert sorted(whole["id"]) == list(range(300))


def test_pandas_keeps_types_of_arrow_on_request(clicks: dict[str, str]) -> None:
    frames = engines.pandas.chunks(clicks, arrow_types=True, columns=["id"])
    assert str(next(iter(frames)).dtypes["id"]) == "int64[pyarrow]"


def test_pandas_filters_before_it_builds_frames(
    clicks: dict[str, str], requests: list[Request]
) -> None:
    wanted = FIELD("_offset") == 3
    frames = list(engines.pandas.chunks(clicks, filter=wanted, columns=["id"]))
    assert [sorted(frame["id"]) for frame in frames] == [[9, 10, 11]]
    assert sum(request.rows for request in requests) == 3


def test_chunks_without_rows_are_refused(clicks: dict[str, str]) -> None:
    with pytest.raises(MisuseError, match="use 1 or more"):
        engines.pandas.chunks(clicks, rows=0)


# --- engines that are not there -------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "call"),
    [
        ("polars", lambda: engines.polars.scan("clicks")),
        ("duckdb", lambda: engines.duckdb.relation("clicks")),
        ("duckdb", lambda: engines.duckdb.register(None, "clicks")),  # type: ignore[arg-type]
        ("datafusion", lambda: engines.datafusion.register(None, "clicks")),  # type: ignore[arg-type]
        ("pandas", lambda: engines.pandas.chunks("clicks")),
    ],
)
def test_an_engine_that_is_not_installed_is_an_error_with_the_command(
    engine: str, call: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, engine, None)
    with pytest.raises(NotInstalled) as caught:
        call()
    assert f"run: pip install 'streamfactory[{engine}]'" in str(caught.value)


def test_no_engine_is_imported_before_it_is_used() -> None:
    code = (
        "import sys, streamfactory.engines as e\n"
        "[getattr(e, name) for name in e.__all__]\n"
        # Not pandas: pyarrow.dataset imports it where it is installed.
        "print(sorted({'polars', 'duckdb', 'datafusion'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_engines_are_these() -> None:
    assert dir(engines) == ["arrow", "datafusion", "duckdb", "pandas", "polars"]
    with pytest.raises(AttributeError, match="has no attribute 'spark'"):
        engines.spark  # noqa: B018


# --- push tables, which are read once -------------------------------------------------


def pushed(count: int, name: str) -> tuple[dict[str, str], object]:
    """A push table of so many rows as a stream; keep what it is."""
    schema = pa.schema([pa.field("n", pa.int64())])
    sink, table = streamfactory.push_table(schema, name=name)
    with sink:
        for number in range(count):
            sink.write(pa.table({"n": [number]}, schema=schema))
    return {"streamType": "push", "stream.push.topic.name": name}, table


def test_a_push_table_is_read_until_its_producer_closes_it() -> None:
    stream, table = pushed(10, "engine-sum")
    frame = engines.polars.scan(stream, unbounded=True)
    assert frame.collect()["n"].sum() == 45
    assert table


def test_a_stream_that_cannot_seek_is_filtered_from_its_first_row_on() -> None:
    stream, table = pushed(10, "engine-late")
    dataset = engines.arrow.dataset(stream, unbounded=True)
    wanted = (FIELD("_offset") >= 4) & (FIELD("_offset") < 8)
    assert dataset.to_table(columns=["n"], filter=wanted)["n"].to_pylist() == [
        *range(4, 8)
    ]
    assert table


def test_a_position_of_a_missing_partition_is_a_loss() -> None:
    gone = Partition("script", 7)
    start = Position({PARTITION_0: 0, gone: 3})
    author = Author(rows(0, 5), latest=5)

    def dataset(**options: Any) -> Any:
        return engines.arrow.dataset(
            author.properties(**options), start=start, plugins=author.manager()
        )

    with pytest.raises(PartitionVanished):
        dataset().to_table()
    kept = dataset(out__of__range="earliest")
    assert kept.to_table(filter=FIELD("_offset") < 5).num_rows == 5
    assert [loss.partition for loss in kept.counters.losses] == [gone]
