"""What arrives of rows that are written: read back with the client itself."""

from __future__ import annotations

import contextlib
import math
import os
import random
import re
import threading
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.kafka.conftest import stream_of
from tests.kafka.paths import BEFORE_WRITING

from streamfactory.backends.kafka import writing_topics
from streamfactory.spi import (
    ConfigError,
    ConnectionFailed,
    Guarantee,
    MessageTooLarge,
    MisuseError,
    Partition,
    SchemaMismatch,
    StorageFailed,
    TopicNotFound,
    headers_type,
)
from streamfactory.transfer.copies import open_copy
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from confluent_kafka import Message
    from tests.kafka.broker import Addresses
    from tests.kafka.topics import Topics

pytestmark = pytest.mark.usefixtures("each_way")

BIG = pa.table({"value": pa.array([b"x" * 1000] * 1000)})
"""More than travels in a commit message."""


def messages(
    kafka: Addresses, topic: str, partition: int = 0, level: str = "read_committed"
) -> list[Message]:
    """All that a reader sees of a partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": uuid.uuid4().hex,
            "isolation.level": level,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found: list[Message] = []
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition(topic, partition, 0)])
        while (message := consumer.poll(20)) is not None and message.error() is None:
            found.append(message)
        assert message is not None, "no end within 20 s"
    return found


def values(kafka: Addresses, topic: str, partition: int = 0) -> list[Any]:
    return [message.value() for message in messages(kafka, topic, partition)]


def rows(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch({"value": [b"%d" % number for number in numbers]})


def test_key_headers_timestamp_and_tombstones_arrive(
    kafka: Addresses, topic: str, properties: dict[str, str]
) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)
    header = pa.list_(
        pa.struct(
            [pa.field("key", pa.string(), nullable=False), ("value", pa.binary())]
        )
    )
    table = pa.table(
        {
            "value": pa.array([b"one", None, b"three"]),
            "_key": pa.array([b"k", b"gone", None]),
            "_timestamp": pa.array([moment, None, moment], pa.timestamp("us", "UTC")),
            "_headers": pa.array(
                [
                    [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
                    None,
                    [],
                ],
                header,
            ),
        }
    )
    with open_sink(properties) as sink:
        assert sink.put(table, writer_id="w")
    found = messages(kafka, topic)
    assert [m.value() for m in found] == [b"one", None, b"three"]
    assert [m.key() for m in found] == [b"k", b"gone", None]
    assert [m.headers() for m in found] == [[("a", b"1"), ("a", None)], None, None]
    stamps = [m.timestamp()[1] for m in found]
    assert (stamps[0], stamps[2]) == (1767323045678, 1767323045678)
    assert stamps[1] > stamps[0]


def test_a_header_whose_name_the_client_would_cut_is_refused_with_its_row(
    kafka: Addresses, topic: str, properties: dict[str, str]
) -> None:
    a, b, c = ({"key": name, "value": b"1"} for name in ("a", "b", "c\0d"))
    headers = pa.array([[a], None, [], [b, c]], headers_type())
    table = pa.table({"value": [b"0", b"1", b"2", b"3"], "_headers": headers})
    with (
        open_sink(properties) as sink,
        pytest.raises(SchemaMismatch, match=r"row 2 .*whose name contains a NUL"),
    ):
        sink.put(table.slice(1), writer_id="w")
    assert messages(kafka, topic) == []


FIRST_MILLISECOND = [datetime(1970, 1, 1, 0, 0, 0, micro, UTC) for micro in (0, 999)]
"""What librdkafka takes for "no timestamp"."""
MOMENTS = pa.timestamp("us", "UTC")


def at_times(moments: Sequence[datetime | None]) -> pa.Table:
    values = pa.array([b"%d" % number for number in range(len(moments))])
    return pa.table({"value": values, "_timestamp": pa.array(moments, MOMENTS)})


@pytest.mark.parametrize("moment", FIRST_MILLISECOND)
@pytest.mark.parametrize("mode", ["epoch", "task"])
def test_a_time_that_the_client_would_replace_is_refused_with_its_row(
    mode: str,
    moment: datetime,
    kafka: Addresses,
    topic: str,
    properties: dict[str, str],
) -> None:
    later = datetime(2026, 1, 2, tzinfo=UTC)
    with (
        open_sink({**properties, "stream.kafka.commit.mode": mode}) as sink,
        pytest.raises(SchemaMismatch, match=r"row 2 .*1970-01-01T00:00") as caught,
    ):
        sink.put(at_times([later, None, moment, later]), writer_id="w")
    assert caught.value.partition == Partition(topic, 0)
    assert "write null for the current time" in str(caught.value)
    assert messages(kafka, topic) == []


@pytest.mark.parametrize("mode", ["epoch", "task"])
def test_times_around_the_first_millisecond_of_1970_are_kept(
    mode: str, kafka: Addresses, topic: str, properties: dict[str, str]
) -> None:
    begin = datetime(1970, 1, 1, tzinfo=UTC)
    micros = [1000, -1, -1000, -1001, -86_400_000_000]
    table = at_times([begin + timedelta(microseconds=n) for n in micros])
    with open_sink({**properties, "stream.kafka.commit.mode": mode}) as sink:
        sink.put(table, writer_id="w")
    # Kafka has milliseconds: rounded down, so that their order is kept.
    stamps = [message.timestamp()[1] for message in messages(kafka, topic)]
    assert stamps == [1, -1, -1, -2, -86_400_000]


def test_a_topic_that_sets_timestamps_accepts_any_timestamp(
    kafka: Addresses, topics: Topics
) -> None:
    name = topics.create(config={"message.timestamp.type": "LogAppendTime"})
    with open_sink(stream_of(kafka.bootstrap, name)) as sink:
        sink.put(at_times(FIRST_MILLISECOND), writer_id="w")
    assert len(messages(kafka, name)) == 2


def test_a_copy_names_the_offsets_of_a_time_that_cannot_be_written(
    kafka: Addresses, topic: str, properties: dict[str, str], tmp_path: Path
) -> None:
    source = {
        "streamType": "file",
        "stream.file.path": str(tmp_path),
        "stream.file.topic.name": "in",
        "stream.file.fsync": "never",
        "stream.file.decoder.class.name": "raw",
    }
    with open_sink(source) as sink:
        sink.put(at_times([datetime(2026, 1, 2, tzinfo=UTC)]), writer_id="w", epoch=0)
        sink.put(at_times(FIRST_MILLISECOND[:1]), writer_id="w", epoch=1)
    with (
        open_copy(source, properties) as copy,
        pytest.raises(SchemaMismatch, match=r"rows of in-0 from offset [01] up to 2"),
    ):
        copy.run(threading.Event())
    assert messages(kafka, topic) == []


def test_rows_go_where_javas_partitioner_sends_them(
    kafka: Addresses, topics: Topics
) -> None:
    topic = topics.create(partitions=3)
    keys = [b"21", b"foobar", b"a-little-bit-long-string", b"abc", b"", b"k0"]
    # As org.apache.kafka.common.utils.Utils.murmur2 hashes them.
    table = pa.table({"value": pa.array(keys), "_key": pa.array(keys)})
    with open_sink(stream_of(kafka.bootstrap, topic)) as sink:
        sink.put(table, writer_id="w")
    hashes = {b"21": -973932308, b"foobar": -790332482, b"abc": 479470107}
    where = {
        key: partition
        for partition in range(3)
        for key in values(kafka, topic, partition)
    }
    for key, hashed in hashes.items():
        assert where[key] == (hashed & 0x7FFFFFFF) % 3, key
    assert set(where) == set(keys)


def test_a_sink_takes_rows_for_several_topics(kafka: Addresses, topics: Topics) -> None:
    one, other = topics.create(), topics.create(partitions=2)
    table = pa.table(
        {
            "value": [b"1", b"2", b"3"],
            "_topic": [one, other, other],
            "_partition": pa.array([0, 1, 0], pa.int32()),
        }
    )
    with open_sink(stream_of(kafka.bootstrap, one)) as sink:
        sink.put(table, writer_id="w")
    assert values(kafka, one) == [b"1"]
    assert [values(kafka, other, partition) for partition in (0, 1)] == [[b"3"], [b"2"]]


def test_rows_without_a_writer_id_are_written_each_time(
    kafka: Addresses, topic: str, properties: dict[str, str]
) -> None:
    with open_sink(properties) as sink:
        assert sink.guarantee(writer_id=None).guarantee is Guarantee.AT_LEAST_ONCE
        for _ in range(2):
            assert sink.put(rows(1))
    assert values(kafka, topic) == [b"1", b"1"]


def test_many_rows_wait_in_files_and_arrive_in_their_order(
    kafka: Addresses, topic: str, properties: dict[str, str], tmp_path: Path
) -> None:
    staging = {"stream.kafka.staging.location": str(tmp_path / "staging")}
    table = pa.table({"value": [b"%0400d" % number for number in range(5000)]})
    with open_sink(properties, options=staging) as sink:
        writer = sink.writer(table.schema, writer_id="w")
        for batch in table.to_batches(max_chunksize=777):
            writer.write(batch)
        message = writer.commit()
        writer.close()
        (file,) = (tmp_path / "staging" / topic).iterdir()
        assert file.stat().st_size > 2_000_000
        assert message.payload == {
            "rows": 5000,
            "size": message.payload["size"],
            "file": file.name,
        }
    with (
        open_sink(properties, options=staging) as other,
        contextlib.closing(other.committer(writer_id="w")) as committer,
    ):
        assert committer.commit(0, [message])
    assert not file.exists()
    assert values(kafka, topic) == table.column("value").to_pylist()


def test_rows_of_a_sink_without_a_staging_location_stay_with_it(
    kafka: Addresses, topic: str, properties: dict[str, str]
) -> None:
    with open_sink(properties) as sink:
        assert sink.put(BIG, writer_id="w")
        writer = sink.writer(BIG.schema, writer_id="w", epoch=1)
        writer.write(BIG.to_batches()[0])
        message = writer.commit()
        writer.close()
        with (
            open_sink(properties) as other,
            contextlib.closing(other.committer(writer_id="w")) as committer,
            pytest.raises(MisuseError) as caught,
        ):
            committer.commit(1, [message])
    assert "is in a temporary folder of the process that wrote it" in str(caught.value)
    assert "set stream.kafka.staging.location to a shared folder" in str(caught.value)
    assert len(values(kafka, topic)) == BIG.num_rows


@BEFORE_WRITING
def test_a_staging_location_that_cannot_be_reached_is_reported(
    properties: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    staging = {"stream.kafka.staging.location": str(tmp_path / "file")}
    with (
        open_sink(properties, options=staging) as sink,
        pytest.raises(StorageFailed) as caught,
    ):
        sink.put(BIG, writer_id="w")
    assert "staging.location" in str(caught.value)


@BEFORE_WRITING
def test_uncommitted_rows_are_swept_by_age(
    kafka: Addresses, topic: str, properties: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "staging" / topic
    folder.mkdir(parents=True)
    old, young, strange = (
        folder / name for name in ("aa.arrow", "bb.arrow", "notes.txt")
    )
    for file in (old, young, strange):
        file.write_bytes(b"")
    day = 86_400
    for file in (old, strange):
        before = file.stat().st_mtime - 2 * day
        os.utime(file, (before, before))
    staging = {"stream.kafka.staging.location": str(tmp_path / "staging")}
    with open_sink(properties, options=staging) as sink:
        sink.put(rows(1), writer_id="w")
    assert [file.exists() for file in (old, young, strange)] == [False, True, True]


@BEFORE_WRITING
def test_an_aborted_attempt_leaves_no_file(
    properties: dict[str, str], topic: str, tmp_path: Path
) -> None:
    staging = {"stream.kafka.staging.location": str(tmp_path / "staging")}
    with open_sink(properties, options=staging) as sink:
        writer = sink.writer(BIG.schema, writer_id="w")
        writer.write(BIG.to_batches()[0])
        folder = tmp_path / "staging" / topic
        assert [*folder.iterdir()]
        writer.abort()
        writer.close()
    assert not [*folder.iterdir()]


def test_a_message_too_long_for_the_topic_names_its_row(
    kafka: Addresses, topics: Topics
) -> None:
    topic = topics.create(config={"max.message.bytes": "2000"})
    table = pa.table({"value": [b"short", b"x" * 3000, b"short"]})
    with (
        open_sink(stream_of(kafka.bootstrap, topic)) as sink,
        pytest.raises(MessageTooLarge) as caught,
    ):
        sink.put(table, writer_id="w")
    said = f"row 1 for topic {topic!r} has a message of 3000 bytes with key and "
    assert said in str(caught.value)
    assert "max.message.bytes of the topic is 2000" in str(caught.value)
    assert values(kafka, topic) == []


def test_a_message_that_the_broker_finds_too_long_leaves_nothing_of_its_epoch(
    kafka: Addresses, topics: Topics
) -> None:
    topic = topics.create(config={"max.message.bytes": "2000"})
    options = {"stream.kafka.producer.prop.compression.type": "lz4"}
    noise = random.Random(1).randbytes(5000)
    table = pa.table({"value": [b"short", noise]})
    with open_sink(stream_of(kafka.bootstrap, topic), options=options) as sink:
        with pytest.raises(MessageTooLarge) as caught:
            sink.put(table, writer_id="w")
        assert sink.put(rows(7), writer_id="w")
    assert caught.value.partition is not None
    assert "max.message.bytes" in str(caught.value)
    assert values(kafka, topic) == [b"7"]


def test_batches_fit_a_topic_that_takes_little(
    kafka: Addresses, topics: Topics
) -> None:
    topic = topics.create(config={"max.message.bytes": "2000"})
    table = pa.table({"value": [b"x" * 900] * 300})
    with open_sink(stream_of(kafka.bootstrap, topic)) as sink:
        sink.put(table, writer_id="w")
    assert len(values(kafka, topic)) == 300


def test_messages_of_ten_megabytes_are_written(
    kafka: Addresses, topic: str, topics: Topics, properties: dict[str, str]
) -> None:
    table = pa.table({"value": [b"a" * 10_000_000, b"b"]})
    with open_sink(properties) as sink:
        sink.put(table, writer_id="w")
    assert [len(value) for value in values(kafka, topic)] == [10_000_000, 1]


@BEFORE_WRITING
@pytest.mark.parametrize("key", ["transactional.id", "acks", "transaction.timeout.ms"])
def test_client_settings_that_are_ours_are_refused(
    properties: dict[str, str], key: str
) -> None:
    options = {f"stream.kafka.producer.prop.{key}": "1"}
    with pytest.raises(ConfigError) as caught:
        open_sink(properties, options=options)
    assert "is set by streamfactory itself" in str(caught.value)


def test_compression_and_batching_pass_to_the_client(
    kafka: Addresses, topic: str, properties: dict[str, str]
) -> None:
    options = {
        "stream.kafka.producer.prop.compression.type": "zstd",
        "stream.kafka.producer.prop.linger.ms": "1",
    }
    with open_sink(properties, options=options) as sink:
        sink.put(BIG, writer_id="w")
    assert len(values(kafka, topic)) == BIG.num_rows


@BEFORE_WRITING
@pytest.mark.parametrize("mode", ["epoch", "task"])
def test_a_topic_that_is_not_there_is_reported_before_anything_is_written(
    kafka: Addresses, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only a topic that was found may be missing at a broker for a while.
    monkeypatch.setattr(writing_topics, "_SPREAD", math.inf)
    name = f"nowhere-{uuid.uuid4().hex[:8]}"
    options = {"stream.kafka.commit.mode": mode}
    with (
        open_sink(stream_of(kafka.bootstrap, name), options=options) as sink,
        pytest.raises(TopicNotFound, match=re.escape(repr(name))),
    ):
        sink.put(rows(1), writer_id="w")


@BEFORE_WRITING
def test_a_broker_that_does_not_answer_is_reported_in_time() -> None:
    options = {
        "stream.kafka.connection.timeout.millis": "1500",
        "retry.max.attempts": "1",
    }
    properties = stream_of("127.0.0.1:1", "clicks")
    with (
        open_sink(properties, options=options) as sink,
        contextlib.closing(sink.committer(writer_id="w")) as committer,
        pytest.raises(ConnectionFailed) as caught,
    ):
        committer.last()
    assert "127.0.0.1:1" in str(caught.value)
    assert "clicks" in str(caught.value)


def test_rows_of_a_task_are_seen_when_the_task_commits(
    kafka: Addresses, topics: Topics
) -> None:
    topic = topics.create(partitions=2)
    options = {"stream.kafka.commit.mode": "task"}
    with open_sink(stream_of(kafka.bootstrap, topic), options=options) as sink:
        verdict = str(sink.guarantee(writer_id="w"))
        writers = [sink.writer(rows().schema, writer_id="w", task=n) for n in (0, 1)]
        for number, writer in enumerate(writers):
            writer.write(rows(number))
        assert values(kafka, topic) == []
        message = writers[0].commit()
        assert values(kafka, topic) == [b"0"]
        writers[1].abort()
        for writer in writers:
            writer.close()
        committer = sink.committer(writer_id="w")
        committer.commit(0, [message])
        committer.close()
    assert verdict == (
        "at-least-once: a repeated epoch is written again (not idempotent); "
        "a reader may see part of an epoch (task visibility)"
    )
    assert values(kafka, topic) == [b"0"]


def test_a_later_attempt_of_a_task_fences_one_that_lingers(
    kafka: Addresses, topic: str, properties: dict[str, str]
) -> None:
    options = {"stream.kafka.commit.mode": "task"}
    with open_sink(properties, options=options) as sink:
        early = sink.writer(rows().schema, writer_id="w")
        early.write(rows(1))
        late = sink.writer(rows().schema, writer_id="w")
        late.write(rows(2))
        late.commit()
        with pytest.raises(Exception) as caught:
            early.commit()
        early.close()
        late.close()
    assert type(caught.value).__name__ == "WriterFenced"
    assert values(kafka, topic) == [b"2"]
