"""A program that writes epochs of numbers until it is killed, or all are written.

Run as ``python killed_redis_writer.py PROPERTIES EPOCHS``: the properties as JSON.
"""

from __future__ import annotations

import json
import sys

import pyarrow as pa
import streamfactory

ROWS = 40
"""Of each epoch."""


def rows(epoch: int) -> pa.RecordBatch:
    """The rows of an epoch, for two partitions in turn."""
    numbers = range(epoch * ROWS, (epoch + 1) * ROWS)
    values = pa.array([str(number).encode() for number in numbers], pa.binary())
    partitions = pa.array([number % 2 for number in numbers], pa.int32())
    return pa.record_batch({"value": values, "_partition": partitions})


def main() -> None:
    properties, epochs = json.loads(sys.argv[1]), int(sys.argv[2])
    with streamfactory.open_sink(properties) as sink:
        committer = sink.committer(writer_id="killed")
        last = committer.last()
        print("ready", flush=True)
        for epoch in range(0 if last is None else last.epoch + 1, epochs):
            batch = rows(epoch)
            writer = sink.writer(batch.schema, writer_id="killed", epoch=epoch)
            writer.write(batch)
            committer.commit(epoch, [writer.commit()])
            writer.close()
        committer.close()


if __name__ == "__main__":
    main()
