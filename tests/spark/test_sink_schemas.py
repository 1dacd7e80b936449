"""Schemas of frames that a sink refuses, before a row is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from tests.proving.triggers import start_available_now
from tests.tables.lakes import ID, DeltaLake, IcebergLake

from streamfactory.spark import save
from streamfactory.spi import SchemaMismatch

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from tests.proving.sessions import Topic
    from tests.tables.lakes import Lake

VARIANT = "parse_json('{\"a\": 1}')"
VARIANTS = {
    "v": f"{VARIANT} as v",
    "s.v": f"named_struct('v', {VARIANT}) as s",
    "l.element.v": f"array(named_struct('v', {VARIANT})) as l",
    "m.value": f"map('k', {VARIANT}) as m",
}
"""By the dotted path of a variant: a column that has it."""


def refusal(path: str) -> str:
    return f"column {path!r} is of type variant, which streams do not have"


def append(frame: DataFrame, topic: Topic, mode: str = "append") -> None:
    frame.write.format("streamfactory").options(**topic.options).mode(mode).save()


def test_a_variant_is_refused_with_its_path_and_a_remedy(
    spark: SparkSession, topic: Topic
) -> None:
    for path, column in VARIANTS.items():
        frame = spark.range(1).selectExpr("id", column)
        for mode in ("append", "overwrite"):
            with pytest.raises(AnalysisException, match="to_json") as caught:
                append(frame, topic, mode)
            assert refusal(path) in str(caught.value)
        with pytest.raises(SchemaMismatch, match="to_json") as direct:
            save(frame, topic.options)
        assert refusal(path) in str(direct.value)
    assert not topic.root.joinpath("topics").exists()


def test_a_query_with_a_variant_fails_before_its_first_row(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    topic.write(id=[1])
    out = topic.another("out")
    rows = spark.readStream.format("streamfactory").options(**topic.options)
    frame = rows.option("startingOffsets", "earliest").load()
    frame = frame.selectExpr("id", VARIANTS["l.element.v"])
    writer = frame.writeStream.format("streamfactory").options(**out.options)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(StreamingQueryException, match="to_json") as caught:
        start_available_now(writer).awaitTermination(400)
    assert refusal("l.element.v") in str(caught.value)


@pytest.mark.parametrize(
    ("path", "before", "behind"),
    [
        ("o.A", "named_struct('a', 1) as o", "named_struct('A', 2) as o"),
        (
            "m.value.element.b",
            "map('k', array(named_struct('a', 1))) as m",
            "map('k', array(named_struct('a', 2, 'b', 9))) as m",
        ),
    ],
)
def test_a_field_within_a_column_that_the_topic_lacks_is_refused(
    spark: SparkSession, topic: Topic, path: str, before: str, behind: str
) -> None:
    append(spark.range(1).selectExpr("id", before), topic)
    rows = topic.rows()
    frame = spark.range(1).selectExpr("id", behind)
    with pytest.raises(AnalysisException, match="not in the declared schema") as caught:
        append(frame, topic)
    assert f"column {path!r}" in str(caught.value)
    assert topic.rows() == rows


@pytest.mark.parametrize(
    "kind",
    [DeltaLake, pytest.param(IcebergLake, marks=pytest.mark.long("as of Delta"))],
)
def test_tasks_add_the_columns_that_a_table_lacks(
    spark: SparkSession, kind: type[Lake], tmp_path: Path
) -> None:
    lake = kind(tmp_path / "lake")
    lake.create(ID)
    options = {**lake.config, "schema.contract": "evolve"}
    for first, columns in (
        (0, ["id", "named_struct('a', id) as o"]),
        (2, ["named_struct('a', id, 'b', 'x') as o", "id"]),
    ):
        frame = spark.range(first, first + 2, 1, 2).selectExpr(*columns)
        writer = frame.write.format("streamfactory").options(**options)
        writer.mode("append").save()
    assert sorted(lake.rows(), key=lambda row: row["id"]) == [
        {"id": number, "o": {"a": number, "b": "x" if number > 1 else None}}
        for number in range(4)
    ]
