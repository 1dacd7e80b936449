"""Push tables by configuration: the stream type ``push``."""

from __future__ import annotations

import gc
import json
import uuid
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.push.pushing import NUMBERS, Producer, numbers, producing, until, values

import streamfactory
from streamfactory import push_table
from streamfactory.arrowlog import message_schema
from streamfactory.push import StopPushing
from streamfactory.spi import (
    ConnectionFailed,
    Finished,
    IncarnationChanged,
    MisuseError,
    OffsetOutOfRange,
    ProducerFailed,
    SchemaMismatch,
    StreamTimeout,
    TopicNotFound,
    Unsupported,
)
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.microbatch.planner import check_shared
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def name() -> str:
    return uuid.uuid4().hex


def stream(name: str, **more: str) -> dict[str, str]:
    return {"streamType": "push", "stream.push.topic.name": name, **more}


def test_a_stream_follows_what_a_program_pushes(name: str) -> None:
    sink, _table = push_table(NUMBERS, name=name, lanes=2, capacity_batches=1)
    with producing(sink, [numbers(n) for n in range(0, 200, 10)]):
        found = []
        with streamfactory.open(stream(name), follow=True) as reading:
            until_end = 0
            for batch in reading:
                found.append(batch.rows)
                until_end += batch.num_rows
                if until_end == 200:
                    break
    assert sorted(values(found)) == list(range(200))


def test_copy_makes_pushed_rows_durable(name: str, tmp_path: Path) -> None:
    sink, _table = push_table(NUMBERS, name=name)
    with sink:
        sink.write(numbers(0))
        sink.write(numbers(10))
    target = {
        "streamType": "file",
        "stream.file.path": str(tmp_path / "topics"),
        "stream.file.topic.name": "kept",
    }
    done = streamfactory.copy(stream(name), target)
    assert done.rows == 20
    with streamfactory.open(target) as stored:
        assert values(batch.rows for batch in stored) == list(range(20))


def test_messages_are_decoded_and_bad_ones_become_dead_letters(
    name: str, tmp_path: Path
) -> None:
    def file(topic: str) -> dict[str, str]:
        return {
            "streamType": "file",
            "stream.file.path": str(tmp_path),
            "stream.file.topic.name": topic,
        }

    catalogue = tmp_path / "streams"
    catalogue.mkdir()
    (catalogue / "bad.json").write_text(json.dumps({"properties": file("bad")}))
    sink, _table = push_table(message_schema(), name=name)
    with sink:
        texts = [b'{"n": 1}', b"no JSON", b'{"n": 3}']
        nulls = {field.name: pa.nulls(3, field.type) for field in message_schema()}
        sink.write(pa.table({**nulls, "value": texts}, schema=message_schema()))
    source = stream(
        name,
        **{
            "stream.push.decoder.class.name": "json",
            "stream.push.decoder.prop.schema": "n BIGINT",
            "decode.on.error": "dead-letter",
            "dead.letter.stream": "bad",
        },
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STREAMFACTORY_STREAMS", str(catalogue))
        assert streamfactory.copy(source, file("good")).rows == 2
    with streamfactory.open(file("good")) as stored:
        assert values(batch.rows for batch in stored) == [1, 3]
    with streamfactory.open(file("bad")) as letters:
        (rows,) = [batch.rows for batch in letters]
        assert rows.num_rows == 1


def test_messages_are_encoded_into_a_table(name: str) -> None:
    _sink, table = push_table(message_schema(), name=name)
    options = {
        "stream.push.decoder.class.name": "json",
        "stream.push.decoder.prop.schema": "n BIGINT",
    }
    with streamfactory.open_sink(stream(name, **options)) as configured:
        configured.put(pa.table({"n": [7]}))
        configured.end_stream(Finished())
    (rows,) = list(table)
    assert json.loads(rows["value"][0].as_py()) == {"n": 7}


def test_a_sink_by_configuration_pushes_whole_epochs(name: str) -> None:
    _sink, table = push_table(NUMBERS, name=name)
    with streamfactory.open_sink(stream(name)) as sink:
        sink.put(pa.Table.from_batches([numbers(0), numbers(10)]))
        assert table.statistics.rows_pushed == 20
        with pytest.raises(SchemaMismatch):
            sink.put(pa.table({"number": ["text"]}))
        sink.end_stream(Finished())
    assert values(table) == list(range(20))


def test_the_end_of_the_reader_ends_a_sink_by_configuration(name: str) -> None:
    sink, table = push_table(NUMBERS, name=name)
    with streamfactory.open_sink(stream(name)) as configured:
        configured.put(numbers(0))
        next(table.to_reader())
        table.close()
        configured.put(numbers(10))  # a reader that has enough is no error
    assert sink.statistics.rows_pushed == 10
    with pytest.raises(StopPushing):
        sink.write(numbers(0))


def test_a_full_table_times_out_by_option(name: str) -> None:
    sink, _table = push_table(NUMBERS, name=name, capacity_batches=1)
    sink.write(numbers(0))
    properties = stream(
        name, **{"stream.push.write.timeout.millis": "50", "retry.max.attempts": "1"}
    )
    with (
        streamfactory.open_sink(properties) as configured,
        pytest.raises(StreamTimeout, match=r"not made room within 0.05 s"),
    ):
        configured.put(numbers(10))


def test_a_failed_producer_is_no_end_of_the_stream(name: str) -> None:
    sink, _table = push_table(NUMBERS, name=name)
    sink.write(numbers(0))
    sink.fail("no more")
    with streamfactory.open(stream(name)) as reading:
        batches = iter(reading)
        assert values([next(batches).rows]) == list(range(10))
        with pytest.raises(ConnectionFailed, match="RuntimeError: no more"):
            next(batches)


def test_closing_a_stream_ends_its_wait(name: str) -> None:
    _sink, _table = push_table(NUMBERS, name=name)
    reading = streamfactory.open(stream(name), follow=True)
    reader = Producer(lambda: list(reading))
    reading.close()
    assert reader.join() is None


def test_a_table_is_read_once_by_name_too(name: str) -> None:
    sink, table = push_table(NUMBERS, name=name)
    sink.write(numbers(0))
    sink.close()
    with streamfactory.open(stream(name)) as reading:
        assert values(batch.rows for batch in reading) == list(range(10))
    with (
        streamfactory.open(stream(name)) as again,
        pytest.raises(MisuseError, match="can be read once"),
    ):
        list(again)
    with pytest.raises(MisuseError, match="can be read once"):
        next(iter(table))


def test_a_stream_that_was_left_is_not_waited_for(name: str) -> None:
    sink, _table = push_table(NUMBERS, name=name)
    sink.write(numbers(0))
    with streamfactory.open(stream(name)) as reading:
        assert reading.next_batch(60) is not None
    with (
        streamfactory.open(stream(name)) as again,
        pytest.raises(MisuseError, match="can be read once"),
    ):
        again.next_batch(60)
    assert not sink.closed


def test_a_table_that_was_iterated_is_not_read_by_name(name: str) -> None:
    sink, table = push_table(NUMBERS, name=name)
    with sink:
        sink.write(numbers(0))
    assert values(table) == list(range(10))
    with (
        streamfactory.open(stream(name)) as again,
        pytest.raises(MisuseError, match="can be read once"),
    ):
        list(again)


def test_a_stream_that_is_closed_early_ends_the_producer(name: str) -> None:
    sink, _table = push_table(NUMBERS, name=name, lanes=2)
    sink.lane(0).write(numbers(0))
    sink.lane(1).write(numbers(10))
    with streamfactory.open(stream(name)) as reading:
        for _ in range(2):
            assert reading.next_batch(60) is not None
    with pytest.raises(StopPushing):
        sink.write(numbers(20))


def test_looking_at_a_stream_reads_nothing(name: str) -> None:
    sink, table = push_table(NUMBERS, name=name)
    sink.write(numbers(0))
    sink.close()
    with streamfactory.open(stream(name)) as reading:
        assert reading.schema == NUMBERS
        assert reading.lag()
    assert values(table) == list(range(10))


def test_an_epoch_beyond_the_capacity_is_pushed_at_once_and_its_abort_fails(
    name: str,
) -> None:
    _sink, table = push_table(NUMBERS, name=name, capacity_bytes=100)
    with streamfactory.open_sink(stream(name)) as configured:
        writer = configured.writer(NUMBERS)
        writer.write(numbers(0, 5))  # held
        assert table.statistics.rows_pushed == 0
        writer.abort()
        writer.close()
        writer = configured.writer(NUMBERS, epoch=1)
        writer.write(numbers(0, 20))
        assert table.statistics.rows_pushed == 20
        writer.abort()
        writer.close()
    with pytest.raises(ProducerFailed, match="was aborted after some of its rows"):
        values(table)


def test_two_readers_of_one_table_lose_no_row_silently(name: str) -> None:
    sink, _table = push_table(NUMBERS, name=name)
    sink.write(numbers(0))
    with (
        streamfactory.open(stream(name), follow=True) as one,
        streamfactory.open(stream(name), follow=True) as other,
    ):
        batch = one.next_batch(60)
        assert batch is not None
        assert batch.num_rows == 10
        sink.write(numbers(10))
        with pytest.raises((MisuseError, OffsetOutOfRange)):
            other.next_batch(60)


def test_a_name_is_free_when_both_ends_are_closed(name: str) -> None:
    sink, table = push_table(NUMBERS, name=name)
    del sink
    gc.collect()
    assert table.schema == NUMBERS
    with streamfactory.open(stream(name)) as opened:
        assert opened.schema == NUMBERS
    del table
    gc.collect()
    with pytest.raises(TopicNotFound, match="has no push table"):
        streamfactory.open(stream(name))
    push_table(NUMBERS, name=name)


def test_a_table_takes_its_name_from_an_earlier_one(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):  # as a cell of a notebook that is run again
        sink, _table = push_table(NUMBERS, name=name)
        with sink:
            sink.write(numbers(number))
        with streamfactory.open(stream(name)) as opened:
            found = opened.to_reader().read_all()["number"].to_pylist()
        assert found == numbers(number)["number"].to_pylist()
    assert caplog.messages == []
    earlier, rows = push_table(NUMBERS, name=name)
    _later, _table = push_table(NUMBERS, name=name)
    assert caplog.messages == [
        f"push table {name!r} is open, and has lost its name to a new one"
    ]
    with earlier:
        earlier.write(numbers(7))
    assert rows.to_reader().read_all() == pa.Table.from_batches([numbers(7)])


def test_rows_of_a_table_are_not_committed_to_a_later_one(name: str) -> None:
    _sink, _table = push_table(NUMBERS, name=name)
    with streamfactory.open_sink(stream(name)) as sink:
        writer = sink.writer(NUMBERS)
        writer.write(numbers(0))
        message = writer.commit()
        _sink, _table = push_table(NUMBERS, name=name)
        with (
            sink.committer() as committer,
            pytest.raises(IncarnationChanged, match="another push table"),
        ):
            committer.commit(0, [message])
        writer.close()


def test_spark_is_refused_with_the_spool_as_remedy(name: str) -> None:
    _sink, _table = push_table(NUMBERS, name=name)
    configured = configure(from_mapping(stream(name)), default_manager(), use="read")
    source = Source(configured)
    try:
        with pytest.raises(Unsupported, match=r"not replayable.*spool\.path"):
            check_shared(source)
    finally:
        source.close()


def test_waiting_rows_are_bounded_while_the_stream_is_not_read(name: str) -> None:
    sink, _table = push_table(NUMBERS, name=name, capacity_bytes=800)

    def work() -> None:
        for first in range(0, 1000, 10):
            sink.write(numbers(first))

    producer = Producer(work)
    until(lambda: sink.statistics.queued_bytes == 800)
    with streamfactory.open(stream(name), follow=True) as reading:
        total = 0
        while total < 1000:
            batch = reading.next_batch(60)
            assert batch is not None
            total += batch.num_rows
    assert producer.join() is None
