"""Latency of a pipeline from Kafka to Kafka: in real time, and in micro-batches.

    python benchmarks/real_time.py [--json] [--rounds N] [--seconds N]

A broker is started here. Each message has the time at which it was sent; a consumer
that reads committed rows notes when it comes out, so that a latency is message in to
message out. Messages are sent at a steady rate to two partitions. Each round is so
many seconds of one run; the first one, in which Java compiles, is not counted. Real
time requires PySpark 4.2, of which version Spark's Kafka connector is that the tests
have; with another one it is left out, and the reason is on standard error. Nothing is
gated.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyspark
from confluent_kafka import Consumer, Producer, TopicPartition

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring.figures import figure, report
from tests.kafka.broker import Cluster
from tests.kafka.jars import jars
from tests.kafka.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.measuring.figures import Figure

RATE: Final = 50
"""Messages per second."""
PATIENCE: Final = 300.0
VERSION: Final = "4.2."
SIDES: Final = {
    "real time, batches of 20 s": "real-time 20s",
    "micro-batches, back to back": "back-to-back",
}
"""Triggers by what the table calls them."""


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=30)
    arguments = parser.parse_args()
    sides = dict(SIDES)
    if not pyspark.__version__.startswith(VERSION):
        del sides["real time, batches of 20 s"]
        reason = f"real time is left out: PySpark is {pyspark.__version__}, not 4.2"
        print(reason, file=sys.stderr)
    report(
        (
            measured(name, trigger, arguments.rounds, arguments.seconds)
            for name, trigger in sides.items()
        ),
        as_json=arguments.json,
    )


def measured(name: str, trigger: str, rounds: int, seconds: float) -> Figure:
    """The 99th percentile of the latency in each round, and the median beside it."""
    with running(trigger) as (bootstrap, source, sink):
        found = [
            latencies(bootstrap, source, sink, seconds) for _ in range(rounds + 1)
        ][1:]
    last = [statistics.quantiles(one, n=100)[98] for one in found]
    middle = [statistics.median(one) for one in found]
    what = f"latency p99, Kafka to Kafka, {name}"
    return figure(what, last, "ms", "", {"ms p50": statistics.median(middle)})


@contextmanager
def running(trigger: str) -> Iterator[tuple[str, str, str]]:
    """A pipeline that runs; yields the address of the broker, and both topics."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as text:
        folder = Path(text)
        with Cluster(folder / "broker") as cluster:
            topics = Topics(cluster.bootstrap)
            names = topics.create(partitions=2), topics.create()
            _define(folder, cluster.bootstrap, trigger, *names)
            command = [sys.executable, "-m", "streamfactory", "run", "p.toml"]
            child = subprocess.Popen(  # noqa: S603 - our own
                [*command, "--master", "local[3]"],
                cwd=folder,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                yield cluster.bootstrap, *names
            finally:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()


def _define(folder: Path, bootstrap: str, trigger: str, source: str, sink: str) -> None:
    streams = folder / "configs" / "streams"
    streams.mkdir(parents=True)
    for name, topic in (("in", source), ("out", sink)):
        properties = {
            "streamType": "kafka",
            "stream.kafka.topic.name": topic,
            "stream.kafka.broker.list": bootstrap,
            "stream.kafka.decoder.class.name": "json",
            "schema": "sent bigint, text string",
        }
        body = {"name": name, "properties": properties}
        (streams / f"{name}.json").write_text(json.dumps(body))
    lines = [
        f'trigger = "{trigger}"\ncheckpoint = "checkpoint"',
        '[source]\nstream = "in"\nstartingOffsets = "earliest"',
        '[[steps]]\nid = "s"\nsql = "select sent, upper(text) as text from input"',
        '[[sinks]]\nstream = "out"',
    ]
    if trigger.startswith("real-time"):
        lines.append(f'[spark]\njars = "{",".join(map(str, jars("oracle")))}"')
    (folder / "p.toml").write_text("\n".join(lines))


def latencies(
    bootstrap: str, source: str, sink: str, seconds: float
) -> Sequence[float]:
    """Milliseconds of each message that is sent in so many seconds."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    settings = {"bootstrap.servers": bootstrap, "group.id": "latency"}
    count = max(2, round(seconds * RATE))
    with closing(Consumer({**settings, "isolation.level": "read_committed"})) as reader:
        end = reader.get_watermark_offsets(TopicPartition(sink, 0), timeout=60)[1]
        reader.assign([TopicPartition(sink, 0, end)])
        sent, found = 0, list[float]()
        start = time.monotonic()
        while len(found) < count:
            now = time.monotonic()
            if now > start + seconds + PATIENCE:
                msg = f"{len(found)} of {count} messages came out"
                raise TimeoutError(msg)
            if sent < count and now >= start + sent / RATE:
                body = {"sent": time.monotonic_ns(), "text": "a message of some length"}
                producer.produce(source, json.dumps(body).encode(), partition=sent % 2)
                producer.poll(0)
                sent += 1
            message = reader.poll(0.002)
            if message is not None and message.error() is None:
                row = json.loads(message.value() or b"")
                found.append((time.monotonic_ns() - row["sent"]) / 1e6)
        assert producer.flush(PATIENCE) == 0
    return found


if __name__ == "__main__":
    main()
