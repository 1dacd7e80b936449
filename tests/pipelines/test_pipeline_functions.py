"""Steps that are Python functions: what a file says of them, and their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streamfactory.spark.pipelines.definition import read_pipeline
from streamfactory.spark.pipelines.overriding import Overrides
from streamfactory.spark.pipelines.together import Pipelines
from streamfactory.spi import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.pipelines.conftest import Works

OUT = '[[sinks]]\nstream = "out"\n'
MODULE = """
from pyspark.sql import functions as F

FACTOR = 10

def _times(n):
    return None if n is None else n * FACTOR

def scaled(rows):
    times = F.udf(_times, "bigint")
    return rows.select("id", times("id").alias("scaled"))

def both(left, right):
    return left.unionByName(right)

def failing(rows):
    raise KeyError("amount")

def none(rows):
    return None

def wrong(rows):
    return rows.select("nothing")

number = 3
"""


@pytest.fixture(autouse=True)
def streams(works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    works.topic("in").write(id=[1, 2])
    works.topic("out")
    works.topic("other")
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "pipeline_steps.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(folder))


def step(name: str, function: str, more: str = "") -> str:
    python = f'python = "pipeline_steps:{function}"\n'
    return f'[[steps]]\nid = "{name}"\n{python}{more}'


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        ('python = "x:y"\nsql = "select 1"\n', "python: and SQL exclude each other"),
        ('python = "xy"\n', "python: 'xy' is not module:function"),
        ('sql = "select 1"\nfrom = "input"\n', "from: has no effect: a query names"),
    ],
)
def test_mistakes_are_named(works: Works, more: str, wrong: str) -> None:
    path = works.pipeline(f'[[steps]]\nid = "a"\n{more}{OUT}')
    draft = read_pipeline(path, allow_class_paths=True)
    assert any(wrong in str(one) for one in draft.problems)


def test_a_function_is_not_imported_unless_that_is_allowed(works: Works) -> None:
    path = works.pipeline(step("a", "scaled") + OUT)
    [problem] = read_pipeline(path).problems
    assert problem.key == "python"
    assert "is a class path, which requires --allow-class-paths" in problem.what
    found = read_pipeline(path, allow_class_paths=True).pipeline
    assert found is not None
    assert found.steps[0].inputs == ("input",)


# PySpark warns of pandas where a function first names the type of its result.
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
def test_functions_and_queries_are_steps_of_one_pipeline(
    spark: SparkSession, works: Works
) -> None:
    """Workers of Spark have no such module, and the second sink has a step behind."""
    text = step("a", "scaled")
    text += '[[steps]]\nid = "b"\nsql = "select id + 5 as id, scaled from a"\n'
    text += step("c", "both", 'from = "a,b"\n')
    text += step("d", "scaled") + OUT + 'from = "c"\n'
    text += '[[sinks]]\nstream = "other"\nfrom = "d"\n'
    works.succeed(spark, works.pipeline(text), allow_class_paths=True)
    rows = works.topics["out"].rows()
    found = sorted((row["id"], row["scaled"]) for row in rows)
    assert found == [(1, 10), (2, 20), (6, 10), (7, 20)]
    assert sorted(works.topics["other"].column("scaled")) == [10, 20, 60, 70]


def test_what_is_wrong_with_a_function_is_found_before_the_start(
    spark: SparkSession, works: Works
) -> None:
    for function, wrong in [
        ("failing", "pipeline_steps:failing failed: KeyError: 'amount', in "),
        ("none", "pipeline_steps:none returned a NoneType, wanted a DataFrame"),
        ("number", "pipeline_steps:number is a int, wanted a function"),
        ("nothing", "pipeline_steps:nothing cannot be loaded: AttributeError"),
        ("wrong", "`nothing`"),
        ("both", "missing 1 required positional argument: 'right'"),
    ]:
        path = works.pipeline(step("a", function) + OUT)
        with pytest.raises(ConfigError) as caught:
            Pipelines([path], Overrides(allow_class_paths=True)).run(spark)
        [problem] = caught.value.problems
        assert problem.what.startswith("step 'a': ")
        assert wrong in problem.what
