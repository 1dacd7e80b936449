"""Epochs, each once: lost verdicts, zombies, lost markers, transactions too long."""

from __future__ import annotations

import contextlib
import time
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its stubs
    ConfigResource,
    ResourceType,
)
from tests.kafka.conftest import stream_of
from tests.kafka.paths import BEFORE_WRITING
from tests.kafka.test_kafka_writing import messages, rows, values

from streamfactory.backends.kafka import committing
from streamfactory.backends.kafka.clients import Watch
from streamfactory.backends.kafka.markers import Marker
from streamfactory.backends.kafka.producing import Deadline, TransactionalProducer
from streamfactory.backends.kafka.writing_topics import WrittenTopics
from streamfactory.spi import (
    ConfigError,
    EpochMarkerLost,
    FormatRefused,
    LastCommit,
    Partition,
    Position,
    StreamTimeout,
    Summary,
    TopicNotFound,
    WriterFenced,
)
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confluent_kafka import Producer
    from tests.kafka.broker import Addresses
    from tests.kafka.topics import Topics

    from streamfactory.spi import CommitMessage
    from streamfactory.wiring.writing.committer import Committer
    from streamfactory.wiring.writing.sink import Sink

pytestmark = pytest.mark.usefixtures("each_way")


@pytest.fixture
def sink(properties: dict[str, str]) -> Iterator[Sink]:
    with open_sink(properties) as sink:
        yield sink


@pytest.fixture
def epochs(properties: dict[str, str]) -> str:
    """A topic of markers of the test's own; not there yet."""
    name = f"epochs-{uuid.uuid4().hex[:8]}"
    properties["stream.kafka.epochs.topic"] = name
    return name


@pytest.fixture
def compacted_epochs(topics: Topics, epochs: str) -> str:
    """The same, which is there and may be written by others."""
    return topics.create(epochs, config={"cleanup.policy": "compact"})


def hide_the_end(topics: Topics, name: str) -> Producer:
    """A transaction with a message in a topic, left open."""
    blocker = topics.transaction()
    topics.produce(blocker, name, b"open", key=b"blocker")
    assert blocker.flush(20) == 0
    return blocker


def stage(sink: Sink, epoch: int, *numbers: int, writer: str = "w") -> CommitMessage:
    made = sink.writer(rows().schema, writer_id=writer, epoch=epoch)
    with contextlib.closing(made):
        made.write(rows(*numbers))
        return made.commit()


def commit(committer: Committer, sink: Sink, epoch: int, *numbers: int) -> bool:
    return committer.commit(epoch, [stage(sink, epoch, *numbers)])


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let calls of the client fail, so many times, before or after their work."""

    def order(
        call: str, *, done: bool, times: int = 1, code: int = KafkaError._TIMED_OUT
    ) -> None:
        method, left = getattr(TransactionalProducer, call), [times]

        def failing(*arguments: Any) -> Any:
            if not left[0]:
                return method(*arguments)
            left[0] -= 1
            if done:
                method(*arguments)
            raise KafkaException(KafkaError(code, "the answer is lost"))

        monkeypatch.setattr(TransactionalProducer, call, failing)

    return order


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("times", [1, 3])
def test_an_epoch_whose_verdict_was_lost_is_stored_once(
    kafka: Addresses,
    topic: str,
    sink: Sink,
    fail: Callable[..., None],
    done: bool,
    times: int,
) -> None:
    with contextlib.closing(sink.committer(writer_id="w")) as committer:
        assert commit(committer, sink, 0, 1)
        fail("commit", done=done, times=times)
        assert commit(committer, sink, 1, 2, 3), "this call made the commit"
        assert commit(committer, sink, 2, 4)
    assert values(kafka, topic) == [b"1", b"2", b"3", b"4"]


def test_a_commit_into_a_deleted_topic_does_not_wait_for_its_transaction_to_end(
    topics: Topics, topic: str, properties: dict[str, str]
) -> None:
    properties["stream.kafka.transaction.timeout.millis"] = "600000"
    producer = "stream.kafka.producer.prop"
    properties[f"{producer}.topic.metadata.propagation.max.ms"] = "500"
    with (
        open_sink(properties) as sink,
        contextlib.closing(sink.committer(writer_id="w")) as committer,
    ):
        staged = stage(sink, 0, 1)
        committer.last()
        topics.delete(topic)
        begun = time.monotonic()
        with pytest.raises(TopicNotFound):
            committer.commit(0, [staged])
        assert time.monotonic() - begun < 200


@pytest.mark.parametrize("done", [False, True])
def test_a_claim_whose_verdict_was_lost_is_made_once(
    kafka: Addresses, topic: str, sink: Sink, fail: Callable[..., None], done: bool
) -> None:
    with contextlib.closing(sink.committer(writer_id="w")) as committer:
        fail("commit", done=done)
        assert committer.last() is None
        assert commit(committer, sink, 0, 1)
    assert values(kafka, topic) == [b"1"]


def test_a_failure_in_the_middle_leaves_nothing_of_the_attempt(
    kafka: Addresses, topic: str, sink: Sink, fail: Callable[..., None]
) -> None:
    with contextlib.closing(sink.committer(writer_id="w")) as committer:
        committer.last()
        fail("send_one", done=True)  # rows and marker are with the broker
        assert commit(committer, sink, 0, 1, 2)
    assert values(kafka, topic) == [b"1", b"2"]
    seen = [m.value() for m in messages(kafka, topic, level="read_uncommitted")]
    assert seen.count(b"1") >= 1


@pytest.mark.long("waits for timeouts of the client")
def test_a_verdict_that_stays_unknown_is_reported_as_such(
    kafka: Addresses,
    topic: str,
    properties: dict[str, str],
    fail: Callable[..., None],
) -> None:
    options = {
        "stream.kafka.connection.timeout.millis": "3000",
        "stream.kafka.transaction.timeout.millis": "1s",
    }
    with (
        open_sink(properties, options=options) as sink,
        contextlib.closing(sink.committer(writer_id="w")) as committer,
    ):
        committer.last()
        message = stage(sink, 0, 1)
        fail("commit", done=False, times=1000)
        with pytest.raises(StreamTimeout) as caught:
            committer.commit(0, [message])
    assert "the outcome of a commit is unknown" in str(caught.value)
    assert "commit the epoch again" in str(caught.value)
    assert values(kafka, topic) == []


def test_a_zombie_that_initialises_again_does_not_disturb_its_successor(
    kafka: Addresses, topic: str, properties: dict[str, str]
) -> None:
    with open_sink(properties) as one, open_sink(properties) as other:
        zombie = one.committer(writer_id="w")
        living = other.committer(writer_id="w")
        with contextlib.closing(zombie), contextlib.closing(living):
            zombie.last()
            assert commit(zombie, one, 0, 1)
            living.last()
            for epoch in (1, 2, 3):
                with pytest.raises(WriterFenced):
                    commit(zombie, one, epoch, 66)
                assert commit(living, other, epoch, epoch * 10)
            # Also of an epoch that exists: its rows are those of the other.
            with pytest.raises(WriterFenced):
                zombie.commit(3, [stage(one, 3, 30)])
    assert values(kafka, topic) == [b"1", b"10", b"20", b"30"]


def test_a_producer_that_a_third_party_has_fenced_recovers(
    kafka: Addresses, topic: str, sink: Sink, topics: Topics
) -> None:
    with contextlib.closing(sink.committer(writer_id="w")) as committer:
        assert commit(committer, sink, 0, 1)
        name = f"streamfactory/{topic}/w"
        stranger = topics.producer(**{"transactional.id": name})
        stranger.init_transactions(20)
        assert commit(committer, sink, 1, 2)
    assert values(kafka, topic) == [b"1", b"2"]


def test_position_and_summary_stand_with_the_epoch(sink: Sink) -> None:
    here = Position(
        {Partition("in", partition): 7 + partition for partition in range(50)}
    )
    with contextlib.closing(sink.committer(writer_id="w")) as committer:
        committer.commit(0, [stage(sink, 0, 1, 2)], here)
    last = sink.factory.fetch_last_commit("w")
    assert last is not None
    assert (last.epoch, last.source_position) == (0, here)
    assert last.summary is not None
    assert last.summary.rows == 2


def test_a_lost_marker_is_reported_and_adopted_by_name(
    kafka: Addresses,
    topic: str,
    topics: Topics,
    properties: dict[str, str],
    epochs: str,
) -> None:
    with open_sink(properties) as sink:
        for epoch in range(2):
            sink.put(rows(epoch), writer_id="w", epoch=epoch)
    topics.delete(epochs)
    with open_sink(properties) as sink, sink.committer(writer_id="w") as committer:
        with pytest.raises(EpochMarkerLost) as caught:
            commit(committer, sink, 2, 2)
        assert "the last epoch before 2 of writer 'w' is unknown" in str(caught.value)
    adopting = open_sink(properties, options={"epoch.adopt": "2"})
    with adopting as sink, sink.committer(writer_id="w") as committer:
        assert commit(committer, sink, 2, 2)
    assert values(kafka, topic) == [b"0", b"1", b"2"]


def test_a_marker_that_goes_under_a_living_committer_is_reported(
    topics: Topics, properties: dict[str, str], epochs: str
) -> None:
    properties["stream.kafka.transaction.timeout.millis"] = "3s"
    with (
        open_sink(properties) as sink,
        contextlib.closing(sink.committer(writer_id="w")) as committer,
    ):
        assert commit(committer, sink, 0, 1)
        topics.delete(epochs)
        with pytest.raises(EpochMarkerLost):
            commit(committer, sink, 1, 2)


def test_a_topic_made_again_has_no_past(
    kafka: Addresses, topic: str, topics: Topics, properties: dict[str, str]
) -> None:
    with open_sink(properties) as sink:
        sink.put(rows(1), writer_id="w")
    topics.recreate(topic)
    with open_sink(properties) as sink:
        assert sink.put(rows(2), writer_id="w")
    assert values(kafka, topic) == [b"2"]


@BEFORE_WRITING
def test_the_topic_of_markers_is_compacted_and_keeps_for_as_long_as_is_said(
    topics: Topics, properties: dict[str, str], epochs: str
) -> None:
    with open_sink(properties, options={"writer.memory.millis": "90d"}) as sink:
        sink.put(rows(1), writer_id="w")
    resource = ConfigResource(ResourceType.TOPIC, epochs)
    found = topics.admin.describe_configs([resource])[resource].result(60)
    assert found["cleanup.policy"].value == "compact,delete"
    assert found["retention.ms"].value == str(90 * 86_400_000)


@BEFORE_WRITING
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"cleanup.policy": "delete"}, "is not compacted"),
        (
            {"cleanup.policy": "compact,delete", "retention.ms": "60000"},
            "retention.ms=60000",
        ),
    ],
)
def test_a_topic_of_markers_that_forgets_too_early_is_refused(
    kafka: Addresses,
    topic: str,
    topics: Topics,
    properties: dict[str, str],
    epochs: str,
    settings: dict[str, str],
    said: str,
) -> None:
    topics.create(epochs, config=settings)
    with open_sink(properties) as sink, pytest.raises(ConfigError) as caught:
        sink.put(rows(1), writer_id="w")
    assert said in str(caught.value)
    assert repr(epochs) in str(caught.value)
    assert values(kafka, topic) == []


def test_a_marker_of_another_program_is_refused(
    kafka: Addresses,
    topics: Topics,
    properties: dict[str, str],
    compacted_epochs: str,
) -> None:
    topics.send(compacted_epochs, [b"noise"], key=b"someone else")
    with open_sink(properties) as sink:
        sink.put(rows(1), writer_id="w")
    (ours, *_) = [
        m for m in messages(kafka, compacted_epochs) if m.key() != b"someone else"
    ]
    topics.send(compacted_epochs, [b'{"version":2,"instance":"i"}'], key=ours.key())
    with open_sink(properties) as sink, pytest.raises(FormatRefused) as caught:
        sink.put(rows(1), writer_id="w")
    assert "has the unsupported version 2" in str(caught.value)


@BEFORE_WRITING
def test_markers_survive_their_text() -> None:
    here = Position({Partition("in", 0): 3}, {Partition("in", 0): "a"})
    for marker in (
        Marker("i"),
        Marker("i", 2, LastCommit(3)),
        Marker("i", 2, LastCommit(3, here, Summary(2, {"value": 7}))),
    ):
        assert Marker.decode(marker.encode()) == marker


@BEFORE_WRITING
@pytest.mark.parametrize(
    "text", [b"", b"[]", b"null", b'{"version":1}', b"\xff", b"[" * 100_000]
)
def test_a_broken_marker_is_refused(text: bytes) -> None:
    with pytest.raises(FormatRefused):
        Marker.decode(text)


@pytest.mark.long("waits for a transaction to end")
def test_another_writers_open_transaction_is_waited_for(
    kafka: Addresses,
    topic: str,
    topics: Topics,
    properties: dict[str, str],
    compacted_epochs: str,
) -> None:
    """A committed marker behind one that is open is not taken for missing."""
    blocker = hide_the_end(topics, compacted_epochs)
    options = {
        "stream.kafka.connection.timeout.millis": "3000",
        "stream.kafka.transaction.timeout.millis": "1s",
    }
    with open_sink(properties, options=options) as sink:
        with (
            contextlib.closing(sink.committer(writer_id="w")) as committer,
            pytest.raises(StreamTimeout) as caught,
        ):
            committer.last()
        assert "open transaction hides the end of" in str(caught.value)
        blocker.abort_transaction(20)
        assert sink.put(rows(1), writer_id="w")
    assert values(kafka, topic) == [b"1"]


def test_readers_see_an_epoch_when_its_commit_has_returned(
    kafka: Addresses, topic: str, sink: Sink
) -> None:
    for epoch in range(5):
        sink.put(rows(epoch), writer_id="w", epoch=epoch)
        assert values(kafka, topic)[-1] == b"%d" % epoch


@BEFORE_WRITING
def test_a_transaction_longer_than_the_broker_allows_names_its_setting(
    kafka: Addresses, topic: str, properties: dict[str, str]
) -> None:
    options = {"stream.kafka.transaction.timeout.millis": "2h"}
    with (
        open_sink(properties, options=options) as sink,
        pytest.raises(ConfigError) as caught,
    ):
        sink.put(rows(1), writer_id="w")
    assert "the broker does not allow a transaction timeout of 7200 s" in str(
        caught.value
    )
    assert "transaction.max.timeout.ms" in str(caught.value)
    assert values(kafka, topic) == []


@BEFORE_WRITING
def test_the_time_of_a_transaction_follows_from_the_staged_bytes(
    sink: Sink, topic: str, kafka: Addresses
) -> None:
    with contextlib.closing(sink.committer(writer_id="w")) as committer:
        committer.last()
        message = stage(sink, 0, 1)
        message.payload["size"] = 16 * 1024**3  # of a broker that takes 4 MiB a second
        with pytest.raises(ConfigError) as caught:
            committer.commit(0, [message])
        assert "a transaction timeout of 7680 s" in str(caught.value)
        assert commit(committer, sink, 0, 1)
    assert values(kafka, topic) == [b"1"]


def test_a_transaction_that_ran_out_of_time_is_made_again(
    kafka: Addresses,
    topic: str,
    properties: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    send, times = TransactionalProducer.send_one, [0]
    client = {"bootstrap.servers": kafka.bootstrap}
    asking = WrittenTopics(lambda: client, Watch(), kafka.bootstrap)

    def late(self: TransactionalProducer, *arguments: Any) -> None:
        send(self, *arguments)
        times[0] += 1
        if times[0] == 2:  # of the first epoch, after the claim
            assert self._producer.flush(20) == 0
            # Until the broker has ended it, readers do not see what it has written.
            partition = (topic, 0)
            assert asking.await_visible([partition], Deadline(30.0))

    monkeypatch.setattr(TransactionalProducer, "send_one", late)
    options = {"stream.kafka.transaction.timeout.millis": "1s"}
    with (
        open_sink(properties, options=options) as sink,
        contextlib.closing(sink.committer(writer_id="w")) as committer,
    ):
        assert commit(committer, sink, 0, 1)
    assert values(kafka, topic) == [b"1"]


def test_what_was_begun_hides_nothing_once_it_was_let_go(
    kafka: Addresses, topic: str
) -> None:
    client = {"bootstrap.servers": kafka.bootstrap}
    producer = TransactionalProducer(client, f"t-{topic}", topic, 60.0, Deadline(20.0))
    producer.begin()
    producer.send_one(topic, 0, b"k", b"gone", Deadline(20.0))
    assert producer._producer.flush(20) == 0
    producer.close()
    asking = WrittenTopics(lambda: client, Watch(), kafka.bootstrap)
    assert asking.await_visible([(topic, 0)], Deadline(20.0))
    assert values(kafka, topic) == []


def test_a_large_epoch_is_one_transaction(kafka: Addresses, topics: Topics) -> None:
    topic = topics.create(partitions=3)
    count = 200_000
    numbers = [b"%020d" % number for number in range(count)]
    table = pa.table({"value": numbers, "_key": numbers})
    with open_sink(stream_of(kafka.bootstrap, topic)) as sink:
        sink.put(table, writer_id="w")
    found = [
        value for partition in range(3) for value in values(kafka, topic, partition)
    ]
    assert len(found) == count
    assert sorted(found) == numbers


def test_a_claim_that_is_hidden_does_not_look_like_a_later_one(
    kafka: Addresses,
    topic: str,
    topics: Topics,
    properties: dict[str, str],
    compacted_epochs: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What can be seen behind an open transaction is the past, and fences nobody."""
    monkeypatch.setattr(committing, "_SIGHT", 0.5)  # waited for in vain, twice
    with open_sink(properties) as sink:
        sink.put(rows(0), writer_id="w")
    with (
        open_sink(properties) as sink,
        contextlib.closing(sink.committer(writer_id="w")) as committer,
    ):
        committer.last()
        blocker = hide_the_end(topics, compacted_epochs)
        assert commit(committer, sink, 1, 1)
        last = committer.last()
        assert last is not None
        assert last.epoch == 1
        assert commit(committer, sink, 2, 2)
        blocker.abort_transaction(20)
    assert values(kafka, topic) == [b"0", b"1", b"2"]
