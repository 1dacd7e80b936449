"""What `kafka` makes of the bare client: the same topics, in the same rounds.

    python benchmarks/kafka.py [--json] [--rounds N] [--messages N]

The broker is the one that KAFKA_BOOTSTRAP names, or one that is started here and shares
the machine. Ratios are medians of rounds that take turns; nothing is gated. Bare is a
loop of `consume`: with its default settings and 10,000 messages a call, and at its
best: 500 a call, a queue that is filled again at once, and no column taken from it.
Where kafkarrow is installed, it takes its turn. Where streamfactory-native is installed
(`make native`), its path is compared with that of Python, by the clock and by the
processor time of the thread that reads: that of messages that are fetched already.
Of a member of a group that thread's time is compared, with headers.
Reading on Spark is measured by kafka_spark.py.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import uuid
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring.brokers import broker, filled
from benchmarks.measuring.figures import AGAIN, figure, itself, ratios, report

from streamfactory.spi import FetchLimits, Partition
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.measuring.figures import Figure

SIZES = (200, 1000)
WARM = 0.2
"""Share of the messages that a run reads before it is timed."""


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=400_000)
    arguments = parser.parse_args()
    with broker() as bootstrap:
        figures = [f for size in SIZES for f in reading(bootstrap, size, arguments)]
    report(figures, as_json=arguments.json)


def reading(bootstrap: str, size: int, arguments: Any) -> list[Figure]:
    """Ours against the bare client, for messages of one size."""
    count = arguments.messages if size <= 200 else arguments.messages // 2
    value = os.urandom(size)
    topic = filled(bootstrap, count, lambda _: value)
    runs: dict[str, Callable[[], float]] = {
        "bare": lambda: bare(bootstrap, topic, count, 10_000, {}),
        AGAIN: lambda: bare(bootstrap, topic, count, 10_000, {}),
        "best": lambda: bare(
            bootstrap, topic, count, 500, {"fetch.queue.backoff.ms": 2}
        ),
        "consumer": lambda: by_consumer(bootstrap, topic, count, "off"),
        "reader": lambda: by_reader(bootstrap, topic, count),
    }
    goals = [("consumer", "bare", "3"), ("consumer", "best", "0.70")]
    goals += [("reader", "bare", "3"), ("reader", "best", "0.70")]
    if find_spec("kafkarrow"):
        runs["kafkarrow"] = lambda: by_kafkarrow(bootstrap, topic, count)
        goals.append(("consumer", "kafkarrow", "1"))
    if find_spec("streamfactory_native"):
        runs |= native_runs(bootstrap, topic, count)
        goals += [("native", "consumer", "1"), ("native thread", "python thread", "3")]
        goals += [("native with headers", "python with headers", "3")]
        goals += [("native member", "python member", "3")]
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(arguments.rounds):
        for name, run in runs.items():
            seconds[name].append(run())
    return [
        compared(f"{size} B: {ours} against {other}", seconds, ours, other, goal, count)
        for ours, other, goal in goals
    ]


def native_runs(
    bootstrap: str, topic: str, count: int
) -> dict[str, Callable[[], float]]:
    """The compiled path by the clock, and both paths by their thread's time."""

    def run(path: str, *, headers: bool) -> Callable[[], float]:
        return lambda: by_consumer(
            bootstrap, topic, count, path, headers=headers, clock=time.thread_time
        )

    return {
        "native": lambda: by_consumer(bootstrap, topic, count, "required"),
        "python thread": run("off", headers=False),
        "native thread": run("required", headers=False),
        "python with headers": run("off", headers=True),
        "native with headers": run("required", headers=True),
        "python member": lambda: by_member(bootstrap, topic, count, "off"),
        "native member": lambda: by_member(bootstrap, topic, count, "required"),
    }


def compared(
    name: str,
    seconds: dict[str, list[float]],
    ours: str,
    other: str,
    goal: str,
    count: int,
) -> Figure:
    """The ratio of speeds, round by round; ours itself is for orientation only."""
    rate = count * (1 - WARM) / statistics.median(seconds[ours]) / 1e6
    shares = ratios(seconds[other], seconds[ours])
    # The least is the client alone. Beside kafkarrow none is measured.
    own = other in ("bare", "best")
    return figure(
        name,
        shares,
        "x",
        f">= {goal}",
        {"M messages a second": rate},
        ceiling=ratios(seconds[other], seconds["best"]) if own else (),
        again=itself(seconds),
    )


class Watch:
    """Begins when enough was read for the client to have warmed up."""

    def __init__(
        self, count: int, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._from, self._count, self.read = int(count * WARM), count, 0
        self._clock = clock
        self._started = 0.0

    def more(self, messages: int) -> bool:
        """Count messages; False when all have come."""
        self.read += messages
        if not self._started and self.read >= self._from:
            self._started = self._clock()
        return self.read < self._count

    def seconds(self) -> float:
        """How long the rest took."""
        return self._clock() - self._started


def bare(
    bootstrap: str, topic: str, count: int, each: int, more: dict[str, Any]
) -> float:
    """The client alone; nothing is taken from the messages."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "bench",
        "enable.auto.commit": False,
        **more,
    }
    watch = Watch(count)
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while watch.more(len(consumer.consume(min(each, count - watch.read), 1.0))):
            pass
        return watch.seconds()


def source(
    bootstrap: str, topic: str, properties: Mapping[str, str] | None = None
) -> Source:
    """The topic through the framework."""
    definition = from_mapping(
        {
            "streamType": "kafka",
            "stream.kafka.topic.name": topic,
            "stream.kafka.broker.list": bootstrap,
            "stream.kafka.decoder.class.name": "raw",
            **(properties or {}),
        }
    )
    return Source(configure(definition, default_manager(), use="read"))


def by_consumer(
    bootstrap: str,
    topic: str,
    count: int,
    path: str,
    *,
    headers: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """The backend's own consumer, as the framework calls it for a decoder.

    Key, value, offset, timestamp and its kind are taken from each message; headers,
    which rows of ``raw`` have, are taken only where asked for.

    Args:
        bootstrap: The broker.
        topic: Of so many messages.
        count: Their number.
        path: The option ``native.reading``.
        headers: Whether headers are taken.
        clock: Measures.
    """
    watch, at = Watch(count, clock), 0
    limits = FetchLimits(65_536, 8 * 1024**2, 0.25)
    properties = {"stream.kafka.native.reading": path}
    if not headers:
        properties["stream.kafka.decoder.class.name"] = "json"
        properties["stream.kafka.decoder.prop.schema"] = "a INT"
    with closing(source(bootstrap, topic, properties)) as stream:
        consumer = stream.factory.create_partition_level_consumer(
            "bench", Partition(topic, 0)
        )
        with closing(consumer):
            while True:
                fetched = consumer.fetch_messages(at, count, limits)
                at = fetched.next_offset
                rows = 0 if fetched.rows is None else fetched.rows.num_rows
                if not watch.more(rows):
                    return watch.seconds()


def by_member(bootstrap: str, topic: str, count: int, path: str) -> float:
    """The backend's own member of a group of one, by its thread's processor time."""
    watch = Watch(count, time.thread_time)
    limits = FetchLimits(65_536, 8 * 1024**2, 0.25)
    group = f"bench-{uuid.uuid4().hex}"
    properties = {
        "stream.kafka.consumer.type": "highlevel",
        "stream.kafka.native.reading": path,
        "group.id": group,
        "startingOffsets": "earliest",
    }
    with closing(source(bootstrap, topic, properties)) as stream:
        member = stream.factory.create_stream_level_consumer("bench", group)
        assert member is not None
        with closing(member):
            while True:
                found = member.fetch_messages(limits)
                rows = None if found is None else found[1].rows
                if not watch.more(0 if rows is None else rows.num_rows):
                    return watch.seconds()


def by_reader(bootstrap: str, topic: str, count: int) -> float:
    """The framework's reader of undecoded rows, headers and all."""
    watch, at = Watch(count), 0
    with (
        closing(source(bootstrap, topic)) as stream,
        closing(stream.reader(Partition(topic, 0))) as reader,
    ):
        while True:
            batch = reader.fetch(at, end=count)
            at = batch.next_offset
            if not watch.more(batch.num_rows):
                return watch.seconds()


def by_kafkarrow(bootstrap: str, topic: str, count: int) -> float:
    """The client of PyPI that polls Arrow batches out of Rust."""
    from kafkarrow import (  # type: ignore[import-not-found]  # it may be absent
        ConsumerManager,
        SourceTopic,
    )

    watch = Watch(count)
    settings = {"bootstrap.servers": bootstrap}
    manager = ConsumerManager(settings, [SourceTopic.from_earliest(topic)], 65_536)
    while watch.more(manager.poll(timeout_ms=1000).num_rows):
        pass
    return watch.seconds()


if __name__ == "__main__":
    main()
