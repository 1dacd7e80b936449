"""Pipelines without Spark: each row once, in each sink, and what they refuse."""

from __future__ import annotations

import json
import re
import shutil
import threading
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import streamfactory
from streamfactory.spark.checkpoints import Place
from streamfactory.spark.pipelines.checking import check_draft
from streamfactory.spark.pipelines.definition import read_pipeline
from streamfactory.spark.pipelines.overriding import Overrides
from streamfactory.spark.pipelines.rowwise.ends import open_backfill, skipped_by
from streamfactory.spark.pipelines.rowwise.running import RowRun, run_rowwise
from streamfactory.spark.targets import target_lags
from streamfactory.spi import ConfigError, MisuseError, PositionRefused, StreamError
from streamfactory.wiring.config.catalogue import Catalogue
from streamfactory.wiring.controls.states import Controls, Pause, pipeline_job
from streamfactory.wiring.writing.committer import Committer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipelines.conftest import Works
    from tests.proving.sessions import Topic

    from streamfactory.spark.pipelines.outcomes import Batch, Outcome

STEPS = """
[[steps]]
id = "words"
sql = "select id, cast(id as string) as Word from INPUT"
[[steps]]
id = "even"
sql = "select id from words where id % 2 = 0"
"""
SINKS = """
[[sinks]]
stream = "words"
from = "words"
[[sinks]]
stream = "even"
"""
EXPECTED = """
[[expectations]]
name = "low"
on = "words"
condition = "id < 15"
"on.failure" = "{way}"
"""


@pytest.fixture
def folder(works: Works, monkeypatch: pytest.MonkeyPatch) -> Works:
    monkeypatch.chdir(works.folder)
    for name in ("words", "even", "bad"):
        works.topic(name)
    return works


def filled(works: Works, rows: int = 20) -> Topic:
    topic = works.topic("in", options={"schema": "id bigint"})
    put(topic, range(rows))
    return topic


def put(topic: Topic, numbers: Any) -> None:
    with streamfactory.open_sink(topic.options) as sink:
        for part in range(2):
            own = [n for n in numbers if n % 4 // 2 == part]
            ids = pa.array(own, pa.int64())
            parts = pa.array([part] * len(own), pa.int32())
            sink.put(pa.table({"id": ids, "_partition": parts}))


def ids(works: Works, name: str) -> list[int]:
    with streamfactory.open(works.topics[name].options) as stream:
        return sorted(n for b in stream for n in b.rows.column("id").to_pylist())


def run(works: Works, *paths: Path, **overrides: Any) -> Outcome:
    stop = threading.Event()
    over = Overrides(**overrides)
    [found, *_] = run_rowwise(paths, over, stop, works.batches.append)
    return found


def made(works: Works, text: str = STEPS + SINKS, **options: Any) -> Path:
    return works.pipeline(text, engine="datafusion", **options)


def test_each_row_is_in_each_sink_once(folder: Works) -> None:
    topic, path = filled(folder), made(folder)
    done = run(folder, path)
    assert (done.failure, done.complete, done.rows) == (None, True, 20)
    assert "not durable" in done.promise  # as the topics of these tests are
    put(topic, range(20, 30))
    again = run(folder, path)
    assert (again.rows, again.went_on) == (10, "continues from the checkpoint")
    assert ids(folder, "words") == [*range(30)]
    assert ids(folder, "even") == [*range(0, 30, 2)]
    last = folder.batches[-1]
    assert last.offsets == {"in": {"0": 16, "1": 14}}
    assert last.lag == {"in": {"0": 0, "1": 0}}
    assert last.sources["input"].rows == 10


def test_without_a_start_option_it_begins_at_the_latest(folder: Works) -> None:
    topic = filled(folder)
    path = made(folder, f'[source]\nstream = "in"\n{STEPS}{SINKS}')
    assert run(folder, path).rows == 0
    put(topic, [40])
    assert run(folder, path).rows == 1
    assert ids(folder, "words") == [40]


@pytest.mark.parametrize(
    ("way", "kept", "failed"),
    [
        ("warn", 20, None),
        ("drop", 15, None),
        ("dead-letter", 15, None),
        ("fail", 0, "expectation 'low' of step 'words' failed for the row {\"id\": "),
    ],
)
def test_expectations(folder: Works, way: str, kept: int, failed: str | None) -> None:
    filled(folder)
    text = EXPECTED.format(way=way)
    text += 'stream = "bad"\n' if way == "dead-letter" else ""
    done = run(folder, made(folder, STEPS + text + SINKS))
    assert (failed or "") in (done.failure or "")
    assert bool(done.failure) == bool(failed)
    if failed is None:
        assert done.unmet == {"low": 5}
        assert ids(folder, "words") == [*range(kept)]
        assert ids(folder, "even") == [*range(0, kept, 2)]
    else:
        assert "expectation_failed" in (done.failure or "")
        assert "rows of in-" in (done.failure or "")
    if way == "dead-letter":
        assert ids(folder, "bad") == [*range(15, 20)]


def test_bad_messages_are_dead_letters(folder: Works) -> None:
    decoder = "stream.file.decoder.class.name"
    raw = folder.topic("in", 1, {decoder: "raw"})
    with streamfactory.open_sink(raw.options) as sink:
        sink.put(pa.table({"value": [b'{"id": 1}', b"{", b'{"id": 2}']}))
    folder.topic("in", 1, {decoder: "json", "schema": "id bigint"})
    letters = '[dead-letters]\nstream = "bad"\n'
    done = run(folder, made(folder, STEPS + SINKS + letters))
    assert done.failure is None
    assert ids(folder, "words") == [1, 2]
    with streamfactory.open(folder.topics["bad"].options) as stream:
        [found] = [row for batch in stream for row in batch.rows.to_pylist()]
    assert (found["offset"], found["value"]) == (1, b"{")


def test_a_reset_begins_again_once_with_another_identity(folder: Works) -> None:
    filled(folder)
    path = made(folder)
    run(folder, path)
    for rows in (20, 0):
        assert run(folder, path, reset="earliest#a").rows == rows
    assert run(folder, path, ignore="b").rows == 20
    assert ids(folder, "even") == sorted([*range(0, 20, 2)] * 3)


@pytest.mark.parametrize("passes", range(6))
def test_an_end_at_each_commit_loses_and_doubles_nothing(
    folder: Works, monkeypatch: pytest.MonkeyPatch, passes: int
) -> None:
    topic = filled(folder)
    text = EXPECTED.format(way="dead-letter") + 'stream = "bad"\n'
    small = '"realtime.segment.flush.threshold.rows" = "8"\n'
    path = made(
        folder,
        STEPS + text + SINKS.replace('from = "words"\n', f'from = "words"\n{small}'),
    )
    commit, left = Committer.commit, [passes]

    def ending(self: Committer, *args: Any, **how: Any) -> Any:
        found = commit(self, *args, **how)
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt  # the commit is there, and nothing behind it
        return found

    monkeypatch.setattr(Committer, "commit", ending)

    def run_often() -> None:
        for _ in range(10):
            run(folder, path)
            put(topic, [0])

    with pytest.raises(KeyboardInterrupt):
        run_often()
    monkeypatch.setattr(Committer, "commit", commit)
    given = ids(folder, "in")
    assert run(folder, path).failure is None
    assert ids(folder, "words") == [n for n in given if n < 15]
    assert ids(folder, "even") == [n for n in given if n < 15 and n % 2 == 0]
    assert ids(folder, "bad") == [n for n in given if n >= 15]


def test_a_paused_pipeline_does_not_begin(folder: Works) -> None:
    filled(folder)
    path = made(folder)
    pause = Pause("2026-01-01T00:00:00Z", "me", "tea")
    controls, job = Controls(), pipeline_job("p")
    controls.change(job, lambda state: replace(state, pause=pause))
    done = run(folder, path)
    assert (done.rows, done.pause, done.complete) == (0, pause, False)
    controls.change(job, lambda state: replace(state, pause=None))
    assert run(folder, path).rows == 20


def test_a_hook_sees_batches_and_its_failure_ends_the_run(folder: Works) -> None:
    topic = filled(folder)
    log = folder.folder / "hook.jsonl"
    script = folder.folder / "hook.sh"
    script.write_text(f"cat >> {log}; exit 3\n")
    path = made(folder, hook_command=f"sh {script}", **{"hook.on.failure": "fail"})
    done = run(folder, path)
    assert "hook_failed" in (done.failure or "")
    assert json.loads(log.read_text())["rows"] == 20
    put(topic, [33])
    assert "hook_failed" in (run(folder, path).failure or "")
    assert ids(folder, "words") == [*range(20), 33]


def test_two_pipelines_run_side_by_side_and_one_may_fail(folder: Works) -> None:
    filled(folder)
    works = folder
    failing = STEPS + EXPECTED.format(way="fail") + '[[sinks]]\nstream = "bad"\n'
    first = works.pipeline(failing, "first", engine="datafusion")
    second = works.pipeline(STEPS + SINKS, "second", engine="datafusion")
    outcomes = run_rowwise(
        [first, second], Overrides(), threading.Event(), works.batches.append
    )
    assert [one.failure is None for one in outcomes] == [False, True]
    assert ids(works, "words") == [*range(20)]


def test_a_defect_ends_one_pipeline_with_its_cause(folder: Works) -> None:
    filled(folder)
    paths = [
        folder.pipeline(STEPS + SINKS, name, engine="datafusion")
        for name in ("first", "second")
    ]

    def report(batch: Batch) -> None:
        if batch.pipeline == "second":
            msg = "no room for it"
            raise ValueError(msg)

    first, second = run_rowwise(paths, Overrides(), threading.Event(), report)
    assert (first.failure, second.failure) == (None, "ValueError: no room for it")


def test_a_checkpoint_of_another_engine_is_refused(folder: Works) -> None:
    filled(folder)
    path = made(folder)
    generation = Place.of(str(folder.folder / "checkpoints" / "p")).child("1")
    run(folder, path)
    (folder.folder / "checkpoints/p/1/copy.json").unlink()
    generation.replace("metadata", b'{"id": "x"}')
    with pytest.raises(ConfigError, match="written by the engine spark"):
        run(folder, path)


def test_a_changed_identity_is_refused(folder: Works) -> None:
    filled(folder)
    path = made(folder)
    run(folder, path)
    file = folder.folder / "checkpoints/p/1/copy.json"
    for text in ("{", '{"id": 3, "version": 1}', '{"id": "x", "version": 1}'):
        file.write_text(text)
        with pytest.raises(ConfigError, match=re.escape("copy.json")):
            run(folder, path)
    file.write_text('{"id": "x", "version": 9}')
    with pytest.raises(ConfigError, match="has version 9"):
        run(folder, path)
    file.unlink()
    with pytest.raises(ConfigError, match="is missing"):
        run(folder, path)
    assert ids(folder, "words") == [*range(20)]


def test_the_position_of_a_pipeline_that_began_no_batch_is_refused(
    folder: Works,
) -> None:
    folder.topic("in", options={"schema": "id bigint"})
    path = made(folder)
    with pytest.raises(StreamError, match="topic 'in' does not exist"):
        run(folder, path)
    with ExitStack() as stack, pytest.raises(PositionRefused) as caught:
        target_lags(stack, str(path), lambda _: None, Catalogue().snapshot())
    assert str(caught.value.remedy).startswith("run it first")


@pytest.mark.parametrize("name", ["_expectation", "__fulfilled_0"])
def test_a_column_with_the_name_of_one_that_expectations_add_is_refused(
    folder: Works, name: str
) -> None:
    filled(folder)
    steps = STEPS.replace("select id, cast", f"select id, id as {name}, cast")
    text = EXPECTED.format(way="dead-letter") + 'stream = "bad"\n'
    with pytest.raises(ConfigError, match=name):
        run(folder, made(folder, steps + text + SINKS))


def test_another_first_sink_is_refused(folder: Works) -> None:
    topic, path = filled(folder), made(folder)
    run(folder, path)
    put(topic, range(20, 30))
    added = '[[sinks]]\nstream = "bad"\nfrom = "words"\n'
    for sinks in (added + SINKS, '[[sinks]]\nstream = "even"\n' + added):
        path = made(folder, STEPS + sinks)
        with pytest.raises(ConfigError, match="the sink 'words' has the position"):
            run(folder, path)
        with pytest.raises(PositionRefused, match="make 'words' the first sink"):
            open_backfill(path)
    assert run(folder, made(folder, STEPS + SINKS + added)).rows == 10
    assert ids(folder, "words") == [*range(30)]
    assert ids(folder, "bad") == [*range(20, 30)]


def test_two_runs_at_once_are_refused(folder: Works) -> None:
    filled(folder)
    path = made(folder)
    draft = read_pipeline(path)

    def ignore(_: Batch) -> None:
        """Nothing."""

    first = RowRun(draft, None, None, ignore)
    first.open()
    try:
        with pytest.raises(ConfigError, match="is in use by"):
            run(folder, path)
    finally:
        first.close()


@pytest.mark.parametrize(
    ("text", "options", "cause"),
    [
        (STEPS + SINKS, {"trigger": "10s"}, "trigger: is a period"),
        (STEPS + SINKS, {"output.mode": "update"}, "update needs more than the row"),
        (STEPS + SINKS, {"idle.stop.rounds": 1}, "there are no rounds"),
        (STEPS + SINKS + "[spark]\nx = 1\n", {}, "no Spark runs"),
        (
            STEPS + '"watermark.column" = "id"\n' + SINKS,
            {},
            "event time or distinct rows of step 'even' needs more than the row",
        ),
        (STEPS + '"distinct.by" = "id"\n' + SINKS, {}, "distinct rows of step 'even'"),
        (
            '[[lookups]]\nid = "x"\nformat = "csv"\npath = "x.csv"\n' + STEPS + SINKS,
            {},
            "the lookup 'x' needs more than the row",
        ),
        (
            STEPS + '[[tables]]\nformat = "delta"\npath = "x"\nname = "t"\n',
            {},
            "the table 't' is written by a connector of Spark",
        ),
        (
            '[[sources]]\nstream = "in"\nid = "input"\n[[sources]]\nstream = "even"\n'
            + STEPS
            + '[[sinks]]\nstream = "words"\n',
            {},
            "a second source, 'even', needs more than the row",
        ),
        (
            STEPS.replace("from words", "from word") + SINKS,
            {},
            "step 'even': 'word' is no id; there are input, words, even; did you mean",
        ),
        (STEPS.replace("from INPUT", "from even") + SINKS, {}, "is part of a cycle"),
        (STEPS.replace("% 2 = 0", "% 2 = '0'") + SINKS, {}, "of bigint and string"),
        (
            STEPS.replace("select id from", "select sum(id) as id from") + SINKS,
            {},
            "sum",
        ),
        (
            STEPS + EXPECTED.format(way="drop").replace("id < 15", "no < 15") + SINKS,
            {},
            "expectation 'low': line 1 of the SQL: there is no column 'no'",
        ),
        (
            STEPS + EXPECTED.format(way="drop").replace("id < 15", "id < ") + SINKS,
            {},
            "expectation 'low': line 1 of the SQL: the end, where a value is expected",
        ),
    ],
)
def test_what_needs_spark_is_refused_with_its_line(
    folder: Works, text: str, options: dict[str, Any], cause: str
) -> None:
    filled(folder)
    draft = read_pipeline(made(folder, text, **options))
    problems = [str(one) for one in check_draft(draft) if one.level == "error"]
    assert any(cause in one for one in problems), problems
    assert all(f"[{draft.origin}:" in one for one in problems), problems


def test_columns_that_only_the_stream_knows_are_checked_before_the_start(
    folder: Works,
) -> None:
    topic = folder.topic("in")
    put(topic, range(4))
    path = made(folder, STEPS.replace("select id from", "select no from") + SINKS)
    assert not check_draft(read_pipeline(path))
    with pytest.raises(ConfigError) as caught:
        run(folder, path)
    assert "there is no column 'no'" in str(caught.value.problems[0])
    assert not (folder.folder / "checkpoints/p/1/positions").exists()


def test_rows_that_do_not_fit_a_sink_are_refused_before_the_start(
    folder: Works,
) -> None:
    filled(folder)
    folder.topic("even", options={"schema": "id string"})
    with streamfactory.open_sink(folder.topics["even"].options) as sink:
        sink.put(pa.table({"id": ["x"]}))
    with pytest.raises(ConfigError, match="1 problem") as caught:
        run(folder, made(folder))
    assert "sink 'even'" in str(caught.value.problems[0])


def test_what_is_late_is_skipped_and_read_by_a_backfill(folder: Works) -> None:
    filled(folder)
    text = EXPECTED.format(way="dead-letter") + 'stream = "bad"\n'
    source = '[source]\nstream = "in"\nstartingOffsets = "earliest"\n'
    path = made(folder, source + '"fresh.within.rows" = "4"\n' + STEPS + text + SINKS)
    with pytest.raises(MisuseError, match="has not run"):
        skipped_by(path)
    stop = threading.Event()
    threading.Timer(5, stop.set).start()

    def count(batch: Batch) -> None:
        if batch.offsets == {"in": {"0": 10, "1": 10}}:
            stop.set()

    [done] = run_rowwise([path], Overrides("continuous"), stop, count)
    assert done.failure is None
    few = [*ids(folder, "words"), *ids(folder, "bad")]
    assert 0 < len(few) < 20
    with ExitStack() as opened:
        [lag] = target_lags(opened, str(path), lambda _: None, Catalogue().snapshot())
    _, ranges = skipped_by(path)
    found = streamfactory.metrics().select("skipped.offsets")
    assert ("pipeline/p",) in [one.labels for one in found]
    assert sum(one.skipped for one in lag.partitions) == sum(one.size for one in ranges)
    assert {one.skipped_ranges for one in lag.partitions} == {1}
    assert "skipped in 1 range" in lag.partitions[0].remarks
    for rows in (15, 0):  # the others are dead letters, which are not counted
        with open_backfill(path) as copy:
            assert copy.run(threading.Event()).rows == rows
    assert skipped_by(path)[1] == ()
    assert ids(folder, "words") == [*range(15)]
    assert ids(folder, "even") == [*range(0, 15, 2)]
    assert ids(folder, "bad") == [*range(15, 20)]


def test_a_row_has_to_fulfil_each_expectation(folder: Works) -> None:
    filled(folder)
    low = EXPECTED.format(way="drop")
    high = low.replace("low", "high").replace("id < 15", "id > 4")
    odd = low.replace("low", "odd").replace("id < 15", "id % 3 > 0")
    done = run(folder, made(folder, STEPS + low + high + odd + SINKS))
    assert done.unmet == {"low": 5, "high": 5, "odd": 7}
    assert ids(folder, "words") == [n for n in range(5, 15) if n % 3]


def test_a_lost_position_is_refused_after_the_first_run(folder: Works) -> None:
    filled(folder)
    path = made(folder)
    run(folder, path)
    shutil.rmtree(folder.folder / "checkpoints/p/1")
    with pytest.raises(ConfigError, match="1 problem") as caught:
        run(folder, path)
    assert "is missing, although a batch was committed" in str(caught.value.problems[0])
    assert ids(folder, "words") == [*range(20)]


def test_a_step_that_no_sink_reads_is_a_warning(folder: Works) -> None:
    filled(folder)
    sink = '[[sinks]]\nstream = "words"\nfrom = "words"\n'
    draft = read_pipeline(made(folder, STEPS + sink))
    [problem] = check_draft(draft)
    assert problem.level == "warning"
    assert problem.what == "step 'even' is read by no sink: it is not run"
