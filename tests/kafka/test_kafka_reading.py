"""One partition of a real broker, with all that Kafka can put into it."""

from __future__ import annotations

import datetime as dt
import os
import signal
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.kafka.conftest import stream_of
from tests.kafka.streams import drain, offsets, opened, reading, values
from tests.proving.timing import fastest

import streamfactory
from streamfactory.spi import (
    BatchState,
    IncarnationChanged,
    OffsetOutOfRange,
    Partition,
    TopicNotFound,
    envelope_schema,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.kafka.broker import Cluster
    from tests.kafka.topics import Topics

pytestmark = pytest.mark.usefixtures("each_path")
PATIENCE = 60.0
"""Seconds for a fetch that ends as soon as there are rows."""

UNCOMMITTED = {"stream.kafka.isolation.level": "read_uncommitted"}


def numbered(count: int, first: int = 0) -> list[bytes | None]:
    return [str(number).encode() for number in range(first, first + count)]


def test_several_partitions_are_read_in_batches(topics: Topics) -> None:
    name = topics.create(partitions=4)
    for partition in range(4):
        topics.send(name, numbered(1000), partition=partition)
    with streamfactory.open(stream_of(topics.bootstrap, name)) as stream:
        batches = [batch.num_rows for batch in stream]
    assert sum(batches) == 4000
    assert len(batches) <= 400, "rows come one by one"


# --- what a message has -------------------------------------------------------------


def test_every_column_of_a_message_arrives(
    topics: Topics, topic: str, properties: Mapping[str, str]
) -> None:
    headers = [("kind", b"click"), ("kind", b"again"), ("none", None)]
    topics.send(topic, [b"v"], key=b"k", headers=headers, timestamp=1_700_000_000_123)
    with reading(properties) as reader:
        [batch] = [b for b in drain(reader, end=1) if b.num_rows]
    assert batch.rows.schema == envelope_schema()
    assert batch.rows.to_pylist() == [
        {
            "key": b"k",
            "value": b"v",
            "topic": topic,
            "partition": 0,
            "offset": 0,
            "timestamp": dt.datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=dt.UTC),
            "timestampType": 0,
            "headers": [
                {"key": "kind", "value": b"click"},
                {"key": "kind", "value": b"again"},
                {"key": "none", "value": None},
            ],
        }
    ]


def test_absent_keys_values_and_headers_are_null(
    topics: Topics, topic: str, properties: Mapping[str, str]
) -> None:
    topics.send(topic, [b"", None])
    topics.send(topic, [b"x"], key=b"", headers=[("h", b"")])
    with reading(properties) as reader:
        rows = [row for batch in drain(reader, end=3) for row in batch.rows.to_pylist()]
    assert [row["key"] for row in rows] == [None, None, b""]
    assert [row["value"] for row in rows] == [b"", None, b"x"]
    assert [row["headers"] for row in rows] == [
        None,
        None,
        [{"key": "h", "value": b""}],
    ]


def test_log_append_time_reports_its_type(topics: Topics) -> None:
    name = topics.create(config={"message.timestamp.type": "LogAppendTime"})
    before = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=5)
    topics.send(name, [b"v"], timestamp=1_700_000_000_000)
    with reading(stream_of(topics.bootstrap, name)) as reader:
        [batch] = [b for b in drain(reader, end=1) if b.num_rows]
    assert batch.rows.column("timestampType").to_pylist() == [1]
    assert batch.rows.column("timestamp").to_pylist()[0] > before


def test_both_types_of_timestamps_in_one_batch(
    topics: Topics, topic: str, properties: Mapping[str, str]
) -> None:
    topics.send(topic, [b"created"], timestamp=1_700_000_000_000)
    topics.configure(topic, {"message.timestamp.type": "LogAppendTime"})
    topics.send(topic, [b"appended"], timestamp=1_700_000_000_000)
    with reading(properties) as reader:
        batches = drain(reader, end=2)
    kinds = [
        kind for batch in batches for kind in batch.rows["timestampType"].to_pylist()
    ]
    assert kinds == [0, 1]


def test_a_message_of_10_mb_is_read(
    topics: Topics, topic: str, properties: Mapping[str, str]
) -> None:
    large = os.urandom(10_000_000)
    topics.send(topic, [b"before", large, b"after"])
    with reading(properties) as reader:
        found = values(drain(reader, end=3))
    assert found == [b"before", large, b"after"]


# --- transactions -------------------------------------------------------------------


def test_rows_of_aborted_transactions_are_not_there(
    topics: Topics, topic: str, properties: Mapping[str, str]
) -> None:
    topics.send_in_transaction(topic, numbered(1000))
    topics.send_in_transaction(topic, numbered(1000, 5000), abort=True)
    topics.send_in_transaction(topic, numbered(1000, 1000))
    with opened(properties) as source:
        info = source.metadata.info(Partition(topic, 0))
        assert (info.earliest, info.latest, info.written) == (0, 3003, 3003)
        with closing(source.reader(info.partition)) as reader:
            batches = drain(reader, end=3003)
    assert values(batches) == numbered(2000)
    assert offsets(batches) == [*range(1000), *range(2002, 3002)]
    assert batches[-1].next_offset == 3003
    assert not any(batch.losses for batch in batches)


def test_a_tail_without_rows_moves_the_offset_on(
    topics: Topics, topic: str, properties: Mapping[str, str]
) -> None:
    topics.send_in_transaction(topic, numbered(10))
    topics.send_in_transaction(topic, numbered(200), abort=True)
    with reading(properties) as reader:
        drain(reader, rows=10)
        batch = reader.fetch(11, timeout=5.0)
        assert (batch.num_rows, batch.next_offset) == (0, 212)
        assert batch.state is BatchState.CAUGHT_UP
        topics.send_in_transaction(topic, [b"more"])
        # The same start again goes on from where the reader is (rule R6).
        assert values([reader.fetch(11, timeout=PATIENCE)]) == [b"more"]


def test_an_open_transaction_hides_what_follows(
    topics: Topics, topic: str, properties: Mapping[str, str]
) -> None:
    topics.send(topic, numbered(11))
    producer = topics.transaction()
    for value in numbered(10):
        topics.produce(producer, topic, value)
    producer.flush(10)
    with opened(properties) as source:
        info = source.metadata.info(Partition(topic, 0))
        assert (info.latest, info.written) == (11, 21)
        with closing(source.reader(info.partition)) as reader:
            batches = drain(reader, end=info.latest)
            assert values(batches) == numbered(11)
            batch = reader.fetch(11, timeout=0.5)
            assert (batch.state, batch.latest) == (BatchState.CAUGHT_UP, 11)
            producer.commit_transaction(10)
            assert values(drain(reader, 11, rows=10)) == numbered(10)


def test_uncommitted_rows_are_read_where_they_are_asked_for(
    topics: Topics, topic: str, properties: Mapping[str, str]
) -> None:
    topics.send_in_transaction(topic, numbered(5), abort=True)
    with opened(properties, **UNCOMMITTED) as source:
        info = source.metadata.info(Partition(topic, 0))
        assert (info.latest, info.written) == (6, None)
        with closing(source.reader(info.partition)) as reader:
            assert values(drain(reader, end=6)) == numbered(5)


# --- gaps and losses ----------------------------------------------------------------


def test_gaps_of_compaction_are_no_losses(topics: Topics) -> None:
    name = topics.create_compacted()
    with opened(stream_of(topics.bootstrap, name)) as source:
        info = source.metadata.info(Partition(name, 0))
        with closing(source.reader(info.partition)) as reader:
            batches = drain(reader, end=info.latest)
    found = offsets(batches)
    assert info.latest is not None
    assert 0 < len(found) < info.latest
    assert found == sorted(set(found))
    assert found[-1] == info.latest - 1
    assert not any(batch.losses for batch in batches)


def test_tombstones_are_rows_without_a_value(
    topics: Topics, topic: str, properties: Mapping[str, str]
) -> None:
    topics.send(topic, [b"v", None, b"w"], key=b"k")
    with reading(properties) as reader:
        assert values(drain(reader, end=3)) == [b"v", None, b"w"]


def test_an_expired_start_is_out_of_range(
    topics: Topics, topic: str, properties: Mapping[str, str]
) -> None:
    topics.send(topic, numbered(20))
    topics.truncate(topic, 0, 15)
    with reading(properties) as reader, pytest.raises(OffsetOutOfRange) as caught:
        reader.fetch(3, timeout=1.0)
    assert (caught.value.earliest, caught.value.latest) == (15, 20)
    with reading(properties, out__of__range="earliest") as reader:
        batch = reader.fetch(3, timeout=PATIENCE)
    [loss] = batch.losses
    assert (loss.start, loss.end, loss.cause) == (3, 15, "retention")
    assert values([batch]) == numbered(5, 15)


def test_what_retention_takes_from_under_a_reader_is_reported(
    topics: Topics, topic: str, properties: Mapping[str, str]
) -> None:
    """The broker drops what lies ahead: the client would begin elsewhere in silence."""
    topics.send(topic, numbered(10))
    small = {"stream.kafka.consumer.prop.queued.min.messages": "1"}
    with reading({**properties, **small}) as reader:
        assert values(drain(reader, rows=10)) == numbered(10)
        with reading({**properties, **small}) as behind:
            first = behind.fetch(0, max_rows=1, timeout=PATIENCE)
            assert first.num_rows == 1
            large = [os.urandom(1_000_000)] * 12
            topics.send(topic, large)
            topics.truncate(topic, 0, 20)
            with pytest.raises(OffsetOutOfRange) as caught:
                drain(behind, 1, end=22)
    assert caught.value.earliest == 20
    assert caught.value.partition == Partition(topic, 0)


def test_a_start_beyond_latest_is_out_of_range(
    topics: Topics, topic: str, properties: Mapping[str, str]
) -> None:
    topics.send(topic, numbered(3))
    with reading(properties) as reader, pytest.raises(OffsetOutOfRange) as caught:
        reader.fetch(4, timeout=1.0)
    assert (caught.value.latest, caught.value.offset) == (3, 4)


# --- seeking (Pinot's three tries at it) ----------------------------------------------


def test_a_start_is_sought_unless_the_reader_is_at_it(
    topics: Topics, topic: str, properties: Mapping[str, str]
) -> None:
    topics.send(topic, numbered(1000))
    with reading(properties) as reader:
        for start in (500, 0, 999, 10, 10, 11):
            batch = reader.fetch(start, max_rows=5, timeout=PATIENCE)
            assert batch.first_offset == start
            assert values([batch])[0] == str(start).encode()


def test_a_start_repeated_after_rows_replays_them(
    topics: Topics, topic: str, properties: Mapping[str, str]
) -> None:
    topics.send(topic, numbered(20))
    with reading(properties) as reader:
        first = reader.fetch(0, timeout=PATIENCE)
        again = reader.fetch(0, timeout=PATIENCE)
    assert values([first])[:5] == values([again])[:5] == numbered(5)


def test_an_idle_consumer_is_recreated_and_continues(
    topics: Topics, topic: str, properties: Mapping[str, str]
) -> None:
    idle = {"stream.kafka.idle.timeout.millis": "300"}
    topics.send(topic, [b"before"])
    with reading({**properties, **idle}) as reader:
        drain(reader, rows=1)
        deadline = time.monotonic() + 20
        while not reader.counters.recreated and time.monotonic() < deadline:
            reader.fetch(1, timeout=0.2)
        assert reader.counters.recreated
        topics.send(topic, [b"after"])
        assert values(drain(reader, 1, rows=1)) == [b"after"]


# --- other lives ----------------------------------------------------------------------


def test_a_topic_made_again_is_another_incarnation(
    topics: Topics, topic: str, properties: Mapping[str, str]
) -> None:
    topics.send(topic, [b"old"] * 100)
    with opened(properties) as source:
        old = source.metadata.info(Partition(topic, 0))
        reader = source.reader(old.partition, info=old, incarnation=old.incarnation)
        with closing(reader):
            assert values(drain(reader, end=50, rows=50))[:1] == [b"old"]
            topics.recreate(topic)
            topics.send(topic, [b"new"] * 200)
            # The client reads on without an error: what it answers is not the point.
            with pytest.raises(IncarnationChanged) as caught:
                reader.verify()
        assert caught.value.expected == old.incarnation
        with (
            closing(source.reader(old.partition, incarnation=old.incarnation)) as late,
            pytest.raises(IncarnationChanged),
        ):
            late.fetch(50, timeout=1.0)


def test_a_topic_deleted_while_it_is_read_is_an_error(
    topics: Topics, topic: str, properties: Mapping[str, str]
) -> None:
    topics.send(topic, numbered(3))
    soon = {"stream.kafka.consumer.prop.topic.metadata.propagation.max.ms": "500"}
    with reading({**properties, **soon}) as reader:
        drain(reader, rows=3)
        topics.delete(topic)
        started = time.monotonic()
        with pytest.raises(TopicNotFound) as caught:
            drain(reader, 3, rows=1)
    assert topic in str(caught.value)
    assert topics.bootstrap in str(caught.value)
    assert time.monotonic() - started < 100


# --- brokers that go and come ---------------------------------------------------------


@pytest.mark.long("kills a broker and waits for it")
def test_a_reader_survives_a_killed_broker(mortal: Cluster) -> None:
    from tests.kafka.topics import Topics

    topics = Topics(mortal.bootstrap)
    name = topics.create()
    topics.send(name, numbered(10))
    with reading(stream_of(mortal.bootstrap, name)) as reader:
        assert values(drain(reader, rows=10)) == numbered(10)
        mortal.nodes[0].end(signal.SIGKILL)
        for _ in range(3):
            batch = reader.fetch(10, timeout=0.3)
            assert (batch.num_rows, batch.next_offset) == (0, 10)
        mortal.start()
        topics.send(name, numbered(5, 10))
        assert values(drain(reader, 10, rows=5)) == numbered(5, 10)


@pytest.mark.long("starts a cluster of three brokers")
def test_a_reader_follows_a_leader_that_moves(
    cluster_factory: Callable[..., Cluster],
) -> None:
    from tests.kafka.topics import Topics

    cluster = cluster_factory(3, {"broker.session.timeout.ms": "1500"})
    topics = Topics(cluster.bootstrap)
    name = topics.create(copies=3, config={"min.insync.replicas": "2"})
    topics.send(name, numbered(10))
    with opened(stream_of(cluster.bootstrap, name)) as source:
        info = source.metadata.info(Partition(name, 0))
        with closing(source.reader(info.partition)) as reader:
            assert values(drain(reader, rows=10)) == numbered(10)
            leader = topics.leader(name)
            cluster.nodes[leader - 1].end(signal.SIGKILL)
            topics.send(name, numbered(10, 10))
            assert topics.leader(name) != leader
            assert values(drain(reader, 10, rows=10)) == numbered(10, 10)
        after = source.metadata.info(info.partition)
    assert (after.latest, after.incarnation) == (20, info.incarnation)


def test_a_wait_without_data_polls_once_per_slice(
    topic: str, properties: Mapping[str, str]
) -> None:
    with reading(properties) as reader:
        reader.fetch(0, timeout=1.0)

        def fetch() -> None:
            assert reader.fetch(0, timeout=0.5).state is BatchState.CAUGHT_UP

        assert 0.4 < fastest(fetch, 1.0) < 1.0
