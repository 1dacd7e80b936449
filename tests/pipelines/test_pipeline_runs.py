"""Pipelines on a real Spark: what comes out, how often, and how they end."""

from __future__ import annotations

import threading
import time
import warnings
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from tests.pipelines.conftest import SINK
from tests.proving.commands import command_of

import streamfactory
from streamfactory.spark.pipelines.overriding import Overrides
from streamfactory.spark.pipelines.together import Pipelines
from streamfactory.spark.versions import ADMISSION
from streamfactory.spi import ConfigError
from streamfactory.wiring.metrics.batches import FinishedBatch, batches

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession
    from tests.pipelines.conftest import Works

    from streamfactory.spark.pipelines.outcomes import Batch

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
COUNTS = """
[[steps]]
id = "counts"
sql = "select word, count(*) as n from input group by word"
"""


def test_a_single_sink_is_written_by_spark_itself(
    spark: SparkSession, works: Works
) -> None:
    rows, out = works.topic("in"), works.topic("out")
    rows.write(id=[*range(10)])
    path = works.pipeline(
        '[[steps]]\nid = "a"\nsql = "select id * 2 as id from input"\n' + SINK
    )
    first = works.succeed(spark, path)
    assert (first.rows, first.stopped) == (10, False)
    assert first.went_on == "there is no checkpoint: starts as the stream is configured"
    rows.write(id=[10])
    second = works.succeed(spark, path)
    assert second.rows == 1
    assert second.went_on == "continues from the checkpoint"
    assert out.column("id") == [*range(0, 22, 2)]
    works.forget_commit()
    works.succeed(spark, path)
    assert out.column("id") == [*range(0, 22, 2)]
    (commit,) = works.commits("p", batch=1)
    assert [(p.topic, p.writes) for p in commit.partitions] == [("out", 1)]
    first_batch = works.batches[0]
    assert (first_batch.pipeline, first_batch.batch, first_batch.rows) == ("p", 0, 10)
    assert (
        first_batch.offsets == {"in": {"0": 10, "1": 0}}
        or sum(first_batch.offsets["in"].values()) == 10
    )
    assert first_batch.behind == 0
    assert first_batch.seconds > first_batch.durations.write > 0
    assert first_batch.durations.plan > 0
    assert first_batch.durations.checkpoint > 0


def test_each_batch_is_reported_to_traces(spark: SparkSession, works: Works) -> None:
    rows, _ = works.topic("in"), works.topic("out")
    rows.write(id=[*range(10)])
    path = works.pipeline(SINK, file="traced")
    reported: list[FinishedBatch] = []
    batches.subscribe(reported.append)
    try:
        works.succeed(spark, path)
        rows.write(id=[10])
        works.succeed(spark, path)
    finally:
        batches.subscribe(None)
    first, second = reported
    assert [(one.job, one.name, one.epoch, one.rows) for one in reported] == [
        ("pipeline", "traced", 0, 10),
        ("pipeline", "traced", 1, 1),
    ]
    assert sum(one.end - (one.start or 0) for one in first.ranges) == 10
    (grown,) = second.ranges
    assert grown.start is not None
    assert grown.end - grown.start == 1
    assert (first.source.system, first.source.topic) == ("file", "in")
    assert [sink.topic for sink in first.sinks] == ["out"]
    assert first.begin < first.committing < first.end <= second.begin


@pytest.mark.long("three runs of a pipeline")
def test_the_metrics_of_a_pipeline_are_those_of_its_batches(
    spark: SparkSession, works: Works
) -> None:
    rows, _ = works.topic("in"), works.topic("out")
    rows.write(id=[*range(10)])
    path = works.pipeline(SINK, file="counted")

    def counted(name: str, **labels: str) -> float | None:
        found = streamfactory.metrics()
        return found.value(f"pipeline.{name}", pipeline="counted", **labels)

    assert counted("rows") == counted("batches") == 0
    begun = time.time()
    works.succeed(spark, path)
    assert [counted("rows"), counted("batches"), counted("failures")] == [10, 1, 0]
    first_batch = works.batches[0]
    assert counted("batch.seconds") == first_batch.seconds
    assert counted("plan.seconds") == first_batch.durations.plan
    assert counted("write.seconds") == first_batch.durations.write
    assert counted("checkpoint.seconds") == first_batch.durations.checkpoint
    assert counted("late.rows") == 0
    # The counts of workers, which are other processes.
    assert counted("written.rows", sink="out") == 10
    assert counted("written.bytes", sink="out") == 80
    assert counted("dead.letters") == counted("failed.attempts") == 0
    seen: dict[str, float | None] = {}

    def look(batch: Batch) -> None:
        names = ("running", "epoch", "lag.offsets", "last.trigger.seconds")
        for name in names:
            seen[name] = counted(name)
        seen["next"] = counted("next.offset", topic="in", partition="0")

    rows.write(id=[10])
    Pipelines([path], Overrides()).run(spark, on_batch=look)
    assert counted("rows") == 11
    assert [seen["running"], seen["epoch"]] == [1, 1]
    assert seen["lag.offsets"] == (0 if ADMISSION else None)
    assert seen["next"] in (5, 6, 10, 11)
    assert begun <= (seen["last.trigger.seconds"] or 0) <= time.time()
    dividing = '[[steps]]\nid = "a"\nsql = "select 9 div (id - 7) as id from input"\n'
    path = works.pipeline(dividing + SINK, file="counted")
    rows.write(id=[7])
    assert works.run(spark, path)[0].failure is not None
    assert [counted("failures"), counted("running"), counted("rows")] == [1, None, 11]


@pytest.mark.long("a stateful query")
def test_update_mode_leaves_the_last_row_of_each_key(
    spark: SparkSession, works: Works
) -> None:
    rows, out = works.topic("in"), works.topic("out")
    rows.write(word=["a", "b", "a"])
    path = works.pipeline(COUNTS + SINK, output_mode="update")
    works.succeed(spark, path)
    rows.write(word=["a"])
    works.succeed(spark, path)
    works.forget_commit()
    works.succeed(spark, path)
    assert sorted((row["word"], row["n"]) for row in out.rows()) == [
        ("a", 2),
        ("a", 3),
        ("b", 1),
    ]


@pytest.mark.long("a stateful query")
@pytest.mark.parametrize("sinks", [1, 2])
def test_complete_mode_replaces_what_was_there(
    spark: SparkSession, works: Works, sinks: int
) -> None:
    rows, out, other = works.topic("in"), works.topic("out"), works.topic("other")
    rows.write(word=["a", "b", "a"])
    text = COUNTS + SINK + '[[sinks]]\nstream = "other"\n' * (sinks - 1)
    path = works.pipeline(text, output_mode="complete")
    works.succeed(spark, path)
    rows.write(word=["a"])
    works.succeed(spark, path)
    for topic in (out, other)[:sinks]:
        found = sorted((row["word"], row["n"]) for row in topic.rows())
        assert found == [("a", 3), ("b", 1)]


BRANCHES = """
[[steps]]
id = "words"
sql = "select id, upper(word) as word from input"
[[steps]]
id = "even"
sql = "select id from words where id % 2 = 0"
[[steps]]
id = "odd"
sql = "select id, 9 div (id - 7) as part from words where id % 2 = 1"
[[sinks]]
stream = "out"
from = "even"
[[sinks]]
stream = "other"
from = "odd"
[[sinks]]
stream = "third"
name = "all"
from = "words"
"""


@pytest.mark.long("three runs of a pipeline with three sinks")
def test_each_of_several_sinks_gets_each_row_once(
    spark: SparkSession, works: Works
) -> None:
    rows, out, other = works.topic("in"), works.topic("out"), works.topic("other")
    third = works.topic("third")
    path = works.pipeline(BRANCHES)
    rows.write(id=[*range(6)], word=[*"abcdef"])
    works.succeed(spark, path)
    rows.write(id=[6, 7], word=["g", "h"])
    (failed,) = works.run(spark, path)
    assert failed.failure is not None
    assert failed.failure.startswith("[DIVIDE_BY_ZERO] ")
    # The sinks that do not fail have the batch, and take no second copy later.
    assert out.column("id") == [0, 2, 4, 6]
    assert other.column("id") == [1, 3, 5]
    assert third.column("id") == [*range(8)]
    path.write_text(path.read_text().replace("id - 7", "id - 8"))
    rows.write(id=[8, 9], word=["i", "j"])
    last = works.succeed(spark, path)
    assert last.rows == 4
    assert out.column("id") == [0, 2, 4, 6, 8]
    assert other.column("id") == [1, 3, 5, 7, 9]
    assert third.column("word") == [*"ABCDEFGHIJ"]
    written = {
        one.sink: (sum(part.writes for part in one.partitions), one.failed_attempts)
        for one in works.commits("p", batch=2)
    }
    assert written == {"out": (1, 0), "other": (1, 0), "all": (2, 0)}
    written = {
        one.sink: (sum(part.writes for part in one.partitions), one.failed_attempts)
        for one in works.commits("p", batch=1)
    }
    assert written == {"out": (1, 0), "other": (1, 1), "all": (2, 0)}


@pytest.mark.long("several pipelines on Spark")
def test_a_sink_that_is_added_reports_where_it_begins(
    spark: SparkSession, works: Works
) -> None:
    rows, out, other = works.topic("in"), works.topic("out"), works.topic("other")
    rows.write(id=[1])
    path = works.pipeline(SINK, output_mode="update")
    works.succeed(spark, path)
    rows.write(id=[2])
    works.pipeline(SINK + '[[sinks]]\nstream = "other"\n', output_mode="update")
    (failed,) = works.run(spark, path)
    assert failed.failure is not None
    begin = "[epoch_marker_lost] the last epoch before 1 of writer "
    assert failed.failure.startswith(begin)
    works.pipeline(
        SINK + '[[sinks]]\nstream = "other"\n"epoch.adopt" = 1\n', output_mode="update"
    )
    works.succeed(spark, path)
    assert out.column("id") == [1, 2]
    assert other.column("id") == [2]


@pytest.mark.long("two sinks on one topic")
def test_writers_are_known_by_query_and_sink(spark: SparkSession, works: Works) -> None:
    rows, out = works.topic("in"), works.topic("out")
    rows.write(id=[1])
    text = '[[sinks]]\nstream = "out"\n[[sinks]]\nstream = "out"\nname = "again"\n'
    path = works.pipeline(text + '"writer.id" = "mine"\n')
    works.succeed(spark, path)
    assert out.column("id") == [1, 1]
    with out._log() as log:
        query = works.query_id("p")
        assert [log.last(name) is not None for name in (f"{query}/out", "mine")] == [
            True,
            True,
        ]


# --- triggers and ends ----------------------------------------------------------


class Watch:
    """Acts on what a run tells, in the run's own thread."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.acts: dict[int, Callable[[], Any]] = {}
        self.batches: list[int] = []
        self.rows = 0

    def tell(self, batch: Any) -> None:
        self.batches.append(batch.batch)
        self.rows += batch.rows
        act = self.acts.pop(len(self.batches) - 1, None)
        if act is not None:
            act()


@pytest.mark.long("several rounds of a pipeline")
def test_back_to_back_ends_after_rounds_without_rows(
    spark: SparkSession, works: Works
) -> None:
    rows, out, watch = works.topic("in"), works.topic("out"), Watch()
    rows.write(id=[1])
    watch.acts[0] = lambda: rows.write(id=[2])
    path = works.pipeline(SINK, trigger="back-to-back", idle_stop_rounds=2)
    (outcome,) = Pipelines([path]).run(spark, on_batch=watch.tell)
    assert (outcome.failure, outcome.stopped) == (None, False)
    assert (outcome.rows, outcome.batches) == (2, 2)
    assert out.column("id") == [1, 2]


def test_a_period_ends_after_rounds_without_rows(
    spark: SparkSession, works: Works
) -> None:
    works.topic("in").write(id=[1])
    works.topic("out")
    path = works.pipeline(SINK, trigger="300ms", idle_stop_rounds=3)
    begun = time.monotonic()
    (outcome,) = Pipelines([path]).run(spark)
    assert (outcome.failure, outcome.batches) == (None, 1)
    assert time.monotonic() - begun > 0.9


def test_a_stop_lets_the_batch_finish(spark: SparkSession, works: Works) -> None:
    rows, out, watch = works.topic("in"), works.topic("out"), Watch()
    rows.write(id=[1])

    def stop() -> None:
        watch.stop.set()
        rows.write(id=[2])

    watch.acts[0] = stop
    path = works.pipeline(SINK, trigger="back-to-back")
    (outcome,) = Pipelines([path]).run(spark, watch.stop, watch.tell)
    assert (outcome.failure, outcome.stopped) == (None, True)
    found = out.column("id")
    assert sum(1 for _ in found) == outcome.rows
    (outcome,) = works.run(spark, path, pace="once")
    assert outcome.failure is None
    assert out.column("id") == [1, 2]


@pytest.mark.long("a run of several batches")
def test_available_now_stops_early_on_request(
    spark: SparkSession, works: Works
) -> None:
    rows, out, watch = works.topic("in"), works.topic("out"), Watch()
    rows.write(id=[*range(60)])
    watch.acts[0] = watch.stop.set
    source = '[source]\nstream = "in"\nstartingOffsets = "earliest"\n'
    path = works.pipeline(source + "maxOffsetsPerTrigger = 2\n" + SINK)
    (outcome,) = Pipelines([path]).run(spark, watch.stop, watch.tell)
    assert (outcome.failure, outcome.stopped) == (None, True)
    assert 0 < outcome.rows < 60
    assert len(out.column("id")) == outcome.rows
    path.write_text(path.read_text().replace("Trigger = 2", "Trigger = 100"))
    assert works.succeed(spark, path).rows == 60 - outcome.rows
    assert out.column("id") == [*range(60)]


def test_a_stream_without_rows_is_read_to_its_end(
    spark: SparkSession, works: Works
) -> None:
    works.topic("in").put(pa.table({"id": pa.array([], pa.int64())}))
    works.topic("out")
    outcome = works.succeed(spark, works.pipeline(SINK))
    assert (outcome.complete, outcome.rows) == (True, 0)


@pytest.mark.long("a stateful query")
def test_late_rows_are_counted_and_reported(
    spark: SparkSession, works: Works, caplog: pytest.LogCaptureFixture
) -> None:
    rows, out = works.topic("in", partitions=1), works.topic("out")
    rows.write(at=[NOON, NOON + timedelta(hours=5)])
    path = works.pipeline(
        '[source]\nstream = "in"\nstartingOffsets = "earliest"\n'
        '"watermark.column" = "at"\n"watermark.delay" = "1 hour"\n'
        '[[steps]]\nid = "hours"\n'
        "sql = \"select window(at, '1 hour').start as hour, count(*) as n from input "
        "group by window(at, '1 hour')\"\n" + SINK
    )
    works.succeed(spark, path)
    assert [(row["hour"], row["n"]) for row in out.rows()] == [(NOON, 1)]
    rows.write(at=[NOON])
    outcome = works.succeed(spark, path)
    assert outcome.dropped == 1
    assert works.batches[-1].watermark == "2024-01-01T16:00:00.000Z"
    assert "1 rows or groups came after the watermark" in caplog.text
    assert len(out.rows()) == 1


# --- several pipelines ----------------------------------------------------------


@pytest.mark.long("several pipelines on Spark")
def test_one_that_fails_hinders_no_other_one(spark: SparkSession, works: Works) -> None:
    works.topic("in").write(id=[*range(40)])
    out, other = works.topic("out"), works.topic("other")
    source = '[source]\nstream = "in"\nstartingOffsets = "earliest"\n'
    source += "maxOffsetsPerTrigger = 20\n"
    bad = '[[steps]]\nid = "a"\nsql = "select 1 div (id - 3) as id from input"\n'
    paths = [
        works.pipeline(source + bad + SINK, "bad"),
        works.pipeline(source + '[[sinks]]\nstream = "other"\n', "good"),
    ]
    bad_one, good = works.run(spark, *paths)
    assert bad_one.failure is not None
    assert bad_one.failure.startswith("[DIVIDE_BY_ZERO] Division by zero")
    assert "\n" not in bad_one.failure
    assert (good.pipeline, good.failure, good.rows) == ("good", None, 40)
    assert other.column("id") == [*range(40)]
    assert out.rows() == []


# --- where a run begins ---------------------------------------------------------


@pytest.mark.long("three pipelines on Spark")
def test_overrides_hold_once(spark: SparkSession, works: Works) -> None:
    rows, out = works.topic("in"), works.topic("out")
    rows.write(id=[1, 2])
    path = works.pipeline(SINK)
    works.succeed(spark, path)
    rows.write(id=[3])
    again = works.succeed(spark, path, reset="earliest")
    assert again.went_on == "--reset is new: starts at earliest"
    assert out.column("id") == [1, 1, 2, 2, 3]
    same = works.succeed(spark, path, reset="earliest")
    assert same.went_on == "--reset was applied before: continues from the checkpoint"
    assert same.rows == 0
    late = works.succeed(spark, path, reset="latest")
    assert late.rows == 0
    rows.write(id=[4])
    works.succeed(spark, path, reset="latest")
    assert out.column("id") == [1, 1, 2, 2, 3, 4]
    fresh = works.succeed(spark, path, ignore="monday")
    assert fresh.rows == 4


@pytest.mark.slow("three pipelines on Spark")
@pytest.mark.long("four runs of a pipeline")
def test_a_rewound_pipeline_writes_again_what_was_shown(
    spark: SparkSession, works: Works, capsys: pytest.CaptureFixture[str]
) -> None:
    program = command_of(capsys, "checkpoint", "rewind")
    rows, out = works.topic("in", 1), works.topic("out")
    path = works.pipeline(SINK)
    rows.write(id=[1, 2])
    works.succeed(spark, path)
    rows.write(id=[3])
    works.succeed(spark, path)
    with Pipelines([path]).prepared(spark):
        refused = program(path, "--batch", "1", "--yes", "--json")
    assert (refused.status, refused.error["error"]) == (2, "misuse")
    done = program(path, "--batch", "1", "--yes", "--json")
    assert (done.status, done.json["again"]) == (0, 1)
    assert done.json["partitions"] == [
        {
            "topic": "in",
            "partition": 0,
            "before": 3,
            "after": 2,
            "again": 1,
            "skipped": 0,
        }
    ]
    again = works.succeed(spark, path)
    assert again.rows == 1
    assert "moved by `checkpoint rewind` to batch 1" in again.went_on
    assert out.column("id") == [1, 2, 3, 3]


def test_the_checkpoint_of_another_pipeline_is_refused(
    spark: SparkSession, works: Works
) -> None:
    works.topic("in").write(id=[1])
    out = works.topic("out")
    works.topic("other")
    works.succeed(spark, works.pipeline(SINK))
    second = works.pipeline(
        '[[sinks]]\nstream = "other"\n', "second", checkpoint="checkpoints/p"
    )
    third = works.pipeline(SINK, "third")
    with pytest.raises(ConfigError) as caught:
        Pipelines([second, third]).run(spark)
    (problem,) = caught.value.problems
    assert problem.what == (
        f"{works.folder}/checkpoints/p is the checkpoint of the pipeline 'p', not of "
        "'second'"
    )
    assert problem.origin == str(second)
    assert not (works.folder / "checkpoints" / "third" / "1").exists()
    assert out.column("id") == [1]


def test_a_session_of_spark_connect_is_refused(works: Works) -> None:
    with warnings.catch_warnings():
        # PySpark imports pandas 3, which it warns of.
        warnings.simplefilter("ignore")
        from pyspark.sql.connect.session import SparkSession as Remote
    path = works.pipeline(SINK)
    with pytest.raises(ConfigError) as caught:
        # There is nobody to talk to: it is refused before anything is asked.
        Pipelines([path]).run(cast("SparkSession", Remote.__new__(Remote)))
    assert str(caught.value) == (
        "pipelines do not support Spark Connect, which gives no access to the driver; "
        "run them where the driver is: streamfactory run --master ..."
    )
