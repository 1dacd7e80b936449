"""The shortest way through: a batch, a stream, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.proving.triggers import start_available_now

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.proving.sessions import Topic


def test_a_batch_reads_all_rows(spark: SparkSession, topic: Topic) -> None:
    topic.write(id=[1, 2, 3], _partition=[0, 1, 2])
    topic.write(id=[4], _partition=[0])
    rows = spark.read.format("streamfactory").options(**topic.options).load()
    assert rows.schema.simpleString() == "struct<id:bigint>"
    assert sorted(row.id for row in rows.collect()) == [1, 2, 3, 4]


def test_a_stream_is_copied_in_epochs_each_row_once(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    for start in range(0, 40, 10):
        topic.write(id=[*range(start, start + 10)], _partition=[0, 1] * 5)
    out = topic.another()
    for _ in range(2):
        query = start_available_now(
            spark.readStream.format("streamfactory")
            .options(**topic.options, startingOffsets="earliest")
            .option("maxOffsetsPerTrigger", "10")
            .load()
            .writeStream.format("streamfactory")
            .options(**out.options)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
        )
        assert query.awaitTermination(400)
        assert query.exception() is None
        topic.write(id=[40], _partition=[2])
    assert out.column("id") == [*range(41)]
