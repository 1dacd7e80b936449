"""Spark reads a socket through its spool: by offset, and again after a restart."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.spool.receiving import DEADLINE, receiving

import streamfactory
from streamfactory.backends.socket.harness import SocketHarness

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def numbers(properties: dict[str, str]) -> list[int]:
    with streamfactory.open(properties) as opened:
        found: list[int] = opened.to_reader().read_all()["number"].to_pylist()
    return sorted(found)


@pytest.mark.long("two queries of Spark")
def test_spark_reads_a_spooled_socket_and_replays_it_after_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    harness = SocketHarness(tmp_path)
    harness.create(2)
    source = {
        **harness.properties(),
        "spool.path": str(tmp_path / "spool"),
        "spool.fsync": "never",
    }
    sink = {"streamType": "file", "stream.file.path": str(tmp_path / "out")}
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        frame = (
            spark.readStream.format("streamfactory")
            .options(**source, startingOffsets="earliest")
            .load()
        )
        query = (
            frame.writeStream.format("streamfactory")
            .options(**sink)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(400)

    receiver = receiving(source)
    try:
        harness.write(0, range(500))
        harness.write(1, range(500, 600))
        deadline = time.monotonic() + DEADLINE
        while sum(report.rows for report in receiver.reports()) < 600:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        receiver.close()
        harness.close()
    # The senders and the receiver are gone: all that Spark reads is the spool's.
    run()
    assert numbers(sink) == [*range(600)]
    for path in (checkpoint / "commits").glob("*0*"):
        path.unlink()  # as when the driver died before its own commit
    run()
    assert numbers(sink) == [*range(600)]
    offsets = {"startingOffsets": '{"rows": {"0": 490, "1": 100}}'}
    batch = spark.read.format("streamfactory").options(**source, **offsets).load()
    assert sorted(row.number for row in batch.collect()) == [*range(490, 500)]
