"""What readers of `kafka` cost on Spark: memory of a worker, and traffic of the broker.

    python benchmarks/kafka_memory.py [--json] [--rounds N] [--partitions N]

A broker is started here. Four megabytes are read as a batch, in two ways: the first
rows of many partitions that hold far more, and as many ranges of one partition, which
Spark gives to whichever of its two workers is idle. Memory, threads and descriptors are
the most of any worker at its peak; memory is counted from that of a worker that has
read an empty topic. Traffic is all that the broker sent, metadata and rows that nobody
asked for included, by the bytes of the rows. Nothing is gated.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from confluent_kafka import Producer

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring.figures import figure, report
from benchmarks.measuring.on_spark import session
from benchmarks.measuring.processes import WorkerPeaks
from tests.kafka.broker import Cluster
from tests.kafka.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measuring.figures import Figure

LENGTH: Final = 1000
"""Bytes of a message."""
ROWS: Final = 4000
HELD: Final = 400_000
"""Messages of a topic."""
BATCH: Final = 16_384
"""Bytes that a producer sends at once: the default of Java's."""
GOAL_MEGABYTES: Final = "<= 150"
GOAL_TRAFFIC: Final = "<= 1.5"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=40)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        Cluster(Path(folder)) as cluster,
    ):
        report(
            figures(cluster, arguments.rounds, arguments.partitions),
            as_json=arguments.json,
        )


def figures(cluster: Cluster, rounds: int, count: int) -> Iterator[Figure]:
    """Both ways, each in separate sessions."""
    topics = Topics(cluster.bootstrap)
    empty, many, one = (topics.create(partitions=n) for n in (1, count, 1))
    for topic, partitions in ((many, count), (one, 1)):
        fill(cluster.bootstrap, topic, partitions)
    each = ROWS // count
    parts = {"endingOffsets": ends(many, count, each)}
    cut = {"endingOffsets": ends(one, 1, ROWS), "maxRecordsPerPartition": str(each)}
    for name, topic, options in (
        (f"{count} partitions", many, parts),
        (f"{count} ranges of one partition", one, cut),
    ):
        runs = [measured(cluster, empty, topic, options) for _ in range(rounds)]
        threads, descriptors, megabytes, traffic = zip(*runs, strict=True)
        beside = {
            "threads": float(max(threads)),
            "descriptors": float(max(descriptors)),
        }
        title = f"{name}: memory over an idle worker"
        yield figure(title, megabytes, "MB", GOAL_MEGABYTES, beside)
        yield figure(f"{name}: traffic", traffic, "x rows", GOAL_TRAFFIC)


def measured(
    cluster: Cluster, empty: str, topic: str, options: dict[str, str]
) -> tuple[int, int, float, float]:
    """Threads, descriptors, megabytes over an idle worker, and traffic by rows."""
    idle, _ = used(cluster, empty, {}, 0)
    peaks, traffic = used(cluster, topic, options, ROWS)
    over = peaks.megabytes - idle.megabytes
    return peaks.threads, peaks.descriptors, over, traffic / (ROWS * LENGTH)


def used(
    cluster: Cluster, topic: str, options: dict[str, str], rows: int
) -> tuple[WorkerPeaks, int]:
    """What new workers used for a batch, and the bytes that the broker sent for it."""
    (broker,) = cluster.nodes
    properties = {
        "streamType": "kafka",
        "stream.kafka.broker.list": cluster.bootstrap,
        "stream.kafka.topic.name": topic,
        "stream.kafka.decoder.class.name": "raw",
    }
    spark = session({})
    try:
        before = broker.sent()
        with WorkerPeaks() as peaks:
            frame = spark.read.format("streamfactory").options(**properties, **options)
            sizes = frame.load().selectExpr("length(value) as size")
            found = sizes.selectExpr("count(1)", "coalesce(sum(size), 0)").collect()
            time.sleep(1)  # what clients still fetch counts too
        sent = broker.sent() - before
    finally:
        spark.stop()
    if tuple(found[0]) != (rows, rows * LENGTH):
        msg = f"{rows} rows were to be read, not {found[0]}"
        raise RuntimeError(msg)
    return peaks, sent


def ends(topic: str, partitions: int, offset: int) -> str:
    """The same end for each partition, as ``endingOffsets`` takes it."""
    return json.dumps({topic: {str(n): offset for n in range(partitions)}})


def fill(bootstrap: str, topic: str, partitions: int) -> None:
    """Write messages, dealt out to the partitions."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "batch.size": BATCH, "linger.ms": 20}
    )
    value = os.urandom(LENGTH)
    for number in range(HELD):
        while True:
            try:
                producer.produce(topic, value, partition=number % partitions)
            except BufferError:
                producer.poll(0.1)
            else:
                break
    producer.flush(60)


if __name__ == "__main__":
    main()
