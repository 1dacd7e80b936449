"""What is special about this stream: the kit cannot know it."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import streamfactory
from paho.mqtt.client import MQTTMessage
from streamfactory import spi
from streamfactory.spi import (
    ConfigError,
    ConnectionFailed,
    IncarnationChanged,
    NotAuthorized,
    PermanentError,
    SchemaMismatch,
)

from streamfactory_mqtt.harness import DENIED, MqttHarness, connected, session_of
from streamfactory_mqtt.options import filter_problem
from streamfactory_mqtt.positions import Positions
from streamfactory_mqtt.session import Entry, Session, session_name, subscription

KEPT = {"incarnation": "a", "acknowledged": 0, "unused": 0}


@pytest.fixture(scope="module")
def port() -> int:
    MqttHarness.prepare()
    return MqttHarness._port()


@pytest.fixture
def given(port: int) -> dict[str, str]:
    """A stream of one filter, `<name>/+/temperature`."""
    name = uuid.uuid4().hex[:8]
    return {
        "streamType": "mqtt",
        "stream.mqtt.topic.name": name,
        "stream.mqtt.address": f"127.0.0.1:{port}",
        "stream.mqtt.user": "harness",
        "stream.mqtt.password": "harness-secret",
        "stream.mqtt.decoder.class.name": "raw",
        "stream.mqtt.filters": f"{name}/+/temperature",
        "stream.mqtt.client.id": name,
        "stream.mqtt.session.expiry.millis": "60s",
        "metadata.columns": "true",
        "includeHeaders": "true",
    }


def publish(port: int, topic: str, *payloads: bytes, qos: int = 1, **how: Any) -> None:
    with connected(port) as client:
        for payload in payloads:
            client.publish(topic, payload, qos, **how).wait_for_publish(10)


def follow(stream: Any, count: int) -> list[dict[str, Any]]:
    """So many rows, within a deadline."""
    rows: list[dict[str, Any]] = []
    deadline = time.monotonic() + 30
    while len(rows) < count and time.monotonic() < deadline:
        batch = stream.next_batch(0.2)
        rows += [] if batch is None else batch.rows.to_pylist()
    return rows


def read_at_once(given: Mapping[str, str], act: Any, count: int) -> list[Any]:
    """Open the stream, publish, and read; what was read."""
    with streamfactory.open(given, start="earliest", follow=True) as stream:
        rows = follow_once(stream)  # connects
        act()
        return rows + follow(stream, count - len(rows))


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_each_quality_of_service_is_received(
    port: int, given: dict[str, str], qos: str
) -> None:
    given["stream.mqtt.qos"] = qos
    name = given["stream.mqtt.topic.name"]

    def act() -> None:
        publish(port, f"{name}/a/temperature", b"1", b"2", qos=int(qos))
        publish(port, f"{name}/b/temperature", b"3", qos=int(qos))
        publish(port, f"{name}/b/humidity", b"4", qos=int(qos))

    rows = read_at_once(given, act, 3)
    assert [row["value"] for row in rows] == [b"1", b"2", b"3"]
    assert [row["_offset"] for row in rows] == [0, 1, 2]
    assert [row["_key"].decode() for row in rows] == [
        *[f"{name}/a/temperature"] * 2,
        f"{name}/b/temperature",
    ]


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_rows_are_published_with_each_quality_of_service(
    given: dict[str, str], qos: str
) -> None:
    name = given["stream.mqtt.topic.name"]
    given["stream.mqtt.qos"] = qos
    given["stream.mqtt.publish.topic"] = f"{name}/{{key}}/temperature"
    rows = pa.record_batch(
        {
            "value": pa.array([b"1", None], pa.binary()),
            "_key": pa.array([b"oven", b"hall"], pa.binary()),
            "_headers": pa.array(
                [[{"key": "unit", "value": b"C"}], None],
                pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
            ),
        }
    )

    def act() -> None:
        with streamfactory.open_sink(given) as sink:
            sink.put(rows)

    found = read_at_once(given, act, 2)
    assert [row["value"] for row in found] == [b"1", b""]
    assert [row["_key"].decode() for row in found] == [
        f"{name}/oven/temperature",
        f"{name}/hall/temperature",
    ]
    assert [(h["key"], h["value"]) for h in found[0]["_headers"]] == [("unit", b"C")]


@pytest.mark.parametrize("key", [b"a/#", None, b"\xff"])
def test_a_key_that_is_no_topic_is_refused(
    given: dict[str, str], key: bytes | None
) -> None:
    given["stream.mqtt.publish.topic"] = "out/{key}"
    rows = pa.record_batch(
        {"value": pa.array([b"1"], pa.binary()), "_key": pa.array([key], pa.binary())}
    )
    with (
        streamfactory.open_sink(given) as sink,
        pytest.raises(SchemaMismatch, match=r"row 0: the key .* is no part of a topic"),
    ):
        sink.put(rows)


def test_a_session_keeps_messages_between_two_readers(
    port: int, given: dict[str, str]
) -> None:
    topic = f"{given['stream.mqtt.topic.name']}/a/temperature"
    first = read_at_once(given, lambda: publish(port, topic, b"1"), 1)
    publish(port, topic, b"2", b"3")
    again = read_at_once(given, lambda: publish(port, topic, b"4"), 3)
    assert [row["value"] for row in first + again] == [b"1", b"2", b"3", b"4"]
    assert [row["_offset"] for row in first + again] == [0, 1, 2, 3]


def test_what_was_sent_and_not_stored_is_read_after_several_crashes(
    port: int, given: dict[str, str]
) -> None:
    """A reader that stored some messages crashes before it acknowledges any of them,
    with others on their way."""
    given["stream.mqtt.acknowledge"] = "stored"
    with streamfactory.open(given, follow=True) as stream:
        config = stream.config
    partition = spi.Partition(config.topic, 0)
    topic = f"{config.topic}/a/temperature"

    def run(start: int, more: int, count: int, stored: int) -> tuple[int, list[bytes]]:
        """Read so many messages, and crash; where to continue, and what is stored."""
        positions = Positions(config, [session_name(subscription(config, partition))])
        positions.open(clean=True)
        session = Session(config, partition, positions)
        session.start()
        publish(port, topic, *(b"%d" % n for n in range(sent[0], sent[0] + more)))
        sent[0] += more
        entries: list[Entry] = []
        limits, deadline = spi.FetchLimits(1000, 2**20, 0.2), time.monotonic() + 30
        while len(entries) < count and time.monotonic() < deadline:
            entries = list(session.take(start, limits, lambda: False).entries)
        if not acknowledged:
            incarnation = session.state()[0]
            session.acknowledge(entries[stored - 1].offset + 1, incarnation)
            acknowledged.append(True)
        session.close()
        positions.close()
        kept = entries[:stored]
        return kept[-1].offset + 1, [entry.payload for entry in kept]

    sent, acknowledged, found = [0], list[bool](), list[bytes]()
    at = 0
    # The first one acknowledges; each of the others reads what the one before left.
    for more, count, stored in ((10, 10, 4), (10, 16, 9), (10, 17, 3), (5, 19, 19)):
        at, read = run(at, more, count, stored)
        found += read
    assert found == [b"%d" % n for n in range(sent[0])]


def test_an_identifier_that_is_used_again_is_not_taken_for_a_redelivery(
    port: int, given: dict[str, str]
) -> None:
    """Its first delivery was lost with the connection: the second has the flag DUP."""
    given["stream.mqtt.acknowledge"] = "stored"
    with streamfactory.open(given, follow=True) as stream:
        config = stream.config
    partition = spi.Partition(config.topic, 0)
    positions = Positions(config, [session_name(subscription(config, partition))])
    positions.open(clean=True)
    session = Session(config, partition, positions)
    session.start()

    def receive(payload: bytes, *, dup: bool) -> None:
        message = MQTTMessage(7, b"t")
        message.payload, message.qos, message.dup = payload, 1, dup
        session._on_message(None, None, message)

    limits = spi.FetchLimits(1000, 2**20, 0.0)
    receive(b"1", dup=False)
    session.acknowledge(1, session.state()[0])
    for _ in range(2):
        receive(b"1", dup=True)  # the acknowledgement was lost
    assert session.take(0, limits, lambda: False).entries == []
    receive(b"2", dup=True)
    [entry] = session.take(0, limits, lambda: False).entries
    assert (entry.offset, entry.payload) == (1, b"2")
    session.close()
    positions.close()


def test_a_lost_session_is_another_incarnation(
    port: int, given: dict[str, str]
) -> None:
    topic = f"{given['stream.mqtt.topic.name']}/a/temperature"
    read_at_once(given, lambda: publish(port, topic, b"1"), 1)
    with connected(
        port, session_of(given["stream.mqtt.client.id"], given["stream.mqtt.filters"])
    ):
        pass  # a clean start ends the session
    with pytest.raises(IncarnationChanged, match="was recreated"):
        read_at_once(given, lambda: None, 1)
    [row] = read_at_once(given, lambda: publish(port, topic, b"2"), 1)
    assert (row["value"], row["_offset"]) == (b"2", 0)


def test_retained_messages_are_received_as_configured(
    port: int, given: dict[str, str]
) -> None:
    topic = f"{given['stream.mqtt.topic.name']}/a/temperature"
    publish(port, topic, b"kept", retain=True)
    never = {**given, "stream.mqtt.client.id": "n" + given["stream.mqtt.client.id"]}
    never["stream.mqtt.retained"] = "never"
    always = {**given, "stream.mqtt.retained": "always"}

    def values(options: dict[str, str], count: int) -> list[bytes]:
        rows = read_at_once(options, lambda: publish(port, topic, b"live"), count)
        return [row["value"] for row in rows]

    assert values(given, 2) == [b"kept", b"live"]
    assert values(given, 1) == [b"live"]
    assert values(never, 1) == [b"live"]
    # The first one was published while `never` was read.
    assert values(always, 3) == [b"live", b"kept", b"live"]
    publish(port, topic, b"", retain=True)


def test_a_group_shares_the_messages(port: int, given: dict[str, str]) -> None:
    given["stream.mqtt.shared.group"] = "workers"
    topic = f"{given['stream.mqtt.topic.name']}/a/temperature"
    others = {**given, "stream.mqtt.client.id": given["stream.mqtt.client.id"] + "2"}
    with (
        streamfactory.open(given, start="earliest", follow=True) as one,
        streamfactory.open(others, start="earliest", follow=True) as two,
    ):
        for stream in (one, two):
            stream.next_batch(0.0)
        publish(port, topic, *[str(n).encode() for n in range(40)])
        found: list[list[int]] = [[], []]
        deadline = time.monotonic() + 30
        while sum(map(len, found)) < 40 and time.monotonic() < deadline:
            for stream, numbers in zip((one, two), found, strict=True):
                numbers += [int(row["value"]) for row in follow_once(stream)]
    assert sorted(found[0] + found[1]) == [*range(40)]
    assert all(found)


def follow_once(stream: Any) -> list[dict[str, Any]]:
    batch = stream.next_batch(0.1)
    return [] if batch is None else batch.rows.to_pylist()


def test_a_message_of_quality_0_is_refused_where_it_has_to_be_delivered_again(
    port: int, given: dict[str, str]
) -> None:
    given["stream.mqtt.acknowledge"] = "stored"
    topic = f"{given['stream.mqtt.topic.name']}/a/temperature"
    with pytest.raises(PermanentError, match="has QoS 0: it is not delivered again"):
        read_at_once(given, lambda: publish(port, topic, b"1", qos=0), 1)


def test_what_does_not_fit_the_buffer_is_a_loss(
    port: int, given: dict[str, str]
) -> None:
    given["stream.mqtt.buffer.bytes"] = "2000"
    given["out.of.range"] = "earliest"
    topic = f"{given['stream.mqtt.topic.name']}/a/temperature"
    losses: list[Any] = []
    lost = 0
    with streamfactory.open(given, start="earliest", follow=True) as stream:
        stream.next_batch(0.0)
        publish(port, topic, *[b"x" * 500] * 10)
        rows, deadline = 0, time.monotonic() + 30
        while rows + lost < 10 and time.monotonic() < deadline:
            batch = stream.next_batch(0.1)
            if batch is not None:
                rows += batch.num_rows
                losses += batch.losses
                lost = sum(loss.end - loss.start for loss in losses)
    assert rows > 0
    assert rows + lost == 10
    assert len(losses) < lost
    assert "buffer.bytes" in losses[0].cause


def test_a_spool_gets_all_where_more_waits_than_the_buffer_holds(
    port: int, given: dict[str, str], tmp_path: Path
) -> None:
    given |= {
        "stream.mqtt.acknowledge": "stored",
        "stream.mqtt.buffer.bytes": "4000",
        "spool.path": str(tmp_path / "spool"),
        "spool.receiver": "embedded",
    }
    topic = f"{given['stream.mqtt.topic.name']}/a/temperature"
    # Short ones behind a long one that does not fit must not overtake it.
    sizes = [2500 if number % 3 else 1 for number in range(12)]
    sent = [b"%04d" % number + b"x" * size for number, size in enumerate(sizes)]
    with streamfactory.open(given, start="earliest", follow=True) as stream:
        follow_once(stream)
        publish(port, topic, *sent)
        rows = follow(stream, len(sent))
    assert [row["value"] for row in rows] == sent


@pytest.mark.parametrize(
    "payload",
    [b"", b"1", b"{}", b"[" * 5000]
    + [
        json.dumps(
            {"incarnation": "a", "acknowledged": 0, "unused": 0, **other}
        ).encode()
        for other in (
            {"unused": float("inf")},
            {"acknowledged": True},
            {"acknowledged": 1},
            {"incarnation": 1},
            {"unused": 2**62},
        )
    ],
)
def test_a_position_of_another_program_is_ignored(
    port: int, given: dict[str, str], payload: bytes
) -> None:
    name = given["stream.mqtt.topic.name"]
    session = session_name(given["stream.mqtt.filters"])
    publish(port, f"streamfactory/positions/{name}/{session}", payload, retain=True)
    topic = f"{name}/a/temperature"
    rows = read_at_once(given, lambda: publish(port, topic, b"1"), 1)
    assert [row["_offset"] for row in rows] == [0]


def test_closing_does_not_wait_for_a_broker_that_is_away(given: dict[str, str]) -> None:
    server = MqttHarness._server
    assert server is not None
    stream = streamfactory.open(given, start="earliest", follow=True)
    follow_once(stream)
    server.stop()
    try:
        began = time.monotonic()
        stream.close()
        assert time.monotonic() - began < 5
    finally:
        server.start()


def test_a_broker_that_stays_away_is_an_error_and_is_found_again(
    port: int, given: dict[str, str]
) -> None:
    server = MqttHarness._server
    assert server is not None
    given |= {
        "stream.mqtt.connection.timeout.millis": "1s",
        "retry.max.attempts": "1",
        "stream.mqtt.acknowledge": "stored",
    }
    topic = f"{given['stream.mqtt.topic.name']}/a/temperature"
    with streamfactory.open(given, start="earliest", follow=True) as stream:
        follow_once(stream)
        server.stop()
        try:
            with pytest.raises(ConnectionFailed, match="has not answered for"):
                stream.next_batch(30)
        finally:
            server.start()
        publish(port, topic, b"1")
        rows: list[Any] = []
        deadline = time.monotonic() + 60
        while not rows and time.monotonic() < deadline:
            with suppress(ConnectionFailed):  # until it has connected again
                rows = follow(stream, 1)
        assert [row["value"] for row in rows] == [b"1"]


def test_a_session_that_was_taken_over_is_continued(
    port: int, given: dict[str, str]
) -> None:
    given["stream.mqtt.acknowledge"] = "stored"
    topic = f"{given['stream.mqtt.topic.name']}/a/temperature"
    with streamfactory.open(given, start="earliest", follow=True) as stream:
        rows = follow_once(stream)
        publish(port, topic, b"1")
        rows += follow(stream, 1)
        with streamfactory.open(given, start="earliest", follow=True) as other:
            assert [row["value"] for row in follow(other, 1)] == [b"1"]
            publish(port, topic, b"2")
            assert [row["value"] for row in follow(other, 1)] == [b"2"]
        publish(port, topic, b"3")
        rows += follow(stream, 2)
    assert [row["value"] for row in rows] == [b"1", b"2", b"3"]
    assert [row["_offset"] for row in rows] == [0, 1, 2]


def test_a_broker_that_does_not_answer_is_named(given: dict[str, str]) -> None:
    given |= {
        "stream.mqtt.address": "127.0.0.1:1",
        "stream.mqtt.connection.timeout.millis": "300ms",
    }
    with pytest.raises(ConnectionFailed):
        streamfactory.open(given).next_batch(0.0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a/+/b/#", None),
        ("#", None),
        ("a/b+/c", "beside other"),
        ("a/#/b", "before the end"),
        ("$share/g/a", "shared.group"),
        ("", "invalid"),
        ("a\0", "invalid"),
    ],
)
def test_filters_are_checked(text: str, problem: str | None) -> None:
    found = filter_problem(text)
    assert (found is None) if problem is None else (problem in (found or ""))


@pytest.mark.parametrize("qos", ["1", "2"])
def test_a_message_that_the_broker_refuses_is_an_error(
    given: dict[str, str], qos: str
) -> None:
    given["stream.mqtt.qos"] = qos
    given["stream.mqtt.publish.topic"] = f"{DENIED}/a"
    rows = pa.record_batch({"value": pa.array([b"1"], pa.binary())})
    with (
        streamfactory.open_sink(given) as sink,
        pytest.raises(NotAuthorized, match=f"refused a message to '{DENIED}/a'"),
    ):
        sink.put(rows)


def test_options_that_exclude_each_other_are_refused(given: dict[str, str]) -> None:
    given |= {
        "stream.mqtt.acknowledge": "stored",
        "stream.mqtt.qos": "2",
        "stream.mqtt.shared.group": "g",
    }
    with pytest.raises(ConfigError) as caught:
        streamfactory.open(given)
    assert "requires qos=1" in str(caught.value)
    assert "excludes shared.group" in str(caught.value)


def test_no_topic_and_no_filter_are_named(given: dict[str, str]) -> None:
    del given["stream.mqtt.filters"]
    with pytest.raises(ConfigError, match="is required to read"):
        streamfactory.open(given)
    with pytest.raises(ConfigError, match="is required to write"):
        streamfactory.open_sink(given)


def test_a_spool_makes_it_at_least_once(
    port: int, given: dict[str, str], tmp_path: Path
) -> None:
    given |= {
        "stream.mqtt.acknowledge": "stored",
        "spool.path": str(tmp_path / "spool"),
        "spool.receiver": "embedded",
    }
    topic = f"{given['stream.mqtt.topic.name']}/a/temperature"
    with streamfactory.open(given, start="earliest", follow=True) as stream:
        follow(stream, 0)
        deadline = time.monotonic() + 30
        rows: list[Any] = []
        while not rows and time.monotonic() < deadline:
            publish(port, topic, b"1")
            rows += follow_once(stream)
    given["spool.receiver"] = "daemon"
    with streamfactory.open(given, start="earliest") as stream:
        table = stream.to_reader().read_all()
    assert set(table["value"].to_pylist()) == {b"1"}
