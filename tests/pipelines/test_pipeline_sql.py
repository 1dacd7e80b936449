"""The SQL of pipelines: what Spark finds wrong with it before anything starts."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from streamfactory.spark.pipelines.definition import read_pipeline
from streamfactory.spark.pipelines.preparing import check_sql
from streamfactory.spark.pipelines.sql import analyse
from streamfactory.spark.pipelines.together import Pipelines
from streamfactory.spark.types import spark_schema
from streamfactory.spi import ConfigError
from streamfactory.spi.ddl import parse_ddl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType
    from tests.pipelines.conftest import Works

    from streamfactory.spark.pipelines.model import Draft
    from streamfactory.spark.pipelines.sql import Analysis

ROWS = "id bigint, word string, at timestamp"
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
OUT = '[[sinks]]\nstream = "out"\n'


@pytest.fixture(autouse=True)
def streams(works: Works) -> None:
    works.topic("in").write(id=[1, 2], word=["a", "b"], at=[NOON, NOON])
    works.topic("out")
    works.topic("other")


def steps(*given: tuple[str, str]) -> str:
    return "".join(
        f"[[steps]]\nid = '{name}'\nsql = '''{sql}'''\n" for name, sql in given
    )


def _schemas(draft: Draft) -> dict[str, StructType]:
    return {one.id: spark_schema(parse_ddl(ROWS)) for one in draft.entries}


def analysed(spark: SparkSession, works: Works, text: str) -> Analysis:
    draft = read_pipeline(works.pipeline(text))
    assert draft.problems == ()
    return analyse(spark, draft, _schemas(draft))


def problem_texts(spark: SparkSession, works: Works, text: str) -> list[str]:
    """What is wrong, without where."""
    draft = read_pipeline(works.pipeline(text))
    problems = check_sql(spark, draft, _schemas(draft))[1]
    return [one.what for one in problems]


def refused(spark: SparkSession, works: Works, *texts: str) -> Sequence[str]:
    """What a run of such pipelines is refused with."""
    paths = [works.pipeline(text, f"p{i}") for i, text in enumerate(texts)]
    with pytest.raises(ConfigError) as caught:
        Pipelines(paths).run(spark)
    assert not (works.folder / "checkpoints").exists()
    folder = f"{works.folder}/"
    return [str(one).replace(folder, "") for one in caught.value.problems]


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("selec 1", "step 'a': is not SQL: Syntax error at or near 'selec'"),
        ("drop table x", "step 'a': is a command, not a query"),
        ("insert into x select * from input", "step 'a': is a command, not a query"),
        ("create temp view v as select 1", "step 'a': is a command, not a query"),
        ("set x = 1", "step 'a': is a command, not a query"),
        ("explain select * from input", "step 'a': is a command, not a query"),
        ("cache table input", "step 'a': is a command, not a query"),
        ("use x", "step 'a': is a command, not a query"),
        (
            "select * from inptu",
            "step 'a': 'inptu' is no id; there are input, a",
        ),
        ("select * from a", "step 'a': is part of a cycle: a reads a"),
        (
            "select idd from input",
            (
                "step 'a': A column, variable, or function parameter with name `idd` "
                "cannot be resolved. Did you mean one of the following? [`id`, `at`, "
                "`word`] (line 1 of the SQL, column 8)"
            ),
        ),
        ("select nothing(id) from input", "step 'a': Cannot resolve routine `nothing`"),
        ("select sum(word) + at from input", "step 'a': Cannot resolve"),
        ("select * from\n(", "step 'a': is not SQL: Syntax error"),
        ("select 1; select 2", "step 'a': is not SQL: Syntax error"),
        (
            f"select id,\n{'(' * 2000}id{')' * 2000} from input",
            "step 'a': is nested too deeply for Spark (2000 parentheses in line 2 of ",
        ),
    ],
)
def test_a_step_is_a_query_over_ids(
    spark: SparkSession, works: Works, sql: str, what: str
) -> None:
    (found,) = problem_texts(spark, works, steps(("a", sql)) + OUT)
    assert found.startswith(what), found


def test_all_that_is_wrong_is_reported_at_once(
    spark: SparkSession, works: Works
) -> None:
    one = steps(
        ("a", "select nope from input"),
        ("b", "selec"),
        ("c", "select * from d"),
        ("d", "select * from c"),
        ("e", "select * from inputt"),
        ("f", "select * from a join c join e"),
        ("g", "select 1 as x"),
    )
    two = steps(("z", "drop table x")) + '[[sinks]]\nstream = "nowhere"\n'
    assert refused(spark, works, one + OUT, two) == [
        (
            "stream: no stream is named 'nowhere'; known in configs/streams are in, "
            "other, out; did you mean 'other'? [p1.toml:9]"
        ),
        (
            "sql: step 'b': is not SQL: Syntax error at or near 'selec' (line 1 of the "
            "SQL, column 1) [p0.toml:8]"
        ),
        (
            "sql: step 'e': 'inputt' is no id; there are input, a, b, c, d, e, f, g; "
            "did you mean 'input'? [p0.toml:17]"
        ),
        "sql: step 'c': is part of a cycle: c reads d reads c [p0.toml:11]",
        (
            "sql: step 'a': A column, variable, or function parameter with name `nope` "
            "cannot be resolved. Did you mean one of the following? [`at`, `id`, "
            "`word`] (line 1 of the SQL, column 8) [p0.toml:5]"
        ),
        "sql: step 'z': is a command, not a query; write select ... [p1.toml:5]",
    ]


def test_nothing_of_the_mistakes_is_logged(
    spark: SparkSession, works: Works, capfd: pytest.CaptureFixture[str]
) -> None:
    problem_texts(spark, works, steps(("a", "select nope from input")) + OUT)
    assert capfd.readouterr().err == ""


def test_steps_may_be_written_in_any_order(spark: SparkSession, works: Works) -> None:
    found = analysed(
        spark,
        works,
        steps(
            ("c", "select * from B union all select * from a"),
            (
                "b",
                "with x as (select * from a), y as (select * from x) select * from y",
            ),
            ("a", "select id, upper(word) as word from input where id > 0"),
        )
        + '[[sinks]]\nstream = "out"\nfrom = "c"\n',
    )
    assert found.problems == []
    assert found.order == ["input", "a", "b", "c"]
    assert found.reads == {"c": {"a", "b"}, "b": {"a"}, "a": {"input"}}
    assert found.schemas["c"].simpleString() == "struct<id:bigint,word:string>"
    assert found.stateful == set()


@pytest.mark.parametrize(
    ("sql", "stateful"),
    [
        ("select * from input", False),
        ("select id + 1 as n from input where word like 'a%'", False),
        ("select id, explode(split(word, '')) as letter from input", False),
        ("select * from input lateral view explode(array(1, 2)) t as n", False),
        ("select * from input union all select * from input", False),
        ("select /*+ repartition(2) */ * from input", True),
        ("with x as (select id from input) select * from x", False),
        ("from input |> where id > 1 |> select id", False),
        ("values (1), (2)", False),
        ("select distinct word from input", True),
        ("select count(*) from input", True),
        ("select word, max(id) from input group by word", True),
        ("select window(at, '1 hour').start, count(*) from input group by 1", True),
        ("select window(at, '1 hour').start, id from input", False),
        (
            (
                "select session_window(at, '1 hour').start, count(*) from input "
                "group by session_window(at, '1 hour')"
            ),
            True,
        ),
        ("select row_number() over (order by id) from input", True),
        ("select * from input order by id", True),
        ("select * from input limit 1", True),
        ("select a.id from input a join input b on a.id = b.id", True),
        ("select id from input except select 1", True),
        ("select id from input union select id from input", True),
        ("select * from input where id in (select id from input)", True),
        ("select id, (select max(id) from input) as most from input", True),
        (
            "select * from input where exists (select 1 from input b where b.id = 2)",
            True,
        ),
        ("select * from (select * from input where id > 1)", False),
        ("select * from input tablesample (10 percent)", True),
    ],
)
def test_steps_that_look_at_more_than_one_row_are_known(
    spark: SparkSession, works: Works, sql: str, stateful: bool
) -> None:
    found = analysed(spark, works, steps(("a", sql)) + OUT)
    assert found.problems == []
    assert found.stateful == ({"a"} if stateful else set())


@pytest.mark.long("starts a Spark of its own")
def test_functions_and_views_of_the_session_are_known(
    spark: SparkSession, works: Works
) -> None:
    user = spark.newSession()
    user.udf.register("twice", lambda n: 2 * n, "bigint")
    user.range(3).createOrReplaceTempView("dimension")
    user.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    sql = "select twice(i.id) as n, at from input i join dimension d on i.id = d.id"
    out = works.topic("out")
    works.succeed(user, works.pipeline(steps(("a", sql)) + OUT))
    assert out.column("n") == [2, 4]
    assert [view.name for view in user.catalog.listTables()] == ["dimension"]


def test_another_stream_is_not_read(spark: SparkSession, works: Works) -> None:
    user = spark.newSession()
    user.readStream.format("rate").load().createOrReplaceTempView("ticks")
    one = works.pipeline(steps(("a", "select value from ticks")) + OUT)
    with pytest.raises(ConfigError) as caught:
        Pipelines([one]).run(user)
    (problem,) = caught.value.problems
    assert (
        problem.what
        == "step 'a': reads a stream that is no source: name it in [[sources]]"
    )


def test_steps_that_no_sink_reads_are_reported(
    spark: SparkSession, works: Works, caplog: pytest.LogCaptureFixture
) -> None:
    path = works.pipeline(
        steps(("a", "select id from input"), ("b", "select 1 as x"))
        + '[[sinks]]\nstream = "out"\nfrom = "a"\n'
    )
    with caplog.at_level(logging.WARNING), Pipelines([path]).prepared(spark):
        pass
    assert [record.getMessage() for record in caplog.records] == [
        f"pipeline 'p': steps: step 'b' is read by no sink: it is not run [{path}:8]"
    ]


def test_what_spark_cannot_stream_is_refused(spark: SparkSession, works: Works) -> None:
    count = steps(("a", "select word, count(*) as n from input group by word"))
    watermark = (
        '[source]\nstream = "in"\n"watermark.column" = "word"\n'
        '[[sinks]]\nstream = "out"\n'
    )
    assert refused(spark, works, watermark) == [
        (
            "watermark.column: source 'input': watermark.column 'word' is a string, "
            "wanted a timestamp [p0.toml:2]"
        )
    ]
    assert refused(
        spark, works, count + OUT, steps(("a", "select * from input order by id")) + OUT
    ) == [
        (
            "sql: step 'a': Invalid streaming output mode: append. This output mode is "
            "not supported for streaming aggregations without watermark on streaming "
            "DataFrames/DataSets [p0.toml:5]"
        ),
        (
            "sql: step 'a': Sorting is not supported on streaming DataFrames/Datasets, "
            "unless it is on aggregated DataFrame/Dataset in Complete output mode "
            "[p1.toml:5]"
        ),
    ]


def test_a_state_behind_the_last_common_step_of_the_sinks_is_refused(
    spark: SparkSession, works: Works
) -> None:
    text = steps(
        ("rows", "select * from input"),
        ("sums", "select count(*) as n from rows"),
    )
    text += '[[sinks]]\nstream = "out"\nfrom = "rows"\n[[sinks]]\nstream = "other"\n'
    assert refused(spark, works, text) == [
        (
            "sinks: the sinks 'out' and 'other' have no common step after 'rows', and "
            "step 'sums' aggregates, joins or sorts: it would see one batch only; "
            "give one of them a pipeline of its own, which reads the stream too "
            "[p0.toml:11]"
        )
    ]


def test_rows_that_do_not_fit_their_sink_are_refused(
    spark: SparkSession, works: Works
) -> None:
    works.topic("other").write(word=["text"])
    text = steps(("a", "select id from input"))
    text += '[[sinks]]\nstream = "other"\n[[sinks]]\nstream = "out"\nepoch = 3\n'
    assert refused(spark, works, text) == [
        (
            "sinks: sink 'other': column 'id' is not in the declared schema; write the "
            "columns of topic 'other': word string [p0.toml:8]"
        ),
        (
            "sinks: sink 'out': Spark numbers the epochs of a streaming query: leave "
            "epoch out [p0.toml:10]"
        ),
    ]
