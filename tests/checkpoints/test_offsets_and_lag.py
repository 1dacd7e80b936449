"""`lag`, `offsets` and `checkpoint rewind`, over files."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from tests.checkpoints.test_checkpoint_commands import pipeline
from tests.proving.changes import change_at_once, in_threads
from tests.proving.commands import command_of

from streamfactory.spark.checkpoints import (
    PipelineCheckpoint,
    Place,
    apply_rewind,
    plan_rewind,
    read_record,
)
from streamfactory.spark.checkpoints.holding import hold, running
from streamfactory.spark.checkpoints.reading import read_query
from streamfactory.spi import Checkpoint, MisuseError, PositionRefused, WriterFenced
from streamfactory.wiring.streams.checkpoints import FileCheckpointStore, merged
from streamfactory.wiring.streams.groups import instance_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack
    from pathlib import Path

    from tests.checkpoints.conftest import QueryFolder, Topic
    from tests.proving.commands import Outcome

    Command = Callable[..., Outcome]


@pytest.fixture
def program(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Command:
    """Runs a command line, with an empty catalogue."""
    catalogue = tmp_path / "configs" / "streams"
    catalogue.mkdir(parents=True)
    monkeypatch.setenv("STREAMFACTORY_STREAMS", str(catalogue))
    return command_of(capsys)


def store_of(tmp_path: Path) -> FileCheckpointStore:
    return FileCheckpointStore(tmp_path / "groups")


def grouped(topic: Topic, tmp_path: Path, folder: Path | None = None) -> Path:
    """A stream whose groups keep checkpoints in files; one of two members each."""
    store, at = store_of(tmp_path), topic.at(3, 1)
    for partition in at:
        name = f"{instance_of(partition, 2)}-of-2"
        store.save("billing", name, Checkpoint(at.only({partition}), 5))
    (tmp_path / "elsewhere").mkdir(exist_ok=True)
    where = {"checkpoint.location": str(tmp_path / "groups")}
    return topic.file(folder or tmp_path / "elsewhere", **where)


def ran_pipeline(topic: Topic, tmp_path: Path, stack: ExitStack) -> QueryFolder:
    """A pipeline that has committed two batches."""
    from tests.checkpoints.conftest import QueryFolder

    sources = {"input": topic.source(stack)}
    opened = PipelineCheckpoint.open(
        str(tmp_path / "kept"), "delays", sources, reset="earliest#1"
    )
    query = QueryFolder(tmp_path / "kept" / "1")
    assert opened.folder == str(query.folder)
    query.plan(topic.at(3, 1), begun=[topic.at(0, 0)])
    query.commit()
    query.plan(topic.at(7, 3))
    query.commit()
    return query


# --- lag -------------------------------------------------------------------------


def test_lag_is_that_of_all_groups_and_pipelines_at_once(
    program: Command, topic: Topic, tmp_path: Path, stack: ExitStack
) -> None:
    grouped(topic, tmp_path, tmp_path / "configs" / "streams")
    ran_pipeline(topic, tmp_path, stack)
    pipelines = tmp_path / "configs" / "pipelines"
    pipelines.mkdir()
    pipeline(tmp_path, topic).rename(pipelines / "delays.toml")
    found = program("lag", "--json")
    assert (found.status, found.err) == (0, "")
    shown = [(one["kind"], one["name"], one["behind"]) for one in found.json["lags"]]
    assert shown == [("group", "billing", 10), ("pipeline", "delays", 4)]
    assert found.json["behind"] == 14
    text = program("lag", "billing", "--partitions").out.splitlines()
    assert text == [
        "NAME     KIND   STREAM  BEHIND  PARTITIONS  REMARKS",
        "billing  group  clicks  10      2",
        "",
        "group billing, stream clicks: 10 behind",
        "  TOPIC   PARTITION  OFFSET  LATEST  BEHIND  REMARK",
        "  clicks  0          3       10      7",
        "  clicks  1          1       4       3",
    ]


def test_of_a_stream_and_a_pipeline_of_one_name_it_is_the_stream(
    program: Command, topic: Topic, tmp_path: Path, stack: ExitStack
) -> None:
    stream = grouped(topic, tmp_path, tmp_path / "configs" / "streams")
    ran_pipeline(topic, tmp_path, stack)
    pipelines = tmp_path / "configs" / "pipelines"
    pipelines.mkdir()
    text = pipeline(tmp_path, topic).read_text()
    (pipelines / f"{stream.stem}.toml").write_text(f'name = "delays"\n{text}')

    def kinds(*targets: str) -> list[str]:
        found = program("lag", *targets, "--json")
        return [one["kind"] for one in found.json["lags"]]

    assert kinds(stream.stem) == ["group"]
    assert kinds(str(pipelines / f"{stream.stem}.toml")) == ["pipeline"]
    (pipelines / f"{stream.stem}.toml").rename(pipelines / "alone.toml")
    assert kinds("alone") == ["pipeline"]
    assert kinds() == ["group", "pipeline"]


def test_a_folder_named_like_a_stream_does_not_hide_it(
    program: Command, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = grouped(topic, tmp_path, tmp_path / "configs" / "streams")
    monkeypatch.chdir(tmp_path)
    (tmp_path / stream.stem).mkdir()
    assert "billing" in program("lag", stream.stem).out
    (tmp_path / "other").mkdir()
    found = program("lag", "other")
    assert found.status == 2
    assert "other is a folder, not a stream" in found.out + found.err


def test_one_target_that_fails_hides_no_other(
    program: Command, topic: Topic, tmp_path: Path
) -> None:
    stream = grouped(topic, tmp_path)
    gone = tmp_path / "gone.toml"
    gone.write_text(
        "[properties]\nstreamType = 'file'\n'stream.file.topic.name' = 'gone'\n"
        f"'stream.file.path' = '{tmp_path}/topics'\n"
        f"'checkpoint.location' = '{tmp_path}/groups'\n"
    )
    found = program("lag", stream, gone, "nobody", "--json")
    assert found.status == 2
    assert [one["name"] for one in found.json["lags"]] == ["billing"]
    problems = {one["target"]: one["error"] for one in found.json["problems"]}
    assert problems == {"nobody": "unknown_stream"}
    assert "no group of the catalogue's streams" in program("lag", "nobody").out


def test_an_interval_without_a_watch_is_refused(program: Command) -> None:
    done = program("lag", "--every", "1s", "--json")
    assert (done.status, done.out) == (2, "")
    assert (done.error["error"], done.error["what"]) == (
        "usage",
        "--every requires --watch.",
    )


def test_a_group_is_found_beside_streams_that_fail_with_a_warning_for_each(
    program: Command, topic: Topic, tmp_path: Path
) -> None:
    catalogue = tmp_path / "configs" / "streams"
    grouped(topic, tmp_path, catalogue)
    broken = ("broken", "torn")
    for name in broken:
        (catalogue / f"{name}.toml").write_text(
            "[properties]\nstreamType = 'file'\n"
            f"'stream.file.topic.name' = '{name}'\n'stream.file.path' = 'x'\n"
            f"'checkpoint.location' = '{tmp_path}/{name}'\n"
        )
        store = FileCheckpointStore(tmp_path / name)
        store.save("billing", "0-of-1", Checkpoint(topic.at(3, 1), 5))
        for path in (tmp_path / name).rglob("*"):
            if path.is_file():
                path.write_text("{")
    done = program("lag", "billing")
    assert done.status == 0
    assert "billing  group  clicks" in done.out
    warnings = [one for one in done.err.splitlines() if one.startswith("warning: ")]
    assert len(warnings) == len(broken)
    for name, warning in zip(broken, warnings, strict=True):
        assert f"group 'billing', stream '{name}': " in warning


def test_lag_watches_until_it_is_stopped(topic: Topic, tmp_path: Path) -> None:
    stream = grouped(topic, tmp_path)
    command = [sys.executable, "-m", "streamfactory", "lag", str(stream), "--watch"]
    with subprocess.Popen(
        [*command, "--json", "--every", "100ms"], stdout=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        rounds = [json.loads(watching.stdout.readline()) for _ in range(3)]
        watching.terminate()
        assert watching.wait(60) == 0
    assert [one["behind"] for one in rounds] == [10, 10, 10]


# --- offsets of groups -----------------------------------------------------------


def test_the_position_of_a_group_is_set_as_it_was_shown(
    program: Command, topic: Topic, tmp_path: Path
) -> None:
    stream, store = grouped(topic, tmp_path), store_of(tmp_path)
    before = program("offsets", "show", stream).out
    assert before == 'group billing: {"clicks": {"0": 3, "1": 1}}\n'
    arguments = ("offsets", "set", stream, "0=0", "1=4", "--group", "billing")
    dry = program(*arguments, "--dry-run")
    assert dry.out.splitlines() == [
        "group billing in clicks: would be set",
        "  TOPIC   PARTITION  FROM  TO  MOVED  REMARK",
        "  clicks  0          3     0   -3",
        "  clicks  1          1     4   +3",
    ]
    assert program("offsets", "show", stream).out == before
    done = program(*arguments, "--yes", "--json")
    assert (done.status, done.json["outcome"]) == (0, "done")
    assert merged(store.load("billing")) == topic.at(0, 4)
    back = before.partition(": ")[2].strip()
    again = program("offsets", "set", stream, back, "--group", "billing", "--yes")
    assert again.status == 0
    assert program("offsets", "show", stream, "--group", "billing").out == before


@pytest.mark.parametrize(
    ("to", "offsets"),
    [("earliest", (0, 0)), ("latest", (10, 4)), ("0=latest", (10, 1)), ("0s", (10, 4))],
)
def test_a_group_is_reset(
    to: str,
    offsets: tuple[int, int],
    program: Command,
    topic: Topic,
    tmp_path: Path,
) -> None:
    stream = grouped(topic, tmp_path)
    done = program(
        "offsets", "reset", stream, "--to", to, "--group", "billing", "--yes"
    )
    assert (done.status, done.err) == (0, "")
    assert merged(store_of(tmp_path).load("billing")) == topic.at(*offsets)


def test_of_two_changes_of_a_group_at_once_one_is_made(
    topic: Topic, tmp_path: Path
) -> None:
    grouped(topic, tmp_path)
    store, where = store_of(tmp_path), {"checkpoint.location": str(tmp_path / "groups")}
    for _ in range(20):
        # Each moves another partition: the second is refused all the same.
        at = list(merged(store.load("billing")).values())
        moves = {0: at[0] % 5 + 1}, {1: at[1] % 3 + 1}
        outcomes = change_at_once(
            lambda stack: topic.source(stack, **where), "billing", *moves
        )
        (refused,) = [error for error in outcomes if error is not None]
        assert "has changed meanwhile" in str(refused)
        made = moves[outcomes.index(None)]
        after = {n: made.get(n, offset) for n, offset in enumerate(at)}
        assert merged(store.load("billing")) == topic.at(*after.values())


def test_a_change_of_a_group_fences_its_member_that_runs(
    program: Command, topic: Topic, tmp_path: Path
) -> None:
    stream, store = grouped(topic, tmp_path), store_of(tmp_path)
    (of_first,) = [n for n in store.load("billing") if "0-of" in n]
    member = store_of(tmp_path)
    member.claim("billing", of_first)
    member.load("billing")
    member.save("billing", of_first, Checkpoint(topic.at(4, 1), 6))
    done = program("offsets", "set", stream, "0=0", "--group", "billing", "--yes")
    assert done.status == 0
    with pytest.raises(WriterFenced):
        member.save("billing", of_first, Checkpoint(topic.at(5, 1), 9))
    assert merged(store.load("billing")) == topic.at(0, 1)


def test_of_two_forced_moves_of_a_pipeline_at_once_one_is_made(
    topic: Topic, tmp_path: Path, stack: ExitStack
) -> None:
    query = ran_pipeline(topic, tmp_path, stack)
    place = Place.of(str(tmp_path / "kept"))
    read, source = read_query(Place.of(str(query.folder))), topic.source(stack)
    plan = plan_rewind(place, read_record(place), read, source, {0: 1})
    outcomes: list[object] = []

    def move() -> None:
        ready.wait(30)
        try:
            apply_rewind(place, plan, source, why="a test", force=True)
            outcomes.append(None)
        except PositionRefused as error:
            outcomes.append(type(error))

    ready = threading.Barrier(4)
    with hold(place):
        in_threads([move] * 4)
    assert outcomes.count(None) == 1
    assert outcomes.count(PositionRefused) == 3


@pytest.mark.parametrize(
    ("arguments", "error", "what"),
    [
        (
            ("set", "0=11"),
            "offset_out_of_range",
            "offset 11 is beyond the latest offset 10",
        ),
        (
            ("set", "7=1"),
            "topic_not_found",
            "partition 7 does not exist; available are 0 to 1",
        ),
        (("set", '{"views":{"0":1}}'), "position_refused", "not of this stream"),
        (("set", "earliest"), "usage", "wanted a position, or PARTITION=OFFSET"),
        (("reset", "--to", "0=1", "--force"), "usage", "--force is for pipelines"),
    ],
)
def test_what_the_stream_does_not_have_is_refused_and_nothing_changes(
    arguments: tuple[str, ...],
    error: str,
    what: str,
    program: Command,
    topic: Topic,
    tmp_path: Path,
) -> None:
    stream = grouped(topic, tmp_path)
    before = store_of(tmp_path).load("billing")
    command, *rest = arguments
    done = program(
        "offsets", command, stream, *rest, "--group", "billing", "--yes", "--json"
    )
    assert done.status in (1, 2)
    assert (done.error["error"], what in done.error["what"]) == (error, True), done.err
    assert store_of(tmp_path).load("billing") == before


def test_offsets_that_expired_are_refused(
    program: Command, topic: Topic, tmp_path: Path
) -> None:
    stream = grouped(topic, tmp_path)
    topic.truncate({0: 10})
    done = program(
        "offsets", "set", stream, "0=2", "--group", "billing", "--yes", "--json"
    )
    assert (done.status, done.error["error"]) == (1, "offset_out_of_range")
    assert (done.error["partition"], done.error["offset"]) == ("clicks-0", 2)


def test_a_group_without_a_position_is_refused_with_those_that_have_one(
    program: Command, topic: Topic, tmp_path: Path
) -> None:
    stream = grouped(topic, tmp_path)
    done = program(
        "offsets", "reset", stream, "--to", "latest", "--group", "bill", "--yes"
    )
    what = "group 'bill' has no position in this stream (stream 'clicks')"
    remedy = "groups with a position are billing"
    assert (done.status, done.err) == (
        1,
        f"error: [position_refused] {what}; {remedy}\n",
    )


def test_a_stream_whose_groups_store_no_positions_is_refused(
    program: Command, topic: Topic, tmp_path: Path
) -> None:
    stream = topic.file(tmp_path)
    done = program("offsets", "show", stream, "--json")
    assert (done.status, done.error["error"]) == (2, "unsupported")
    assert program("lag", stream).status == 2


# --- rewind ----------------------------------------------------------------------


def test_a_pipeline_is_moved_back_to_a_batch_as_a_new_generation(
    program: Command, topic: Topic, tmp_path: Path, stack: ExitStack
) -> None:
    ran_pipeline(topic, tmp_path, stack)
    file = pipeline(tmp_path, topic)
    before = read_record(Place.of(str(tmp_path / "kept")))
    dry = program("checkpoint", "rewind", file, "--batch", 1, "--dry-run")
    assert dry.out.splitlines() == [
        "delays: would be moved: 6 offsets written again",
        "  TOPIC   PARTITION  FROM  TO  AGAIN  SKIPPED",
        "  clicks  0          7     3   4      0",
        "  clicks  1          3     1   2      0",
        'position: {"clicks": {"0": 3, "1": 1}}',
    ]
    assert read_record(Place.of(str(tmp_path / "kept"))) == before
    done = program("checkpoint", "rewind", file, "--batch", 1, "--yes", "--json")
    assert (done.status, done.json["outcome"], done.json["generation"]) == (
        0,
        "done",
        2,
    )
    assert (done.json["again"], done.json["skipped"]) == (6, 0)
    # The next run starts there, also with the --reset that a supervisor repeats.
    sources = {"input": topic.source(stack)}
    opened = PipelineCheckpoint.open(
        str(tmp_path / "kept"), "delays", sources, reset="earliest#1"
    )
    assert opened.generation == 2
    assert opened.folder == str(tmp_path / "kept" / "2")
    assert opened.start == {"input": {"startingOffsets": '{"clicks":{"0":3,"1":1}}'}}
    assert "moved by `checkpoint rewind` to batch 1" in opened.why


def test_the_lag_of_a_pipeline_that_was_moved_is_counted_from_its_saved_start(
    program: Command, topic: Topic, tmp_path: Path, stack: ExitStack
) -> None:
    ran_pipeline(topic, tmp_path, stack)
    file = pipeline(tmp_path, topic)
    program("checkpoint", "rewind", file, "--batch", 1, "--yes")
    found = program("lag", file, "--json")
    assert (found.status, found.json["behind"]) == (0, 10)
    found = program("checkpoint", "lag", file, "--json")
    assert (found.status, found.json["behind"]) == (0, 10)
    found = program("offsets", "show", file)
    assert (found.status, found.out.splitlines()) == (
        0,
        ['pipeline delays: {"clicks": {"0": 3, "1": 1}}'],
    )
    (source,) = program("checkpoint", "show", file, "--json").json["query"]["sources"]
    assert [one["offset"] for one in source["offsets"]] == [3, 1]
    again = program("checkpoint", "rewind", file, "--to", "0=1", "--yes", "--json")
    assert again.status == 1
    assert "no batch was planned" in again.err


def test_rows_of_an_unfinished_batch_may_be_written_again(
    program: Command, topic: Topic, tmp_path: Path, stack: ExitStack
) -> None:
    ran_pipeline(topic, tmp_path, stack).plan(topic.at(10, 4))
    file = pipeline(tmp_path, topic)
    found = program("checkpoint", "rewind", file, "--to", "0=7", "--dry-run", "--json")
    assert (found.json["unfinished_batch"], found.json["again"]) == (2, 4)


def test_a_pipeline_moves_by_offsets_too_and_skips(
    program: Command, topic: Topic, tmp_path: Path, stack: ExitStack
) -> None:
    ran_pipeline(topic, tmp_path, stack)
    file = pipeline(tmp_path, topic)
    done = program("offsets", "reset", file, "--to", "0=latest", "--yes", "--json")
    assert (done.status, done.json["again"], done.json["skipped"]) == (0, 0, 3)
    record = read_record(Place.of(str(tmp_path / "kept")))
    assert record is not None
    assert record.start == ({"startingOffsets": '{"clicks":{"0":10,"1":3}}'},)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--batch", "9"), "position_refused"),
        (("--to", "0=99"), "offset_out_of_range"),
        (("--to", "5=1"), "topic_not_found"),
        ((), "usage"),
        (("--to", "earliest", "--batch", "1"), "usage"),
    ],
)
def test_a_rewind_out_of_range_changes_nothing(
    arguments: tuple[str, ...],
    error: str,
    program: Command,
    topic: Topic,
    tmp_path: Path,
    stack: ExitStack,
) -> None:
    ran_pipeline(topic, tmp_path, stack)
    before = (tmp_path / "kept" / "pipeline.json").read_bytes()
    file = pipeline(tmp_path, topic)
    done = program("checkpoint", "rewind", file, *arguments, "--yes", "--json")
    assert (done.status > 0, done.error["error"]) == (True, error), done.err
    assert (tmp_path / "kept" / "pipeline.json").read_bytes() == before


def test_a_rewind_is_refused_while_a_run_uses_the_checkpoint_unless_forced(
    program: Command, topic: Topic, tmp_path: Path, stack: ExitStack
) -> None:
    ran_pipeline(topic, tmp_path, stack)
    file, place = pipeline(tmp_path, topic), Place.of(str(tmp_path / "kept"))
    arguments = ("checkpoint", "rewind", file, "--batch", 0, "--yes", "--json")
    before = read_record(place)
    with hold(place):
        refused = program(*arguments)
        assert (refused.status, refused.error["error"]) == (2, "misuse")
        assert "it is in use by process " in refused.error["what"]
        assert read_record(place) == before
        with pytest.raises(MisuseError, match="is in use by process"), hold(place):
            pass
        assert program(*arguments, "--force").json["outcome"] == "done"
    assert running(place) is None


def test_the_hold_on_a_checkpoint_ends_with_its_process(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from streamfactory.spark.checkpoints import Place\n"
        "from streamfactory.spark.checkpoints.holding import hold\n"
        "with hold(Place.of(sys.argv[1])):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    place = Place.of(str(tmp_path / "kept"))
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "kept")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        assert f"process {child.pid} on " in str(running(place))
        child.kill()
        child.wait(60)
        assert running(place) is None
