"""Preview: what a pipeline makes of the first rows of its sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from streamfactory.cli.preview import _lines, _plain
from streamfactory.spark.pipelines.sampling import Sample
from streamfactory.spark.pipelines.together import Pipelines
from streamfactory.spi import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.pipelines.conftest import Works


def test_samples_are_tables_for_people_and_lists_for_programs() -> None:
    rows = pa.table({"id": [1, 22], "name": ["a", None]})
    none = rows.slice(0, 0)
    assert list(_lines([Sample("input", rows), Sample("kept", none)])) == [
        "input: 2 rows",
        "  id  name",
        "  1   a",
        "  22  null",
        "kept: 0 rows",
    ]
    assert _plain(rows) == [{"id": 1, "name": "a"}, {"id": 22, "name": None}]
    assert _plain(none) == []


def test_steps_see_the_first_rows_and_nothing_is_written(
    spark: SparkSession, works: Works
) -> None:
    works.topic("in", partitions=1).write(id=[1, 1, 3, 4], word=["a", "b", "c", "d"])
    works.topic("out")
    text = '[[steps]]\nid = "once"\nsql = "select id, upper(word) as word from input"\n'
    text += '"distinct.by" = "id"\n[[steps]]\nid = "counted"\n'
    text += 'sql = "select count(*) as n, max(word) as word from once"\n'
    text += '[[sinks]]\nstream = "out"\nfrom = "counted"\n'
    path = works.pipeline(text, output_mode="complete")
    first, once, counted = Pipelines([path]).preview(spark, 3)
    assert first.rows.to_pydict() == {"id": [1, 1, 3], "word": ["a", "b", "c"]}
    assert sorted(once.rows.column("id").to_pylist()) == [1, 3]
    assert counted.rows.to_pylist() == [{"n": 2, "word": "C"}]
    assert not (works.folder / "checkpoints").exists()
    assert not (works.folder / "topics" / "out").exists()
    # A step that no sink reads, and its lookup.
    (works.folder / "words.csv").write_text("b")
    text += '[[lookups]]\nid = "words"\nformat = "csv"\n'
    text += f'path = "{works.folder}/words.csv"\n'
    text += '[[steps]]\nid = "more"\nsql = "select _c0 from words, input"\n'
    path = works.pipeline(text, output_mode="complete")
    shown = {one.id: one.rows for one in Pipelines([path]).preview(spark, 3)}
    assert shown["more"].column("_c0").to_pylist() == ["b"] * 3
    wrong = works.pipeline(text.replace("upper(word)", "upper(wrd)"))
    with pytest.raises(ConfigError):
        Pipelines([wrong]).preview(spark, 3)
