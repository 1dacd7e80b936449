"""Clients that the readers of a process share: what they fetch and what they cost."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.kafka.conftest import stream_of
from tests.kafka.paths import BEFORE_READING
from tests.kafka.streams import drain, opened, values
from tests.proving.drivers import REPOSITORY

from streamfactory.backends.kafka.client_pool import (
    consumer_settings,
)
from streamfactory.backends.kafka.clients import Watch
from streamfactory.backends.kafka.fetch_sizes import FetchSize, FetchSizes, Responses
from streamfactory.spi import FetchLimits, Partition

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.broker import Cluster
    from tests.kafka.topics import Topics

    from streamfactory.spi import PartitionLevelConsumer

pytestmark = pytest.mark.usefixtures("each_path")

LIMITS = FetchLimits(65_536, 8 * 1024**2, 20.0)
MIB = 1024**2
LENGTH = 1000
JAVAS_BATCH = {"batch.size": 16_384}


def read(consumer: PartitionLevelConsumer, start: int, end: int) -> list[bytes]:
    """The values of a range that is there."""
    found: list[bytes] = []
    while start < end:
        fetched = consumer.fetch_messages(start, end, LIMITS)
        if fetched.rows is not None:
            rows = fetched.rows.slice(0, end - start)
            found += rows.column("value").to_pylist()
        start = fetched.next_offset
    return found


KIB = 1024
LARGEST = FetchSize(MIB, 8 * MIB)


def sizes(**properties: str) -> FetchSizes:
    return FetchSizes(properties, 8 * MIB)


@BEFORE_READING
def test_a_client_fetches_no_more_than_a_third_of_a_range_beyond_it() -> None:
    chosen = sizes()
    chosen.observe("t", 1000 * 500, 500)
    chosen.observe_response("t", FetchSize(KIB), KIB)
    for rows in (1, 100, 200, 1000, 5000, 30_000, 10**9):
        size = chosen.choose("t", 0, rows)
        assert 3 * size.waste <= rows * 1000 or size == FetchSize(16 * KIB)
    assert chosen.choose("t", 0, 200) == FetchSize(64 * KIB)
    assert chosen.choose("t", 0, 5000) == FetchSize(MIB)
    assert chosen.choose("t", 0, 10**9) == LARGEST


@BEFORE_READING
def test_a_topic_is_read_in_single_producer_batches_until_one_was_measured() -> None:
    chosen = sizes()
    assert chosen.choose("t", 0, 10**9) == FetchSize(KIB)
    assert chosen.choose("t", 0, None) == FetchSize(KIB, KIB)
    chosen.observe_response("t", FetchSize(KIB), 16 * KIB)
    assert chosen.choose("t", 0, 10**9) == FetchSize(16 * KIB)
    assert chosen.choose("t", 0, None) == LARGEST
    assert chosen.choose("another", 0, None) == FetchSize(KIB, KIB)


@BEFORE_READING
@pytest.mark.parametrize(
    ("expanded", "fetch"),
    [(64 * KIB, MIB), (256 * KIB, 256 * KIB), (MIB, 64 * KIB), (8 * MIB, KIB)],
)
def test_a_response_expands_to_64_mib_at_most(expanded: int, fetch: int) -> None:
    chosen = sizes()
    chosen.observe("t", 10**12, 1)
    chosen.observe_response("t", FetchSize(KIB), expanded)
    for end in (None, 10**9):
        size = chosen.choose("t", 0, end)
        assert size.fetch == fetch
        assert not chosen.expands("t", size)
    assert chosen.expands("t", LARGEST) == (fetch < MIB)


@BEFORE_READING
@pytest.mark.parametrize(
    "key", ["fetch.message.max.bytes", "max.partition.fetch.bytes"]
)
def test_what_the_user_lets_a_client_fetch_is_not_measured(key: str) -> None:
    assert sizes(**{key: "77"}).choose("t", 0, None) == LARGEST


@BEFORE_READING
def test_a_response_ends_where_the_queue_is_empty_and_the_first_is_not_counted() -> (
    None
):
    responses = Responses()
    assert responses.add(0, emptied=True) is None
    assert responses.add(70, emptied=True) is None  # from within a producer batch
    assert responses.add(10, emptied=False) is None
    assert responses.add(20, emptied=True) == 30
    assert responses.add(0, emptied=True) is None
    assert responses.add(5, emptied=True) == 5


@BEFORE_READING
@pytest.mark.parametrize(
    ("key", "ours"),
    [
        ("max.partition.fetch.bytes", "fetch.message.max.bytes"),
        ("fetch.message.max.bytes", "fetch.message.max.bytes"),
        ("queued.min.messages", "queued.min.messages"),
        ("fetch.wait.max.ms", "fetch.wait.max.ms"),
    ],
)
def test_a_size_that_the_user_sets_is_the_clients(key: str, ours: str) -> None:
    given = {f"stream.kafka.consumer.prop.{key}": "77"}
    with opened({**stream_of("localhost:1", "t"), **given}) as source:
        size = FetchSize(32 * 1024).settings()
        settings = consumer_settings(source.config, "test", Watch(), size)
    # librdkafka takes the last of two names for one setting.
    last = [value for name, value in settings.items() if name in (key, ours)][-1]
    assert last == "77"


def test_ranges_in_any_order_have_their_own_rows(topics: Topics) -> None:
    topic = topics.create(partitions=6)
    for number in range(6):
        topics.send(topic, [b"%d-%d" % (number, at) for at in range(400)],
                    partition=number)  # fmt: skip
    chance = random.Random(4)
    with opened(stream_of(topics.bootstrap, topic)) as source, ExitStack() as stack:
        make = source.factory.create_partition_level_consumer
        consumers = [make("test", Partition(topic, number)) for number in range(6)]
        for consumer in consumers:
            stack.callback(consumer.close)
        at = [0] * 6
        for _ in range(120):
            number = chance.randrange(6)
            # Mostly the next range, as it is without a failure or another worker.
            start = at[number] if chance.random() < 0.8 else chance.randrange(380)
            end = min(400, start + chance.randint(1, 60))
            expected = [b"%d-%d" % (number, n) for n in range(start, end)]
            assert read(consumers[number], start, end) == expected
            at[number] = end % 400


def test_a_recreated_topic_is_read_by_the_clients_that_read_the_old_one(
    topics: Topics, topic: str
) -> None:
    topics.send(topic, [b"old"] * 20)
    with opened(stream_of(topics.bootstrap, topic)) as source:
        with closing(source.reader(Partition(topic, 0))) as reader:
            assert values(drain(reader, end=10)) == [b"old"] * 10
        topics.recreate(topic)
        topics.send(topic, [b"new"] * 20)
        with closing(source.reader(Partition(topic, 0))) as reader:
            assert values(drain(reader, end=15)) == [b"new"] * 15


def test_what_was_fetched_beyond_a_range_needs_no_broker(mortal: Cluster) -> None:
    from tests.kafka.topics import Topics

    topics = Topics(mortal.bootstrap)
    topic = topics.create(partitions=3)
    for number in range(3):
        topics.send(topic, [b"%d" % at for at in range(60)], partition=number)
    with opened(stream_of(mortal.bootstrap, topic)) as source, ExitStack() as stack:
        make = source.factory.create_partition_level_consumer
        consumers = [make("test", Partition(topic, number)) for number in range(3)]
        for consumer in consumers:
            stack.callback(consumer.close)
            assert read(consumer, 0, 10) == [b"%d" % at for at in range(10)]
        (node,) = mortal.nodes
        node.pause()
        try:
            for consumer in consumers:
                # A range between may have gone to another worker.
                assert read(consumer, 10, 20) == [b"%d" % at for at in range(10, 20)]
                assert read(consumer, 40, 60) == [b"%d" % at for at in range(40, 60)]
        finally:
            node.resume()


@pytest.mark.parametrize("codec", ["zstd", "gzip"])
def test_messages_that_compress_well_are_not_expanded_all_at_once(
    topics: Topics, topic: str, codec: str
) -> None:
    # 400 MB, of which one response of 1 MiB holds all.
    settings = {"compression.type": codec, "batch.size": 4 * MIB}
    topics.send(topic, [bytes(MIB // 2)] * 800, settings=settings)
    spent = in_another_process(topics.bootstrap, topic, 1, 800)
    assert spent["rows"] == 800
    assert spent["megabytes"] < 250


@pytest.mark.long("a broker is started and given 180 MB")
@pytest.mark.timeout(400)
def test_many_partitions_and_moving_ranges_cost_little_beside_their_rows(
    cluster_factory: Callable[..., Cluster],
) -> None:
    from tests.kafka.topics import Topics

    cluster = cluster_factory()
    (broker,) = cluster.nodes
    topics, count, each, rows = Topics(cluster.bootstrap), 40, 4000, 100
    many, one = topics.create(partitions=count), topics.create()
    value = os.urandom(LENGTH)
    for number in range(count):
        topics.send(many, [value] * each, partition=number, settings=JAVAS_BATCH)
    topics.send(one, [value] * 5 * each, settings=JAVAS_BATCH)

    before = broker.sent()
    spent = in_another_process(cluster.bootstrap, many, count, rows)
    assert spent["rows"] == count * rows
    # One client of four threads, another for metadata; 167 threads when each partition
    # had its own, and all of its 4 MB in memory.
    assert spent["threads"] < 40
    assert spent["megabytes"] < 100
    assert broker.sent() - before < 2 * count * rows * LENGTH

    before = broker.sent()
    with ExitStack() as stack:
        # Two workers, which read ranges in turn.
        workers = [
            stack.enter_context(opened(stream_of(cluster.bootstrap, one)))
            for _ in range(2)
        ]
        consumers = [
            worker.factory.create_partition_level_consumer("t", Partition(one, 0))
            for worker in workers
        ]
        for consumer in consumers:
            stack.callback(consumer.close)
        for turn in range(40):
            found = read(consumers[turn % 2], turn * rows, (turn + 1) * rows)
            assert found == [value] * rows
    assert broker.sent() - before < 2 * 40 * rows * LENGTH


def in_another_process(bootstrap: str, topic: str, count: int, rows: int) -> Any:
    command = [sys.executable, "-m", "tests.kafka.reading_costs"]
    paths = [os.environ.get("PYTHONPATH", ""), str(REPOSITORY), f"{REPOSITORY}/src"]
    done = subprocess.run(
        [*command, bootstrap, topic, str(count), str(rows)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
