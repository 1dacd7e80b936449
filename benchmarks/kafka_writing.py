"""What `kafka` makes of writing: the same rows by the client alone, in the same rounds.

    python benchmarks/kafka_writing.py [--json] [--rounds N] [--scale SHARE]

The broker is the one that KAFKA_BOOTSTRAP names, or one that is started here and shares
the machine. Raw is an idempotent producer of librdkafka and a loop of `produce` over
bytes that are ready, up to the last acknowledgement. Ours begins with Arrow columns: by
tasks, a transaction of the task; by epochs, with staging, one transaction and its
marker, until readers see it. Ratios are of rows a second; nothing is gated.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its stubs
    AdminClient,
    NewTopic,
)

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring.brokers import broker
from benchmarks.measuring.figures import figure, ratios, report, shuffled

from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.measuring.figures import Figure

TIMEOUT = 60.0
PARTITIONS = 2
BATCH = 65_536
"""Rows that are written at once."""
GOALS = {"task": 0.7, "epoch": 0.6}
WORKLOADS = ((1_000_000, 200), (200_000, 1000))
"""Rows, and bytes of each."""


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows")
    arguments = parser.parse_args()
    with broker() as bootstrap:
        figures = (
            one
            for rows, size in WORKLOADS
            for one in modes(
                bootstrap, int(rows * arguments.scale), size, arguments.rounds
            )
        )
        report(figures, as_json=arguments.json)


def modes(bootstrap: str, count: int, size: int, rounds: int) -> list[Figure]:
    """Both modes against raw, in rounds that take turns."""
    values = [b"%0*d" % (size, number) for number in range(count)]
    table = pa.table({"value": pa.array(values, pa.binary())})
    runs: dict[str, Callable[[], float]] = {
        "raw": lambda: raw(bootstrap, values),
        "task": lambda: ours(bootstrap, "task", table),
        "epoch": lambda: ours(bootstrap, "epoch", table),
    }
    took: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in shuffled(runs):
            took[name].append(run())
    rate = {"raw, M rows a second": count / statistics.median(took["raw"]) / 1e6}
    figures = []
    for name, goal in GOALS.items():
        title = f"{name}s of {count:,} x {size} B"
        shares = ratios(took["raw"], took[name])
        figures.append(figure(title, shares, "x raw", f">= {goal}", rate))
    return figures


def raw(bootstrap: str, values: Sequence[bytes]) -> float:
    """Seconds of the client alone."""
    topic = made(bootstrap)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "queue.buffering.max.messages": 0,
            "queue.buffering.max.kbytes": 65_536,
        }
    )
    started = time.perf_counter()
    half = len(values) // PARTITIONS
    for number, value in enumerate(values):
        while True:
            try:
                producer.produce(topic, value, partition=int(number >= half))
            except BufferError:
                producer.poll(0.1)
            else:
                break
        if not number % 1024:
            producer.poll(0)
    if producer.flush(TIMEOUT):
        msg = "the broker did not take everything"
        raise RuntimeError(msg)
    return time.perf_counter() - started


def ours(bootstrap: str, mode: str, table: pa.Table) -> float:
    """Seconds of a sink, from columns to what readers see."""
    topic = made(bootstrap)
    properties = {
        "streamType": "kafka",
        "stream.kafka.broker.list": bootstrap,
        "stream.kafka.topic.name": topic,
        "stream.kafka.decoder.class.name": "raw",
        "stream.kafka.commit.mode": mode,
    }
    started = time.perf_counter()
    with (
        open_sink(properties) as sink,
        contextlib.closing(sink.committer(writer_id="bench")) as committer,
    ):
        messages = []
        half = table.num_rows // PARTITIONS
        for task in range(PARTITIONS):
            writer = sink.writer(table.schema, writer_id="bench", task=task)
            with contextlib.closing(writer):
                for batch in table.slice(task * half, half).to_batches(BATCH):
                    writer.write(batch)
                messages.append(writer.commit())
        committer.commit(0, messages)
    return time.perf_counter() - started


def made(bootstrap: str) -> str:
    """A new topic."""
    admin, topic = AdminClient({"bootstrap.servers": bootstrap}), uuid.uuid4().hex
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(TIMEOUT)
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        found = admin.list_topics(topic, timeout=TIMEOUT).topics[topic]
        if found.error is None and len(found.partitions) == PARTITIONS:
            return topic
    msg = f"the topic {topic} has no leaders"
    raise TimeoutError(msg)


if __name__ == "__main__":
    main()
