"""How long `streamfactory lag` takes over 10,000 partitions of a Kafka broker.

    python benchmarks/kafka_lag.py [--json] [--rounds N] [--partitions N]

A broker is started here, with as many partitions in one topic, and as many in ten
topics of ten streams. One group has a position in each partition. The command runs in a
process of its own, whose start is part of the time; beside it are the seconds that the
client library alone takes for the same positions and bounds. Nothing is gated.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its stubs
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring.figures import figure, report
from tests.kafka.broker import Cluster, archived, quiet_admin

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks.measuring.figures import Figure
    from confluent_kafka.admin import AdminClient

PARTITIONS: Final = 10_000
TOPICS: Final = 10
MESSAGES: Final = 1000
"""After the positions, in one partition of each topic: the lag."""
GROUP: Final = "billing"
GOAL: Final = "< 5"
AT_ONCE: Final = 1000
"""Partitions of one request to create or to commit."""
PATIENCE: Final = 300.0
"""Seconds for what prepares the measurement."""
BROKER: Final = {"log.index.size.max.bytes": "4096"}
"""Kafka maps two index files of each partition, of 10 MB by default."""


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    arguments = parser.parse_args()
    report(
        (
            measured(name, arguments.partitions, topics, arguments.rounds)
            for name, topics in (("one topic", 1), (f"{TOPICS} topics", TOPICS))
        ),
        as_json=arguments.json,
    )


def measured(name: str, partitions: int, topics: int, rounds: int) -> Figure:
    """The seconds of the command, and of the client library beside it."""
    with many_partitions(partitions, topics) as (bootstrap, catalogue):
        ours, bare = [], []
        for _ in range(rounds):
            document, took = run_lag(catalogue)
            assert document["behind"] == topics * MESSAGES, document
            ours.append(took)
            bare.append(run_bare(bootstrap, partitions // topics, topics))
        what = f"lag of {partitions:,} partitions, {name}"
        beside = {"the client alone": min(bare)}
        return figure(what, ours, "s", GOAL, beside, ceiling=bare)


@contextmanager
def many_partitions(partitions: int, topics: int) -> Iterator[tuple[str, Path]]:
    """A broker with topics whose group has a position in each partition.

    Yields:
        Its address, and the folder of the catalogue.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as text:
        folder = Path(text)
        catalogue = folder / "streams"
        catalogue.mkdir()
        # Java takes the last of two limits of its heap; the broker's own is for tests.
        flags = (*archived(), "-Xmx1500m")
        with Cluster(folder / "broker", properties=BROKER, flags=flags) as cluster:
            admin = quiet_admin(cluster.bootstrap)
            for number in range(topics):
                name = f"topic-{number}"
                _fill(admin, cluster.bootstrap, name, partitions // topics)
                _define(catalogue, name, cluster.bootstrap)
            yield cluster.bootstrap, catalogue


def _fill(admin: AdminClient, bootstrap: str, name: str, partitions: int) -> None:
    first = min(AT_ONCE, partitions)
    admin.create_topics([NewTopic(name, first, 1)])[name].result(PATIENCE)
    for count in range(first + AT_ONCE, partitions + AT_ONCE, AT_ONCE):
        new = NewPartitions(name, min(count, partitions))
        admin.create_partitions([new], request_timeout=PATIENCE)[name].result(PATIENCE)
    _await_leaders(admin, name, partitions)
    places = [TopicPartition(name, number, 0) for number in range(partitions)]
    # Not by the admin client, whose first call waits for a coordinator without a retry.
    settings = {"bootstrap.servers": bootstrap, "group.id": GROUP}
    with closing(Consumer(settings)) as consumer:
        for start in range(0, partitions, AT_ONCE):
            some = places[start : start + AT_ONCE]
            consumer.commit(offsets=some, asynchronous=False)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(MESSAGES):
        producer.produce(name, str(number).encode(), partition=0)
    assert producer.flush(PATIENCE) == 0


def _await_leaders(admin: AdminClient, name: str, partitions: int) -> None:
    deadline = time.monotonic() + PATIENCE
    led = 0
    while time.monotonic() < deadline:
        found = admin.list_topics(name, timeout=PATIENCE).topics[name].partitions
        led = sum(one.leader >= 0 for one in found.values())
        if led == partitions:
            return
        time.sleep(0.5)
    msg = f"{name} has leaders for {led} of {partitions} partitions"
    raise TimeoutError(msg)


def _define(catalogue: Path, topic: str, bootstrap: str) -> None:
    properties = {
        "streamType": "kafka",
        "stream.kafka.topic.name": topic,
        "stream.kafka.broker.list": bootstrap,
        "stream.kafka.decoder.class.name": "raw",
    }
    body = {"name": topic, "properties": properties}
    (catalogue / f"{topic}.json").write_text(json.dumps(body))


def run_lag(catalogue: Path) -> tuple[Mapping[str, Any], float]:
    """What the command prints, and the seconds that it takes."""
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "streamfactory", "lag", "--json"],
        env=os.environ | {"STREAMFACTORY_STREAMS": str(catalogue)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    took = time.perf_counter() - begun
    assert done.returncode == 0, done.stderr
    document: Mapping[str, Any] = json.loads(done.stdout)
    return document, took


def run_bare(bootstrap: str, partitions: int, topics: int) -> float:
    """Seconds of the client library alone: positions, earliest and latest offsets."""
    client = quiet_admin(bootstrap)
    begun = time.perf_counter()
    group = [ConsumerGroupTopicPartitions(GROUP)]
    for answer in client.list_consumer_group_offsets(group).values():
        assert len(answer.result(60).topic_partitions) == partitions * topics
    specs: Any = OffsetSpec  # its stubs have no types
    for spec in (specs.earliest(), specs.latest()):
        asked: dict[Any, Any] = {}
        for number in range(topics):
            for start in range(0, partitions, 500):
                some = range(start, min(start + 500, partitions))
                places = [TopicPartition(f"topic-{number}", one) for one in some]
                asked |= client.list_offsets(dict.fromkeys(places, spec))
        for answer in asked.values():
            answer.result(60)
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
