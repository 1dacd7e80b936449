"""Push tables that are read repeatedly."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import duckdb
import pytest
from tests.push.pushing import NUMBERS, Producer, numbers, values

import streamfactory
from streamfactory import push_table
from streamfactory.spi import ClosedError, ConfigError, MisuseError, ProducerFailed

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["memory", "folder"])
def keep(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory" if request.param == "memory" else str(tmp_path / "kept")


def test_each_scan_begins_at_the_first_row(keep: str) -> None:
    sink, table = push_table(NUMBERS, keep=keep)
    with sink:
        sink.write(numbers(0))
        assert sink.try_write(numbers(10))
    for _ in range(2):
        assert values(table) == list(range(20))
    kept = table
    joined = duckdb.sql("select a.number from kept a join kept b using (number)")
    assert joined is not None
    assert len(joined.fetchall()) == 20
    assert kept.statistics.rows_read >= 60


def test_a_scan_follows_until_the_table_ends(keep: str) -> None:
    sink, table = push_table(NUMBERS, keep=keep)
    sink.write(numbers(0))
    scan = iter(table)
    assert values([next(scan)]) == list(range(10))
    rest: list[int] = []
    reader = Producer(lambda: rest.extend(values(scan)))
    sink.write(numbers(10))
    sink.close()
    assert reader.join() is None
    assert rest == list(range(10, 20))


def test_each_reader_gets_the_failure_after_the_rows(keep: str) -> None:
    sink, table = push_table(NUMBERS, keep=keep)
    sink.write(numbers(0))
    sink.fail("over")
    for _ in range(2):
        scan = iter(table)
        assert values([next(scan)]) == list(range(10))
        with pytest.raises(ProducerFailed, match="over"):
            next(scan)
    with pytest.raises(ClosedError):
        sink.write(numbers(10))
    with pytest.raises(ClosedError):
        sink.fail("again")


def test_a_reader_that_stops_early_ends_no_other_reader(keep: str) -> None:
    sink, table = push_table(NUMBERS, keep=keep)
    sink.write(numbers(0))
    next(iter(table))
    sink.write(numbers(10))
    sink.close()
    assert values(table) == list(range(20))


def test_a_closed_table_is_not_read_and_its_sink_continues(keep: str) -> None:
    sink, table = push_table(NUMBERS, keep=keep)
    with table:
        sink.write(numbers(0))
        assert values([next(iter(table))]) == list(range(10))
    with pytest.raises(ClosedError, match="the table is closed"):
        values(table)
    sink.write(numbers(10))
    sink.close()
    assert sink.statistics.rows_pushed == 20


def test_a_lost_sink_fails_the_readers(keep: str) -> None:
    sink, table = push_table(NUMBERS, keep=keep)
    sink.write(numbers(0))
    del sink
    gc.collect()
    with pytest.raises(ProducerFailed, match="garbage-collected"):
        values(table)


def test_a_folder_is_a_file_stream_afterwards(tmp_path: Path) -> None:
    sink, _table = push_table(NUMBERS, keep=tmp_path)
    with sink:
        sink.write(numbers(0))
    properties = {
        "streamType": "file",
        "stream.file.path": str(tmp_path),
        "stream.file.topic.name": "rows",
    }
    with streamfactory.open(properties) as stream:
        assert values(batch.rows for batch in stream) == list(range(10))
    with pytest.raises(MisuseError, match="contains a push table already"):
        push_table(NUMBERS, keep=tmp_path)


@pytest.mark.parametrize("option", ["capacity_bytes", "capacity_batches", "lanes"])
def test_bounds_are_refused_where_they_have_no_effect(option: str) -> None:
    with pytest.raises(ConfigError, match=f"{option} has no effect"):
        push_table(NUMBERS, keep="memory", **{option: 2})  # type: ignore[arg-type]
