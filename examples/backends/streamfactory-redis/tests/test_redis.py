"""What is special about this stream: the kit cannot know it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import streamfactory
from streamfactory.spi import (
    ConfigError,
    ConnectionFailed,
    CorruptData,
    NotAuthorized,
    TopicNotFound,
)

from streamfactory_redis.harness import RedisHarness, connect, make_server
from streamfactory_redis.layout import LOW, entry_id, offset_of


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[RedisHarness]:
    made = RedisHarness(tmp_path)
    made.create(1)
    yield made
    made.close()


@pytest.fixture
def client(harness: RedisHarness) -> Iterator[Any]:
    with connect(harness._address()) as made:
        yield made


def read(properties: Mapping[str, str], **options: Any) -> list[dict[str, Any]]:
    with streamfactory.open(properties, **options) as stream:
        rows: list[dict[str, Any]] = stream.to_reader().read_all().to_pylist()
    return rows


def foreign(harness: RedisHarness) -> dict[str, str]:
    """The properties that read the stream of another program, under its own key."""
    other = {"metadata.columns": "true", "includeHeaders": "true"}
    return {**harness.properties(), **other}


@pytest.mark.parametrize("offset", [1, LOW - 1, LOW, 5 * LOW + 7, 2**63 - 2])
def test_every_offset_has_its_id(offset: int) -> None:
    assert offset_of(entry_id(offset).encode()) == offset


def test_a_stream_of_other_programs_is_one_partition(
    harness: RedisHarness, client: Any
) -> None:
    harness.close()
    ids = [client.xadd(harness.topic, {"value": n, "by": "till"}) for n in range(3)]
    client.xadd(harness.topic, {"temperature": "21.5"})
    found = read(foreign(harness))
    assert [row["value"] for row in found] == [b"0", b"1", b"2", None]
    assert [row["_offset"] for row in found[:3]] == [offset_of(id_) for id_ in ids]
    assert [(h["key"], h["value"]) for h in found[0]["_headers"]] == [("by", b"till")]
    assert abs(found[0]["_timestamp"] - datetime.now(UTC)) < timedelta(minutes=5)
    with pytest.raises(TopicNotFound, match="topics create"):
        streamfactory.open_sink(harness.properties()).put(harness.rows([1]))


def test_a_position_in_a_foreign_stream_is_resumed(
    harness: RedisHarness, client: Any
) -> None:
    harness.close()
    client.xadd(harness.topic, {"value": "1"})
    with streamfactory.open(harness.properties()) as stream:
        assert len(stream.to_reader().read_all()) == 1
        position = stream.position
    removed = client.xadd(harness.topic, {"value": "2"})
    client.xadd(harness.topic, {"value": "3"})
    client.xdel(harness.topic, removed)
    found = read(harness.properties(), start=position)
    assert [row["value"] for row in found] == [b"3"]


def test_an_id_without_an_offset_is_refused(harness: RedisHarness, client: Any) -> None:
    harness.close()
    client.xadd(harness.topic, {"value": "1"}, id=f"7-{LOW}")
    with pytest.raises(CorruptData, match=f"7-{LOW} has no offset"):
        read(harness.properties())


def test_offsets_stay_consecutive_where_the_low_half_is_full(
    harness: RedisHarness, client: Any
) -> None:
    client.xadd(f"{{{harness.topic}}}:0", {"value": "0"}, id=f"0-{LOW - 3}")
    with streamfactory.open_sink(harness.properties()) as sink:
        sink.put(harness.rows(range(1, 6)))
    found = read({**harness.properties(), "metadata.columns": "true"})
    assert [int(row["value"]) for row in found] == list(range(6))
    assert [row["_offset"] for row in found] == list(range(LOW - 3, LOW + 3))


def test_keys_and_tombstones_survive(harness: RedisHarness) -> None:
    rows = pa.record_batch(
        {
            "value": pa.array([b"a", None, b"", b"-"], pa.binary()),
            "_key": pa.array([b"\x00\xff", b"k", None, b""], pa.binary()),
        }
    )
    with streamfactory.open_sink(harness.properties()) as sink:
        sink.put(rows)
    found = read({**harness.properties(), "metadata.columns": "true"})
    assert [row["value"] for row in found] == [b"a", None, b"", b"-"]
    assert [row["_key"] for row in found] == [b"\x00\xff", b"k", None, b""]


@pytest.mark.parametrize("own", [True, False])
def test_offsets_are_found_by_time(
    harness: RedisHarness, client: Any, own: bool
) -> None:
    key = f"{{{harness.topic}}}:0" if own else harness.topic
    if not own:
        harness.close()
    times = [1_700_000_000_000 + n * n for n in range(40)]
    for index, time in enumerate(times):
        fields = {"value": index}
        if own:
            client.xadd(key, {**fields, "stored": time * 1000}, id=f"0-{index + 1}")
        else:
            client.xadd(key, fields, id=f"{time}-*")
    for wanted in [*times, *(time + 1 for time in times[:-1]), times[0] - 5]:
        found = read({**harness.properties(), "startingTimestamp": str(wanted)})
        expected = [n for n, time in enumerate(times) if time >= wanted]
        assert [int(row["value"]) for row in found] == expected


def test_two_writers_at_once_write_each_epoch_once(harness: RedisHarness) -> None:
    harness.create(2)
    properties = harness.properties()
    errors: list[BaseException] = []

    def write(writer: int) -> None:
        try:
            with streamfactory.open_sink(properties) as sink:
                for epoch in range(15):
                    first = writer * 1000 + epoch * 10
                    rows = harness.rows(range(first, first + 10))
                    sink.put(rows, writer_id=f"w{writer}", epoch=epoch)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert errors == []
    found = sorted(n for partition in harness.visible().values() for n in partition)
    assert found == sorted(w * 1000 + n for w in range(3) for n in range(150))


def test_an_epoch_with_missing_staged_rows_is_refused_whole(
    harness: RedisHarness, client: Any
) -> None:
    harness.create(2)
    with streamfactory.open_sink(harness.properties()) as sink:
        rows = harness.rows(range(10))
        batch = rows.append_column("_partition", pa.array([0, 1] * 5, pa.int32()))
        writer = sink.writer(batch.schema, writer_id="w", epoch=0)
        writer.write(batch)
        message = writer.commit()
        [one, _] = client.scan_iter(match=f"{{{harness.topic}}}:staged:*")
        client.delete(one)
        committer = sink.committer(writer_id="w")
        with pytest.raises(CorruptData, match="not in Redis any more"):
            committer.commit(0, [message])
        committer.close()
        writer.close()
    assert harness.visible() == {0: [], 1: []}


def test_wrong_credentials_are_named(harness: RedisHarness) -> None:
    properties = {**harness.properties(), "stream.redis.password": "wrong"}
    with pytest.raises(NotAuthorized):
        read(properties)


def test_a_server_that_does_not_answer_is_named() -> None:
    properties = {
        "streamType": "redis",
        "stream.redis.topic.name": "t",
        "stream.redis.address": "127.0.0.1:1",
        "stream.redis.connection.timeout.millis": "300ms",
        "stream.redis.decoder.class.name": "raw",
    }
    with pytest.raises(ConnectionFailed):
        read(properties)


def test_a_writer_continues_after_a_restart_of_the_server(tmp_path: Path) -> None:
    server = make_server(tmp_path)
    server.start()
    properties = {
        "streamType": "redis",
        "stream.redis.topic.name": "restarted",
        "stream.redis.address": server.address,
        "stream.redis.password": "harness-secret",
        "stream.redis.decoder.class.name": "raw",
    }
    try:
        with connect(server.address) as client:
            described = {"incarnation": "a", "partitions": 1}
            client.hset("{restarted}:topic", mapping=described)
        values = pa.record_batch({"value": pa.array([b"1", b"2"], pa.binary())})
        with streamfactory.open_sink(properties) as sink:
            sink.put(values, writer_id="w", epoch=0)
            server.stop()
            server.start()
            sink.put(values, writer_id="w", epoch=0)
            sink.put(values, writer_id="w", epoch=1)
        assert [row["value"] for row in read(properties)] == [b"1", b"2"] * 2
    finally:
        server.close()


def test_options_that_need_each_other_are_checked() -> None:
    properties = {
        "streamType": "redis",
        "stream.redis.topic.name": "a{b}",
        "stream.redis.address": "nowhere",
    }
    with pytest.raises(ConfigError) as caught:
        streamfactory.open(properties)
    assert "is not a name of a topic" in str(caught.value)
    assert "is not host:port" in str(caught.value)
