"""The order in which the lanes of a push table are read."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.push.pushing import NUMBERS, Producer, numbers, values

from streamfactory import push_table
from streamfactory.spi import ConfigError, ProducerFailed, SchemaMismatch


def test_arrival_is_the_order_of_the_writes() -> None:
    sink, table = push_table(NUMBERS, lanes=3)
    for n in range(12):
        sink.lane(n * 7 % 3).write(numbers(10 * n))
    sink.close()
    assert values(table) == list(range(120))


def test_round_robin_reads_lanes_in_turn_and_passes_over_empty_ones() -> None:
    sink, table = push_table(NUMBERS, lanes=3, merge="round-robin")
    for lane, first in ((0, 0), (0, 30), (2, 10), (0, 40), (2, 20)):
        sink.lane(lane).write(numbers(first, 1))
    sink.close()
    assert values(table) == [0, 10, 30, 20, 40]


def test_ordered_lanes_are_merged_by_the_column() -> None:
    chance = random.Random(1)
    for _ in range(50):
        count = chance.randint(1, 4)
        sink, table = push_table(NUMBERS, lanes=count, merge="ordered:number")
        wanted = []
        for lane in range(count):
            own = sorted(chance.choices(range(50), k=chance.randint(0, 60)))
            wanted += own
            at = 0
            while at < len(own):
                step = chance.randint(0, 9)
                rows = pa.record_batch([pa.array(own[at : at + step])], NUMBERS)
                sink.lane(lane).write(rows)
                at += step
        sink.close()
        assert values(table) == sorted(wanted)


def test_equal_values_keep_the_order_of_lanes_and_of_their_rows() -> None:
    schema = pa.schema([("at", pa.int64()), ("of", pa.string())])
    sink, table = push_table(schema, lanes=2, merge="ordered:at")
    for lane, name in ((1, "b"), (0, "a")):
        for batch in range(2):
            rows = {"at": [batch, batch, batch], "of": [f"{name}{n}" for n in range(3)]}
            sink.lane(lane).write(pa.table(rows, schema=schema))
    sink.close()
    assert table.to_reader().read_all()["of"].to_pylist() == [
        *("a0", "a1", "a2", "b0", "b1", "b2"),
        *("a0", "a1", "a2", "b0", "b1", "b2"),
    ]


def test_an_ordered_merge_waits_for_the_slowest_lane() -> None:
    sink, table = push_table(NUMBERS, lanes=2, merge="ordered:number")
    sink.lane(0).write(numbers(10))
    found: list[int] = []
    reader = Producer(lambda: found.extend(itertools.islice(values(table), 5)))
    sink.lane(1).write(numbers(0, 5))
    sink.lane(1).write(numbers(100, 1))
    sink.close()
    assert reader.join() is None
    assert found == [0, 1, 2, 3, 4]


def test_an_ordered_merge_hands_out_what_is_queued_before_a_failure() -> None:
    sink, table = push_table(NUMBERS, lanes=2, merge="ordered:number")
    sink.lane(0).write(numbers(10))
    sink.fail("over")
    scan = iter(table)
    assert values([next(scan)]) == list(range(10, 20))
    with pytest.raises(ProducerFailed):
        next(scan)


@pytest.mark.parametrize("bad", [[3, 2], [0, 1], [5, None]])
def test_rows_out_of_order_are_refused_where_they_are_pushed(
    bad: list[int | None],
) -> None:
    sink, table = push_table(NUMBERS, merge="ordered:number")
    sink.write(pa.record_batch([pa.array([1, 2], pa.int64())], NUMBERS))
    with pytest.raises(SchemaMismatch, match="lane 0 is not sorted by column"):
        sink.write(pa.record_batch([pa.array(bad, pa.int64())], NUMBERS))
    sink.close()
    assert values(table) == [1, 2]


def test_a_table_that_is_not_in_order_is_not_queued_in_part() -> None:
    sink, table = push_table(NUMBERS, merge="ordered:number")
    with pytest.raises(SchemaMismatch, match="not sorted by"):
        sink.write(pa.Table.from_batches([numbers(0), numbers(5)]))
    assert sink.statistics.rows_pushed == 0
    sink.write(numbers(0))  # the refused rows are no last value
    sink.close()
    assert values(table) == list(range(10))


def test_nan_has_no_order() -> None:
    schema = pa.schema([("x", pa.float64())])
    sink, _table = push_table(schema, merge="ordered:x")
    with pytest.raises(SchemaMismatch, match="NaN"):
        sink.write(pa.record_batch([pa.array([float("nan")])], schema))


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.timestamp("us", "UTC"), pa.date32(), pa.decimal128(9, 2)]
)
def test_every_ordered_type_can_be_merged(kind: pa.DataType) -> None:
    schema = pa.schema([("x", kind)])
    sink, table = push_table(schema, lanes=2, merge="ordered:x")
    rising: list[object] = ["a", "b", "c"]
    if pa.types.is_temporal(kind):
        rising = [dt.datetime(2020, 1, day, tzinfo=dt.UTC) for day in (1, 2, 3)]
    elif pa.types.is_decimal(kind):
        rising = [Decimal(1), Decimal(2), Decimal(3)]
    wanted = pa.array(rising, kind)
    for lane, at in ((0, [0, 2]), (1, [1])):
        sink.lane(lane).write(pa.record_batch([wanted.take(pa.array(at))], schema))
    sink.close()
    assert table.to_reader().read_all()["x"].combine_chunks().equals(wanted)


def test_a_column_that_cannot_be_merged_by_is_named() -> None:
    schema = pa.schema([("list", pa.list_(pa.int8()))])
    with pytest.raises(ConfigError, match=r"'list'.*has no order"):
        push_table(schema, merge="ordered:list")
    with pytest.raises(ConfigError, match=r"no column 'other'.*'list'"):
        push_table(schema, merge="ordered:other")
