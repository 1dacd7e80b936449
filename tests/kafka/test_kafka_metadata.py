"""What topics have, asked of a real broker; topics made, grown, cut and deleted."""

from __future__ import annotations

import json
import uuid
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]
from tests.kafka.broker import PASSWORD, USER
from tests.kafka.conftest import stream_of
from tests.kafka.streams import opened
from tests.proving.commands import command_of

from streamfactory.backends.kafka.errors import CODES
from streamfactory.spi import (
    ConfigError,
    MisuseError,
    Partition,
    PartitionState,
    StreamError,
    TopicNotFound,
    Unsupported,
)
from streamfactory.wiring.topics.admin import open_admin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.kafka.broker import Addresses
    from tests.kafka.topics import Topics


def test_every_partition_comes_with_its_bounds_and_its_topics_id(
    topics: Topics,
) -> None:
    name = topics.create(partitions=3)
    topics.send(name, [b"a", b"b"], partition=1)
    topics.truncate(name, 1, 1)
    with opened(stream_of(topics.bootstrap, name)) as source:
        infos = source.metadata.partitions()
    bounds = {info.partition.id: (info.earliest, info.latest) for info in infos}
    assert bounds == {0: (0, 0), 1: (1, 2), 2: (0, 0)}
    assert len({info.incarnation for info in infos}) == 1
    assert infos[0].incarnation


def test_offsets_are_found_by_time(topics: Topics) -> None:
    name = topics.create(partitions=2)
    for second in range(5):
        topics.send(name, [b"v"], timestamp=1_700_000_000_000 + second * 1000)
    with opened(stream_of(topics.bootstrap, name)) as source:
        both = [Partition(name, 0), Partition(name, 1)]
        ask = source.metadata.offsets_at
        assert ask(1_700_000_002_000, both) == {both[0]: 2, both[1]: None}
        assert ask(1_700_000_001_001, both) == {both[0]: 2, both[1]: None}
        assert ask(0, both) == {both[0]: 0, both[1]: None}
        assert ask(1_700_000_009_000, both) == {both[0]: None, both[1]: None}


def test_partitions_that_come_later_are_found(topics: Topics) -> None:
    name = topics.create()
    with opened(stream_of(topics.bootstrap, name)) as source:
        assert len(source.metadata.partitions()) == 1
        topics.grow(name, 3)
        infos = source.metadata.partitions()
    assert [(info.partition.id, info.state) for info in infos] == [
        (number, PartitionState.ACTIVE) for number in range(3)
    ]


def test_some_partitions_are_chosen_by_number(topics: Topics) -> None:
    name = topics.create(partitions=5)
    chosen = {"stream.kafka.partition.ids": "4, 0-1"}
    with opened(stream_of(topics.bootstrap, name) | chosen) as source:
        infos = source.metadata.partitions()
    assert [info.partition.id for info in infos] == [0, 1, 4]


def test_a_chosen_partition_has_to_be_there(topics: Topics) -> None:
    name = topics.create(partitions=2)
    chosen = {"stream.kafka.partition.ids": "0-3"}
    with (
        opened(stream_of(topics.bootstrap, name) | chosen) as source,
        pytest.raises(TopicNotFound) as caught,
    ):
        source.metadata.partitions()
    assert caught.value.what == f"topic {name!r} has no partition 2"


@pytest.mark.parametrize("text", ["", "a", "3-1", "0-10000", "-1", "1,,2"])
def test_bad_lists_of_partitions_are_reported(text: str) -> None:
    properties = stream_of("localhost:1", "t") | {"stream.kafka.partition.ids": text}
    with pytest.raises(ConfigError) as caught, opened(properties):
        pass
    assert "stream.kafka.partition.ids" in str(caught.value)


def test_several_topics_are_read_as_one_stream(topics: Topics) -> None:
    mark = uuid.uuid4().hex[:8]
    names = [topics.create(f"{mark}-{letter}") for letter in "ab"]
    topics.create(f"other-{mark}")
    for number, name in enumerate(names):
        topics.send(name, [str(number).encode()])
    base = stream_of(topics.bootstrap, "-")
    del base["stream.kafka.topic.name"]
    for chooser in (
        {"subscribe": ",".join(names)},
        {"subscribePattern": f"{mark}-.*"},
        {"assign": f'{{"{names[0]}": [0], "{names[1]}": [0]}}'},
    ):
        with opened(base | chooser) as source:
            found = [info.partition for info in source.metadata.partitions()]
        assert found == [Partition(name, 0) for name in names]


def test_internal_topics_are_not_listed(topics: Topics, topic: str) -> None:
    topics.send_in_transaction(topic, [b"v"])
    with opened(stream_of(topics.bootstrap, topic)) as source:
        names = source.metadata.list_topics()
    assert topic in names
    assert "__transaction_state" not in names


def test_a_topic_that_is_not_there(kafka: Addresses) -> None:
    name = f"nowhere-{uuid.uuid4().hex}"
    with (
        opened(stream_of(kafka.bootstrap, name)) as source,
        pytest.raises(TopicNotFound) as caught,
    ):
        source.metadata.partitions()
    text = str(caught.value)
    assert name in text
    assert kafka.bootstrap in text
    assert "check `topic.name`" in text


@pytest.mark.long("creates 1,000 partitions")
def test_a_thousand_partitions_are_one_call(topics: Topics) -> None:
    name = topics.create(partitions=1000)
    topics.send(name, [b"v"], partition=999)
    with opened(stream_of(topics.bootstrap, name)) as source:
        infos = source.metadata.partitions()
    topics.delete(name)
    assert len(infos) == 1000
    assert (infos[999].partition.id, infos[999].latest) == (999, 1)


def checked(
    properties: Mapping[str, str], capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    """What ``check`` says of a stream, and each of its steps by name."""
    lines = [f"{json.dumps(k)} = {json.dumps(v)}\n" for k, v in properties.items()]
    Path("clicks.toml").write_text("[properties]\n" + "".join(lines))
    report: dict[str, Any] = command_of(capsys)("check", "clicks.toml", "--json").json
    return report | {step["name"]: step for step in report["steps"]}


def test_check_shows_what_takes_messages_away(
    topics: Topics, capsys: pytest.CaptureFixture[str]
) -> None:
    name = topics.create(
        config={"retention.ms": "1234567", "cleanup.policy": "compact"}
    )
    report = checked(stream_of(topics.bootstrap, name), capsys)
    assert report["settings"]["outcome"] == "ok"
    assert report["settings"]["what"] == (
        f"{name}: cleanup.policy=compact, delete.retention.ms=86400000, "
        "retention.bytes=-1, retention.ms=1234567"
    )


def test_check_skips_settings_that_may_not_be_seen(
    topics: Topics, kafka: Addresses, capsys: pytest.CaptureFixture[str]
) -> None:
    if kafka.sasl is None:
        pytest.skip("KAFKA_BOOTSTRAP names a broker that was not started here")
    name = topics.create()
    topics.forbid(name, USER, AclOperation.DESCRIBE_CONFIGS)
    login = {
        "stream.kafka.consumer.prop.security.protocol": "SASL_PLAINTEXT",
        "stream.kafka.consumer.prop.sasl.mechanism": "PLAIN",
        "stream.kafka.consumer.prop.sasl.username": USER,
        "stream.kafka.consumer.prop.sasl.password": PASSWORD,
    }
    report = checked(stream_of(kafka.sasl, name) | login, capsys)
    assert report["ok"], [s for s in report["steps"] if s["outcome"] == "failed"]
    assert report["settings"]["outcome"] == "skipped"
    assert name in report["settings"]["what"]


# --- operating ------------------------------------------------------------------------


def test_a_topic_is_made_grown_cut_and_deleted(
    topics: Topics, kafka: Addresses
) -> None:
    name = f"made-{uuid.uuid4().hex[:8]}"
    with closing(open_admin(stream_of(kafka.bootstrap, name))) as admin:
        admin.create(None, 2)
        topics.wait(name, 2)
        with pytest.raises(MisuseError) as again:
            admin.create(None, 2)
        assert name in str(again.value)
        admin.grow(3)
        topics.wait(name, 3)
        with pytest.raises(MisuseError):
            admin.grow(1)
        topics.send(name, [b"a", b"b", b"c"])
        admin.truncate({0: 2})
        facts = admin.facts()
        assert facts["cleanup.policy"] == "delete"
        assert facts["replication"] == 1
        assert "retention.ms" in facts
        with pytest.raises(Unsupported):
            admin.compact()
        admin.delete()
        topics.wait(name, 0)
        with pytest.raises(TopicNotFound):
            admin.delete()


# --- errors ---------------------------------------------------------------------------


def test_every_code_of_the_client_has_a_class_or_is_permanent() -> None:
    """A code that says that a retry can help is never taken for final."""
    codes = {
        name: value
        for name, value in vars(KafkaError).items()
        if isinstance(value, int) and not name.startswith("__")
    }
    unlisted = [name for name, value in codes.items() if value not in CODES]
    assert all(issubclass(kind, StreamError) for kind in CODES.values())
    assert not [n for n in unlisted if "AUTHORIZATION" in n or "NOT_AVAILABLE" in n]
    assert len(codes) - len(unlisted) == len(CODES)
