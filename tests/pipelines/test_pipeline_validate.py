"""``streamfactory validate`` of pipelines, which asks no stream."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.pipelines.conftest import SINK
from tests.proving.tiers import sample

from streamfactory.cli.main import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.pipelines.conftest import Works


def test_without_spark_the_sql_stays_unread(
    works: Works, capsys: pytest.CaptureFixture[str]
) -> None:
    works.topic("in")
    works.topic("out")
    good = works.pipeline('[[steps]]\nid = "a"\nsql = "selec"\n' + SINK, "good")
    bad = works.pipeline('[[sinks]]\nstream = "aut"\nfrom = "b"\n', "bad")
    assert run(["validate", str(good), "--no-spark"]) == 0
    assert capsys.readouterr().out == (
        f"good ({good}): ok, 1 warning\n"
        f"  warning: sql: its SQL was not read: --no-spark [{good}]\n"
    )
    assert run(["validate", str(good), str(bad), "in", "--no-spark"]) == 2
    out = capsys.readouterr().out
    assert f"bad ({bad}): 1 error, 1 warning\n" in out
    assert "  error: stream: no stream is named 'aut'; " in out
    assert f"good ({good}): ok, 1 warning\n" in out


@pytest.mark.long("starts a Spark of its own")
@pytest.mark.usefixtures("own_spark")
def test_sql_is_held_against_the_declared_schema(works: Works) -> None:
    works.topic("in", options={"schema": "id bigint, word string"})
    works.topic("other")
    works.topic("out")
    step = '[[steps]]\nid = "a"\nsql = "select idd from input"\n'
    declared = works.pipeline(step + SINK, "declared")
    unknown = works.pipeline(f'[source]\nstream = "other"\n{step}{SINK}', "unknown")
    ran = subprocess.run(
        [sys.executable, "-m", "streamfactory", "validate", declared, unknown],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (2, "")
    assert ran.stdout == (
        f"declared ({declared}): 1 error\n"
        "  error: sql: step 'a': A column, variable, or function parameter with name "
        "`idd` cannot be resolved. Did you mean one of the following? [`id`, `word`] "
        f"(line 1 of the SQL, column 8) [{declared}:5]\n"
        f"unknown ({unknown}): ok, 1 warning\n"
        "  warning: sql: columns were not checked: the source declares no schema; "
        f"`streamfactory run` asks the stream [{unknown}]\n"
    )


@pytest.mark.usefixtures("own_spark")
@pytest.mark.parametrize(
    "command",
    sample(
        [["validate", "--no-spark"], ["run"]],
        "starts a Spark, and refuses what `validate` refuses",
        shown_by="tests/pipelines/test_pipeline_command.py::test_bad_input_starts_nothing",
    ),
)
def test_a_guarantee_that_the_source_cannot_give_is_refused(
    works: Works, command: list[str]
) -> None:
    works.topic("in", options={"out.of.range": "earliest"})
    works.topic("out", options={"stream.file.fsync": "always"})
    path = works.pipeline(f'{SINK}guarantee = "exactly-once"\n')
    # Of its own: `run` starts Spark, and stops it.
    ran = subprocess.run(
        [sys.executable, "-m", "streamfactory", *command, path],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 2
    assert (
        "guarantee: guarantee=exactly-once is required, but this path to 'out' has "
        "at-most-once: "
        "out.of.range=earliest continues, with a loss record, after messages that "
        "retention removed; request a weaker guarantee, or remove the causes above "
        f"[{path}:7]"
    ) in ran.stdout + ran.stderr


def test_a_session_of_another_user_is_not_used_and_not_stopped(
    works: Works, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    works.topic("in")
    works.topic("out")
    assert run(["run", str(works.pipeline(SINK))]) == 1
    assert "this process already has a Spark session" in capsys.readouterr().err
    assert spark.range(3).count() == 3


def test_options_of_a_pipelines_streams_without_effect_are_warnings(
    works: Works, capsys: pytest.CaptureFixture[str]
) -> None:
    works.topic("in")
    works.topic("out")
    path = works.pipeline(f'{SINK}"stream.file.fsync.interval.millis" = "2s"\n')
    assert run(["validate", "--no-spark", str(path)]) == 0
    assert (
        "  warning: stream.file.fsync.interval.millis: has no effect without "
        f"fsync=interval [{path}:7]\n"
    ) in capsys.readouterr().out
