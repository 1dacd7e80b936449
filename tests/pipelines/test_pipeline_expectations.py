"""Expectations and distinct rows: the options of a file, and what becomes of rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from streamfactory import metrics
from streamfactory.spark.pipelines.checking import check_draft
from streamfactory.spark.pipelines.definition import read_pipeline
from streamfactory.spark.pipelines.together import Pipelines
from streamfactory.spi import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.pipelines.conftest import Works

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
STEP = '[[steps]]\nid = "kept"\nsql = "select * from input"\n'
WITHIN = '"distinct.by" = "id"\n"distinct.within" = "1 hour"\n'
OUT = '[[sinks]]\nstream = "out"\n'


@pytest.fixture(autouse=True)
def streams(works: Works) -> None:
    works.topic("in").write(
        id=[1, 2, 3, None],
        amount=[10, -20, 30, 40],
        at=[NOON + timedelta(minutes=n) for n in range(4)],
    )
    works.topic("out")
    works.topic("other")


def expect(name: str, condition: str, way: str, more: str = "") -> str:
    text = f'[[expectations]]\nname = "{name}"\ncondition = "{condition}"\n'
    return f'{text}"on.failure" = "{way}"\n{more}'


def unmet(name: str) -> float:
    found = metrics().select("pipeline.unmet.rows", pipeline="p", expectation=name)
    return sum(one.number for one in found)


POSITIVE = "amount > 0 -- a comment"


# --- the file ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (expect("x", "", "warn"), "condition: is empty, but required"),
        (expect("x", "id = 1", "ignore"), "'ignore' is not one of warn, drop"),
        (expect("x y", "id = 1", "warn"), "'x y' is no name"),
        (expect("x", "id = 1", "warn") * 2, "'x' is a name already"),
        (expect("x", "id = 1", "warn", 'on = "input"\n'), "'input' is no step; ther"),
        (expect("x", "id = 1", "dead-letter"), "on.failure = 'dead-letter' requires"),
        (expect("x", "id = 1", "drop", 'stream = "other"\n'), "has no effect with on."),
        (expect("x", "id = 1", "drop", 'with = "other"\n'), "with: is no option of ["),
        (
            expect("x", "id = 1", "dead-letter", 'stream = "out"\nname2 = 1\n'),
            "name2: unknown option",
        ),
    ],
)
def test_mistakes_of_expectations_are_named_with_their_place(
    works: Works, text: str, wrong: str
) -> None:
    path = works.pipeline(STEP + text + OUT)
    found = [str(one) for one in check_draft(read_pipeline(path)) if wrong in str(one)]
    assert len(found) == 1
    assert str(path) in found[0]


@pytest.mark.parametrize("name", ["kept__unchecked", "Kept__Failed_78"])
def test_ids_of_the_parts_of_steps_are_refused(works: Works, name: str) -> None:
    works.topic(name)
    source = f'[[sources]]\nstream = "{name}"\n'
    lookup = f'[[lookups]]\nid = "{name}"\nformat = "csv"\npath = "x"\n'
    step = f'[[steps]]\nid = "{name}"\nsql = "select 1"\n'
    for table in (source, lookup, step):
        path = works.pipeline(table + STEP.replace("input", "x") + OUT)
        [problem] = read_pipeline(path).problems
        assert problem.what.startswith(f"{name!r} ends in '__")
    path = works.pipeline(step.replace(name, f"{name}_") + OUT)
    assert not read_pipeline(path).problems


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ('"distinct.within" = "1 hour"\n', "distinct.within: wants distinct.by too"),
        (WITHIN, "distinct.within: wants watermark.column too"),
        (
            f'{WITHIN}"watermark.column" = "at"\n"watermark.delay" = "1 hour"\n',
            "distinct.within: is the delay of the step's watermark; remove watermark.d",
        ),
        ('"distinct.by" = "id"\n"distinct.within" = "soon"\n', "'soon' is not an int"),
    ],
)
def test_mistakes_of_distinct_rows_are_named(
    works: Works, options: str, wrong: str
) -> None:
    path = works.pipeline(STEP + options + OUT)
    assert any(wrong in str(one) for one in read_pipeline(path).problems)


# --- rows -------------------------------------------------------------------------


def test_rows_are_counted_and_dropped_before_an_aggregation(
    spark: SparkSession, works: Works
) -> None:
    text = STEP + '[[steps]]\nid = "sums"\n'
    text += 'sql = "select count(*) as n, sum(amount) as amount from kept"\n'
    on = 'on = "kept"\n'
    text += expect("positive", POSITIVE, "drop", on)
    text += expect("identified", "id is not null", "warn", on)
    works.succeed(spark, works.pipeline(text + OUT, output_mode="update"))
    [row] = works.topics["out"].rows()
    assert (row["n"], row["amount"]) == (3, 80)
    assert works.batches[-1].expectations == {"positive": 1, "identified": 1}


def test_failed_rows_go_to_a_stream_of_their_own(
    spark: SparkSession, works: Works
) -> None:
    text = STEP + expect("positive", POSITIVE, "dead-letter", 'stream = "other"\n')
    text += expect("identified", "id is not null", "warn")
    path, before = works.pipeline(text + OUT), unmet("positive")
    works.succeed(spark, path)
    assert unmet("positive") - before == 1
    assert sorted(works.topics["out"].column("amount")) == [10, 30, 40]
    [row] = works.topics["other"].rows()
    assert (row["id"], row["amount"], row["_expectation"]) == (2, -20, "positive")
    assert works.batches[-1].expectations == {"positive": 1, "identified": 1}
    # A batch that is repeated writes neither again.
    works.forget_commit()
    works.topics["in"].write(id=[5], amount=[-1], at=[NOON])
    works.succeed(spark, path)
    assert sorted(works.topics["out"].column("amount")) == [10, 30, 40]
    assert sorted(works.topics["other"].column("amount")) == [-20, -1]


def test_steps_behind_the_common_one_are_counted_by_the_batch(
    spark: SparkSession, works: Works
) -> None:
    text = '[[steps]]\nid = "half"\nsql = "select id, amount / 2 as half from input"\n'
    text += expect("small", "half < 11", "drop")
    text += OUT + '[[sinks]]\nstream = "other"\nfrom = "input"\n'
    works.succeed(spark, works.pipeline(text))
    assert sorted(works.topics["out"].column("half")) == [-10, 5]
    assert len(works.topics["other"].rows()) == 4
    assert works.batches[-1].expectations == {"small": 2}


def test_a_row_that_must_not_be_ends_the_pipeline(
    spark: SparkSession, works: Works
) -> None:
    path = works.pipeline(STEP + expect("positive", POSITIVE, "fail") + OUT)
    [outcome] = works.run(spark, path)
    assert outcome.failure is not None
    assert "expectation 'positive' of step 'kept' failed for the row" in outcome.failure
    assert '"amount":-20' in outcome.failure
    assert not (works.folder / "topics" / "out").exists()


def test_columns_that_do_not_exist_are_found_before_the_start(
    spark: SparkSession, works: Works
) -> None:
    for text, wrong in [
        (expect("x", "amont > 0", "warn"), "step 'kept': expectation 'x': "),
        ('"distinct.by" = "idd"\n', "step 'kept': distinct.by: "),
    ]:
        with pytest.raises(ConfigError) as caught:
            Pipelines([works.pipeline(STEP + text + OUT)]).run(spark)
        [problem] = caught.value.problems
        assert wrong in problem.what
    step = expect("x", "id > 0", "drop", 'on = "kept"\n') + '[[steps]]\nid = "b"\n'
    path = works.pipeline(f'{STEP}{step}sql = "select * from nothing"\n{OUT}')
    with pytest.raises(ConfigError) as caught:
        Pipelines([path]).run(spark)
    assert "there are input, kept, b" in str(caught.value.problems[0])


@pytest.mark.parametrize("condition", ["rand() < 0.5", "at < now()"])
def test_a_condition_that_divides_rows_has_the_same_result_for_all_sinks(
    spark: SparkSession, works: Works, condition: str
) -> None:
    counted = STEP + expect("x", condition, "drop") + OUT
    works.succeed(spark, works.pipeline(counted))
    divided = expect("x", condition, "dead-letter", 'stream = "other"\n')
    with pytest.raises(ConfigError) as caught:
        Pipelines([works.pipeline(STEP + divided + OUT, "q")]).run(spark)
    assert "'x': dead-letter requires a condition with" in str(caught.value.problems[0])


def test_rows_that_depend_on_the_time_are_in_one_sink(
    spark: SparkSession, works: Works
) -> None:
    """The step stands behind the common one: its rows are not those of the batch."""
    works.topics["in"].write(id=list(range(4, 504)), amount=[0] * 500, at=[NOON] * 500)
    step = "select id, hash(id, current_timestamp()) as now from input"
    text = STEP.replace("select * from input", step)
    text += expect("even", "now % 2 = 0", "dead-letter", 'stream = "other"\n')
    text += OUT + '[[sinks]]\nname = "all"\nstream = "third"\nfrom = "input"\n'
    works.topic("third")
    works.succeed(spark, works.pipeline(text))
    parts, every = [
        [str(row["id"]) for name in names for row in works.topics[name].rows()]
        for names in (("out", "other"), ("third",))
    ]
    assert sorted(parts) == sorted(every)
    assert len(parts) == 504


def test_errors_have_the_ids_of_the_file(spark: SparkSession, works: Works) -> None:
    """The parts of a step with expectations have ids that no user wrote."""
    rejected = expect("x", "id > 0", "dead-letter", 'on = "kept"\nstream = "other"\n')
    kept = expect("x", "id > 0", "warn", 'on = "kept"\n')
    total = '[[steps]]\nid = "n"\nsql = "select count(*) as n from kept"\n'
    loop = STEP.replace("input", "n") + total
    itself = STEP.replace("input", "kept")
    last = STEP.replace("*", "id, row_number() over (order by at) as n")
    for text, wrong in [
        (itself + kept, "step 'kept': is part of a cycle: kept reads kept"),
        (loop + kept, "is part of a cycle: "),
        (STEP + total + rejected, "common step after 'kept', and step 'n' aggregates"),
        (last + kept, "step 'kept': "),
        (STEP + kept.replace("id >", "count(*) >"), "step 'kept': expectation 'x': "),
        (STEP + kept.replace("id >", "(select 1 from input) >"), "step 'kept': "),
    ]:
        with pytest.raises(ConfigError) as caught:
            Pipelines([works.pipeline(text + OUT)]).run(spark)
        said = str(caught.value.problems[0])
        assert wrong in said
        assert "__" not in said


def test_rows_with_values_of_before_are_left_out_within_a_time(
    spark: SparkSession, works: Works
) -> None:
    options = '"distinct.by" = "id"\n"distinct.within" = "10 minutes"\n'
    options += '"watermark.column" = "at"\n'
    path = works.pipeline(STEP + options + OUT)
    works.succeed(spark, path)
    works.topics["in"].write(
        id=[1, 7, 7], amount=[11, 70, 71], at=[NOON + timedelta(minutes=5)] * 3
    )
    works.succeed(spark, path)
    found = works.topics["out"].column("amount")
    assert len(found) == 5
    assert set(found) - {70, 71} == {10, -20, 30, 40}
