"""What is special about this stream: the kit cannot know it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import nats
import pyarrow as pa
import pytest
import streamfactory
from streamfactory.spi import (
    ConfigError,
    ConnectionFailed,
    MessageTooLarge,
    MisuseError,
    NotAuthorized,
    Unsupported,
)

from streamfactory_nats.admin import NatsTopicAdmin
from streamfactory_nats.harness import NatsHarness, make_server


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[NatsHarness]:
    made = NatsHarness(tmp_path)
    yield made
    made.close()


def publish(
    properties: Mapping[str, str],
    *messages: tuple[str, bytes, Any],
    subjects: Sequence[str] | None = None,
    stream: str | None = None,
) -> None:
    """Publish with the client alone; the subject's stream is created first."""

    async def run() -> None:
        client = await nats.connect(
            properties["stream.nats.servers"],
            user=properties["stream.nats.user"],
            password=properties["stream.nats.password"],
        )
        jetstream = client.jetstream()
        name = stream or messages[0][0].partition(".")[0]
        await jetstream.add_stream(name=name, subjects=subjects or [f"{name}.>"])
        for subject, payload, headers in messages:
            await jetstream.publish(subject, payload, headers=headers)
        await client.close()

    asyncio.run(run())


@contextlib.contextmanager
def administration(properties: Mapping[str, str]) -> Iterator[NatsTopicAdmin]:
    with streamfactory.open(properties) as stream:
        config = stream.config
    with contextlib.closing(NatsTopicAdmin(config)) as admin:
        yield admin


def of_stream(harness: NatsHarness, name: str) -> dict[str, str]:
    """The properties that read some other stream of the same server."""
    return {**harness.properties(), "stream.nats.topic.name": name}


def read(properties: Mapping[str, str], **options: Any) -> list[dict[str, Any]]:
    with streamfactory.open(properties, **options) as stream:
        rows: list[dict[str, Any]] = stream.to_reader().read_all().to_pylist()
    return rows


def test_a_stream_of_other_programs_is_one_partition(harness: NatsHarness) -> None:
    harness.create(1)
    properties = of_stream(harness, harness.topic + "x")
    name = properties["stream.nats.topic.name"]
    publish(
        properties,
        (f"{name}.paid", b"1", {"source": "till"}),
        (f"{name}.shipped.eu", b"2", None),
    )
    with streamfactory.open({**properties, "includeHeaders": "true"}) as stream:
        [batch] = [b for b in stream if b.num_rows]
    assert batch.partition.id == 0
    assert batch.offsets is None or batch.offsets.to_pylist() == [1, 2]
    assert batch.rows["value"].to_pylist() == [b"1", b"2"]
    with pytest.raises(Unsupported, match="was not created as a topic"):
        streamfactory.open_sink(properties).put(harness.rows([1]))


def test_streams_with_messages_are_not_replaced_by_a_new_topic(
    harness: NatsHarness,
) -> None:
    harness.create(1)
    name = f"{harness.topic}x"
    other, own = (of_stream(harness, f"{name}-{number}") for number in (1, 2))
    # It has the name and a subject of a partition, and is none.
    publish(
        other, (f"{name}-1.paid", b"1", None), subjects=[f"{name}-1.>", f"{name}.eu"]
    )
    # As left where the stream of partition 0 was deleted.
    publish(own, (f"{name}.2", b"2", None), subjects=[f"{name}.2"], stream=f"{name}-2")
    with administration(harness.properties()) as admin:
        with pytest.raises(MisuseError, match=f"stream '{name}-2' of topic"):
            admin.create(name, None, 1)
        admin.create(f"{name}y", None, 1)
    for properties, value in (other, b"1"), (own, b"2"):
        assert [row["value"] for row in read(properties)] == [value]


def test_keys_and_deletions_survive(harness: NatsHarness) -> None:
    harness.create(1)
    rows = pa.record_batch(
        {
            "value": pa.array([b"a", None, b""], pa.binary()),
            "_key": pa.array([b"\x00\xff", b"k", None], pa.binary()),
        }
    )
    properties = harness.properties()
    with streamfactory.open_sink(properties) as sink:
        sink.put(rows)
    found = read({**properties, "metadata.columns": "true"})
    assert [row["value"] for row in found] == [b"a", None, b""]
    assert [row["_key"] for row in found] == [b"\x00\xff", b"k", None]


def test_a_message_above_the_servers_limit_is_refused(harness: NatsHarness) -> None:
    harness.create(1)
    rows = pa.record_batch({"value": pa.array([b"x" * 1024 * 1024], pa.binary())})
    with (
        streamfactory.open_sink(harness.properties()) as sink,
        pytest.raises(MessageTooLarge, match="max_payload"),
    ):
        sink.put(rows)
    assert harness.visible() == {0: []}


def test_a_message_longer_than_a_batch_is_read_alone(harness: NatsHarness) -> None:
    harness.create(1)
    values = [b"1", b"2" * 500_000, b"3"]
    with streamfactory.open_sink(harness.properties()) as sink:
        sink.put(pa.record_batch({"value": pa.array(values, pa.binary())}))
    found = read({**harness.properties(), "batch.bytes": "1000"})
    assert [row["value"] for row in found] == values


def test_two_writers_at_once_write_each_epoch_once(harness: NatsHarness) -> None:
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


def test_foreign_messages_between_rows_are_skipped(harness: NatsHarness) -> None:
    harness.create(1)
    properties = harness.properties()
    others = range(1_000_000, 1_000_060)

    def disturb() -> None:
        for number in others:
            harness.write(0, [number])

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        with streamfactory.open_sink(properties) as sink:
            for epoch in range(8):
                rows = harness.rows(range(epoch * 100, epoch * 100 + 100))
                sink.put(rows, writer_id="w", epoch=epoch)
    finally:
        thread.join()
    found = [int(row["value"]) for row in read(properties)]
    assert [n for n in found if n < 1_000_000] == list(range(800))
    assert [n for n in found if n >= 1_000_000] == [*others]


def test_wrong_credentials_are_named(harness: NatsHarness) -> None:
    harness.create(1)
    properties = {**harness.properties(), "stream.nats.password": "wrong"}
    with pytest.raises(NotAuthorized) as caught:
        read(properties)
    assert "wrong" not in str(caught.value)


def test_a_server_that_does_not_answer_is_named() -> None:
    properties = {
        "streamType": "nats",
        "stream.nats.topic.name": "t",
        "stream.nats.servers": "nats://127.0.0.1:1",
        "stream.nats.connection.timeout.millis": "300ms",
        "stream.nats.decoder.class.name": "raw",
    }
    with pytest.raises(ConnectionFailed):
        read(properties)


def test_reading_continues_after_a_restart_of_the_server(tmp_path: Path) -> None:
    server = make_server(tmp_path)
    server.start()
    properties = {
        "streamType": "nats",
        "stream.nats.topic.name": "restarted",
        "stream.nats.servers": f"nats://{server.address}",
        "stream.nats.user": "harness",
        "stream.nats.password": "harness-secret",
        "stream.nats.decoder.class.name": "raw",
    }
    try:
        publish(properties, *[("restarted.n", b"%d" % n, None) for n in range(5)])
        with streamfactory.open(properties) as stream:
            assert len(stream.to_reader().read_all()) == 5
            server.stop()
            server.start()
        found = [int(row["value"]) for row in read(properties)]
        assert found == list(range(5))
    finally:
        server.close()


def test_options_that_need_each_other_are_checked() -> None:
    properties = {
        "streamType": "nats",
        "stream.nats.topic.name": "a.b",
        "stream.nats.user": "me",
    }
    with pytest.raises(ConfigError) as caught:
        streamfactory.open(properties)
    assert "is not a name of a stream" in str(caught.value)
