"""Streaming writes from Spark: each row once, whoever is killed in between."""

from __future__ import annotations

import random
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.proving.drivers import forget_commit
from tests.proving.tiers import sample
from tests.proving.triggers import start_available_now
from tests.spark.killing import STEPS, Faults, register_dying

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from tests.proving.sessions import Topic


class Query:
    """A streaming query from a topic into another, run until it has caught up."""

    def __init__(self, spark: SparkSession, source: Topic, folder: Path) -> None:
        self.spark = spark
        self.source = source
        self.out = source.another("out")
        self.checkpoint = folder / "checkpoint"
        self.format = "streamfactory"
        self.mode = "append"
        self.options: dict[str, str] = {}

    def frame(self, **options: str) -> DataFrame:
        reader = self.spark.readStream.format("streamfactory")
        reader = reader.options(**self.source.options, startingOffsets="earliest")
        return reader.options(**options).load()

    def writer(self, frame: DataFrame) -> DataStreamWriter:
        writer = frame.writeStream.format(self.format).outputMode(self.mode)
        writer = writer.options(**self.out.options).options(**self.options)
        return writer.option("checkpointLocation", str(self.checkpoint))

    def start(self, frame: DataFrame | None = None) -> StreamingQuery:
        writer = self.writer(self.frame() if frame is None else frame)
        return start_available_now(writer)

    def run(self, frame: DataFrame | None = None) -> StreamingQuery:
        query = self.start(frame)
        assert query.awaitTermination(400)
        return query

    def failure(self, frame: DataFrame | None = None) -> str:
        """What the user reads of a run that fails."""
        from pyspark.errors import StreamingQueryException

        with pytest.raises(StreamingQueryException) as caught:
            self.run(frame)
        return str(caught.value)

    def forget_commit(self) -> None:
        """As when the driver died between the sink's commit and its own."""
        forget_commit(self.checkpoint)

    def staged(self) -> int:
        """How many files its tasks have begun."""
        found = 0
        for incarnation in (self.out.root / "topics" / "out.topic").glob("*"):
            # Of two tasks that create the topic, one removes its folder again.
            with suppress(FileNotFoundError, NotADirectoryError):
                found += len([*(incarnation / "data").iterdir()])
        return found


@pytest.fixture
def query(spark: SparkSession, topic: Topic, tmp_path: Path) -> Query:
    return Query(spark, topic, tmp_path)


@pytest.fixture
def faults(spark: SparkSession, tmp_path: Path) -> Faults:
    (tmp_path / "faults").mkdir()
    ordered = Faults(tmp_path / "faults")
    register_dying(spark, ordered)
    return ordered


def fill(topic: Topic, epochs: int = 4, rows: int = 30) -> list[int]:
    for epoch in range(epochs):
        numbers = [*range(epoch * rows, (epoch + 1) * rows)]
        topic.write(id=numbers, _partition=[n % 3 for n in numbers])
    return [*range(epochs * rows)]


@pytest.mark.parametrize("step", sample(STEPS, "a query is killed and restarted"))
def test_a_kill_between_any_two_steps_loses_nothing_and_repeats_nothing(
    query: Query, topic: Topic, faults: Faults, step: str
) -> None:
    rows = fill(topic)
    query.format = "dying"
    limited = {"maxOffsetsPerTrigger": "30"}
    faults.order(step, passes=3 if step in STEPS[:2] else 1)
    assert "crashed" in query.failure(query.frame(**limited))
    assert faults.left == []
    query.run(query.frame(**limited))
    assert query.out.column("id") == rows


@pytest.mark.long("three kills of a query")
def test_kills_at_random_lose_nothing_and_repeat_nothing(
    query: Query, topic: Topic, faults: Faults
) -> None:
    from pyspark.errors import StreamingQueryException

    rows = fill(topic, epochs=8)
    query.format = "dying"
    chance = random.Random(20261121)
    for _ in range(3):
        faults.order(chance.choice(STEPS), passes=chance.randint(0, 2))
        running = query.start(query.frame(maxOffsetsPerTrigger="30"))
        with suppress(StreamingQueryException):
            assert running.awaitTermination(400)
        if chance.random() < 0.3:
            query.forget_commit()
    faults.cancel()
    query.run()
    assert query.out.column("id") == rows


@pytest.mark.long("several queries")
def test_a_replay_with_other_tasks_and_other_content_keeps_the_first_commit(
    query: Query, topic: Topic
) -> None:
    fill(topic)
    query.options["epoch.mismatch"] = "fail"
    query.run(query.frame().selectExpr("id", "rand() as luck"))
    first = query.out.rows()
    query.options["epoch.mismatch"] = "warn"
    for tasks in (5, 1):
        query.forget_commit()
        frame = query.frame().selectExpr("id", "rand() as luck")
        query.run(frame.repartition(tasks))
        assert query.out.rows() == first
    query.forget_commit()
    query.options["epoch.mismatch"] = "fail"
    message = query.failure(query.frame().selectExpr("id", "rand() as luck"))
    assert "[epoch_mismatch] epoch 0 was repeated with other content" in message


@pytest.mark.long("a stateful query that is replayed")
def test_the_state_above_a_replayed_epoch_stays_whole(
    query: Query, topic: Topic
) -> None:
    # A writer that does not read its input to the end leaves no state files. It takes
    # tens of megabytes in a task for the ones above it not to be done by themselves.
    topic.write(id=[*range(50)], _partition=[n % 3 for n in range(50)])
    wide = "repeat(cast(id % 10 as string), 2000000) as text"

    def frame() -> DataFrame:
        return query.frame().dropDuplicates(["id"]).selectExpr("id", wide)

    query.run(frame())
    query.forget_commit()
    shutil.rmtree(query.checkpoint / "state")
    query.run(frame())
    topic.write(id=[*range(40, 60)])
    query.run(frame())
    found: list[Any] = [(r["id"], len(r["text"])) for r in query.out.rows()]
    assert sorted(found) == [(n, 2_000_000) for n in range(60)]


@pytest.mark.long("a stateful query")
def test_complete_output_replaces_what_was_there(query: Query, topic: Topic) -> None:
    query.mode = "complete"
    fill(topic, epochs=1)
    query.run(query.frame().groupBy().count())
    assert query.out.column("count") == [30]
    query.forget_commit()
    topic.write(id=[1, 2])
    query.run(query.frame().groupBy().count())
    assert query.out.column("count") == [32]


def test_update_output_is_refused_by_spark(query: Query, topic: Topic) -> None:
    fill(topic, epochs=1)
    query.mode = "update"
    message = query.failure(query.frame().groupBy("id").count())
    assert "streamfactory does not support Update mode" in message


@pytest.mark.long("several queries")
def test_two_queries_of_one_sink_write_both(
    query: Query, topic: Topic, tmp_path: Path
) -> None:
    rows = fill(topic, epochs=2)
    query.run()
    query.checkpoint = tmp_path / "another"
    query.run()
    assert query.out.column("id") == sorted(rows * 2)


@pytest.mark.long("four queries")
def test_a_query_stopped_within_an_epoch_continues(query: Query, topic: Topic) -> None:
    rows = fill(topic)
    query.options["stream.file.inline.bytes"] = "0"  # rows that are seen while staged
    staged = 0
    for _ in range(3):
        running = query.start(query.frame(maxOffsetsPerTrigger="15"))
        deadline = time.monotonic() + 60
        while query.staged() <= staged and running.isActive:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        running.stop()
        staged = query.staged()
    query.run()
    assert query.out.column("id") == rows


@pytest.mark.long("several queries")
def test_a_rewound_checkpoint_is_refused_and_another_writer_continues(
    query: Query, topic: Topic, tmp_path: Path
) -> None:
    topic.write(id=[0])
    query.run()
    shutil.copytree(query.checkpoint, tmp_path / "old")
    for number in (1, 2):
        topic.write(id=[number])
        query.run()
    query.checkpoint = tmp_path / "old"
    message = query.failure(query.frame(maxOffsetsPerTrigger="1"))
    assert (
        "[epoch_in_the_past] epoch 1 is older than the last committed one, 2" in message
    )
    assert "the checkpoint is older than the committed epochs" in message
    assert query.out.column("id") == [0, 1, 2]
    query.options |= {"writer.id": "again", "epoch.adopt": "1"}
    query.run()
    assert query.out.column("id") == [0, 1, 1, 2, 2]


@pytest.mark.long("several queries")
def test_the_name_of_a_writer_outlives_its_checkpoint(
    query: Query, topic: Topic
) -> None:
    topic.write(id=[0])
    query.options["writer.id"] = "clicks"
    query.run()
    topic.write(id=[1])
    query.run()
    shutil.rmtree(query.checkpoint)
    message = query.failure()
    assert (
        "[epoch_in_the_past] epoch 0 is older than the last committed one, 1" in message
    )
    assert query.out.column("id") == [0, 1]


def test_a_sink_without_the_epoch_before_has_to_be_adopted(
    query: Query, topic: Topic
) -> None:
    topic.write(id=[0])
    query.run()
    topic.write(id=[1])
    query.out = topic.another("elsewhere")
    message = query.failure()
    assert "[epoch_marker_lost] the last epoch before 1 of writer" in message
    assert "`epoch.adopt`" in message
    query.options["epoch.adopt"] = "1"
    query.run()
    assert query.out.column("id") == [1]


def test_an_epoch_without_rows_counts_as_one(query: Query, topic: Topic) -> None:
    topic.write(id=[0])
    query.run(query.frame().where("id > 0"))
    assert query.out.rows() == []
    topic.write(id=[1])
    query.run(query.frame().where("id > 0"))
    assert query.out.column("id") == [1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epoch": "3"}, "Spark numbers the epochs of a streaming query"),
        ({"guarantee": "exactly-once"}, "[guarantee_refused]"),
        ({"writer.idd": "x"}, "did you mean writer.id?"),
    ],
)
def test_wrong_options_of_a_query_are_reported(
    query: Query, topic: Topic, options: dict[str, str], message: str
) -> None:
    topic.write(id=[0])
    query.options |= options
    assert message in query.failure()
    assert not (topic.root / "topics" / "out.topic").exists()


def test_rows_that_do_not_fit_stop_the_query_before_a_task_runs(
    query: Query, topic: Topic
) -> None:
    topic.write(id=[0])
    query.out.write(id=[[1]])
    message = query.failure()
    assert "[schema_mismatch] column 'id' is bigint, declared array<" in message
    assert query.out.rows() == [{"id": [1]}]


@pytest.mark.long("a stateful query")
def test_update_output_by_batches_that_are_named_counts_once(
    query: Query, topic: Topic
) -> None:
    fill(topic, epochs=2)
    query.mode = "update"

    def each(frame: DataFrame, epoch: int) -> None:
        writer = frame.write.format("streamfactory").options(**query.out.options)
        writer = writer.options(**{"writer.id": "counts", "epoch": str(epoch)})
        writer.mode("append").save()

    def run() -> None:
        counts = query.frame(maxOffsetsPerTrigger="30").groupBy().count()
        writer = counts.writeStream.outputMode("update").foreachBatch(each)
        writer = writer.option("checkpointLocation", str(query.checkpoint))
        assert start_available_now(writer).awaitTermination(400)

    run()
    query.forget_commit()
    run()
    assert query.out.column("count") == [30, 60]
