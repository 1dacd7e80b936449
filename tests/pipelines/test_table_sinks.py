"""Tables as sinks of pipelines: by connectors of Spark, and as streams."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest
from tests.pipelines.conftest import SINK
from tests.tables.lakes import ID, DeltaLake

from streamfactory.spark.pipelines.checking import check_draft
from streamfactory.spark.pipelines.definition import read_pipeline
from streamfactory.spark.pipelines.table_guarantees import table_guarantee
from streamfactory.spark.pipelines.together import Pipelines
from streamfactory.spi import ConfigError, Guarantee

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.pipelines.conftest import Works


def table(folder: Path, kind: str, more: str = "") -> str:
    return (
        f'[[tables]]\nname = "lake"\nformat = "{kind}"\npath = "{folder}/lake"\n{more}'
    )


def test_a_table_gets_the_rows_of_its_id_beside_a_stream(
    spark: SparkSession, works: Works
) -> None:
    rows = works.topic("in")
    out = works.topic("out", options={"stream.file.fsync": "always"})
    rows.write(id=[1, 2, 3])
    even = '[[steps]]\nid = "even"\nsql = "select id from input where id % 2 = 0"\n'
    lake = table(
        works.folder, "parquet", 'from = "even"\n"option.compression" = "gzip"\n'
    )
    path = works.pipeline(even + SINK + 'from = "input"\n' + lake)
    outcome = works.succeed(spark, path)
    assert out.column("id") == [1, 2, 3]
    found = ds.dataset(works.folder / "lake", format="parquet")
    assert found.to_table().to_pydict() == {"id": [2]}
    assert outcome.promise.startswith("at-least-once: ")
    assert "table 'lake': parquet records no epoch" in outcome.promise
    files = [*(works.folder / "lake").glob("*.parquet")]
    assert all(".gz." in file.name for file in files)


def test_a_format_without_a_connector_is_refused_before_anything_starts(
    spark: SparkSession, works: Works
) -> None:
    works.topic("in").write(id=[1])
    works.topic("out")
    path = works.pipeline(SINK + table(works.folder, "iceberg"))
    with pytest.raises(ConfigError) as caught:
        Pipelines([path]).run(spark)
    (problem,) = caught.value.problems
    assert problem.what.startswith(
        "table 'lake': Spark has no connector for the format 'iceberg'"
    )
    assert not (works.folder / "topics" / "out.topic").exists()
    assert not (works.folder / "checkpoints").exists()


def test_tables_that_record_epochs_are_exactly_once_and_less_is_refused(
    works: Works,
) -> None:
    works.topic("in")
    works.topic("out")
    source = '[source]\nstream = "in"\nguarantee = "exactly-once"\n'
    verdicts, wrong = {}, list[str]()
    for kind in ("delta", "iceberg", "parquet"):
        sink = SINK + '"stream.file.fsync" = "always"\n'
        path = works.pipeline(source + sink + table(works.folder, kind), kind)
        draft = read_pipeline(path)
        assert draft.pipeline is not None
        verdicts[kind] = table_guarantee(draft.pipeline.tables[0]).guarantee
        wrong = [one.what for one in check_draft(draft) if one.level == "error"]
        assert bool(wrong) == (kind == "parquet")
    assert "parquet records no epoch" in wrong[0]
    assert verdicts == {
        "delta": Guarantee.EXACTLY_ONCE,
        "iceberg": Guarantee.EXACTLY_ONCE,
        "parquet": Guarantee.AT_LEAST_ONCE,
    }


@pytest.mark.long("three runs of a pipeline")
def test_a_stream_of_a_table_evolves_and_a_repeated_batch_is_written_once(
    spark: SparkSession, works: Works
) -> None:
    rows, lake = works.topic("in"), DeltaLake(works.folder / "lake")
    lake.create(ID)
    properties = {**lake.config, "schema.contract": "evolve"}
    out = {"name": "out", "properties": properties}
    (works.folder / "configs" / "streams" / "out.json").write_text(json.dumps(out))
    for number, more in ((1, ""), (2, ", 'b', 1")):
        rows.write(id=[number])
        sql = f"select id, named_struct('a', id{more}) as o from input"
        step = f'[[steps]]\nid = "wide"\nsql = "{sql}"\n'
        works.succeed(spark, works.pipeline(step + SINK))
    works.forget_commit()
    works.succeed(spark, works.folder / "p.toml")
    assert sorted(lake.rows(), key=lambda row: row["id"]) == [
        {"id": 1, "o": {"a": 1, "b": None}},
        {"id": 2, "o": {"a": 2, "b": 1}},
    ]
