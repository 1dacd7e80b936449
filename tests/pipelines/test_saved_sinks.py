"""Sinks of pipelines whose segments Spark's own Parquet writer writes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelines.conftest import SINK

from streamfactory.spark import parquet_files, saving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.pipelines.conftest import Works

    from streamfactory.spark.pipelines.outcomes import Outcome

PARQUET = {"stream.file.segment.format": "parquet"}
SAVED = "Spark's Parquet writer"


@pytest.fixture
def saves(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each epoch that Spark's Parquet writer has written."""
    found: list[int] = []
    write = parquet_files.write_files

    def counted(*arguments: Any) -> int:
        found.append(write(*arguments))
        return found[-1]

    monkeypatch.setattr(saving, "write_files", counted)
    return found


def ways(outcome: Outcome) -> dict[str, str]:
    return {way.sink: str(way) for way in outcome.ways}


@pytest.mark.long("a run for each batch")
def test_a_checkpoint_continues_whichever_way_its_batches_were_written(
    spark: SparkSession, works: Works, saves: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, out = works.topic("in"), works.topic("out", options=PARQUET)
    rows.write(id=[*range(10)])
    path = works.pipeline(SINK)
    with monkeypatch.context() as earlier:
        from streamfactory.spark.pipelines import preparing

        earlier.setattr(preparing, "refusal", lambda *_: "of an earlier version")
        first = works.succeed(spark, path)
    assert ways(first) == {"out": "format('streamfactory'): of an earlier version"}
    # As when the driver died between the commits of the sink and of Spark.
    works.forget_commit()
    second = works.succeed(spark, path)
    assert ways(second) == {"out": SAVED}
    assert (second.rows, saves) == (10, [])
    rows.write(id=[10, 11])
    works.succeed(spark, path)
    works.forget_commit()
    works.succeed(spark, path)
    assert saves == [2]
    assert out.column("id") == [*range(12)]
    (commit,) = works.commits("p", batch=1)
    assert sum(part.writes for part in commit.partitions) == 2
    assert sum(part.size for part in commit.partitions) == 16
    # The writer is that of both ways, and a rewound checkpoint is refused.
    with out._log() as log:
        assert {*log.writers()} == {f"{works.query_id('p')}/out"}
    works.forget_commit()
    works.forget_commit()
    planned = works.folder / "checkpoints" / "p" / "1" / "offsets"
    for name in ("1", ".1.crc"):
        (planned / name).unlink(missing_ok=True)
    (refused,) = works.run(spark, path)
    assert refused.failure is not None
    assert refused.failure.startswith("[epoch_in_the_past]")
    assert "the checkpoint is older" in refused.failure


def test_each_sink_is_written_as_it_can_be(
    spark: SparkSession, works: Works, saves: list[int]
) -> None:
    rows = works.topic("in")
    rows.write(id=[*range(10)])
    saved = works.topic("saved", options=PARQUET)
    arrow = works.topic("arrow")
    wide = works.topic("wide", options=PARQUET)
    wide.write(n=[0])
    narrow = "select cast(id as decimal(20)) as n from input"
    text = f"""
[[steps]]
id = "narrow"
sql = "{narrow}"
[[sinks]]
stream = "saved"
from = "input"
[[sinks]]
stream = "arrow"
from = "input"
[[sinks]]
stream = "wide"
"""
    outcome = works.succeed(spark, works.pipeline(text))
    found = ways(outcome)
    assert found["saved"] == SAVED
    assert "segment.format=arrow" in found["arrow"]
    assert "column 'n' is decimal(20,0), the topic has bigint" in found["wide"]
    assert saves == [10]
    assert saved.column("id") == arrow.column("id") == [*range(10)]
    assert wide.column("n") == [0, *range(10)]
    written = {one.sink: one.partitions for one in works.commits("p", batch=0)}
    for parts in written.values():
        assert sum(part.writes for part in parts) == 10
    assert set(written) == set(found)


@pytest.mark.long("a stateful query, three times")
def test_complete_output_replaces_the_rows_and_state_survives_a_repeated_batch(
    spark: SparkSession, works: Works, saves: list[int]
) -> None:
    rows, out = works.topic("in"), works.topic("out", options=PARQUET)
    rows.write(word=["a", "b", "a"])
    counts = 'id = "n"\nsql = "select word, count(*) as n from input group by word"\n'
    path = works.pipeline(f"[[steps]]\n{counts}{SINK}", output_mode="complete")
    works.succeed(spark, path)
    works.forget_commit()
    works.succeed(spark, path)
    rows.write(word=["b"])
    works.succeed(spark, path)
    assert len(saves) == 2
    assert sorted((row["word"], row["n"]) for row in out.rows()) == [("a", 2), ("b", 2)]


@pytest.mark.long("row groups of 300 columns of lists")
def test_rows_that_readers_would_refuse_are_written_in_python(
    spark: SparkSession,
    works: Works,
    saves: list[int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A row group of many lists that are null counts for more than it has."""
    rows = works.topic("in")
    out = works.topic("out", options={**PARQUET, "stream.file.compression": "zstd"})
    rows.write(id=[*range(2000)])
    fields = ", ".join(f"f{n} bigint" for n in range(300))
    lists = f"array_repeat(cast(null as struct<{fields}>), 100) as lists"
    path = works.pipeline(
        f'[[steps]]\nid = "a"\nsql = "select id, {lists} from input"\n{SINK}'
    )
    with caplog.at_level(logging.WARNING):
        outcome = works.succeed(spark, path)
    assert ways(outcome) == {"out": SAVED}
    assert "written by format('streamfactory')" in caplog.text
    assert sum(saves) == 2000
    assert out.column("id") == [*range(2000)]
    with out._log() as log:
        assert log.verify().problems == ()


def test_a_failing_batch_is_reported_and_repeated(
    spark: SparkSession, works: Works, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, out = works.topic("in"), works.topic("out", options=PARQUET)
    rows.write(id=[*range(10)])
    path = works.pipeline(SINK)
    find = parquet_files.find_files

    def fewer(*arguments: Any, **options: Any) -> list[tuple[int, str]]:
        return find(*arguments, **options)[1:]

    with monkeypatch.context() as broken:
        broken.setattr(saving, "find_files", fewer)
        (failed,) = works.run(spark, path)
    assert failed.failure is not None
    assert failed.failure.startswith("[storage_failed] 10 rows were written, but ")
    (commit,) = works.commits("p", batch=0)
    assert (commit.failed_attempts, commit.partitions) == (1, ())
    works.succeed(spark, path)
    assert out.column("id") == [*range(10)]
    assert not [*out.root.rglob("staging/*")]
