"""Push tables: what a sink and its reader see of one another."""

from __future__ import annotations

import gc
import threading
import time
from functools import partial

import pyarrow as pa
import pytest
from tests.malformed import MALFORMED, rows_of
from tests.push.pushing import DEADLINE, NUMBERS, Producer, numbers, until, values

from streamfactory import push_table
from streamfactory.push import StopPushing
from streamfactory.spi import (
    ClosedError,
    ConfigError,
    Failed,
    MisuseError,
    ProducerFailed,
    ReaderFailed,
    ReaderFinished,
    SchemaMismatch,
    StreamTimeout,
)


class Boom(Exception):
    """What a producer or a reader raises."""


def test_a_sink_reports_what_it_takes_and_whether_it_is_open() -> None:
    sink, table = push_table(NUMBERS)
    assert repr(sink) == repr(table).replace("PushTable", "PushSink")[:-1] + ", open>"
    sink.close()
    assert repr(sink).endswith(", closed>")


# --- what the reference tests ---------------------------------------------------------


def test_rows_are_read_by_the_thread_that_pushed_them() -> None:
    sink, table = push_table(NUMBERS)
    sink.write(numbers(0))
    sink.write(numbers(10))
    sink.close()
    assert values(table) == list(range(20))


def test_rows_of_another_thread_arrive_while_the_reader_reads() -> None:
    sink, table = push_table(NUMBERS)
    seen = threading.Event()

    def work() -> None:
        sink.write(numbers(0))
        assert seen.wait(DEADLINE)  # the reader has them before the sink is closed
        sink.write(numbers(10))
        sink.close()

    producer = Producer(work)
    found = []
    for rows in table:
        found.append(rows)
        seen.set()
    assert producer.join() is None
    assert values(found) == list(range(20))


def test_close_ends_the_table_after_what_is_queued() -> None:
    sink, table = push_table(NUMBERS)
    sink.write(numbers(0))
    sink.close()
    sink.close()
    assert values(table) == list(range(10))
    assert sink.closed


def test_a_failure_reaches_the_reader_after_the_rows_with_its_cause() -> None:
    sink, table = push_table(NUMBERS)
    sink.write(numbers(0))
    cause = Boom("no more")
    sink.fail(cause)
    scan = iter(table)
    assert values([next(scan)]) == list(range(10))
    with pytest.raises(ProducerFailed, match="Boom: no more") as caught:
        next(scan)
    assert caught.value.__cause__ is cause


def test_a_write_that_waits_ends_when_the_sink_is_closed() -> None:
    sink, table = push_table(NUMBERS, capacity_batches=1)
    sink.write(numbers(0))
    producer = Producer(lambda: sink.write(numbers(10)))
    until(lambda: sink.statistics.queued_batches == 1)
    sink.close()
    assert isinstance(producer.join(), ClosedError)
    assert values(table) == list(range(10))


def test_fail_does_not_wait_where_the_table_is_full_and_not_read() -> None:
    sink, table = push_table(NUMBERS, capacity_batches=1)
    sink.write(numbers(0))
    sink.fail(Boom())
    scan = iter(table)
    assert values([next(scan)]) == list(range(10))
    with pytest.raises(ProducerFailed):
        next(scan)


def test_a_full_table_blocks_the_producer_and_loses_nothing() -> None:
    sink, table = push_table(NUMBERS, capacity_batches=2)

    def work() -> None:
        with sink:
            for first in range(0, 1000, 10):
                sink.write(numbers(first))
                assert sink.statistics.queued_batches <= 2

    producer = Producer(work)
    until(lambda: sink.statistics.queued_batches == 2)
    assert sink.statistics.rows_pushed == 20  # it waits
    assert values(table) == list(range(1000))
    assert producer.join() is None
    assert sink.statistics.writers_blocked_seconds > 0


def test_a_second_scan_is_refused() -> None:
    sink, table = push_table(NUMBERS)
    sink.write(numbers(0))
    sink.close()
    assert values(table) == list(range(10))
    with pytest.raises(MisuseError, match=r"read once.*keep="):
        next(iter(table))
    with pytest.raises(MisuseError, match="read once"):
        table.to_reader().read_all()


@pytest.mark.parametrize("how", ["was closed", "has failed before: .*over"])
def test_a_write_after_the_end_is_refused(how: str) -> None:
    sink, _table = push_table(NUMBERS)
    if "closed" in how:
        sink.close()
    else:
        sink.fail("over")
    with pytest.raises(ClosedError, match=f"the sink {how}"):
        sink.write(numbers(0))
    with pytest.raises(ClosedError):
        sink.try_write(numbers(0))
    sink.close()
    with pytest.raises(ClosedError):
        sink.fail("again")


def test_zero_columns_keep_their_number_of_rows() -> None:
    schema = pa.schema([])
    sink, table = push_table(schema)
    array = pa.StructArray.from_buffers(pa.struct([]), 7, [None])
    sink.write(pa.RecordBatch.from_struct_array(array))
    sink.close()
    assert [rows.num_rows for rows in table] == [7]


def test_metadata_of_the_schema_is_not_compared_and_comes_from_the_table() -> None:
    schema = NUMBERS.with_metadata({"of": "the table"})
    sink, table = push_table(schema)
    sink.write(numbers(0).replace_schema_metadata({"of": "the batch"}))
    sink.close()
    assert next(iter(table)).schema.metadata == {b"of": b"the table"}


def test_an_argument_out_of_range_is_named() -> None:
    for option in ("capacity_bytes", "capacity_batches", "lanes"):
        with pytest.raises(ConfigError, match=f"{option} is 0.*whole number"):
            push_table(NUMBERS, **{option: 0})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="merge is 'best'"):
        push_table(NUMBERS, merge="best")
    for arguments, said in (
        ({"capacity_bytes": "1MB"}, "capacity_bytes is '1MB'"),
        ({"write_timeout": -1}, "write_timeout is -1"),
        ({"read_timeout": "1"}, "read_timeout is '1'"),
        ({"keep": "memry"}, "keep is 'memry'.*use memory"),
        ({"keep": True}, "keep is True"),
        ({"name": ""}, "name '' is empty"),
        ({"name": "a\nb"}, "contains a control character"),
    ):
        with pytest.raises(ConfigError, match=said):
            push_table(NUMBERS, **arguments)
    with pytest.raises(ConfigError, match="schema is of type 'list'"):
        push_table([("n", pa.int64())])
    sink, _table = push_table(NUMBERS)
    with pytest.raises(MisuseError, match="fail takes an exception"):
        sink.fail(None)
    with pytest.raises(MisuseError, match="'int' has no rows; pass an Arrow table"):
        sink.write([1, 2])


def test_dictionaries_are_carried() -> None:
    kind = pa.dictionary(pa.int8(), pa.string())
    schema = pa.schema([pa.field("s", pa.struct([pa.field("word", kind)]))])
    words = pa.array(["a", "b", "a"]).dictionary_encode().cast(kind)
    rows = pa.record_batch([pa.StructArray.from_arrays([words], ["word"])], schema)
    sink, table = push_table(schema)
    sink.write(rows)
    sink.close()
    assert next(iter(table)).equals(rows)


def test_a_producer_inside_a_callback_of_the_reader_does_not_deadlock() -> None:
    sink, table = push_table(NUMBERS, capacity_batches=2)
    sink.write(numbers(0))
    found = []
    for rows in table:
        found.append(rows)
        if len(found) < 5:
            sink.write(numbers(10 * len(found)))
        else:
            sink.close()
    assert values(found) == list(range(50))


# --- what it does not test ------------------------------------------------------------


def test_a_reader_that_stops_early_ends_the_producer_without_an_error() -> None:
    sink, table = push_table(NUMBERS, capacity_batches=1)
    ended = []

    def work() -> None:
        with sink:
            for first in range(0, 10**9, 10):
                sink.write(numbers(first))
        ended.append(sink.reader_end)

    producer = Producer(work)
    scan = iter(table)
    next(scan)
    scan.close()  # type: ignore[attr-defined]
    assert producer.join() is None
    assert ended == [ReaderFinished()]
    with pytest.raises(ClosedError):
        sink.write(numbers(0))


def test_the_signal_of_a_finished_reader_stays() -> None:
    sink, table = push_table(NUMBERS)
    sink.write(numbers(0))
    sink.write(numbers(10))
    assert sink.statistics.queued_batches == 2
    table.close()
    for _ in range(2):
        with pytest.raises(StopPushing):
            sink.write(numbers(0))
    with pytest.raises(StopPushing):
        sink.try_write(numbers(0))
    assert sink.statistics.queued_bytes == 0


def test_an_error_in_the_block_of_the_reader_reaches_the_producer() -> None:
    sink, table = push_table(NUMBERS, capacity_batches=1)
    sink.write(numbers(0))
    producer = Producer(lambda: sink.write(numbers(10)))
    cause = Boom("cannot go on")
    with pytest.raises(Boom), table:
        raise cause
    error = producer.join()
    assert isinstance(error, ReaderFailed)
    assert error.__cause__ is cause
    assert sink.reader_end == Failed("the reader failed: Boom: cannot go on")


def test_a_table_that_is_closed_while_it_is_read_is_no_end_of_its_rows() -> None:
    sink, table = push_table(NUMBERS)
    sink.write(numbers(0))
    scan = iter(table)
    next(scan)
    reader = Producer(lambda: next(scan))
    table.close()
    error = reader.join()
    assert isinstance(error, ClosedError)
    assert "closed while it was read" in str(error)
    sink, table = push_table(NUMBERS)
    sink.write(numbers(0))
    sink.write(numbers(10))
    sink.close()
    scan = iter(table)
    next(scan)
    table.close()  # which frees the second batch
    with pytest.raises(ClosedError, match="closed while it was read"):
        next(scan)


def test_an_error_while_a_block_iterates_is_no_normal_end() -> None:
    sink, table = push_table(NUMBERS)
    sink.write(numbers(0))
    cause = Boom("in the loop")

    def read() -> None:
        with table:
            for _ in table:
                raise cause

    with pytest.raises(Boom):
        read()
    with pytest.raises(ReaderFailed, match="in the loop") as caught:
        sink.write(numbers(10))
    assert caught.value.__cause__ is cause


def test_a_block_that_stops_to_iterate_ends_the_producer_when_it_ends() -> None:
    sink, table = push_table(NUMBERS)
    sink.write(numbers(0))
    with table:
        for _ in table:
            break
        sink.write(numbers(10))
    with pytest.raises(StopPushing, match="needs no more rows"):
        sink.write(numbers(20))


def test_an_error_in_the_block_of_a_lane_fails_the_table() -> None:
    sink, table = push_table(NUMBERS, lanes=2, merge="ordered:number")
    with sink.lane(0) as lane:
        lane.write(numbers(0))
    with pytest.raises(Boom), sink.lane(1):
        raise Boom
    with pytest.raises(ProducerFailed, match="Boom"):
        values(table)


def test_an_error_in_the_block_of_the_sink_is_no_end_of_the_table() -> None:
    sink, table = push_table(NUMBERS)
    sink.write(numbers(0))
    with pytest.raises(Boom), sink:
        raise Boom
    with pytest.raises(ProducerFailed, match="Boom"):
        values(table)


def test_a_sink_that_is_garbage_collected_ends_the_wait_of_the_reader() -> None:
    sink, table = push_table(NUMBERS)
    sink.write(numbers(0))
    scan = iter(table)
    assert values([next(scan)]) == list(range(10))
    reader = Producer(lambda: next(scan))
    del sink
    gc.collect()
    error = reader.join()
    assert isinstance(error, ProducerFailed)
    assert "garbage-collected before close" in str(error)


def test_a_lane_keeps_its_sink() -> None:
    sink, table = push_table(NUMBERS)
    lane = sink.lane(0)
    del sink
    gc.collect()
    lane.write(numbers(0))
    lane.close()
    assert values(table) == list(range(10))


def test_a_table_that_is_garbage_collected_unread_ends_the_wait_of_the_writer() -> None:
    sink, table = push_table(NUMBERS, capacity_batches=1)
    sink.write(numbers(0))
    producer = Producer(lambda: sink.write(numbers(10)))
    del table
    gc.collect()
    error = producer.join()
    assert isinstance(error, ReaderFailed)
    assert "garbage-collected before it was read" in str(error)


def test_a_reader_keeps_its_table() -> None:
    sink, table = push_table(NUMBERS)
    reader = table.to_reader()
    del table
    gc.collect()
    with sink:
        sink.write(numbers(0))
    assert reader.read_all().num_rows == 10


def test_a_reader_that_is_dropped_ends_the_producer() -> None:
    sink, table = push_table(NUMBERS)
    sink.write(numbers(0))
    reader = table.to_reader()
    reader.read_next_batch()
    del reader
    with pytest.raises(StopPushing):
        sink.write(numbers(10))


def test_a_wait_has_a_deadline_on_both_sides() -> None:
    sink, table = push_table(
        NUMBERS, capacity_batches=1, write_timeout=0.05, read_timeout=0.05
    )
    sink.write(numbers(0))
    with pytest.raises(StreamTimeout, match=r"not made room within 0.05 s"):
        sink.write(numbers(10))
    with pytest.raises(StreamTimeout, match=r"within 0.01 s"):
        sink.write(numbers(10), timeout=0.01)
    scan = iter(table)
    assert values([next(scan)]) == list(range(10))
    with pytest.raises(StreamTimeout, match=r"within 0.05 s"):
        next(scan)


def test_what_is_larger_than_the_capacity_is_queued_alone() -> None:
    sink, table = push_table(NUMBERS, capacity_bytes=100)
    sink.write(numbers(0, 1000))
    assert not sink.try_write(numbers(1000, 1))
    with pytest.raises(StreamTimeout):
        sink.write(numbers(1000, 1), timeout=0.01)
    scan = iter(table)
    next(scan)
    assert sink.try_write(numbers(1000, 1000))


def test_capacity_in_bytes_bounds_what_waits() -> None:
    sink, table = push_table(NUMBERS, capacity_bytes=1000)
    most = 0

    def work() -> None:
        nonlocal most
        with sink:
            for first in range(0, 10_000, 10):  # 80 bytes each
                sink.write(numbers(first))
                most = max(most, sink.statistics.queued_bytes)

    producer = Producer(work)
    assert values(table) == list(range(10_000))
    assert producer.join() is None
    assert most <= 1000


def test_a_table_is_queued_whole_or_not_at_all() -> None:
    sink, _table = push_table(NUMBERS, capacity_batches=3)
    two = pa.Table.from_batches([numbers(0), numbers(10)])
    assert sink.try_write(two)
    assert not sink.try_write(two)
    assert sink.statistics.queued_batches == 2
    with pytest.raises(MisuseError, match="try_write takes batches"):
        sink.try_write(two.to_reader())


def test_streams_and_foreign_objects_are_pushed_batch_by_batch() -> None:
    class Foreign:
        def __arrow_c_array__(self, requested_schema: object = None) -> object:
            return numbers(30).__arrow_c_array__(requested_schema)

    sink, table = push_table(NUMBERS)
    sink.write(pa.Table.from_batches([numbers(0), numbers(10)]).to_reader())
    sink.write(pa.table({"number": pa.arange(20, 30)}))
    sink.write(Foreign())
    assert sink.try_write(Foreign())
    sink.close()
    assert values(table) == [*range(40), *range(30, 40)]


def test_an_empty_table_has_its_schema() -> None:
    sink, table = push_table(NUMBERS)
    sink.close()
    assert table.to_reader().read_all().schema == NUMBERS
    assert pa.schema(table) == NUMBERS


def test_many_producers_lose_nothing_and_keep_their_own_order() -> None:
    sink, table = push_table(NUMBERS, capacity_batches=3, lanes=4)

    def work(first: int) -> None:
        for n in range(100):
            sink.write(numbers(first + 10 * n))

    producers = [Producer(partial(work, 1000 * n)) for n in range(8)]

    def close() -> None:
        for one in producers:
            assert one.join() is None
        sink.close()

    closer = Producer(close)
    found = values(table)
    assert closer.join() is None
    assert sorted(found) == list(range(8000))
    for n in range(8):
        own = [value for value in found if value // 1000 == n]
        assert own == sorted(own)


def test_each_lane_has_its_own_capacity() -> None:
    sink, table = push_table(NUMBERS, capacity_batches=1, lanes=2)
    first, second = sink.lane(0), sink.lane(1)
    assert first.try_write(numbers(0))
    assert not first.try_write(numbers(10))
    assert second.try_write(numbers(10))
    first.close()
    with pytest.raises(ClosedError, match="lane 0"):
        first.write(numbers(20))
    second.close()
    assert values(table) == list(range(20))
    with pytest.raises(MisuseError, match="lanes 0 to 1"):
        sink.lane(2)


def test_a_slow_reader_is_waited_for() -> None:
    sink, table = push_table(NUMBERS, capacity_batches=1)

    def work() -> None:
        with sink:
            for first in range(0, 50, 10):
                sink.write(numbers(first))

    producer = Producer(work)
    found = []
    for rows in table:
        found.append(rows)
        time.sleep(0.01)
    assert producer.join() is None
    assert values(found) == list(range(50))


# --- rows that do not fit -------------------------------------------------------------

ORDERS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field(
            "order",
            pa.struct([pa.field("items", pa.list_(pa.struct({"price": "float64"})))]),
        ),
    ]
)


@pytest.mark.parametrize(
    ("field", "said"),
    [
        (
            pa.field(
                "order",
                pa.struct([("items", pa.list_(pa.struct({"price": pa.string()})))]),
            ),
            "column 'order.items.item.price' is string, not double",
        ),
        (
            pa.field("order", pa.struct([("parts", pa.int8())])),
            "column 'order.items' is missing",
        ),
        (pa.field("order", pa.int8()), "column 'order' is tinyint, not struct"),
    ],
)
def test_a_column_of_another_type_is_named_by_its_path(
    field: pa.Field, said: str
) -> None:
    sink, _table = push_table(ORDERS)
    schema = pa.schema([ORDERS.field("id"), field])
    rows = pa.RecordBatch.from_pylist([], schema)
    with pytest.raises(SchemaMismatch) as caught:
        sink.write(rows)
    assert caught.value.what.startswith(said)
    assert sink.statistics.queued_batches == 0


def test_names_order_and_nullability_are_compared() -> None:
    schema = pa.schema([pa.field("a", pa.int8()), pa.field("b", pa.int8())])
    sink, _table = push_table(schema)
    for names, said in (
        (["a"], "column 'b' is missing"),
        (["a", "b", "c"], "column 'c' is not in the table"),
        (["b", "a"], "in the order"),
    ):
        with pytest.raises(SchemaMismatch, match=said):
            sink.write(pa.table({name: pa.array([1], pa.int8()) for name in names}))
    required = pa.schema([pa.field("a", pa.int8(), nullable=False), schema.field("b")])
    with pytest.raises(SchemaMismatch, match="column 'a' is required, not nullable"):
        sink.write(pa.RecordBatch.from_pylist([], required))
    sink, _table = push_table(required)
    nulls = pa.RecordBatch.from_arrays(
        [pa.array([None], pa.int8())] * 2, schema=required
    )
    with pytest.raises(SchemaMismatch, match="'a'"):
        sink.write(nulls)


def test_safe_casts_are_made_where_they_are_asked_for() -> None:
    sink, table = push_table(NUMBERS, cast=True)
    sink.write(pa.table({"number": pa.array([1, 2], pa.int8())}))
    with pytest.raises(SchemaMismatch, match="'number' is double, declared bigint"):
        sink.write(pa.table({"number": [1.5]}))
    sink.close()
    assert values(table) == [1, 2]
    required = pa.schema([pa.field("number", pa.int64(), nullable=False)])
    sink, _table = push_table(required, cast=True)
    sink.write(pa.table({"number": [1, 2]}))
    with pytest.raises(SchemaMismatch, match="'number' is not nullable") as caught:
        sink.write(pa.table({"number": [3, None, 1]}))
    assert caught.value.row == 1


@pytest.mark.parametrize("kind", ["buffer of a view", "offset of a view"])
def test_rows_are_checked_before_they_are_converted(kind: str) -> None:
    sink, _table = push_table(pa.schema([("c", pa.string())]), cast=True)
    with sink, pytest.raises(SchemaMismatch, match="column 'c'"):
        sink.write(rows_of(MALFORMED[kind][1]))
