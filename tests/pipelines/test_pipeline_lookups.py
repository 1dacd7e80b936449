"""Lookups: what a file says of them, and which rows of them a batch uses."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamfactory.cli.validating import _read_sql
from streamfactory.spark.pipelines.checking import check_draft
from streamfactory.spark.pipelines.definition import read_pipeline
from streamfactory.spark.pipelines.running import run_prepared
from streamfactory.spark.pipelines.together import Pipelines
from streamfactory.spi import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.pipelines.conftest import Works

OUT = '[[sinks]]\nstream = "out"\n'
JOIN = """
[[steps]]
id = "named"
sql = "select id, name from input join customers using (id)"
"""

STATIC = "select id, name from customers"


@pytest.fixture(autouse=True)
def streams(works: Works) -> None:
    works.topic("in").write(id=[1, 2, 3])
    works.topic("out")
    works.topic("prices", partitions=1)


def table(folder: Path, **columns: list[Any]) -> Path:
    path = folder / "customers.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def lookup(of: str, refresh: str = "once", name: str = "customers") -> str:
    text = f'[[lookups]]\nid = "{name}"\nrefresh = "{refresh}"\n'
    return text + of


def parquet(path: Path) -> str:
    return f'format = "parquet"\npath = "{path}"\n'


PRICES = 'stream = "prices"\nkey = "id"\n'


# --- the file ---------------------------------------------------------------------


def test_a_lookup_is_a_table_or_a_stream(works: Works) -> None:
    text = lookup(
        'format = "CSV"\npath = "x.csv"\nschema = "id bigint"\n'
        '"option.header" = true\n"option.sep" = "${env:SEP}"\n',
        "10m",
    )
    text += lookup(f'{PRICES}startingOffsets = "latest"\n', "batch", "prices")
    found = read_pipeline(works.pipeline(text + OUT)).pipeline
    assert found is not None
    first, second = found.lookups
    assert (first.format, first.path, first.schema) == ("csv", "x.csv", "id bigint")
    assert first.options == {"header": "true", "sep": "${env:SEP}"}
    assert first.refresh.millis == 600_000
    assert second.stream is not None
    assert (second.key, second.refresh.millis) == (("id",), 0)
    assert second.stream.properties[-1].key == "startingOffsets"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (lookup(""), "format: is required"),
        (lookup('stream = "prices"\n'), "key: is required"),
        (lookup('stream = "pricess"\nkey = "id"\n'), "no stream is named 'pricess'"),
        (lookup(PRICES, "daily"), "'daily' is none of once, batch, or a period"),
        (lookup(PRICES, name="input"), "'input' is an id already"),
        (lookup(PRICES, name="a b"), "'a b' is no id"),
        (
            lookup('format = "csv"\nheader = true\n'),
            "header: is no option of [lookups]",
        ),
        (lookup(f"{PRICES}maxOffsetsPerTriger = 3\n"), "did you mean maxOffsetsPerTri"),
        (
            lookup('format = "jdbc"\n"option.password" = "${env:}"\n'),
            "option.password: ",
        ),
    ],
)
def test_mistakes_are_named_with_their_place(
    works: Works, text: str, wrong: str
) -> None:
    path = works.pipeline(text + OUT)
    found = [str(one) for one in check_draft(read_pipeline(path)) if wrong in str(one)]
    assert len(found) == 1
    assert str(path) in found[0]


# --- its rows ---------------------------------------------------------------------


def test_all_batches_use_what_was_read_once(spark: SparkSession, works: Works) -> None:
    """Rows behind it may be aggregated: the lookup is a part of the query."""
    path = table(works.folder, id=[1, 2], name=["a", "b"])
    count = '[[steps]]\nid = "counted"\n'
    count += "sql = 'select name, count(*) as n from named group by name'\n"
    options = {"output_mode": "update"}
    pipeline = works.pipeline(lookup(parquet(path)) + JOIN + count + OUT, **options)
    works.succeed(spark, pipeline)
    assert works.topics["out"].column("name") == ["a", "b"]
    state = works.batches[-1].lookups["customers"]
    assert (state["rows"], state["files"]) == (2, 1)
    assert state["newest"] <= state["read"]
    # The next run reads it again.
    table(works.folder, id=[3], name=["c"])
    works.topics["in"].write(id=[3])
    works.succeed(spark, pipeline)
    assert works.topics["out"].column("name") == ["a", "b", "c"]


@pytest.mark.parametrize(("refresh", "times"), [("batch", 3), ("1h", 1)])
def test_a_batch_reads_a_lookup_again_when_it_is_due(
    spark: SparkSession, works: Works, refresh: str, times: int
) -> None:
    path = table(works.folder, id=[1, 2, 3], name=["a", "b", "c"])
    text = '[source]\nstream = "in"\nstartingOffsets = "earliest"\n'
    text += "maxOffsetsPerTrigger = 1\n"
    text += lookup(parquet(path), refresh) + JOIN + OUT
    works.succeed(spark, works.pipeline(text))
    assert works.topics["out"].column("name") == ["a", "b", "c"]
    assert len(works.batches) == 3
    reads = {batch.lookups["customers"]["read"] for batch in works.batches}
    assert len(reads) == times


@pytest.mark.parametrize("refresh", ["once", "batch"])
def test_distinct_rows_of_a_lookup_are_joined(
    spark: SparkSession, works: Works, refresh: str
) -> None:
    path = table(works.folder, id=[1, 1, 2], name=["a", "a", "b"])
    step = '[[steps]]\nid = "one"\nsql = "select * from customers"\n'
    step += '"distinct.by" = "id"\n'
    join = JOIN.replace("customers", "one")
    pipeline = works.pipeline(lookup(parquet(path), refresh) + step + join + OUT)
    works.succeed(spark, pipeline)
    assert sorted(works.topics["out"].column("name")) == ["a", "b"]


def test_a_stream_is_a_table_of_the_latest_row_of_each_key(
    spark: SparkSession, works: Works
) -> None:
    works.topics["prices"].write(id=[1, 2, 1], price=[1.0, 2.0, 1.5])
    works.topics["prices"].write(id=[3, 2], price=[3.0, 2.5])
    step = '[[steps]]\nid = "priced"\n'
    step += "sql = 'select id, price from input left join prices using (id)'\n"
    text = lookup(PRICES, "batch", "prices") + step + OUT
    works.succeed(spark, works.pipeline(text))
    rows = works.topics["out"].rows()
    assert {row["id"]: row["price"] for row in rows} == {1: 1.5, 2: 2.5, 3: 3.0}
    state = json.loads(json.dumps(works.batches[-1].plain()))["lookups"]["prices"]
    assert (state["rows"], state["offsets"]) == (3, {"prices": {"0": 5}})


def test_what_a_lookup_cannot_do_is_refused_before_the_start(
    spark: SparkSession, works: Works
) -> None:
    path = table(works.folder, id=[1], name=["a"])
    count = '[[steps]]\nid = "counted"\n'
    count += "sql = 'select count(*) as n from named'\n"
    again = lookup(parquet(path), "batch")
    kept = JOIN.replace("join", "right join")
    union = '[[steps]]\nid = "named"\n'
    union += f"sql = \"select id, '' as name from input union all {STATIC}\"\n"
    static = f"[[steps]]\nid = 'named'\nsql = '{STATIC}'\n"
    within = '"distinct.by" = "id"\n"distinct.within" = "1 hour"\n'
    within += '"watermark.column" = "at"\n'
    works.topics["prices"].write(id=[1], price=[1.0])
    works.topic("nowhere")
    missing = lookup(parquet(works.folder / "none.parquet"))
    absent = lookup(PRICES.replace("prices", "nowhere"))
    unknown = lookup('format = "nosuch"\npath = "x"\n')
    for text, *wrong in [
        (again + JOIN + count, "step 'counted' aggregates", 'set refresh = "once"'),
        (again + kept, "step 'named' aggregates, joins", "'customers', which is read"),
        (again + union, "step 'named' aggregates, joins", "'customers', which is read"),
        (again + static, "sink 'out': step 'named' reads no stream"),
        (
            lookup(parquet(path))
            + static.replace("name from", "now() as at from")
            + within,
            "distinct.within has no effect",
        ),
        (missing + JOIN, "lookup 'customers' of", "none.parquet", "create the table"),
        (unknown + JOIN, "lookup 'customers' of x", "name its package in [spark]"),
        (lookup('stream = "prices"\nkey = "no"\n') + JOIN, "`no`", "name columns of"),
        (absent + JOIN, "[topic_not_found]", "publish to it"),
    ]:
        with pytest.raises(ConfigError) as caught:
            Pipelines([works.pipeline(text + OUT)]).run(spark)
        said = " ".join(map(str, caught.value.problems))
        assert all(part in said for part in wrong), said
        assert ("create the table" in said) == (text == missing + JOIN), said
    assert not (works.folder / "checkpoints").exists()


def test_validate_reads_the_columns_of_lookups(
    spark: SparkSession, works: Works
) -> None:
    """No stream exists: their columns are those that are declared."""
    works.topic("declared", options={"schema": "id bigint, name string"})
    works.topic("ids", options={"schema": "id bigint"})
    path = table(works.folder, id=[1], name=["a"])
    source = '[source]\nstream = "ids"\n'
    column = JOIN.replace("id, name", "id, nam")
    stream = 'stream = "declared"\nkey = "id"\n'
    unknown = "columns were not checked: the lookup 'customers' declares none"
    for of, step, *wrong in [
        (parquet(path), JOIN),
        (parquet(path), column, "step 'named': A column, variable, or function"),
        (parquet(works.folder / "none.parquet"), JOIN, "lookup 'customers' of "),
        (stream, JOIN),
        (stream, column, "step 'named': A column, variable, or function"),
        (PRICES, column, unknown),
    ]:
        draft = read_pipeline(works.pipeline(source + lookup(of) + step + OUT))
        found = _read_sql(spark, draft, sound=not check_draft(draft))
        assert all(w in one.what for w, one in zip(wrong, found, strict=True))
        level = "warning" if wrong == [unknown] else "error"
        assert [one.level for one in found] == [level] * len(wrong)


def test_a_table_whose_columns_changed_ends_the_pipeline(
    spark: SparkSession, works: Works
) -> None:
    path = table(works.folder, id=[1, 2, 3], name=["a", "b", "c"])
    pipeline = works.pipeline(lookup(parquet(path), "batch") + JOIN + OUT)
    pipelines = Pipelines([pipeline])
    with pipelines.prepared(spark) as [prepared]:
        table(works.folder, id=[1, 2, 3], name=[1, 2, 3])
        [outcome] = run_prepared([prepared], threading.Event(), lambda _: None)
    assert outcome.failure is not None
    assert outcome.failure.startswith("[lookup_failed] lookup 'customers' has other")
    assert not (works.folder / "topics" / "out").exists()
