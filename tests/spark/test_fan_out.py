"""One batch into several streams: each has it once, whichever of them failed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from streamfactory.spark import Branch, fan_out
from streamfactory.spark.fanout import FanOutFailed
from streamfactory.spi import ConfigError, MisuseError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

from tests.proving.sessions import Topic
from tests.proving.triggers import start_available_now


@pytest.fixture
def source(tmp_path: Path) -> Topic:
    return Topic(tmp_path, "in", **{"stream.file.partitions": "2"})


def run(
    spark: SparkSession,
    source: Topic,
    folder: Path,
    function: Callable[[DataFrame, int], None],
) -> str:
    """Process all rows by a function of `foreachBatch`; returns the query's id."""
    rows = spark.readStream.format("streamfactory").options(**source.options)
    frame = rows.option("startingOffsets", "earliest").load()
    writer = frame.writeStream.foreachBatch(function)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = start_available_now(writer)
    query.awaitTermination(400)
    return str(query.id)


def test_each_stream_has_every_row_once_although_one_of_them_failed(
    spark: SparkSession, source: Topic, tmp_path: Path
) -> None:
    good, late = source.another("good"), source.another("late")
    evens = Branch(late.options, select=lambda frame: frame.where("id % 2 = 0"))
    broken = threading.Event()

    def each(frame: DataFrame, epoch: int) -> None:
        if broken.is_set():
            wrong = Branch(late.options, select=lambda f: f.select("no_such_column"))
            fan_out(frame, epoch, streams=[wrong, good.options])
            return
        fan_out(frame, epoch, streams=[good.options, evens])

    source.write(id=[*range(10)])
    who = run(spark, source, tmp_path, each)
    source.write(id=[*range(10, 15)])
    broken.set()
    with pytest.raises(Exception, match="FanOutFailed"):
        run(spark, source, tmp_path, each)
    assert good.column("id") == [*range(15)]
    assert late.column("id") == [*range(0, 10, 2)]
    broken.clear()
    assert run(spark, source, tmp_path, each) == who
    assert good.column("id") == [*range(15)]
    assert late.column("id") == [*range(0, 15, 2)]
    with good._log() as log:
        assert log.last(f"{who}/good") is not None


def test_a_repeated_epoch_is_written_where_it_is_missing(
    spark: SparkSession, source: Topic
) -> None:
    a, b = source.another("a"), source.another("b")
    frame = spark.range(6)
    fan_out(frame, 0, streams=[a.options], query="q")
    for _ in range(2):
        fan_out(frame, 0, streams=[a.options, b.options], query="q")
    assert a.column("id") == b.column("id") == [*range(6)]


def test_the_frame_is_evaluated_once_for_all_streams(
    spark: SparkSession, source: Topic
) -> None:
    random = "java_method('java.util.UUID', 'randomUUID')"
    frame = spark.range(50).selectExpr(f"{random} as id")
    a, b = source.another("a"), source.another("b")
    fan_out(frame, 0, streams=[a.options, b.options], query="q")
    assert len(a.column("id")) == 50
    assert a.column("id") == b.column("id")
    assert not frame.is_cached


def test_a_frame_that_is_cached_stays_so(spark: SparkSession, source: Topic) -> None:
    frame = spark.range(3).persist()
    topics = [source.another(name) for name in ("a", "b")]
    try:
        fan_out(frame, 0, streams=[topic.options for topic in topics], query="q")
        assert frame.is_cached
    finally:
        frame.unpersist()


def test_a_failure_names_the_sinks_that_have_the_epoch(
    spark: SparkSession, source: Topic
) -> None:
    good, other = source.another("good"), source.another("other")
    other.write(name=["a"])
    with pytest.raises(FanOutFailed) as caught:
        fan_out(spark.range(3), 0, streams=[other.options, good.options], query="q")
    text = str(caught.value)
    assert text.startswith("epoch 0 of 'q': [schema_mismatch] column 'id' is not in ")
    assert text.endswith(
        "; written to 'good'; start the query again: sinks that have the epoch take "
        "no second copy"
    )
    assert good.column("id") == [0, 1, 2]


def test_invalid_streams_are_refused_together_and_nothing_is_written(
    spark: SparkSession, source: Topic
) -> None:
    good = source.another("good")
    bad: list[str | dict[str, str]] = [good.options, good.options]
    bad += ["no-such-stream", {"streamType": "fil"}]
    with pytest.raises(ConfigError) as caught:
        fan_out(spark.range(3), 0, streams=bad, query="q")
    text = str(caught.value)
    assert "no stream is named 'no-such-stream'" in text
    assert "'fil'" in text
    assert "2 sinks are named 'good'" in text
    assert not (source.root / "topics" / "good.topic").exists()
    with pytest.raises(ConfigError, match="streams: is empty"):
        fan_out(spark.range(3), 0, streams=[], query="q")
    with pytest.raises(MisuseError, match="set query to a name of its own"):
        fan_out(spark.range(3), 0, streams=[good.options])
