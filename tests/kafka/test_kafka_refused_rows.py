"""Rows that a topic never accepts fail at once, with row and setting."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from tests.kafka.conftest import stream_of
from tests.kafka.streams import opened

import streamfactory
from streamfactory.arrowlog import message_schema
from streamfactory.backends.kafka.errors import is_final
from streamfactory.backends.kafka.groups import KafkaGroupMember
from streamfactory.backends.kafka.row_checks import RowChecks
from streamfactory.backends.kafka.sending import refusal
from streamfactory.spi import (
    CheckpointFailed,
    FetchLimits,
    MessageTooLarge,
    Partition,
    Position,
    SchemaMismatch,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka.topics import Topics

SOON = 60.0
"""Seconds in which a refusal is reported, on a busy machine."""


def rows(**columns: Any) -> pa.Table:
    return pa.table({"value": [b"a", b"b", b"c"], **columns})


def times(*found: datetime | None) -> pa.Array:
    return pa.array(found, pa.timestamp("us", "UTC"))


def put(topics: Topics, topic: str, table: pa.Table, **options: str) -> None:
    given = {key.replace("__", "."): value for key, value in options.items()}
    with streamfactory.open_sink(stream_of(topics.bootstrap, topic) | given) as sink:
        sink.put(table)


@pytest.mark.parametrize("mode", ["epoch", "task"])
@pytest.mark.parametrize(
    ("setting", "ahead"),
    [
        ("message.timestamp.after.max.ms", timedelta(days=40)),
        ("message.timestamp.before.max.ms", timedelta(days=-40)),
    ],
)
def test_a_time_that_the_topic_refuses_is_named_with_its_row_and_setting(
    setting: str, ahead: timedelta, mode: str, topics: Topics
) -> None:
    topic = topics.create(config={setting: "3600000"})
    now = datetime.now(UTC)
    table = rows(_timestamp=times(now, now + ahead, None))
    begun = time.monotonic()
    with pytest.raises(SchemaMismatch, match=f"row 1 .*{setting}=3600000"):
        put(topics, topic, table, stream__kafka__commit__mode=mode)
    assert time.monotonic() - begun < SOON
    assert topics.count(topic) == 0


@pytest.mark.parametrize("mode", ["epoch", "task"])
def test_a_time_that_only_the_broker_refuses_fails_at_once(
    mode: str, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the topic's settings could not be read, or the clocks differ."""
    monkeypatch.setattr(RowChecks, "_check_limits", lambda *_: None)
    topic = topics.create(config={"message.timestamp.after.max.ms": "3600000"})
    table = rows(_timestamp=times(*[datetime.now(UTC) + timedelta(days=40)] * 3))
    begun = time.monotonic()
    with pytest.raises(SchemaMismatch, match=r"INVALID_(TIMESTAMP|RECORD)") as caught:
        put(topics, topic, table, stream__kafka__commit__mode=mode)
    assert time.monotonic() - begun < SOON
    assert "message.timestamp.after.max.ms" in str(caught.value)
    assert caught.value.partition == Partition(topic, 0)


@pytest.mark.parametrize("part", ["key", "value", "headers"])
def test_all_bytes_of_a_row_count_to_the_limit_of_its_topic(part: str) -> None:
    checks = RowChecks("t", {"max.message.bytes": "2000"}, lengths=True)
    small, large = bytes(10), bytes(1990)
    columns: dict[str, list[Any]] = {
        "key": [small, None, small],
        "value": [small, small, None],
        "timestamp": [None, None, None],
        "headers": [[("h", small), ("i", None)], None, [("h", small)]],
    }
    checks(pa.record_batch(columns, schema=message_schema()), 0)
    columns[part][2] = [("h", large), ("i", small)] if part == "headers" else large
    with pytest.raises(MessageTooLarge, match=r"row 5 .* message of 20") as caught:
        checks(pa.record_batch(columns, schema=message_schema()), 0)
    assert caught.value.partition == Partition("t", 0)


def test_a_row_without_key_is_refused_by_a_compacted_topic(topics: Topics) -> None:
    topic = topics.create(config={"cleanup.policy": "compact,delete"})
    with pytest.raises(SchemaMismatch, match=r"row 1 .*has no key.*compacted"):
        put(topics, topic, rows(_key=[b"k", None, b"k"]))
    put(topics, topic, rows(_key=[b"k", b"l", b"k"]))
    assert topics.count(topic) == 3


@pytest.mark.parametrize(
    "name",
    [
        "INVALID_TIMESTAMP",
        "INVALID_RECORD",
        "MSG_SIZE_TOO_LARGE",
        "RECORD_LIST_TOO_LARGE",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        "UNSUPPORTED_COMPRESSION_TYPE",
        "INVALID_REQUIRED_ACKS",
        "POLICY_VIOLATION",
        "TOPIC_EXCEPTION",
        "TOPIC_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "SASL_AUTHENTICATION_FAILED",
        "_INVALID_ARG",
        "_UNKNOWN_TOPIC",
    ],
)
def test_what_no_retry_can_mend_is_final(name: str) -> None:
    assert is_final(KafkaError(getattr(KafkaError, name)))


@pytest.mark.parametrize(
    "name",
    [
        "_FATAL",
        "_FENCED",
        "_STATE",
        "_TIMED_OUT",
        "_TRANSPORT",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "INVALID_PRODUCER_EPOCH",
        "INVALID_TXN_STATE",
        "NOT_COORDINATOR",
        "NOT_ENOUGH_REPLICAS",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "UNKNOWN_PRODUCER_ID",
    ],
)
def test_what_a_new_producer_mends_is_not_final(name: str) -> None:
    assert not is_final(KafkaError(getattr(KafkaError, name)))


def test_other_refusals_keep_the_error_of_the_client() -> None:
    error = KafkaException(KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER))
    assert refusal(error, "t", 0, 1) is error


# --- commits of groups ----------------------------------------------------------------


@pytest.fixture
def member(topics: Topics) -> Iterator[tuple[KafkaGroupMember, Partition]]:
    topic = topics.create()
    topics.send(topic, [b"v"] * 3)
    properties = stream_of(topics.bootstrap, topic) | {
        "stream.kafka.connection.timeout.millis": "3000"
    }
    with opened(properties, startingOffsets="earliest") as source:
        one = KafkaGroupMember(source.config, "test", f"group-{topic}")
        try:
            deadline = time.monotonic() + SOON
            while not one.assignment() and time.monotonic() < deadline:
                one.fetch_messages(FetchLimits(10, 2**20, 0.2))
            yield one, Partition(topic, 0)
        finally:
            one.close()


@pytest.mark.parametrize(
    "name",
    [
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "ILLEGAL_GENERATION",
        "NOT_COORDINATOR",
        "REBALANCE_IN_PROGRESS",
        "UNKNOWN_MEMBER_ID",
        "_TIMED_OUT",
        "_TRANSPORT",
        "_WAIT_COORD",
    ],
)
def test_a_commit_is_tried_again_after_what_passes(
    name: str,
    member: tuple[KafkaGroupMember, Partition],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, partition = member
    saved, failures = KafkaGroupMember._saved, [getattr(KafkaError, name)] * 2

    def failing(this: KafkaGroupMember, client: Any, places: Any) -> Any:
        if failures:
            return KafkaError(failures.pop())
        return saved(this, client, places)

    monkeypatch.setattr(KafkaGroupMember, "_saved", failing)
    one.commit(Position({partition: 2}))
    assert failures == []
    assert one._client is not None
    [place] = one._client.committed([TopicPartition(partition.topic, 0)], timeout=20)
    assert place.offset == 2


@pytest.mark.parametrize(
    ("name", "least"), [("NOT_COORDINATOR", 3.0), ("GROUP_AUTHORIZATION_FAILED", 0.0)]
)
def test_a_commit_fails_at_its_deadline_or_when_no_retry_helps(
    name: str,
    least: float,
    member: tuple[KafkaGroupMember, Partition],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, partition = member
    error = KafkaError(getattr(KafkaError, name))
    monkeypatch.setattr(KafkaGroupMember, "_saved", lambda *_: error)
    begun = time.monotonic()
    with pytest.raises(CheckpointFailed, match=name) as caught:
        one.commit(Position({partition: 2}))
    assert str(caught.value.remedy).startswith("commit again") == (least > 0)
    assert least <= time.monotonic() - begun < least + SOON


def test_a_commit_says_what_a_rebalance_left_of_it(
    member: tuple[KafkaGroupMember, Partition], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was assigned again meanwhile is read from the last commit."""
    one, partition = member
    saved = KafkaGroupMember._saved
    position = Position({partition: 2})
    one.commit(position)
    assert one.committed() == position

    def rebalanced(this: KafkaGroupMember, client: Any, places: Any) -> Any:
        taken = [TopicPartition(partition.topic, partition.id)]
        this._revoked(client, taken)
        this._mine.add(partition)
        monkeypatch.setattr(KafkaGroupMember, "_saved", saved)
        return KafkaError(KafkaError.REBALANCE_IN_PROGRESS)

    monkeypatch.setattr(KafkaGroupMember, "_saved", rebalanced)
    one.commit(Position({partition: 3}))
    assert one.committed() == Position()
    assert one._client is not None
    [place] = one._client.committed([TopicPartition(partition.topic, 0)], timeout=20)
    assert place.offset == 2
    one.commit(Position({partition: 3}))
    assert one.committed() == Position({partition: 3})
