"""Offsets that the client returns without an answer, as it does while leaders move."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException

from streamfactory.backends.kafka import writing_topics
from streamfactory.backends.kafka.clients import Watch
from streamfactory.backends.kafka.metadata import KafkaMetadata
from streamfactory.backends.kafka.producing import Deadline
from streamfactory.backends.kafka.writing_topics import WrittenTopics
from streamfactory.spi import PartialMetadata, Partition, TopicNotFound
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.config.loading import load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spi import StreamConfig


class Client:
    """Answers requests for offsets, the next one each time."""

    def __init__(self, *offsets: int | KafkaException) -> None:
        self._offsets = iter(offsets)

    def list_offsets(self, places: dict[Any, Any], **_: object) -> dict[Any, Any]:
        answers: dict[Any, Future[Any]] = {place: Future() for place in places}
        for answer in answers.values():
            found = next(self._offsets)
            if isinstance(found, KafkaException):
                answer.set_exception(found)
            else:
                answer.set_result(SimpleNamespace(offset=found))
        return answers

    def poll(self, _: float) -> None:
        pass


@pytest.fixture
def config() -> StreamConfig:
    given = {
        "streamType": "kafka",
        "stream.kafka.topic.name": "t",
        "stream.kafka.broker.list": "127.0.0.1:1",
        "stream.kafka.decoder.class.name": "raw",
        "stream.kafka.connection.timeout.millis": "1000",
    }
    return load(from_mapping(given), "read").config


def metadata_of(config: StreamConfig, offsets: Sequence[int]) -> KafkaMetadata:
    metadata, client = KafkaMetadata(config, "test"), Client(*offsets)
    metadata._admin._open = lambda: client  # type: ignore[assignment,method-assign,return-value]
    return metadata


@pytest.fixture
def partition() -> Partition:
    return Partition("t", 0)


def test_offsets_are_asked_for_again(
    config: StreamConfig, partition: Partition
) -> None:
    metadata = metadata_of(config, [OFFSET_INVALID, 7])
    assert metadata.fetch_offsets_at(0, [partition]) == {partition: 7}


def test_a_time_behind_all_messages_has_no_offset(
    config: StreamConfig, partition: Partition
) -> None:
    assert metadata_of(config, [-1]).fetch_offsets_at(0, [partition]) == {
        partition: None
    }


def test_none_is_made_of_a_missing_answer(
    config: StreamConfig, partition: Partition
) -> None:
    metadata = metadata_of(config, [OFFSET_INVALID] * 100)
    with pytest.raises(PartialMetadata, match="have not answered"):
        metadata.fetch_offsets_at(0, [partition])


def test_a_writer_asks_for_offsets_again() -> None:
    topics, client = WrittenTopics(dict, Watch(), "broker"), Client(OFFSET_INVALID, 7)
    topics._admin = lambda *_: client  # type: ignore[assignment,method-assign]
    assert topics.begin(("t", 0), Deadline(5.0)) == 7


def test_a_writer_asks_a_broker_again_that_does_not_know_a_new_topic() -> None:
    unknown = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    topics, client = WrittenTopics(dict, Watch(), "broker"), Client(unknown, unknown, 7)
    topics._admin = lambda *_: client  # type: ignore[assignment,method-assign]
    assert topics.begin(("t", 0), Deadline(5.0)) == 7


def test_settings_of_a_topic_that_stays_unknown_are_those_of_a_missing_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writing_topics, "_SPREAD", 0.0)
    answer: Future[object] = Future()
    unknown = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    answer.set_exception(KafkaException(unknown))
    topics = WrittenTopics(dict, Watch(), "broker")
    found: Future[object] = Future()
    found.set_result(SimpleNamespace(topic_id="id", partitions=[0]))
    client = SimpleNamespace(
        describe_topics=lambda *_, **__: {"nope": found},
        describe_configs=lambda wanted, **_: dict.fromkeys(wanted, answer),
    )
    topics._admin = lambda *_: client  # type: ignore[assignment,method-assign]
    with pytest.raises(TopicNotFound, match="topic 'nope' does not exist"):
        topics.settings("nope", Deadline(5.0))
