"""Event time is Spark's own: watermarks over our source, across restarts."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.proving.triggers import start_available_now

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from tests.proving.sessions import Topic

EARLIEST = {"startingOffsets": "earliest"}


def at(hour: int, minute: int) -> dt.datetime:
    return dt.datetime(2026, 3, 1, hour, minute, tzinfo=dt.UTC)


def put(topic: Topic, *rows: tuple[int, dt.datetime]) -> None:
    """Rows of an id and a time, over two partitions."""
    topic.put(
        pa.table(
            {
                "id": [row[0] for row in rows],
                "at": pa.array([row[1] for row in rows], pa.timestamp("us", "UTC")),
                "_partition": [index % 2 for index in range(len(rows))],
            }
        )
    )


def followed(spark: SparkSession, topic: Topic) -> DataFrame:
    """The topic as a stream, rows late by ten minutes at the most."""
    reader = spark.readStream.format("streamfactory")
    rows = reader.options(**topic.options, **EARLIEST).load()
    return rows.withWatermark("at", "10 minutes")


class Reports:
    """Three queries of one kind each, which end when they have caught up."""

    def __init__(self, spark: SparkSession, clicks: Topic, views: Topic) -> None:
        self._spark, self._clicks, self._views = spark, clicks, views
        self.outs = {
            name: clicks.another(name) for name in ("windows", "firsts", "pairs")
        }

    def run(self, checkpoints: Path) -> None:
        queries = [
            start_available_now(
                frame.writeStream.format("streamfactory")
                .options(**self.outs[name].options)
                .option("checkpointLocation", str(checkpoints / name))
            )
            for name, frame in self._frames().items()
        ]
        for query in queries:
            assert query.awaitTermination(400)

    def _frames(self) -> dict[str, DataFrame]:
        from pyspark.sql import functions as f

        clicks = followed(self._spark, self._clicks)
        views = followed(self._spark, self._views)
        windows = clicks.groupBy(f.window("at", "10 minutes")).count()
        soon = f.expr("v.at BETWEEN c.at AND c.at + INTERVAL 5 MINUTES")
        same = f.expr("v.id = c.id") & soon
        return {
            "windows": windows.select(f.col("window.start").alias("start"), "count"),
            "firsts": clicks.dropDuplicatesWithinWatermark(["id"]).select("id"),
            "pairs": clicks.alias("c").join(views.alias("v"), same).select("c.id"),
        }


@pytest.mark.long("three stateful queries and a restart")
def test_windows_duplicates_and_joins_go_on_after_a_restart(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    views = topic.another("views", **{"stream.file.partitions": "2"})
    reports = Reports(spark, topic, views)
    put(topic, (1, at(12, 1)), (2, at(12, 5)), (2, at(12, 5)), (3, at(12, 31)))
    put(views, (1, at(12, 3)))
    reports.run(tmp_path)
    outs = reports.outs
    assert outs["windows"].rows() == [{"start": at(12, 0), "count": 3}]
    assert outs["firsts"].column("id") == [1, 2, 3]
    assert outs["pairs"].column("id") == [1]
    # The first row is late by now, the second is known, and the third closes windows.
    put(topic, (4, at(12, 2)), (3, at(12, 32)), (5, at(13, 0)))
    put(views, (3, at(12, 33)), (5, at(13, 1)))
    reports.run(tmp_path)
    assert outs["windows"].rows()[1:] == [{"start": at(12, 30), "count": 2}]
    assert outs["firsts"].column("id") == [1, 2, 3, 5]
    assert outs["pairs"].column("id") == [1, 3, 3, 5]
