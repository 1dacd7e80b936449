"""Receivers inside of the driver: in a query on Spark, and in a pipeline."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.spool.receiving import quick_spool

import streamfactory
from streamfactory.backends.zeromq.harness import ZeromqHarness
from streamfactory.spark.pipelines.together import Pipelines
from streamfactory.spi import TopicNotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long("queries of Spark")
DEADLINE = 120.0


@pytest.fixture
def sender(tmp_path: Path) -> Iterator[ZeromqHarness]:
    """Keeps what the receiver has not acknowledged."""
    made = ZeromqHarness(tmp_path)
    made.create(2)
    yield made
    made.close()


def embedded(sender: ZeromqHarness, folder: Path) -> dict[str, str]:
    """A stream that is received where it is read."""
    return {
        **sender.properties(),
        **quick_spool(folder),
        "spool.receiver": "embedded",
    }


def target(folder: Path) -> dict[str, str]:
    return {
        "streamType": "file",
        "stream.file.path": str(folder / "out"),
        "stream.file.topic.name": "out",
        "stream.file.fsync": "never",
    }


def numbers(properties: dict[str, str]) -> list[int]:
    try:
        with streamfactory.open(properties) as opened:
            found: list[int] = opened.to_reader().read_all()["number"].to_pylist()
    except TopicNotFound:
        return []
    return sorted(found)


def until(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


def test_a_query_receives_what_it_reads_and_continues_after_a_restart(
    spark: SparkSession, sender: ZeromqHarness, tmp_path: Path
) -> None:
    source, sink = embedded(sender, tmp_path), target(tmp_path)

    def start() -> Any:
        frame = (
            spark.readStream.format("streamfactory")
            .options(**source, startingOffsets="earliest")
            .load()
        )
        return (
            frame.writeStream.format("streamfactory")
            .options(**sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="200 milliseconds")
            .start()
        )

    sender.write(0, range(300))
    query = start()
    try:
        until(lambda: numbers(sink) == [*range(300)], lambda: query.lastProgress)
        sender.write(1, range(300, 500))
        until(lambda: numbers(sink) == [*range(500)], lambda: query.lastProgress)
    finally:
        query.stop()
    sender.write(0, range(500, 600))
    query = start()
    try:
        until(lambda: numbers(sink) == [*range(600)], lambda: query.lastProgress)
    finally:
        query.stop()
    # Acknowledged is what is in the spool: nothing is sent a second time.
    until(lambda: sender.acknowledged() == {0: 400, 1: 200}, sender.acknowledged)


def test_a_pipeline_receives_what_it_reads(
    spark: SparkSession, sender: ZeromqHarness, tmp_path: Path
) -> None:
    streams = tmp_path / "configs" / "streams"
    streams.mkdir(parents=True)
    for name, given in (("in", embedded(sender, tmp_path)), ("out", target(tmp_path))):
        body = {"name": name, "properties": given}
        (streams / f"{name}.json").write_text(json.dumps(body))
    path = tmp_path / "double.toml"
    path.write_text(
        'checkpoint = "checkpoints/double"\n'
        '[source]\nstream = "in"\nstartingOffsets = "earliest"\n'
        '[[steps]]\nid = "a"\nsql = "select number * 2 as number from input"\n'
        '[[sinks]]\nstream = "out"\n'
    )
    sender.write(0, range(100))
    sender.write(1, range(100, 200))
    wanted = [number * 2 for number in range(200)]

    def run() -> bool:
        # What was not received before a run chose its end is left to the next one.
        [outcome] = Pipelines([path]).run(spark)
        assert outcome.failure is None
        return numbers(target(tmp_path)) == wanted

    until(run, lambda: numbers(target(tmp_path)))
