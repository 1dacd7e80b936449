"""Copy a Kafka topic into another one, exactly once, although the copy is killed.

A process copies 3,000 numbers in epochs of 100 rows. It is killed twice on its way
and started again. At the end every number is in the target once: each epoch is one
transaction of Kafka, which also stores the position up to which the source was read.

    KAFKA=localhost:9092 python examples/exactly_once.py

Needs: pip install 'streamfactory[kafka,json]', and a broker: docs/kafka.md starts one,
and so does the compose file of `streamfactory init`. Deletes its topics at the end.
"""

from __future__ import annotations

import os
import sys
import tempfile
import uuid
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import streamfactory

try:
    from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its stubs
        AdminClient,
        NewTopic,
    )
except ImportError:
    sys.exit("this example needs Kafka: pip install 'streamfactory[kafka,json]'")

ROWS = 3000
KAFKA = os.environ.get("KAFKA", "localhost:9092")


def topic(name: str) -> dict[str, str]:
    """Return the configuration of a stream in a new topic."""
    return {
        "streamType": "kafka",
        "stream.kafka.broker.list": KAFKA,
        "stream.kafka.topic.name": f"{name}-{uuid.uuid4().hex[:8]}",
        "stream.kafka.decoder.class.name": "json",
        "schema": "number bigint",
    }


def main() -> None:
    source, target = topic("numbers"), topic("copied")
    names = [stream["stream.kafka.topic.name"] for stream in (source, target)]
    admin = AdminClient({"bootstrap.servers": KAFKA})
    for created in admin.create_topics([NewTopic(name, 4) for name in names]).values():
        created.result()
    try:
        with tempfile.TemporaryDirectory() as folder:
            numbers = Path(folder, "numbers.csv")
            numbers.write_text("number\n" + "".join(f"{n}\n" for n in range(ROWS)))
            streamfactory.publish(source, numbers)
        for rows in (500, 1500, None):
            copy(source, target, killed_after=rows)
        found = sorted(read(target))
        print(f"{len(found):,} numbers, each once: {found == list(range(ROWS))}")
    finally:
        for deleted in admin.delete_topics(names).values():
            deleted.result()


def copy(
    source: dict[str, str], target: dict[str, str], killed_after: int | None
) -> None:
    """Copy in a process, which is killed when the target has so many rows."""
    job = partial(
        streamfactory.copy,
        source,
        target,
        source_options={"batch.rows": "100"},
        sink_options={"realtime.segment.flush.threshold.rows": "100"},  # of an epoch
        writer_id="copier",
        follow=killed_after is not None,
    )
    process = get_context("spawn").Process(target=job)
    process.start()
    if killed_after is not None:
        try:
            wait_for(target, killed_after)
        finally:
            process.kill()
    process.join()
    print(f"the copy ended with status {process.exitcode}")


def wait_for(target: dict[str, str], rows: int) -> None:
    """Wait until a stream has so many rows."""
    with streamfactory.open(target, start="earliest", follow=True) as stream:
        while rows > 0:
            batch = stream.next_batch(timeout=60)
            if batch is None:
                msg = "the copy wrote nothing for 60 seconds"
                raise TimeoutError(msg)
            rows -= batch.num_rows


def read(stream: dict[str, str]) -> list[int]:
    """Return the numbers of a stream. Only committed transactions are read."""
    with streamfactory.open(stream) as opened:
        numbers: list[int] = opened.to_reader().read_all()["number"].to_pylist()
    return numbers


if __name__ == "__main__":
    main()
