"""Names of options: Pinot's, Java's, librdkafka's; and Pinot's own example configs."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaException
from tests.kafka.conftest import stream_of
from tests.kafka.streams import drain, opened, values

from streamfactory.backends.kafka.client_pool import consumer_settings
from streamfactory.backends.kafka.clients import Watch
from streamfactory.backends.kafka.options import OWNED
from streamfactory.spi import ConfigError, Partition
from streamfactory.wiring.config.catalogue import read_definitions
from streamfactory.wiring.config.configure import configure, inspect
from streamfactory.wiring.config.definition import StreamDefinition
from streamfactory.wiring.config.imports.pinotclients import KAFKA_CLIENT_KEYS
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    from tests.kafka.topics import Topics

PINOT = Path(__file__).parents[1] / "data" / "pinot"


def examples() -> list[StreamDefinition]:
    """The streams of Pinot's examples that name Kafka."""
    found: list[StreamDefinition] = []
    for path in sorted(PINOT.glob("*.json")):
        # The others show what is refused, each in its own way.
        with suppress(ConfigError):
            found += read_definitions(path)
    return [
        one
        for one in found
        if any((p.key, p.text) == ("streamType", "kafka") for p in one.properties)
    ]


def test_there_are_examples_of_pinots() -> None:
    assert len(examples()) >= 5


@pytest.mark.parametrize("definition", examples(), ids=lambda one: one.name)
def test_an_example_of_pinots_is_read(
    definition: StreamDefinition, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is, but for the broker, the topic, and a login that this broker has not."""
    topic = topics.create()
    topics.send(topic, [json.dumps({"a": 1}).encode()])
    kept = [
        prop
        for prop in definition.properties
        if ".prop.security." not in prop.key
        and ".prop.sasl" not in prop.key
        and ".prop.ssl." not in prop.key
        and ".kafka.ssl." not in prop.key
        and ".partition.ids" not in prop.key
        and "decoder" not in prop.key
    ]
    there = StreamDefinition(definition.name, tuple(kept)).with_overrides(
        {
            "stream.kafka.broker.list": topics.bootstrap,
            "stream.kafka.topic.name": topic,
            "stream.kafka.decoder.class.name": "raw",
        }
    )
    whole = inspect(definition, default_manager(), use="read")
    about_kafka = [
        str(problem)
        for problem in whole.errors
        if "decoder" not in problem.key and "${env:" not in str(problem)
    ]
    assert about_kafka == []
    source = Source(configure(there, default_manager(), use="read"))
    try:
        reader = source.reader(Partition(topic, 0))
        try:
            assert values(drain(reader, rows=1)) == [b'{"a": 1}']
        finally:
            reader.close()
    finally:
        source.close()


@pytest.mark.parametrize("key", sorted(KAFKA_CLIENT_KEYS))
def test_every_name_of_javas_client_has_a_meaning_here(key: str) -> None:
    """What Pinot's configs may hold is passed on, renamed, or known to be Java's."""
    assert key not in OWNED
    value = "read_committed" if key == "isolation.level" else "1"
    given = {f"stream.kafka.consumer.prop.{key}": value}
    with opened({**stream_of("localhost:1", "t"), **given}) as source:
        settings = consumer_settings(source.config, "test", Watch())
    said = ""
    try:
        Consumer(settings).close()
    except KafkaException as error:  # of the value, perhaps
        said = str(error)
    assert "No such configuration property" not in said


def test_the_isolation_level_has_two_names() -> None:
    for key in ("isolation.level", "consumer.prop.isolation.level"):
        given = {f"stream.kafka.{key}": "read_uncommitted"}
        with opened({**stream_of("localhost:1", "t"), **given}) as source:
            settings = consumer_settings(source.config, "test", Watch())
        assert settings["isolation.level"] == "read_uncommitted"
    with opened(stream_of("localhost:1", "t")) as source:
        settings = consumer_settings(source.config, "test", Watch())
    assert settings["isolation.level"] == "read_committed"


def test_settings_of_the_client_reach_it_and_ours_stay() -> None:
    given = {
        "stream.kafka.consumer.prop.fetch.wait.max.ms": "33",
        "stream.kafka.consumer.prop.group.id": "somebody",
        "stream.kafka.consumer.prop.fetch.max.wait.ms": "33",
    }
    with opened({**stream_of("localhost:1", "t"), **given}) as source:
        settings = consumer_settings(source.config, "test", Watch())
    assert settings["fetch.wait.max.ms"] == "33"
    assert settings["group.id"] == "somebody"
    assert settings["auto.offset.reset"] == "error"
    assert "fetch.max.wait.ms" not in settings


def test_sparks_name_of_the_longest_wait_is_understood() -> None:
    given = {"kafkaConsumer.pollTimeoutMs": "777"}
    with opened({**stream_of("localhost:1", "t"), **given}) as source:
        assert source.config["fetch.timeout.millis"] == 777


def test_what_spark_means_otherwise_is_refused_with_what_comes_close() -> None:
    given = {
        "fetchOffset.numRetries": "3",
        "fetchOffset.retryIntervalMs": "10",
        "groupIdPrefix": "mine",
    }
    with (
        pytest.raises(ConfigError) as caught,
        opened({**stream_of("localhost:1", "t"), **given}),
    ):
        pass
    text = str(caught.value)
    assert "set retry.max.attempts, which counts the first attempt too" in text
    assert "set retry.initial.millis, which doubles with each attempt" in text
    assert "set kafka.group.id" in text


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("rebalance_cb", "its value is an object of a program"),
        ("logger", "its value is an object of a program"),
        ("opaque", "its value is an object of a program"),
        ("oauth_cb", "set stream.kafka.sasl.oauthbearer.token to module:function"),
    ],
)
def test_objects_of_a_program_are_no_texts(key: str, remedy: str) -> None:
    given = {f"stream.kafka.consumer.prop.{key}": "x"}
    with (
        pytest.raises(ConfigError, match=f"{key}: is set by streamfactory.*{remedy}"),
        opened({**stream_of("localhost:1", "t"), **given}),
    ):
        pass
