"""Metrics of a pipeline's workers, from commit records and progress reports."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from streamfactory.spark.checkpoints import PipelineCheckpoint
from streamfactory.spark.pipelines import progress
from streamfactory.spark.pipelines.counting import PipelineTally
from streamfactory.spark.pipelines.progress import Scan, batch_of
from streamfactory.spark.pipelines.tracing import PipelineTracer
from streamfactory.spi import Partition
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.metrics.batches import FinishedBatch, OffsetRange, batches
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.writing.counting import PartitionCounts

if TYPE_CHECKING:
    from collections.abc import Iterator

REPORT = (Path(__file__).parent / "progress.json").read_text("utf-8")


@pytest.fixture
def checkpoint(tmp_path: Path) -> PipelineCheckpoint:
    return PipelineCheckpoint.open(str(tmp_path), "p", {}, reset=None)


@pytest.fixture
def reported() -> Iterator[list[FinishedBatch]]:
    found: list[FinishedBatch] = []
    batches.subscribe(found.append)
    yield found
    batches.subscribe(None)


def counted(tally: PipelineTally) -> dict[tuple[str, ...], float]:
    return {
        (sample.metric.name, *sample.labels): sample.number
        for sample in tally.counters()
        if "written" in sample.metric.name
        or sample.metric.name in ("pipeline.dead.letters", "pipeline.failed.attempts")
    }


def test_rows_that_workers_wrote_are_counted_by_sink(
    checkpoint: PipelineCheckpoint,
) -> None:
    out = checkpoint.ledger("out")
    bad = checkpoint.ledger("bad", dead_letters=True)
    tally = PipelineTally("p")
    assert set(counted(tally).values()) == {0}
    out.record_failure(4)
    out.record(4, [PartitionCounts("o", 0, 5, size=50), PartitionCounts("o", 1, 2)])
    bad.record(4, [PartitionCounts("b", 0, 3, size=30)])
    out.record(5, [PartitionCounts("o", 0, 1, size=10)])
    bad.record(5, [])
    for batch in (4, 5):
        for ledger in (out, bad):
            commit = ledger.read(batch)
            assert commit is not None
            tally.wrote(commit)
    assert counted(tally) == {
        ("pipeline.written.rows", "p", "out"): 8,
        ("pipeline.written.bytes", "p", "out"): 60,
        ("pipeline.written.rows", "p", "bad"): 3,
        ("pipeline.written.bytes", "p", "bad"): 30,
        ("pipeline.dead.letters", "p"): 3,
        ("pipeline.failed.attempts", "p"): 1,
    }


def test_rows_that_do_not_fulfil_an_expectation_add_up_over_all_batches() -> None:
    tally = PipelineTally("p")
    batch = batch_of("p", REPORT, [Scan("input")])
    for counts in ({"x": 2}, {}, {"x": 1, "y": 0}):
        tally.add(replace(batch, expectations=counts))
    found = [one for one in tally.counters() if one.metric.name.endswith("unmet.rows")]
    assert {one.labels: one.number for one in found} == {("p", "x"): 3, ("p", "y"): 0}


def test_a_batch_without_a_record_is_not_that_of_another(
    checkpoint: PipelineCheckpoint,
) -> None:
    ledger = checkpoint.ledger("out")
    assert ledger.read(3) is None
    ledger.record(3, [PartitionCounts("o", 0, 5)])
    assert ledger.read(103) is None  # its record would have the same file
    assert ledger.read(3) is not None


def prepared() -> Any:
    """What a tracer reads of a prepared pipeline."""
    definition = from_mapping(
        {"streamType": "memory", "stream.memory.topic.name": "in"}
    )
    configured = configure(definition, default_manager(), use="read")
    pipeline = SimpleNamespace(name="p", all_sinks=(), tables=())
    return SimpleNamespace(pipeline=pipeline, sources={"input": configured})


def test_a_batch_is_reported_with_its_source_range_and_times(
    reported: list[FinishedBatch],
) -> None:
    batch = batch_of("p", REPORT, [Scan("input")])
    assert (batch.starts, batch.offsets) == (
        {"in": {"0": 0, "1": 0}},
        {"in": {"0": 10, "1": 0}},
    )
    PipelineTracer(prepared()).committed(batch)
    (found,) = reported
    assert found.ranges == [OffsetRange(Partition("in", 0), 0, 10)]
    assert (found.epoch, found.rows, found.error) == (0, 10, None)
    assert found.end - found.begin == pytest.approx(batch.seconds)
    assert found.committing - found.begin == pytest.approx(batch.durations.plan)


def test_the_lag_is_unknown_where_spark_reports_the_end_as_the_latest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "ADMISSION", True)
    assert batch_of("p", REPORT, [Scan("input")]).lag
    monkeypatch.setattr(progress, "ADMISSION", False)
    assert batch_of("p", REPORT, [Scan("input")]).lag == {}


def test_the_next_batch_starts_where_the_last_one_ended() -> None:
    report = json.loads(REPORT)
    (source,) = report["sources"]
    source["startOffset"] = source["endOffset"]
    position = dict(source["endOffset"]["at"], offsets={"in": {"0": 15, "1": 2}})
    source["endOffset"] = position
    batch = batch_of("p", json.dumps(report), [Scan("input")])
    assert batch.starts == {"in": {"0": 10, "1": 0}}
    assert batch.offsets == {"in": {"0": 15, "1": 2}}


def test_a_batch_of_several_sources_has_the_offsets_of_each() -> None:
    report = json.loads(REPORT)
    (source,) = report["sources"]
    other = json.loads(json.dumps(source).replace('"in"', '"other"'))
    report["sources"] = [source, other, source]
    batch = batch_of("p", json.dumps(report), [Scan("a"), Scan("b", 1), Scan("a", 2)])
    assert batch.rows == 20  # what is read twice counts once
    assert {name: read.rows for name, read in batch.sources.items()} == {
        "a": 10,
        "b": 10,
    }
    assert sorted(batch.offsets) == ["in", "other"]
    report["sources"] = [source, source]
    same = batch_of("p", json.dumps(report), [Scan("a"), Scan("b", 1)])
    assert sorted(same.offsets) == ["a:in", "b:in"]
    assert sorted(same.starts) == ["a:in", "b:in"]
    assert same.sources["b"].offsets == {"in": {"0": 10, "1": 0}}
    assert same.plain()["sources"]["a"]["rows"] == 10


def test_rows_count_once_that_spark_counts_for_each_scan_of_a_source() -> None:
    batch = batch_of("p", REPORT, [Scan("a"), Scan("a")])
    assert (batch.rows, batch.sources["a"].rows) == (5, 5)


def test_a_pipeline_that_fails_is_reported_with_the_code(
    reported: list[FinishedBatch],
) -> None:
    PipelineTracer(prepared()).failed("[storage_failed] the disk is full")
    PipelineTracer(prepared()).failed("no code")
    assert [(one.code, one.error) for one in reported] == [
        ("storage_failed", "[storage_failed] the disk is full"),
        (None, "no code"),
    ]
