"""Streams that are proposed for the topics of a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.transfer.discovering import Place, discover
from streamfactory.wiring.config.definition import StreamDefinition

if TYPE_CHECKING:
    from tests.kafka.broker import Addresses
    from tests.kafka.topics import Topics


def test_a_topic_of_a_broker_becomes_a_stream(
    kafka: Addresses, topics: Topics, topic: str
) -> None:
    other = topics.create(f"{topic}-2")
    listed = discover(Place("x", kafka.bootstrap)).topics
    assert {topic, other} <= {*listed}
    topics.send(topic, [b'{"id": 7, "city": "a"}', b'{"id": 8}'])
    found = discover(Place("x", kafka.bootstrap, topic=topic)).definition
    expected = {
        "streamType": "kafka",
        "stream.kafka.broker.list": kafka.bootstrap,
        "stream.kafka.topic.name": topic,
        "stream.kafka.decoder.class.name": "json",
        "schema": "id bigint, city string",
    }
    assert {one.key: one.text for one in found.properties} == expected
    like = StreamDefinition.of("y", expected | {"group.name": "billing"})
    found = discover(Place("x", topic=other, like=like)).definition
    # The topic is empty: nothing shows how its messages are decoded.
    assert {one.key: one.text for one in found.properties} == {
        **{key: expected[key] for key in [*expected][:2]},
        "stream.kafka.topic.name": other,
        "stream.kafka.decoder.class.name": "raw",
    }
