"""What `kafka` makes of writing: the same rows by the client alone, in the same rounds.

    python benchmarks/kafka_writing.py [--json] [--rounds N] [--scale SHARE]

The broker is the one that KAFKA_BOOTSTRAP names, or one that is started here and shares
the machine. Raw is an idempotent producer of librdkafka and a loop of `produce` over
bytes that are ready, up to the last acknowledgement. Ours begins with Arrow columns: by
tasks, a transaction of the task; by epochs, with staging, one transaction and its
marker, until readers see it. Ratios are of rows a second; nothing is gated.

Where streamfactory-native is installed (`make native`), it takes its turns: beside the
Python path by the clock, and for sending alone, from Arrow columns to the last
acknowledgement, by the processor time of the thread and of the process as well.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import time
import uuid
from importlib.util import find_spec
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
from benchmarks.measuring.figures import AGAIN, figure, itself, ratios, report, shuffled

from streamfactory.arrowlog import message_schema
from streamfactory.backends.kafka import native_library
from streamfactory.backends.kafka.producing import Deadline, TransactionalProducer
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
NATIVE = find_spec("streamfactory_native") is not None
CLOCKS = {
    "the clock": time.perf_counter,
    "the thread's processor time": time.thread_time,
    "the process's processor time": time.process_time,
}


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
            for measured in (modes, *([paths] if NATIVE else []))
            for one in measured(
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
        AGAIN: lambda: raw(bootstrap, values),
        "task": lambda: ours(bootstrap, "task", table, "off"),
        "epoch": lambda: ours(bootstrap, "epoch", table, "off"),
    }
    if NATIVE:
        runs["native task"] = lambda: ours(bootstrap, "task", table, "required")
        runs["native epoch"] = lambda: ours(bootstrap, "epoch", table, "required")
    took: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in shuffled(runs):
            took[name].append(run())
    rate = {"raw, M rows a second": count / statistics.median(took["raw"]) / 1e6}
    figures = []
    for name, goal in GOALS.items():
        title = f"{name}s of {count:,} x {size} B"
        shares = ratios(took["raw"], took[name])
        found = figure(title, shares, "x raw", f">= {goal}", rate, again=itself(took))
        figures.append(found)
    for name in GOALS if NATIVE else ():
        title = f"{name}s natively, of {count:,} x {size} B"
        shares = ratios(took[name], took[f"native {name}"])
        figures.append(figure(title, shares, "x Python", ">= 1.5"))
    return figures


def paths(bootstrap: str, count: int, size: int, rounds: int) -> list[Figure]:
    """Sending natively against the calls of `produce`, in rounds that take turns."""
    values = pa.array([b"%0*d" % (size, number) for number in range(count)])
    schema = message_schema()
    columns = [pa.nulls(count, field.type) for field in schema]
    columns[schema.get_field_index("value")] = values
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    library = native_library.load()
    assert isinstance(library, native_library.Library)
    took: dict[str, list[list[float]]] = {"python": [], "native": []}
    for number in range(rounds + 1):
        for name, path in shuffled({"python": None, "native": library}):
            spent = sent(bootstrap, rows, path)
            if number:  # the first round warms both up
                took[name].append(spent)
    figures = []
    for at, clock in enumerate(CLOCKS):
        python, native = ([one[at] for one in took[name]] for name in took)
        title = f"{count:,} x {size} B natively, by {clock}"
        figures.append(figure(title, ratios(python, native), "x Python", ">= 1.5"))
    return figures


def sent(
    bootstrap: str, rows: pa.RecordBatch, library: native_library.Library | None
) -> list[float]:
    """What sending rows costs, by each of the clocks."""
    topic, deadline = made(bootstrap), Deadline(TIMEOUT)
    client = {"bootstrap.servers": bootstrap}
    producer = TransactionalProducer(client, topic, topic, TIMEOUT, deadline, library)
    with contextlib.closing(producer):
        producer.begin()
        started = [clock() for clock in CLOCKS.values()]
        for at in range(0, rows.num_rows, BATCH):
            producer.send(topic, 0, rows.slice(at, BATCH), deadline)
        producer.commit(deadline)
        return [
            clock() - begun
            for clock, begun in zip(CLOCKS.values(), started, strict=True)
        ]


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


def ours(bootstrap: str, mode: str, table: pa.Table, path: str) -> float:
    """Seconds of a sink, from columns to what readers see.

    Args:
        bootstrap: The broker.
        mode: The option ``commit.mode``.
        table: The rows.
        path: The option ``native.writing``.
    """
    topic = made(bootstrap)
    properties = {
        "streamType": "kafka",
        "stream.kafka.broker.list": bootstrap,
        "stream.kafka.topic.name": topic,
        "stream.kafka.decoder.class.name": "raw",
        "stream.kafka.commit.mode": mode,
        "stream.kafka.native.writing": path,
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
