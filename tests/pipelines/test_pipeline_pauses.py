"""Pipelines that are paused: they wait at the end of a batch, and lose no row."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from tests.pipelines.conftest import SINK

from streamfactory.spark.pipelines.overriding import Overrides
from streamfactory.spark.pipelines.together import Pipelines
from streamfactory.spi import TopicNotFound
from streamfactory.wiring.controls.states import Controls, JobState, Pause

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession
    from tests.pipelines.conftest import Works
    from tests.proving.sessions import Topic

    from streamfactory.spark.pipelines.outcomes import Outcome

PAUSE = Pause("2026-11-29T03:00:00.000Z", "ann", "disk")
JOB = "pipeline/p"


def until(condition: Callable[[], object], shown: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, shown()
        time.sleep(0.05)


def ids(out: Topic) -> list[int]:
    try:
        return sorted(out.column("id"))
    except TopicNotFound:  # it is created by the first batch
        return []


def test_pipeline_waits_without_a_query_and_continues(
    spark: SparkSession, works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMFACTORY_CONTROLS", str(tmp_path / "controls"))
    rows, out = works.topic("in"), works.topic("out")
    rows.write(id=[0, 1])
    path, controls = works.pipeline(SINK, trigger="100ms"), Controls()
    controls.change(JOB, lambda _: JobState(PAUSE))
    stop = threading.Event()
    found: list[Outcome] = []
    pipelines = Pipelines([path], Overrides())

    def run() -> None:
        jvm: Any = spark._jvm
        # Spark looks a data source up in the active session of the thread.
        active = jvm.org.apache.spark.sql.classic.SparkSession
        active.setActiveSession(spark._jsparkSession)
        found.extend(pipelines.run(spark, stop, on_batch=works.batches.append))

    runs = threading.Thread(target=run, daemon=True)
    runs.start()

    def shown() -> object:
        active = [one.status for one in spark.streams.active]
        return found, runs.is_alive(), active, works.batches

    try:
        until((works.folder / "checkpoints" / "p").exists, shown)
        time.sleep(1)
        assert works.batches == []  # paused from the start
        controls.change(JOB, lambda _: JobState())
        until(lambda: ids(out) == [0, 1] or found, shown)
        controls.change(JOB, lambda _: JobState(PAUSE))
        until(lambda: not spark.streams.active and works.batches, shown)
        rows.write(id=[2, 3])
        time.sleep(1)
        assert ids(out) == [0, 1]
        controls.change(JOB, lambda _: JobState())
        until(lambda: ids(out) == [0, 1, 2, 3] or found, shown)
    finally:
        stop.set()
        runs.join(120)
    [outcome] = found
    assert (outcome.failure, outcome.pause, outcome.stopped) == (None, None, True)
    assert sum(batch.rows for batch in works.batches) == outcome.rows
    assert len({batch.batch for batch in works.batches}) == len(works.batches)
    # A run that would end by itself does not begin, and begins after it.
    controls.change(JOB, lambda _: JobState(PAUSE))
    rows.write(id=[4])
    [paused] = works.run(spark, path, pace="once")
    assert (paused.complete, paused.pause, paused.batches) == (False, PAUSE, 0)
    controls.change(JOB, lambda _: JobState())
    works.succeed(spark, path, pace="once")
    assert ids(out) == [0, 1, 2, 3, 4]
