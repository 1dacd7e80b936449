"""A program that writes epochs of numbers until it is killed, or all are written.

Run as ``python killed_postgres_writer.py PROPERTIES EPOCHS``: the properties as JSON.
Every third epoch is staged, as tasks in other processes do it.
"""

from __future__ import annotations

import json
import sys

import pyarrow as pa
import streamfactory

ROWS = 40
"""Of each epoch."""


def rows(epoch: int) -> pa.RecordBatch:
    """The rows of an epoch."""
    numbers = pa.array(range(epoch * ROWS, (epoch + 1) * ROWS), pa.int64())
    schema = pa.schema([pa.field("number", pa.int64(), nullable=False)])
    return pa.record_batch([numbers], schema=schema)


def main() -> None:
    properties, epochs = json.loads(sys.argv[1]), int(sys.argv[2])
    with (
        streamfactory.open_sink(properties) as sink,
        streamfactory.open_sink(properties) as task,
    ):
        committer = sink.committer(writer_id="killed")
        last = committer.last()
        print("ready", flush=True)
        for epoch in range(0 if last is None else last.epoch + 1, epochs):
            batch = rows(epoch)
            of = sink if epoch % 3 else task
            writer = of.writer(batch.schema, writer_id="killed", epoch=epoch)
            writer.write(batch)
            committer.commit(epoch, [writer.commit()])
            writer.close()
        committer.close()


if __name__ == "__main__":
    main()
