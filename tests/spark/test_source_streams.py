"""Streams of Spark: restarts, limits, growth, losses; each trap that was paid for."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from tests.proving.triggers import needs_admission, start_available_now

from streamfactory.spark.failures import reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from tests.proving.sessions import Topic

EARLIEST = {"startingOffsets": "earliest"}


class Copies:
    """Runs a query from a topic into another until it has caught up."""

    def __init__(self, spark: SparkSession, source: Topic, folder: Path) -> None:
        self._spark = spark
        self.source = source
        self.out = source.another("out")
        self.checkpoint = folder / "checkpoint"

    def start(self, options: Mapping[str, str], *, once: bool = True) -> StreamingQuery:
        rows = (
            self._spark.readStream.format("streamfactory")
            .options(**{**self.source.options, **options})
            .load()
        )
        writer = (
            rows.writeStream.format("streamfactory")
            .options(**self.out.options)
            .option("checkpointLocation", str(self.checkpoint))
        )
        if once:
            return start_available_now(writer)
        return writer.trigger(processingTime="100 milliseconds").start()

    def run(self, **options: str) -> StreamingQuery:
        query = self.start(options)
        assert query.awaitTermination(400)
        return query

    def failure(self, **options: str) -> str:
        """Our words of a query that fails."""
        from pyspark.errors import StreamingQueryException

        query = self.start(options)
        with pytest.raises(StreamingQueryException) as caught:
            query.awaitTermination(400)
        words = reason(caught.value)
        assert words is not None, str(caught.value)
        assert "org.apache" not in words
        return words

    def forget_commit(self, batch: int) -> None:
        """As when the driver died between the sink's commit and its own."""
        for path in (self.checkpoint / "commits").glob(f"*{batch}*"):
            path.unlink()

    def logged(self, batch: int) -> Any:
        """The end offset of a batch, in the checkpoint."""
        text = (self.checkpoint / "offsets" / str(batch)).read_text()
        return json.loads(text.splitlines()[-1])


@pytest.fixture
def copies(spark: SparkSession, topic: Topic, tmp_path: Path) -> Copies:
    return Copies(spark, topic, tmp_path)


def rows_by_batch(query: StreamingQuery) -> list[int]:
    return [progress["numInputRows"] for progress in query.recentProgress]


def test_a_start_at_latest_is_pinned_before_the_first_commit(
    copies: Copies, topic: Topic
) -> None:
    topic.write(id=[1, 2, 3], _partition=[0, 1, 2])
    copies.run()  # from the latest: an empty batch 0 that pins it
    assert copies.logged(0)["begun"]["offsets"] == {"clicks": {"0": 1, "1": 1, "2": 1}}
    copies.forget_commit(0)
    topic.write(id=[4, 5], _partition=[0, 1])
    copies.run()
    assert copies.out.column("id") == [4, 5]


def test_a_batch_that_spark_forgot_is_replayed_and_counts_once(
    copies: Copies, topic: Topic
) -> None:
    topic.write(id=[*range(10)], _partition=[0, 1] * 5)
    copies.run(**EARLIEST)
    copies.forget_commit(0)
    topic.write(id=[10])
    copies.run(**EARLIEST)
    assert copies.out.column("id") == [*range(11)]


@needs_admission
def test_limits_hold_and_a_trigger_that_takes_all_lifts_them(
    copies: Copies, topic: Topic, spark: SparkSession, tmp_path: Path
) -> None:
    topic.write(id=[*range(100)], _partition=[0] * 90 + [1] * 9 + [2])
    query = copies.run(**EARLIEST, maxOffsetsPerTrigger="50")
    assert rows_by_batch(query)[0] == 45 + 4 + 1
    assert sum(rows_by_batch(query)) == 100
    once = (
        spark.readStream.format("streamfactory")
        .options(**topic.options, **EARLIEST, maxOffsetsPerTrigger="50")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "once"))
        .trigger(once=True)
        .start()
    )
    assert once.awaitTermination(400)
    assert rows_by_batch(once) == [100]


def test_partitions_that_come_in_mid_query_are_read_from_their_earliest(
    copies: Copies, topic: Topic
) -> None:
    topic.write(id=[1], _partition=[0])
    copies.run(**EARLIEST)
    topic.grow(5)
    topic.write(id=[2, 3], _partition=[3, 4])
    copies.run()
    assert copies.out.column("id") == [1, 2, 3]
    assert copies.logged(1)["begun"]["offsets"] == {"clicks": {"3": 0, "4": 0}}


@needs_admission
def test_what_comes_while_a_query_catches_up_waits_for_the_next_run(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    topic.write(id=[*range(10)], _partition=[0] * 10)
    seen: dict[int, list[int]] = {}

    def look(rows: DataFrame, batch: int) -> None:
        if not seen:
            topic.grow(5)
            topic.write(id=[10, 11], _partition=[0, 4])
        found = sorted(row.id for row in rows.collect())
        assert rows.count() == len(found)  # which reads the ranges once more
        seen[batch] = found

    def run() -> None:
        # A minimum that is never reached is no reason to wait for ever.
        limits = {"maxOffsetsPerTrigger": "4", "minOffsetsPerTrigger": "3"}
        query = start_available_now(
            spark.readStream.format("streamfactory")
            .options(**topic.options, **EARLIEST, **limits)
            .load()
            .writeStream.foreachBatch(look)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
        )
        assert query.awaitTermination(400)

    run()
    assert seen == {0: [0, 1, 2, 3], 1: [4, 5, 6, 7], 2: [8, 9]}
    run()
    assert sorted(row for batch in range(3, max(seen) + 1) for row in seen[batch]) == [
        10,
        11,
    ]


def test_what_retention_took_stops_the_query_with_a_code_and_a_remedy(
    copies: Copies, topic: Topic
) -> None:
    topic.write(id=[*range(10)], _partition=[0] * 10)
    copies.run(**EARLIEST, maxOffsetsPerTrigger="100")
    topic.write(id=[*range(10, 20)], _partition=[0] * 10)
    topic.truncate({0: 15})
    message = copies.failure()
    assert message == (
        "[offset_out_of_range] offset 10 is out of range: available are 15 to 20 "
        "(retention) "
        "(stream 'file:clicks', partition clicks-0, offset 10); "
        "set `out.of.range` to earliest or latest to continue with a loss record"
    )
    copies.run(**{"out.of.range": "earliest"})
    assert copies.out.column("id") == [*range(10), *range(15, 20)]


def test_a_recreated_topic_stops_the_query(copies: Copies, topic: Topic) -> None:
    topic.write(id=[1, 2])
    copies.run(**EARLIEST)
    topic.delete()
    topic.write(id=[1, 2, 3, 4])
    assert "[incarnation_changed]" in copies.failure()


def test_a_topic_that_vanished_stops_the_query(copies: Copies, topic: Topic) -> None:
    topic.write(id=[1, 2])
    copies.run(**EARLIEST)
    running = copies.start({}, once=False)
    topic.delete()
    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException) as caught:
        running.awaitTermination(400)
    assert "[topic_not_found]" in str(caught.value)


def test_the_checkpoint_of_another_stream_is_refused(
    copies: Copies, topic: Topic
) -> None:
    topic.write(id=[1, 2])
    copies.run(**EARLIEST)
    other = topic.another("other")
    other.write(id=[1])
    copies.source = other
    message = copies.failure(**EARLIEST)
    assert "[position_refused]" in message
    assert "the offset has partition clicks-0, which is not of this stream" in message


@needs_admission
def test_progress_reports_the_latest_of_all_partitions(
    copies: Copies, topic: Topic
) -> None:
    topic.write(id=[*range(10)], _partition=[0] * 10)
    query = copies.run(**EARLIEST, maxOffsetsPerTrigger="4")
    latest = json.loads(query.recentProgress[0].sources[0].latestOffset)
    assert latest["offsets"] == {"clicks": {"0": 10, "1": 0, "2": 0}}


def test_a_copied_checkpoint_continues_at_its_position(
    copies: Copies, topic: Topic, tmp_path: Path
) -> None:
    topic.write(id=[1])
    copies.run(**EARLIEST)
    shutil.copytree(copies.checkpoint, tmp_path / "copy")
    topic.write(id=[2])
    copies.checkpoint = tmp_path / "copy"
    copies.run()
    assert copies.out.column("id") == [1, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"maxOffsetPerTrigger": "5"},
            "did you mean maxOffsetsPerTrigger?",
        ),
        ({"streamType": "flie"}, "unknown stream type 'flie'"),
        ({"stream": "nobody"}, "[unknown_stream]"),
        ({"stream.file.path": ""}, "stream.file.path"),
    ],
)
def test_wrong_options_are_reported_before_anything_starts(
    spark: SparkSession,
    topic: Topic,
    options: dict[str, str],
    message: str,
) -> None:
    topic.write(id=[1])
    reader: Callable[[], object] = (
        spark.readStream.format("streamfactory")
        .options(**{**topic.options, **options})
        .load
    )
    with pytest.raises(Exception) as caught:
        reader()
    assert message in str(caught.value)
