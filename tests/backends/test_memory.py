"""The memory backend: options, topics and their makers, claims, forks, pickles."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
import time
import uuid
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import streamfactory
from streamfactory.arrowlog import Epoch, MemoryLog, MemoryLogStore
from streamfactory.backends import memory
from streamfactory.backends.memory import stores
from streamfactory.spi import (
    BatchState,
    Claims,
    ConfigError,
    ConsumerFactory,
    EpochVisibility,
    FetchLimits,
    LastCommit,
    MisuseError,
    Partition,
    ProducerFactory,
    SchemaMismatch,
    StorageFailed,
    StreamConfig,
    Summary,
    TopicAdmin,
    TopicNotFound,
    Unsupported,
    Verification,
    WriterFenced,
    envelope_schema,
    headers_type,
)
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import PluginManager
from streamfactory.wiring.writing.sink import Sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SCHEMA = pa.schema({"n": pa.int64(), "name": pa.string()})


@pytest.fixture
def store_name() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def topics(store_name: str) -> MemoryLogStore:
    return memory.store(store_name)


@pytest.fixture
def properties(store_name: str) -> dict[str, str]:
    return {
        "streamType": "memory",
        "stream.memory.topic.name": "t",
        "stream.memory.store": store_name,
    }


@pytest.fixture
def config_factory(properties: dict[str, str]) -> Callable[..., StreamConfig]:
    def make(use: str = "read", **options: str) -> StreamConfig:
        given = {f"stream.memory.{key}": text for key, text in options.items()}
        definition = from_mapping({**properties, **given})
        return configure(definition, PluginManager(), use=use).config

    return make


@pytest.fixture
def consumers(
    config_factory: Callable[..., StreamConfig],
) -> Iterator[ConsumerFactory]:
    factory = memory.MemoryConsumerFactory(config_factory())
    yield factory
    factory.close()


@pytest.fixture
def sink_factory(properties: dict[str, str]) -> Callable[..., Sink]:
    def make(options: dict[str, str] | None = None) -> Sink:
        definition = from_mapping({**properties, **(options or {})})
        return Sink(configure(definition, PluginManager(), use="write"))

    return make


def batch(*numbers: int) -> pa.RecordBatch:
    rows = {"n": list(numbers), "name": [str(n) for n in numbers]}
    return pa.RecordBatch.from_pydict(rows, schema=SCHEMA)


def write(sink: Sink, rows: pa.RecordBatch, **context: Any) -> None:
    with closing(sink.writer(rows.schema, **context)) as writer:
        writer.write(rows)
        message = writer.commit()
    with closing(sink.committer()) as committer:
        committer.commit(context.get("epoch", 0), [message])


def fill(log: MemoryLog, *numbers: int, partition: int = 0) -> None:
    stage = log.stage(uuid.uuid4().hex)
    stage.append(partition, batch(*numbers))
    log.commit(Epoch(None, 0, [stage.seal()], Summary()))


# --- topics and options ---------------------------------------------------------


def test_first_writer_makes_the_topic_by_option(
    sink_factory: Callable[..., Sink], topics: MemoryLogStore
) -> None:
    sink = sink_factory({"stream.memory.partitions": "3"})
    assert (sink.schema, sink.partition_count()) == (None, 3)
    assert topics.names() == []
    sink.writer(SCHEMA).close()
    log = topics.open("t")
    assert log.schema == SCHEMA
    assert len(log.bounds()) == 3
    later = sink_factory({"stream.memory.partitions": "9"})
    later.writer(SCHEMA).close()
    assert topics.open("t") is log
    assert later.partition_count() == 3


def test_two_first_writers_at_once_make_one_topic(
    sink_factory: Callable[..., Sink], topics: MemoryLogStore
) -> None:
    sinks = [sink_factory() for _ in range(8)]
    together = threading.Barrier(len(sinks))

    def begin(number: int) -> None:
        together.wait(120)
        write(sinks[number], batch(number))

    threads = [threading.Thread(target=begin, args=(n,)) for n in range(len(sinks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert topics.open("t").bounds()[0].latest == len(sinks)


def test_schema_of_an_existing_topic_holds(
    sink_factory: Callable[..., Sink],
    config_factory: Callable[..., StreamConfig],
    topics: MemoryLogStore,
) -> None:
    sink = sink_factory()
    early = sink.writer(pa.schema({"x": pa.int64()}))
    assert topics.open("t").schema == pa.schema({"x": pa.int64()})
    with pytest.raises(SchemaMismatch) as caught:
        sink.writer(SCHEMA)
    unknown = "columns 'n', 'name' are not in the declared schema"
    assert caught.value.what == unknown
    early.close()
    factory = memory.MemoryProducerFactory(config_factory("write"))
    assert factory.fetch_schema("t") == pa.schema({"x": pa.int64()})


def test_stores_are_worlds_of_their_own(properties: dict[str, str]) -> None:
    names = [uuid.uuid4().hex for _ in range(2)]
    fill(memory.store(names[0]).create("t", SCHEMA), 1)
    with streamfactory.open({**properties, "stream.memory.store": names[0]}) as stream:
        assert stream.to_reader().read_all().num_rows == 1
    with pytest.raises(TopicNotFound) as caught:
        streamfactory.open({**properties, "stream.memory.store": names[1]})
    assert (
        "topic 't' does not exist in memory; existing topics: none" in caught.value.what
    )
    assert memory.store() is memory.store("default")


@pytest.mark.parametrize(
    ("key", "text", "what"),
    [
        ("partitions", "0", "'0' is below the minimum, 1"),
        ("partitions", "100001", "'100001' is above the maximum, 100000"),
        ("messages", "maybe", "'maybe' is neither true nor false"),
        ("retention.rows", "-1", "'-1' is below the minimum, 0"),
    ],
)
def test_bad_option_is_reported_with_a_message(
    properties: dict[str, str], key: str, text: str, what: str
) -> None:
    given = {**properties, f"stream.memory.{key}": text}
    with pytest.raises(ConfigError) as caught:
        configure(from_mapping(given), PluginManager(), use="write")
    (problem,) = caught.value.problems
    assert (problem.key, problem.what) == (f"stream.memory.{key}", what)


@pytest.mark.parametrize("keep", [0, 1, 3, 100])
def test_retention_keeps_so_many_rows_of_each_partition(
    sink_factory: Callable[..., Sink], topics: MemoryLogStore, keep: int
) -> None:
    sink = sink_factory(
        {"stream.memory.retention.rows": str(keep), "stream.memory.partitions": "2"}
    )
    for epoch in range(3):
        write(sink, batch(1, 2), epoch=epoch, task=0)
    write(sink, batch(7), epoch=3, task=1)
    bounds = topics.open("t").bounds()
    assert [(b.earliest, b.latest) for b in bounds] == [
        (max(0, 6 - keep), 6),
        (max(0, 1 - keep), 1),
    ]


def test_message_topic_is_made_for_who_says_so_or_names_a_decoder(
    sink_factory: Callable[..., Sink], topics: MemoryLogStore
) -> None:
    raw = {"stream.memory.decoder.class.name": "raw"}
    for options in (raw, {**raw, "stream.memory.messages": "true"}):
        sink = sink_factory(options)
        assert sink.schema == envelope_schema()
        sink.writer(pa.schema({"value": pa.binary()})).close()
        assert topics.open("t").schema == pa.schema(
            {
                "key": pa.binary(),
                "value": pa.binary(),
                "timestamp": pa.timestamp("us", tz="UTC"),
                "headers": headers_type(),
            }
        )
        topics.delete("t")


@pytest.mark.parametrize(
    ("text", "earliest"), [("1M", 0), ("0", 6)], ids=["roomy", "none"]
)
def test_retention_keeps_so_many_bytes(
    sink_factory: Callable[..., Sink], topics: MemoryLogStore, text: str, earliest: int
) -> None:
    sink = sink_factory({"stream.memory.retention.bytes": text})
    for epoch in range(3):
        write(sink, batch(1, 2), epoch=epoch)
    (partition,) = topics.open("t").bounds()
    assert (partition.earliest, partition.latest) == (earliest, 6)


def test_retention_by_age_goes_by_the_clock_of_the_log(
    sink_factory: Callable[..., Sink], store_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000_000.0
    timed = MemoryLogStore(lambda: now)
    monkeypatch.setitem(stores._stores, (os.getpid(), store_name), timed)
    sink = sink_factory({"stream.memory.retention.age.millis": "5s"})
    held = []
    for epoch, passed in enumerate((0, 5_000, 1, 9_000)):
        now += passed
        write(sink, batch(1, 2), epoch=epoch)
        held.append(timed.open("t").bounds()[0].earliest)
    assert held == [0, 0, 2, 6]


def test_an_epoch_is_committed_whatever_becomes_of_retention(
    sink_factory: Callable[..., Sink],
    topics: MemoryLogStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: Any) -> None:
        msg = "the disk is full"
        raise StorageFailed(msg)

    monkeypatch.setattr(MemoryLog, "retain", fail)
    sink = sink_factory({"stream.memory.retention.rows": "1"})
    assert sink.put(batch(1, 2), writer_id="w")
    assert topics.open("t").bounds()[0].latest == 2
    assert caplog.messages == ["t: retention: the disk is full"]


# --- reading --------------------------------------------------------------------


def test_metadata_answers_bounds_incarnation_times_and_topics(
    consumers: ConsumerFactory, topics: MemoryLogStore
) -> None:
    log = topics.create("t", SCHEMA, 2)
    topics.create("other", SCHEMA)
    fill(log, 1, 2, 3)
    log.truncate({0: 1})
    provider = consumers.create_metadata_provider("test")
    infos = provider.fetch_partitions(["t"], ())
    zero, one = Partition("t", 0), Partition("t", 1)
    assert [(i.partition, i.earliest, i.latest) for i in infos] == [
        (zero, 1, 3),
        (one, 0, 0),
    ]
    assert {i.incarnation for i in infos} == {log.incarnation}
    assert provider.fetch_offsets_at(0, [zero, one]) == {zero: 1, one: None}
    far = int(time.time() * 1000) + 3_600_000
    assert provider.fetch_offsets_at(far, [zero]) == {zero: None}
    assert provider.fetch_topics() == ["other", "t"]
    topics.delete("t")
    with pytest.raises(TopicNotFound):
        provider.fetch_partitions(["t"], ())
    again = topics.create("t", SCHEMA)
    (info,) = provider.fetch_partitions(["t"], ())
    assert info.incarnation == again.incarnation != log.incarnation


def test_consumer_answers_rows_or_that_it_caught_up(
    consumers: ConsumerFactory, topics: MemoryLogStore
) -> None:
    log = topics.create("t", SCHEMA)
    fill(log, *range(10))
    consumer = consumers.create_partition_level_consumer(
        "test", Partition("t", 0), ["name"]
    )
    limits = FetchLimits(4, 2**20, 0.0)
    found = consumer.fetch_messages(3, 5, limits)
    assert found.rows is not None
    assert found.rows.to_pydict() == {"name": ["3", "4"]}
    assert (found.next_offset, found.latest, found.held_from) == (5, 10, 0)
    assert found.incarnation == log.incarnation
    nothing = consumer.fetch_messages(10, None, limits)
    assert (nothing.rows, nothing.next_offset) == (None, 10)
    assert nothing.state is BatchState.CAUGHT_UP


@pytest.mark.parametrize("early", [True, False])
def test_woken_fetch_comes_back_whether_it_had_begun_or_not(
    consumers: ConsumerFactory, topics: MemoryLogStore, *, early: bool
) -> None:
    topics.create("t", SCHEMA)
    consumer = consumers.create_partition_level_consumer("test", Partition("t", 0))
    timer = threading.Timer(0.05, consumer.wake)
    if early:
        consumer.wake()
    else:
        timer.start()
    began = time.monotonic()
    found = consumer.fetch_messages(0, None, FetchLimits(1, 1, 300.0))
    assert time.monotonic() - began < 100
    assert (found.rows, found.next_offset) == (None, 0)
    if not early:
        timer.join()


def test_waiting_fetch_answers_what_is_committed_meanwhile(
    consumers: ConsumerFactory, topics: MemoryLogStore
) -> None:
    log = topics.create("t", SCHEMA)
    consumer = consumers.create_partition_level_consumer("test", Partition("t", 0))
    timer = threading.Timer(0.05, lambda: fill(log, 7))
    timer.start()
    found = consumer.fetch_messages(0, None, FetchLimits(10, 2**20, 30.0))
    timer.join()
    assert found.rows == batch(7)


# --- committers without a topic -------------------------------------------------


def test_committer_before_any_writer_remembers_nothing_and_aborts_nothing(
    sink_factory: Callable[..., Sink],
) -> None:
    with closing(sink_factory().committer(writer_id="w")) as committer:
        assert committer.last() is None
        committer.abort(0, [])


def test_abort_after_the_topic_was_deleted_is_fine(
    sink_factory: Callable[..., Sink], topics: MemoryLogStore
) -> None:
    sink = sink_factory()
    with closing(sink.writer(SCHEMA)) as writer:
        message = writer.commit()
    topics.delete("t")
    with closing(sink.committer()) as committer:
        committer.abort(0, [message])
        committer.abort(0, [message])
    assert topics.names() == []


# --- several instances of one writer --------------------------------------------


def test_a_fenced_committer_stays_fenced_however_often_it_asks(
    sink_factory: Callable[..., Sink], topics: MemoryLogStore
) -> None:
    sink = sink_factory()
    assert sink.put(batch(0), writer_id="w")
    with closing(sink.committer(writer_id="w")) as early:
        assert early.last() == LastCommit(0, None, Summary(1))
        assert sink.put(batch(1), writer_id="w", epoch=1)
        with closing(sink.writer(SCHEMA, writer_id="w", epoch=2)) as writer:
            writer.write(batch(2))
            message = writer.commit()
        for _ in range(2):
            last = early.last()
            assert last is not None
            assert last.epoch == 1
            with pytest.raises(WriterFenced) as caught:
                early.commit(2, [message])
            assert str(caught.value) == (
                "epoch 2: another instance has claimed writer 'w' "
                "(stream 'memory:t'); "
                "use a writer id in one process at a time"
            )
    with closing(sink.committer(writer_id="w")) as late:
        assert late.commit(2, [message])
    assert topics.open("t").bounds()[0].latest == 3


def test_anonymous_writers_fence_no_writer(
    sink_factory: Callable[..., Sink], topics: MemoryLogStore
) -> None:
    sink = sink_factory()
    with closing(sink.committer()) as one, closing(sink.committer()) as other:
        for committer in (one, other, one):
            assert committer.last() is None
            with closing(sink.writer(SCHEMA)) as writer:
                writer.write(batch(1))
                message = writer.commit()
            assert committer.commit(0, [message])
    assert topics.open("t").bounds()[0].latest == 3


# --- the operator's half --------------------------------------------------------


@pytest.fixture
def admin_factory(properties: dict[str, str]) -> Iterator[Callable[..., TopicAdmin]]:
    """Makes what the descriptor of the type names."""
    with ExitStack() as opened:

        def make(**options: str) -> TopicAdmin:
            given = {f"stream.memory.{k}": text for k, text in options.items()}
            definition = from_mapping({**properties, **given})
            configured = configure(definition, PluginManager(), use="write")
            assert configured.backend.topic_admin is not None
            admin = configured.backend.topic_admin(configured.config)
            opened.callback(admin.close)
            return admin

        yield make


def test_topics_are_created_grown_and_deleted(
    admin_factory: Callable[..., TopicAdmin], topics: MemoryLogStore
) -> None:
    admin = admin_factory(partitions="3")
    admin.create("t", SCHEMA, None)
    admin.create("raw", None, 2)
    log = topics.open("t")
    assert log.schema == SCHEMA
    assert topics.open("raw").schema == memory.message_schema()
    assert [len(topics.open(name).bounds()) for name in ("t", "raw")] == [3, 2]
    with pytest.raises(MisuseError) as taken:
        admin.create("t", SCHEMA, 1)
    assert taken.value.what == "topic 't' exists already"
    admin.grow("t", 5)
    assert len(log.bounds()) == 5
    with pytest.raises(MisuseError) as fewer:
        admin.grow("t", 4)
    assert fewer.value.what == "topic 't' has 5 partitions, and cannot have fewer"
    admin.delete("t")
    assert topics.names() == ["raw"]


def test_an_operator_sees_and_lets_go(
    admin_factory: Callable[..., TopicAdmin], topics: MemoryLogStore
) -> None:
    log = topics.create("t", SCHEMA, 2)
    for partition in range(2):
        fill(log, *range(10), partition=partition)
    admin = admin_factory()
    assert admin.facts("t") == {"incarnation": log.incarnation}
    admin.truncate("t", {0: 4})
    assert [bounds.earliest for bounds in log.bounds()] == [4, 0]
    assert admin.verify("t") == Verification(16)
    admin.compact("t")
    assert admin.verify("t") == Verification(16)


@pytest.mark.parametrize(
    ("options", "hold", "earliest"),
    [
        ({}, {}, [0, 0]),
        ({"retention.rows": "4"}, {}, [6, 6]),
        ({"retention.rows": "4"}, {0: 2, 1: 8}, [2, 6]),
        ({"retention.bytes": "0"}, {1: 5}, [10, 5]),
        ({"retention.age.millis": "1d"}, {}, [0, 0]),
    ],
)
def test_configured_retention_is_applied_when_an_operator_says_so(
    admin_factory: Callable[..., TopicAdmin],
    topics: MemoryLogStore,
    options: dict[str, str],
    hold: dict[int, int],
    earliest: list[int],
) -> None:
    log = topics.create("t", SCHEMA, 2)
    for partition in range(2):
        fill(log, *range(10), partition=partition)
    admin_factory(**options).retain("t", hold)
    assert [bounds.earliest for bounds in log.bounds()] == earliest


def test_a_topic_that_is_not_there_is_reported_whatever_is_wanted_of_it(
    admin_factory: Callable[..., TopicAdmin],
) -> None:
    admin = admin_factory()
    uses: list[Callable[[str], Any]] = [
        lambda topic: admin.grow(topic, 2),
        lambda topic: admin.truncate(topic, {0: 1}),
        lambda topic: admin.retain(topic, {}),
        admin.delete,
        admin.compact,
        admin.verify,
        admin.facts,
    ]
    for use in uses:
        with pytest.raises(TopicNotFound) as caught:
            use("t")
        assert (
            caught.value.what
            == "topic 't' does not exist in memory; existing topics: none"
        )


def test_what_a_type_cannot_do_with_topics_is_refused_with_a_message(
    config_factory: Callable[..., StreamConfig],
) -> None:
    admin = TopicAdmin(config_factory("write"))
    refused: dict[str, Callable[[], Any]] = {
        "create": lambda: admin.create("t", None, None),
        "grow": lambda: admin.grow("t", 2),
        "truncate": lambda: admin.truncate("t", {}),
        "apply retention to": lambda: admin.retain("t", {}),
        "delete": lambda: admin.delete("t"),
        "compact": lambda: admin.compact("t"),
        "verify": lambda: admin.verify("t"),
    }
    for verb, use in refused.items():
        with pytest.raises(Unsupported) as caught:
            use()
        assert caught.value.what == f"stream type 'memory' cannot {verb} topics"
    assert admin.facts("t") == {}


# --- claims, processes ----------------------------------------------------------


def test_claims_are_what_memory_can_keep(
    consumers: ConsumerFactory, config_factory: Callable[..., StreamConfig]
) -> None:
    expected = Claims(
        replayable=True,
        durable=False,
        shared=False,
        idempotent=True,
        epoch_visibility=EpochVisibility.WHOLE,
    )
    assert consumers.claims() == expected
    assert memory.MemoryProducerFactory(config_factory("write")).claims() == expected


@pytest.mark.parametrize(
    "kind", [memory.MemoryConsumerFactory, memory.MemoryProducerFactory]
)
def test_pickled_factory_finds_the_same_store_in_the_same_process(
    config_factory: Callable[..., StreamConfig],
    topics: MemoryLogStore,
    kind: type[ConsumerFactory] | type[ProducerFactory],
) -> None:
    use = "read" if kind is memory.MemoryConsumerFactory else "write"
    topics.create("t", SCHEMA, 5)
    factory = pickle.loads(pickle.dumps(kind(config_factory(use))))
    assert isinstance(factory, kind)
    if isinstance(factory, ConsumerFactory):
        provider = factory.create_metadata_provider("test")
        assert provider.fetch_partition_count("t") == 5
    else:
        assert factory.fetch_partition_count("t") == 5


FORK = """
import json, os, sys, threading
import pyarrow as pa
from streamfactory.backends.memory import store

log = store().create("t", pa.schema({"n": pa.int64()}))
with store()._lock, log._changed:  # as if another thread were in the middle of it
    child = os.fork()
if child == 0:
    topics = store()
    names = list(topics.names())
    topics.create("t", pa.schema({"n": pa.int64()})).grow(3)
    print(json.dumps({"names": names, "partitions": len(topics.open("t").bounds())}))
    sys.stdout.flush()
    os._exit(0)
_, status = os.waitpid(child, 0)
print(json.dumps({"status": status, "partitions": len(store().open("t").bounds())}))
"""


def test_forked_child_begins_with_empty_stores_and_hangs_on_no_lock() -> None:
    source = str(Path(__file__).parents[2] / "src")
    done = subprocess.run(
        # Python 3.12 warns of a fork beside threads, which PyArrow has.
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,  # what went wrong is in its output
        env={**os.environ, "PYTHONPATH": source},
    )
    assert done.stderr == ""
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"names": [], "partitions": 3},
        {"status": 0, "partitions": 1},
    ]
