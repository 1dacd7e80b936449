"""Spark reads and writes topics of a Flight server, in batches and as streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.flight.conftest import stream

import streamfactory
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from streamfactory.wiring.serving.process import ServerProcess

ROWS = 20_000


def ids(properties: dict[str, str]) -> list[int]:
    with streamfactory.open(properties) as opened:
        found: list[int] = opened.to_reader().read_all()["id"].to_pylist()
    return sorted(found)


def test_tasks_write_a_batch_at_once_and_tasks_read_it(
    spark: SparkSession, flight_server: ServerProcess, topic: str
) -> None:
    properties = stream(flight_server, topic, partitions="3")
    frame = spark.range(0, ROWS, numPartitions=4)
    once = {"writer.id": "batch", "epoch": "0"}
    for _ in range(2):  # the second time is the same epoch
        writer = frame.write.format("streamfactory").mode("append")
        writer.options(**properties, **once).save()
    assert ids(properties) == list(range(ROWS))
    read = spark.read.format("streamfactory").options(**properties).load()
    assert read.count() == ROWS
    assert read.selectExpr("sum(id)").collect()[0][0] == sum(range(ROWS))


@pytest.mark.long("a query on Spark")
def test_a_query_moves_each_row_once_from_topic_to_topic(
    spark: SparkSession, flight_server: ServerProcess, topic: str, tmp_path: Path
) -> None:
    source = stream(flight_server, f"{topic}-in", partitions="2")
    sink = stream(flight_server, f"{topic}-out")
    for epoch in range(3):
        with open_sink(source) as opened:
            rows = pa.table({"id": pa.array(range(epoch * 100, epoch * 100 + 100))})
            opened.put(rows, writer_id="w", epoch=epoch)
        frame = (
            spark.readStream.format("streamfactory")
            .options(**source, startingOffsets="earliest")
            .load()
        )
        query = (
            frame.writeStream.format("streamfactory")
            .options(**sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(400)
    assert ids(sink) == list(range(300))
