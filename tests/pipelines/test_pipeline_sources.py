"""Pipelines with several sources: what they join, where they continue, and refusals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelines.test_pipeline_letters import Messages
from tests.proving.commands import command_of

from streamfactory.spark.pipelines.together import Pipelines
from streamfactory.spi import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.pipelines.conftest import Works

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
SOURCES = """
[[sources]]
stream = "orders"
startingOffsets = "earliest"
"watermark.column" = "at"
[[sources]]
stream = "payments"
startingOffsets = "earliest"
"watermark.column" = "paid"
"""
JOIN = """
[[steps]]
id = "both"
sql = '''
select id, amount from orders join payments
on id = of_order and paid between at and at + interval 1 hour
'''
"""
UNION = """
[[steps]]
id = "both"
sql = '''
select id, 'order' as kind from orders
union all select of_order, 'payment' from payments
'''
"""
OUT = '[[sinks]]\nstream = "out"\n'


def minutes(*later: int) -> list[datetime]:
    return [NOON + timedelta(minutes=one) for one in later]


@pytest.fixture(autouse=True)
def streams(works: Works) -> None:
    works.topic("orders").write(id=[1, 2, 3], at=minutes(0, 1, 2))
    works.topic("payments").write(of_order=[1, 9], amount=[10, 90], paid=minutes(5, 6))
    works.topic("out")
    works.topic("other")


def test_two_streams_are_joined_over_several_runs(
    spark: SparkSession, works: Works
) -> None:
    orders, payments = works.topics["orders"], works.topics["payments"]
    out = works.topics["out"]
    path = works.pipeline(SOURCES + JOIN + OUT)
    assert works.succeed(spark, path).rows == 5
    assert out.column("id") == [1]
    batch = works.batches[0]
    assert {name: read.rows for name, read in batch.sources.items()} == {
        "orders": 3,
        "payments": 2,
    }
    assert sorted(batch.offsets) == ["orders", "payments"]
    # The one is idle: its rows of the first run are in the state of the join.
    payments.write(of_order=[3, 2], amount=[30, 20], paid=minutes(7, 8))
    second = works.succeed(spark, path)
    assert (second.rows, second.went_on) == (2, "continues from the checkpoint")
    assert out.column("id") == [1, 2, 3]
    last = works.batches[-1]
    assert sum(last.sources["orders"].offsets["orders"].values()) == 3
    assert sum(last.sources["payments"].offsets["payments"].values()) == 4
    works.forget_commit()
    orders.grow(3)
    orders.write(id=[4], at=minutes(9), _partition=[2])
    payments.write(of_order=[4], amount=[40], paid=minutes(10))
    works.succeed(spark, path)
    assert out.column("id") == [1, 2, 3, 4]


def test_positions_and_lag_are_known_of_each_source(
    spark: SparkSession,
    works: Works,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = works.pipeline(SOURCES + UNION + OUT)
    works.succeed(spark, path)
    assert works.topics["out"].column("kind") == ["order"] * 3 + ["payment"] * 2
    works.topics["payments"].write(of_order=[3], amount=[30], paid=minutes(7))
    shown = command_of(capsys)("checkpoint", "show", str(path), "--json")
    sources = shown.json["query"]["sources"]
    assert [(one["name"], ends(one)) for one in sources] == [
        ("orders", {"orders": 3}),
        ("payments", {"payments": 2}),
    ]
    monkeypatch.chdir(works.folder)
    lag = command_of(capsys)("checkpoint", "lag", str(path), "--json")
    assert lag.status == 0
    text = str(lag.json)
    assert "orders" in text
    assert "payments" in text


def test_another_order_or_another_id_of_sources_is_refused(
    spark: SparkSession, works: Works
) -> None:
    works.succeed(spark, works.pipeline(SOURCES + UNION + OUT))
    turned = "select of_order as id, 'payment' as kind from payments union all "
    turned += "select id, 'order' from orders"
    step = f'[[steps]]\nid = "both"\nsql = "{turned}"\n'
    [problem] = refused(spark, works.pipeline(SOURCES + step + OUT))
    assert "is of the sources orders, payments, the query of the pipeline reads " in (
        problem
    )
    renamed = SOURCES.replace('"payments"\n', '"payments"\nid = "paid"\n')
    text = renamed + UNION.replace("from payments", "from paid") + OUT
    [problem] = refused(spark, works.pipeline(text))
    assert "reads orders, paid" in problem
    assert works.topics["out"].column("kind") == ["order"] * 3 + ["payment"] * 2


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (
            JOIN.replace("join", "left join").replace("and paid between", "-- ") + OUT,
            "step 'both': ",
        ),
        (
            f'{OUT}from = "orders"\n[[sinks]]\nstream = "other"\nfrom = "payments"\n',
            "the sinks 'out' and 'other' read several sources, and no step has",
        ),
        (f'{OUT}from = "orders"\n', "source 'payments' is read by no sink"),
        (UNION.replace("id, 'o", "nothing, 'o") + OUT, "step 'both': "),
    ],
    ids=["outer join", "two trunks", "unread", "column"],
)
def test_what_several_sources_cannot_do_is_refused_before_the_start(
    spark: SparkSession, works: Works, text: str, wrong: str
) -> None:
    [problem] = refused(spark, works.pipeline(SOURCES + text))
    assert wrong in problem
    assert not (works.folder / "checkpoints").exists()


def test_bad_messages_of_each_source_are_dead_letters(
    spark: SparkSession, works: Works
) -> None:
    for name in ("first", "second"):
        Messages(works, name).write(b'{"id": 1}', b"bad", b'{"id": 2}')
    text = "".join(
        f'[[sources]]\nstream = "{name}"\nstartingOffsets = "earliest"\n'
        for name in ("first", "second")
    )
    text += '[[steps]]\nid = "both"\n'
    text += 'sql = "select id from first union all select id from second"\n'
    text += OUT + '[dead-letters]\nstream = "other"\n'
    works.succeed(spark, works.pipeline(text))
    assert works.topics["out"].column("id") == [1, 1, 2, 2]
    assert sorted(row["topic"] for row in works.topics["other"].rows()) == [
        "first",
        "second",
    ]


def ends(source: dict[str, Any]) -> dict[str, int]:
    """How many rows of each topic lie before a position."""
    found: dict[str, int] = {}
    for one in source["offsets"]:
        found[one["topic"]] = found.get(one["topic"], 0) + one["offset"]
    return found


def refused(spark: SparkSession, path: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        Pipelines([path]).run(spark)
    return [str(one) for one in caught.value.problems]
