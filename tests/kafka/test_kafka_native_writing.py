"""Rows sent natively: the same messages, refusals and deadlines as by the client."""

from __future__ import annotations

import random
import threading
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.kafka.conftest import stream_of
from tests.kafka.test_kafka_writing import messages, values

from streamfactory.arrowlog import message_schema
from streamfactory.backends.kafka import native_library, native_sending
from streamfactory.backends.kafka.native_sending import NativeSender
from streamfactory.backends.kafka.producing import Deadline, TransactionalProducer
from streamfactory.backends.kafka.sending import PythonSender
from streamfactory.spi import (
    ClosedError,
    ConfigError,
    CorruptData,
    MessageTooLarge,
    StreamTimeout,
)
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.kafka.broker import Addresses
    from tests.kafka.topics import Topics

    from streamfactory.compiled.core import Core

WAYS = ["off", "required"]
both = pytest.mark.parametrize("way", WAYS)
HELD = {"linger.ms": 30_000, "queue.buffering.max.kbytes": 100}
"""A queue that is soon full, and is not sent."""


def library_of(way: str) -> native_library.Library | None:
    if way == "off":
        return None
    library = native_library.load()
    assert isinstance(library, native_library.Library)
    return library


@contextmanager
def transaction(
    kafka: Addresses, topic: str, way: str, **settings: Any
) -> Iterator[TransactionalProducer]:
    """A producer with an open transaction."""
    client = {"bootstrap.servers": kafka.bootstrap, "reconnect.backoff.ms": 20}
    given: Mapping[str, Any] = {**client, **settings}
    name, until = f"native/{topic}", Deadline(20.0)
    producer = TransactionalProducer(given, name, topic, 60.0, until, library_of(way))
    with closing(producer):
        producer.begin()
        yield producer


def rows(*values: bytes | None) -> pa.RecordBatch:
    columns = [{"value": value} for value in values]
    return pa.RecordBatch.from_pylist(columns, schema=message_schema())


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[type]:
    """The kinds of senders that the test creates."""
    kinds: list[type] = []
    for kind in (PythonSender, NativeSender):

        def noted(self: Any, settings: Any, connect: Any = kind.connect) -> Any:
            kinds.append(type(self))
            return connect(self, settings)

        monkeypatch.setattr(kind, "connect", noted)
    return kinds


@both
@pytest.mark.parametrize("mode", ["epoch", "task"])
def test_the_option_decides_which_way_rows_are_sent(
    way: str,
    mode: str,
    native: Core,
    kafka: Addresses,
    topic: str,
    used: list[type],
) -> None:
    options = {
        "stream.kafka.native.writing": way,
        "stream.kafka.commit.mode": mode,
    }
    with open_sink(stream_of(kafka.bootstrap, topic), options=options) as sink:
        sink.put(pa.table({"value": [b"1", b"2"]}), writer_id="w")
    assert values(kafka, topic) == [b"1", b"2"]
    assert set(used) == {PythonSender if way == "off" else NativeSender}


def test_a_required_library_that_is_absent_is_an_error_of_writing(
    kafka: Addresses, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_library, "load", lambda: "it is absent")
    given = stream_of(kafka.bootstrap, topic)
    required = {"stream.kafka.native.writing": "required"}
    with (
        open_sink(given, options=required) as sink,
        pytest.raises(ConfigError, match=r"native\.writing=required is not"),
    ):
        sink.put(pa.table({"value": [b"1"]}), writer_id="w")
    with open_sink(given) as sink:
        assert sink.put(pa.table({"value": [b"1"]}), writer_id="w")
    assert values(kafka, topic) == [b"1"]


def random_rows(count: int) -> pa.RecordBatch:
    """Rows with everything that a message may have, as slices of longer columns."""
    chance = random.Random(5)
    texts = [None, b"", b"x", b"\xff\x00", bytes(3000)]
    names = ["", "a", "é", "😀" * 9]
    now = 1_790_000_000_000_000
    times = [None, now, -1, 123_456_789]
    made = []
    for _ in range(count + 7):
        pairs = [
            {"key": chance.choice(names), "value": chance.choice(texts)}
            for _ in range(chance.choice([0, 0, 1, 4]))
        ]
        made.append(
            {
                "key": chance.choice(texts),
                "value": chance.choice(texts),
                "timestamp": chance.choice(times),
                "headers": chance.choice([None, pairs, pairs]),
            }
        )
    return pa.RecordBatch.from_pylist(made, schema=message_schema()).slice(7)


def test_both_ways_send_the_same_messages(
    native: Core, kafka: Addresses, topics: Topics
) -> None:
    wanted, found = random_rows(900), {}
    parts = [wanted.slice(0, 1), wanted.slice(1, 500), wanted.slice(501)]
    # Columns without any value, or without a null.
    parts += [rows(None, None), rows(b"1", b"2").slice(1), rows()]
    for way in WAYS:
        topic = topics.create()
        with transaction(kafka, topic, way) as producer:
            for part in parts:
                producer.send(topic, 0, part, Deadline(20.0))
            producer.send_one(topic, 0, b"k", b"v", Deadline(20.0))
            producer.commit(Deadline(20.0))
        found[way] = messages(kafka, topic)
    sent = [*pa.Table.from_batches(parts).to_pylist(), {"key": b"k", "value": b"v"}]
    assert len(found["required"]) == len(sent)
    for row, python, compiled in zip(
        sent, found["off"], found["required"], strict=True
    ):
        assert compiled.key() == python.key() == row["key"]
        assert compiled.value() == python.value() == row["value"]
        assert compiled.headers() == python.headers()
        pairs = row.get("headers") or []
        headers = [(pair["key"], pair["value"]) for pair in pairs] or None
        assert compiled.headers() == headers
        if row.get("timestamp") is None:
            assert abs(compiled.timestamp()[1] / 1000 - time.time()) < 600
        else:
            assert compiled.timestamp() == python.timestamp()


@both
def test_a_queue_that_is_full_is_waited_for(
    way: str, native: Core, kafka: Addresses, topic: str
) -> None:
    sent = [b"%06d" % number * 50 for number in range(4_000)]
    with transaction(
        kafka, topic, way, **{"queue.buffering.max.kbytes": 50, "linger.ms": 0}
    ) as producer:
        producer.send(topic, 0, rows(*sent), Deadline(60.0))
        producer.commit(Deadline(30.0))
    assert values(kafka, topic) == sent


@both
def test_a_queue_that_stays_full_ends_at_the_deadline(
    way: str, native: Core, kafka: Addresses, topic: str
) -> None:
    with transaction(kafka, topic, way, **HELD) as producer:
        started = time.monotonic()
        with pytest.raises(StreamTimeout, match="writing to Kafka: timed out after"):
            producer.send(topic, 0, rows(*[b"x" * 1000] * 500), Deadline(0.6))
        assert 0.5 < time.monotonic() - started < 30
    assert values(kafka, topic) == []


@both
def test_a_sender_that_waits_is_woken(
    way: str, native: Core, kafka: Addresses, topic: str
) -> None:
    with transaction(kafka, topic, way, **HELD) as producer:
        timer = threading.Timer(0.3, producer.wake)
        timer.start()
        with pytest.raises(ClosedError, match="closed while writing"):
            producer.send(topic, 0, rows(*[b"x" * 1000] * 500), Deadline(60.0))
        timer.join()


def test_both_ways_refuse_in_the_same_words(
    native: Core, kafka: Addresses, topics: Topics
) -> None:
    found: dict[str, list[Any]] = {}
    for way in WAYS:
        topic = topics.create(config={"max.message.bytes": "2000"})
        errors = found[way] = []
        with transaction(kafka, topic, way) as producer:
            with pytest.raises(KafkaException) as caught:
                producer.send(topic, 9, rows(b"1"), Deadline(20.0))
            errors.append(caught.value.args[0])
            producer.abort(Deadline(20.0))
            with pytest.raises(KafkaException) as caught:
                producer.send(topic, 0, rows(b"outside"), Deadline(20.0))
            errors.append(caught.value.args[0])
            producer.begin()
            producer.send(topic, 0, rows(b"x" * 5000), Deadline(20.0))
            with pytest.raises(MessageTooLarge) as large:
                producer.commit(Deadline(20.0))
            text = str(large.value).replace(topic, "topic")
            errors.append((text, large.value.partition.id))  # type: ignore[union-attr]
            producer.abort(Deadline(20.0))
            producer.begin()
            with transaction(kafka, topic, way) as later:
                producer.send(topic, 0, rows(b"fenced"), Deadline(20.0))
                with pytest.raises(KafkaException) as caught:
                    producer.commit(Deadline(20.0))
                errors.append(caught.value.args[0])
                later.send(topic, 0, rows(b"later"), Deadline(20.0))
                later.commit(Deadline(20.0))
        assert values(kafka, topic) == [b"later"]
    for python, compiled in zip(found["off"], found["required"], strict=True):
        assert repr(compiled) == repr(python)
    codes = [found["required"][index].code() for index in (0, 1, 3)]
    assert codes[:2] == [KafkaError._UNKNOWN_PARTITION, KafkaError._STATE]
    assert (
        "exceeds max.message.bytes of the topic with its value of 5000 bytes"
        in (found["required"][2][0])
    )


def test_a_message_without_a_report_is_not_committed(
    native: Core, kafka: Addresses, topic: str
) -> None:
    with transaction(kafka, topic, "required") as producer:
        producer.send(topic, 0, rows(b"1", b"2", b"3"), Deadline(20.0))
        sender = producer._sender
        assert isinstance(sender, NativeSender)
        sender._queued += 1
        with pytest.raises(KafkaException, match="1 of 4 messages were not acknowl"):
            producer.commit(Deadline(20.0))
        producer.abort(Deadline(20.0))
        producer.begin()
        producer.send(topic, 0, rows(b"4"), Deadline(20.0))
        producer.commit(Deadline(20.0))
    assert values(kafka, topic) == [b"4"]


def with_ends(ends: list[int]) -> pa.RecordBatch:
    """Rows with values of ten bytes in all, whose offsets are changed afterwards."""
    offsets, count = np.zeros(len(ends), np.int32), len(ends) - 1
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(bytes(10))]
    value = pa.Array.from_buffers(pa.binary(), count, buffers)
    offsets[:] = ends
    sound = rows(*[b""] * count)
    return sound.set_column(1, sound.schema.field("value"), value)


@pytest.mark.parametrize(
    "ends", [[0, 11], [-1, 3], [4, 3], [0, 3, 2**31 - 1], [0, -(2**31)]]
)
def test_values_outside_of_their_buffer_are_refused(
    ends: list[int], native: Core, kafka: Addresses, topic: str
) -> None:
    sender = NativeSender(library_of("required"))  # type: ignore[arg-type]
    producer = sender.connect({"bootstrap.servers": kafka.bootstrap})
    with pytest.raises(CorruptData, match="have offsets outside of their data"):
        list(sender.send(topic, 0, with_ends(ends)))
    producer.purge()


def test_a_closed_producer_is_not_used(
    native: Core, kafka: Addresses, topic: str
) -> None:
    with transaction(kafka, topic, "required") as producer:
        pass
    with pytest.raises(ClosedError):
        producer.send(topic, 0, rows(b"1"), Deadline(20.0))


def test_a_client_that_fails_to_start_leaves_nothing_to_take(
    native: Core, kafka: Addresses
) -> None:
    library = library_of("required")
    assert library is not None
    wrong = {"security.protocol": "ssl", "ssl.ca.location": "/nowhere.pem"}
    given = {"bootstrap.servers": kafka.bootstrap, "log_level": 0}
    for _ in range(3):
        with pytest.raises(KafkaException, match=r"ssl\.ca\.location"):
            NativeSender(library).connect({**given, **wrong})
        assert library.core.take_client() is None
    sender = NativeSender(library)
    producer = sender.connect(given)
    assert sender.failure is None
    del producer


def test_the_lock_of_python_is_not_held_while_rows_are_sent(
    native: Core, kafka: Addresses, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one call waits for a full queue, another thread runs."""
    monkeypatch.setattr(native_sending, "SLICE", 1.0)
    ticks: list[float] = []
    done = threading.Event()

    def tick() -> None:
        while not done.wait(0.01):
            ticks.append(time.monotonic())

    with transaction(kafka, topic, "required", **HELD) as producer:
        thread = threading.Thread(target=tick)
        thread.start()
        began = time.monotonic()
        with pytest.raises(StreamTimeout):
            producer.send(topic, 0, rows(*[b"x" * 1000] * 500), Deadline(0.5))
        done.set()
        thread.join()
    assert len([at for at in ticks if at < began + 1.0]) > 5
