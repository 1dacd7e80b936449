"""The checkpoint of a pipeline: its own, whole, and reset only on request."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.checkpoints.conftest import Topic

from streamfactory.spark.checkpoints import PipelineCheckpoint
from streamfactory.spi import (
    CheckpointFailed,
    IncarnationChanged,
    MisuseError,
    OffsetOutOfRange,
    Partition,
    PartitionVanished,
    PositionRefused,
    TopicNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from tests.checkpoints.conftest import QueryFolder

    from streamfactory.wiring.reading.source import Source

    Open = Callable[..., PipelineCheckpoint]
    Ran = Callable[..., QueryFolder]

EARLIEST = {"input": {"startingOffsets": "earliest"}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "checkpoint"


@pytest.fixture
def opened(folder: Path, topic: Topic, stack: ExitStack) -> Open:
    """Opens the checkpoint of a pipeline that reads one topic."""
    source = topic.source(stack)

    def once(**overrides: Any) -> PipelineCheckpoint:
        sources = {"input": source}
        return PipelineCheckpoint.open(str(folder), "delays", sources, **overrides)

    return once


def record_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "pipeline.json").read_text("utf-8"))
    return found


# --- going on, and beginning anew ------------------------------------------------


def test_the_first_run_makes_a_generation_that_begins_as_the_stream_says(
    opened: Open, folder: Path
) -> None:
    first = opened()
    assert first.folder == f"{folder}/1"
    assert (first.generation, first.start) == (1, None)
    assert first.why == "there is no checkpoint: starts as the stream is configured"
    record = record_of(folder)
    assert record.pop("history")[0]["why"] == first.why
    assert record == {
        "version": 1,
        "pipeline": "delays",
        "sources": ["file clicks"],
        "generation": 1,
        "begun": False,
        "start": [{}],
        "reset": None,
        "ignored": None,
    }
    assert not Path(first.folder).exists()  # that is Spark's to make


def test_a_run_that_was_killed_before_spark_began_begins_at_the_same_place(
    opened: Open, ran: Ran
) -> None:
    assert opened(reset="earliest").start == EARLIEST
    again = opened(reset="earliest")
    assert (again.generation, again.start) == (1, EARLIEST)
    assert again.why == (
        "nothing was planned yet: there is no checkpoint: starts at earliest"
    )
    assert opened().start == EARLIEST
    ran(again.folder)  # Spark has given it an id, and planned nothing
    assert opened().start == EARLIEST


def test_from_the_first_batch_on_the_checkpoint_says(
    opened: Open, ran: Ran, topic: Topic, folder: Path
) -> None:
    ran(opened(reset="earliest").folder, topic.at(3, 1))
    again = opened(reset="earliest")
    assert (again.generation, again.start) == (1, None)
    assert again.why == "--reset was applied before: continues from the checkpoint"
    assert record_of(folder)["begun"] is True


def test_a_reset_begins_another_generation_and_keeps_the_old_one(
    opened: Open, ran: Ran, topic: Topic
) -> None:
    old = ran(opened().folder, topic.at(3, 1))
    begun = opened(reset="earliest")
    assert (begun.generation, begun.start) == (2, EARLIEST)
    assert (old.folder / "offsets" / "0").is_file()
    assert opened(reset="earliest").generation == 2
    assert opened(reset="earliest#again").generation == 3
    assert opened(reset="earliest#again").generation == 3


def test_a_label_overrides_the_checkpoint_once(
    opened: Open, ran: Ran, topic: Topic
) -> None:
    ran(opened(reset="earliest").folder, topic.at(3, 1))
    begun = opened(ignore="monday")
    assert (begun.generation, begun.start) == (2, None)
    assert opened(ignore="monday").generation == 2
    assert opened(ignore="tuesday").generation == 3


def test_why_each_generation_was_begun_is_written_down(
    opened: Open, folder: Path
) -> None:
    opened()
    opened(reset="latest")
    history = record_of(folder)["history"]
    assert [(one["generation"], one["why"]) for one in history] == [
        (1, "there is no checkpoint: starts as the stream is configured"),
        (2, "--reset is new: starts at latest"),
    ]


def test_a_run_that_changes_nothing_writes_nothing(opened: Open, folder: Path) -> None:
    opened()
    before = (folder / "pipeline.json").stat().st_ino
    opened()
    assert (folder / "pipeline.json").stat().st_ino == before


# --- where a reset begins --------------------------------------------------------


def test_a_time_is_an_option_of_the_stream(opened: Open) -> None:
    assert opened(reset="2023-11-14T22:13:20Z").start == {
        "input": {
            "startingTimestamp": "1700000000000",
            "startingOffsetsByTimestampStrategy": "latest",
        }
    }


def test_a_period_becomes_a_time_once(opened: Open) -> None:
    first = opened(reset="2d")
    assert first.start is not None
    assert int(first.start["input"]["startingTimestamp"]) > 1700000000000
    assert opened(reset="2d").start == first.start


def test_a_position_begins_there_and_what_it_leaves_out_at_its_earliest(
    opened: Open, topic: Topic
) -> None:
    position = topic.at(7)
    assert opened(reset=position.to_json()).start == {
        "input": {"startingOffsets": '{"clicks":{"0":7,"1":0}}'}
    }


def test_a_start_that_was_decided_is_one_that_the_planner_takes(
    opened: Open, topic: Topic, stack: ExitStack
) -> None:
    from streamfactory.wiring.microbatch import Planner

    start = opened(reset=topic.at(7, 4).to_json()).start
    assert start is not None
    initial = Planner(topic.source(stack, **start["input"])).initial()
    assert initial.begun == topic.at(7, 4)


def test_each_stream_takes_its_part_of_a_position(
    folder: Path, topic: Topic, other: Topic, stack: ExitStack
) -> None:
    sources = {"a": topic.source(stack), "b": other.source(stack)}
    position = topic.at(7, 4).merge(other.at(2, 3))
    begun = PipelineCheckpoint.open(
        str(folder), "delays", sources, reset=position.to_json()
    )
    assert begun.start == {
        "a": {"startingOffsets": '{"clicks":{"0":7,"1":4}}'},
        "b": {"startingOffsets": '{"views":{"0":2,"1":3}}'},
    }


def test_offsets_that_are_not_held_are_refused_before_anything_changes(
    opened: Open, topic: Topic, folder: Path
) -> None:
    opened()
    before = (folder / "pipeline.json").read_bytes()
    with pytest.raises(OffsetOutOfRange) as caught:
        opened(reset=topic.at(11, 4).to_json())
    assert str(caught.value) == (
        "offset 11 is out of range: available are 0 to 10 (truncated) (stream "
        "'clicks', "
        "partition clicks-0, offset 11); name available offsets in --reset, or a time"
    )
    assert (folder / "pipeline.json").read_bytes() == before


def test_offsets_that_count_something_else_are_refused(
    opened: Open, topic: Topic
) -> None:
    position = topic.at(1, 1)
    topic.delete()
    topic.write(5, 5)
    with pytest.raises(IncarnationChanged) as caught:
        opened(reset=position.to_json())
    assert caught.value.partition == Partition("clicks", 0)


def test_a_partition_that_is_not_there_is_refused(opened: Open) -> None:
    with pytest.raises(PartitionVanished) as caught:
        opened(reset='{"clicks":{"0":1,"7":1}}')
    assert caught.value.partition == Partition("clicks", 7)


@pytest.mark.parametrize(
    ("reset", "what"),
    [
        ('{"views":{"0":1}}', "--reset names no offset of this stream"),
        (
            '{"clicks":{"0":1},"views":{"0":1}}',
            "--reset names 'views', which no stream of the pipeline reads",
        ),
    ],
)
def test_a_position_of_other_streams_is_refused(
    opened: Open, reset: str, what: str
) -> None:
    with pytest.raises(MisuseError) as caught:
        opened(reset=reset)
    assert caught.value.what == what


@pytest.mark.parametrize("reset", ["earliest", '{"clicks":{"0":1}}'])
def test_a_reset_that_the_stream_would_not_heed_is_refused(
    folder: Path, topic: Topic, stack: ExitStack, reset: str
) -> None:
    source = topic.source(stack, startingTimestamp="5")
    with pytest.raises(MisuseError) as caught:
        PipelineCheckpoint.open(str(folder), "delays", {"input": source}, reset=reset)
    assert str(caught.value) == (
        "startingTimestamp of the stream would take precedence over --reset "
        "(stream 'clicks'); remove startingTimestamp from the stream, or reset to a "
        "time"
    )
    assert not folder.exists()


# --- what is refused -------------------------------------------------------------


def test_the_checkpoint_of_another_pipeline_is_refused_whatever_is_asked(
    opened: Open, folder: Path, topic: Topic, stack: ExitStack
) -> None:
    opened()
    with pytest.raises(PositionRefused) as caught:
        PipelineCheckpoint.open(
            str(folder), "counts", {"input": topic.source(stack)}, reset="earliest"
        )
    assert str(caught.value) == (
        f"{folder} is the checkpoint of the pipeline 'delays', not of 'counts'; "
        "give each pipeline a checkpoint folder of its own"
    )


def test_the_checkpoint_of_another_stream_is_refused(
    opened: Open, folder: Path, other: Topic, stack: ExitStack
) -> None:
    opened()
    sources = {"input": other.source(stack)}
    with pytest.raises(PositionRefused) as caught:
        PipelineCheckpoint.open(str(folder), "delays", sources)
    assert str(caught.value) == (
        f"{folder} is of the stream file clicks, the pipeline reads file views; give "
        "each pipeline a checkpoint folder of its own, or begin again with --reset"
    )
    begun = PipelineCheckpoint.open(str(folder), "delays", sources, reset="earliest")
    assert begun.generation == 2
    assert PipelineCheckpoint.open(str(folder), "delays", sources).generation == 2


def test_another_number_of_streams_is_refused(
    opened: Open, folder: Path, topic: Topic, other: Topic, stack: ExitStack
) -> None:
    opened()
    sources = {"a": topic.source(stack), "b": other.source(stack)}
    with pytest.raises(PositionRefused) as caught:
        PipelineCheckpoint.open(str(folder), "delays", sources)
    assert caught.value.what == (f"{folder} is of 1 source streams, the pipeline has 2")


def test_offsets_of_another_stream_in_sparks_own_log_are_refused(
    opened: Open, ran: Ran, other: Topic
) -> None:
    first = opened()
    ran(first.folder, other.at(1, 1))
    with pytest.raises(PositionRefused) as caught:
        opened()
    assert caught.value.what == (
        f"{first.folder}: source 0 has partition views-0, which is not of this stream"
    )


def test_a_folder_of_a_query_is_refused(
    opened: Open, ran: Ran, folder: Path, topic: Topic
) -> None:
    ran(folder, topic.at(1, 1))
    with pytest.raises(PositionRefused) as caught:
        opened()
    assert caught.value.what == (
        f"{folder} is the checkpoint of a query, not of a pipeline"
    )


def test_a_folder_that_has_lost_its_record_is_refused(
    opened: Open, ran: Ran, folder: Path, topic: Topic
) -> None:
    ran(opened().folder, topic.at(1, 1))
    (folder / "pipeline.json").unlink()
    with pytest.raises(PositionRefused) as caught:
        opened(reset="earliest")
    assert str(caught.value) == (
        f"{folder} has no pipeline.json, and is not empty: it has 1; "
        "restore the file, or name another folder"
    )


def test_an_old_copy_of_the_record_is_refused(
    opened: Open, ran: Ran, folder: Path, topic: Topic
) -> None:
    opened()
    old = (folder / "pipeline.json").read_bytes()
    ran(opened(reset="earliest").folder, topic.at(1, 1))
    (folder / "pipeline.json").write_bytes(old)
    with pytest.raises(PositionRefused) as caught:
        opened()
    assert str(caught.value) == (
        f"{folder} has a generation 2, and pipeline.json has 1: "
        "it is an old copy; restore the newest one"
    )


@pytest.mark.parametrize("gone", ["", "offsets"], ids=["all", "offsets"])
def test_a_position_that_was_there_and_is_not_is_refused_not_guessed(
    opened: Open, ran: Ran, topic: Topic, gone: str
) -> None:
    first = opened(reset="earliest")
    ran(first.folder, topic.at(3, 1))
    first.note_begun()
    shutil.rmtree(Path(first.folder, gone))
    with pytest.raises(PositionRefused):
        opened(reset="earliest")
    assert opened(reset="latest").generation == 2


def test_what_was_noted_is_what_refuses(opened: Open, ran: Ran, topic: Topic) -> None:
    first = opened(reset="earliest")
    ran(first.folder, topic.at(3, 1))
    first.note_begun()
    first.note_begun()
    shutil.rmtree(first.folder)
    with pytest.raises(PositionRefused) as caught:
        opened()
    assert str(caught.value) == (
        f"the position in {first.folder} is missing, although a batch was committed; "
        "restore it, or begin again with --reset"
    )


def test_a_run_that_was_overtaken_by_a_reset_is_reported(opened: Open) -> None:
    first = opened()
    opened(reset="earliest")
    with pytest.raises(PositionRefused) as caught:
        first.note_begun()
    assert caught.value.remedy == "run a pipeline only once at a time"


def test_a_corrupt_position_is_refused_and_passed_over_by_a_fresh_reset(
    opened: Open, ran: Ran, topic: Topic
) -> None:
    first = opened()
    made = ran(first.folder, topic.at(3, 1))
    (made.folder / "offsets" / "0").write_bytes(b"")
    with pytest.raises(PositionRefused) as caught:
        opened()
    assert caught.value.what == f"{first.folder}/offsets/0 is recorded, and empty"
    assert opened(reset="earliest").generation == 2


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"version": 3}, "has version 3, this reads 2"),
        ({"version": 2}, "is not the record of a pipeline's checkpoint"),
        ({"names": ["a"]}, "is not the record of a pipeline's checkpoint"),
        (
            {"version": 2, "names": ["a", "b"]},
            "is not the record of a pipeline's checkpoint",
        ),
        ({"version": "1"}, "is not the record of a pipeline's checkpoint"),
        ({"version": 0}, "is not the record of a pipeline's checkpoint"),
        ({"more": 1}, "is not the record of a pipeline's checkpoint"),
        ({"generation": 0}, "is not the record of a pipeline's checkpoint"),
        ({"generation": True}, "is not the record of a pipeline's checkpoint"),
        ({"start": [{}, {}]}, "is not the record of a pipeline's checkpoint"),
        ({"start": [{"a": 1}]}, "is not the record of a pipeline's checkpoint"),
        ({"sources": []}, "is not the record of a pipeline's checkpoint"),
        ({"reset": ""}, "is not the record of a pipeline's checkpoint"),
        ({"history": [{}]}, "is not the record of a pipeline's checkpoint"),
        ({"begun": 1}, "is not the record of a pipeline's checkpoint"),
    ],
    ids=str,
)
def test_a_record_that_is_not_whole_or_newer_is_refused(
    opened: Open, folder: Path, change: dict[str, Any], what: str
) -> None:
    opened()
    body = json.dumps({**record_of(folder), **change})
    (folder / "pipeline.json").write_text(body, encoding="utf-8")
    with pytest.raises(PositionRefused) as caught:
        opened(reset="earliest")
    assert caught.value.what == f"{folder}/pipeline.json {what}"


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100000], ids=len)
def test_a_record_that_is_not_json_is_refused(
    opened: Open, folder: Path, content: bytes
) -> None:
    opened()
    (folder / "pipeline.json").write_bytes(content)
    with pytest.raises(PositionRefused) as caught:
        opened()
    assert caught.value.what == f"{folder}/pipeline.json is not JSON"


def test_the_record_of_the_first_version_stays_readable(
    folder: Path, topic: Topic, stack: ExitStack
) -> None:
    folder.mkdir(parents=True)
    frozen = Path(__file__).with_name("fixtures") / "pipeline-1.json"
    shutil.copy(frozen, folder / "pipeline.json")
    sources = {"input": topic.source(stack)}
    again = PipelineCheckpoint.open(str(folder), "delays", sources, reset="earliest#2")
    assert (again.generation, again.start) == (3, EARLIEST)


# --- several sources -------------------------------------------------------------


def test_several_sources_are_known_by_their_ids_in_the_order_of_the_query(
    folder: Path, tmp_path: Path, topic: Topic, stack: ExitStack, ran: Ran
) -> None:
    other = Topic(tmp_path / "others", "views")
    other.write(1)
    clicks, views = topic.source(stack), other.source(stack)

    def opened(**sources: Source) -> PipelineCheckpoint:
        return PipelineCheckpoint.open(str(folder), "delays", sources)

    first = opened(clicks=clicks, views=views)
    record = record_of(folder)
    assert (record["version"], record["names"]) == (2, ["clicks", "views"])
    assert record["sources"] == ["file clicks", "file views"]
    assert opened(clicks=clicks, views=views).generation == first.generation
    for sources in (
        {"views": views, "clicks": clicks},
        {"clicks": clicks, "seen": views},
        {"clicks": clicks},
        {"clicks": clicks, "views": views, "clicks#2": clicks},
    ):
        with pytest.raises(PositionRefused) as caught:
            opened(**sources)
        assert str(folder) in caught.value.what
    with pytest.raises(PositionRefused, match="reads views, clicks"):
        opened(views=views, clicks=clicks)


@pytest.fixture
def two(folder: Path, topic: Topic, other: Topic, stack: ExitStack) -> Open:
    """Opens the checkpoint of a pipeline that reads two topics, one of them twice."""
    clicks, views = topic.source(stack), other.source(stack)
    sources = {"a": clicks, "b": views, "a#2": clicks}

    def once(**overrides: Any) -> PipelineCheckpoint:
        return PipelineCheckpoint.open(str(folder), "delays", sources, **overrides)

    return once


def test_a_reset_of_one_source_lets_the_others_continue(
    two: Open, ran: Ran, topic: Topic, other: Topic
) -> None:
    ran(two().folder, topic.at(7, 4), other.at(2, 1), topic.at(7, 4))
    begun = two(reset="b=earliest")
    assert (begun.generation, begun.why) == (
        2,
        "--reset is new: starts at b=earliest",
    )
    kept = {"startingOffsets": '{"clicks":{"0":7,"1":4}}'}
    assert begun.start == {"a": kept, "b": {"startingOffsets": "earliest"}, "a#2": kept}
    # Nothing was planned since: the other one keeps the start that was decided.
    again = two(reset="a=latest")
    latest = {"startingOffsets": "latest"}
    assert again.start == {
        "a": latest,
        "b": {"startingOffsets": "earliest"},
        "a#2": latest,
    }
    assert two(reset="a=latest").generation == 3


def test_a_reset_of_one_source_needs_the_position_of_the_others(
    two: Open, ran: Ran, topic: Topic, other: Topic, folder: Path
) -> None:
    ends = (topic.at(7, 4), other.at(2, 1), topic.at(7, 4))
    query = ran(two().folder, *ends)
    with pytest.raises(MisuseError, match=r"names the source 'c'; there are a, b$"):
        two(reset="c=earliest")
    query.plan(*ends)
    with pytest.raises(PositionRefused) as caught:
        two(reset="b=earliest")
    assert "batch 1 is planned and not committed" in caught.value.what
    query.commit()
    (folder / "1" / "offsets" / "1").write_text("v1\nnothing")
    with pytest.raises(PositionRefused):
        two(reset="b=earliest")
    assert two(reset="earliest").generation == 2


def test_one_source_that_is_read_twice_has_a_record_of_the_first_version(
    folder: Path, topic: Topic, stack: ExitStack
) -> None:
    source = topic.source(stack)
    sources = {"input": source, "input#2": source}
    PipelineCheckpoint.open(str(folder), "delays", sources)
    assert record_of(folder)["version"] == 1


# --- durability ------------------------------------------------------------------


def test_what_a_crash_left_half_written_is_passed_over(
    opened: Open, folder: Path
) -> None:
    folder.mkdir(parents=True)
    (folder / ".pipeline.json.0a1b").write_bytes(b'{"ver')
    assert opened().generation == 1


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_record_that_cannot_be_saved_leaves_the_one_before(
    opened: Open, folder: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    opened()
    before = (folder / "pipeline.json").read_bytes()

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    owner: object = os if step == "fsync" else Path
    with monkeypatch.context() as patch:
        patch.setattr(owner, step, full)
        with pytest.raises(CheckpointFailed) as caught:
            opened(reset="earliest")
    assert str(caught.value) == (
        f"{folder}/pipeline.json could not be saved: No space left on device; "
        "save it again; the previous one remains valid"
    )
    assert [path.name for path in folder.iterdir()] == ["pipeline.json"]
    assert (folder / "pipeline.json").read_bytes() == before
    assert opened(reset="earliest").generation == 2


def test_the_file_and_its_folder_are_synced_in_this_order(
    opened: Open, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened()
    steps: list[str] = []
    sync, replace = os.fsync, Path.replace

    def noted_sync(descriptor: int) -> None:
        target = Path(f"/proc/self/fd/{descriptor}").readlink()
        steps.append("folder" if target.is_dir() else "file")
        sync(descriptor)

    def noted_replace(path: Path, target: Path) -> Path:
        steps.append("rename")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    opened(reset="earliest")
    assert steps == ["file", "rename", "folder"]


def test_a_folder_that_cannot_be_synced_is_reported(
    opened: Open, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened()
    sync = os.fsync

    def broken(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().is_dir():
            raise OSError(5, "Input/output error")
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        with pytest.raises(CheckpointFailed) as caught:
            opened(reset="earliest")
    assert str(caught.value) == (
        f"{folder}/pipeline.json may not outlive a crash: Input/output error; "
        "run it again"
    )
    assert opened(reset="earliest").generation == 2


RESETTING = """
import json, sys
from contextlib import ExitStack
from streamfactory.spark.checkpoints import PipelineCheckpoint
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import StreamDefinition
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.source import Source

folder, label, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
definition = StreamDefinition.of("clicks", options)
source = Source(configure(definition, default_manager(), use="spark"))
for number in range(100000):
    reset = f"earliest#{label}-{number}"
    found = PipelineCheckpoint.open(folder, "delays", {"input": source}, reset=reset)
    print(found.generation, flush=True)
"""


def test_a_kill_at_any_moment_leaves_a_record_that_holds(
    opened: Open, folder: Path, topic: Topic
) -> None:
    chance = random.Random(8)
    for label in range(5):
        command = [sys.executable, "-c", RESETTING, str(folder), str(label)]
        child = subprocess.Popen(
            [*command, json.dumps(topic.options)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        for _ in range(chance.randint(1, 40)):
            acknowledged = int(child.stdout.readline())
        child.kill()
        acknowledged = max([acknowledged, *map(int, child.stdout.read().split())])
        child.wait(timeout=300)
        child.stdout.close()
        found = opened()
        assert acknowledged <= found.generation <= acknowledged + 1
        assert found.start == EARLIEST


def test_a_time_that_cannot_be_looked_up_changes_nothing(
    opened: Open, folder: Path, topic: Topic
) -> None:
    opened()
    before = (folder / "pipeline.json").read_bytes()
    topic.delete()
    with pytest.raises(TopicNotFound):
        opened(reset="2d")
    assert (folder / "pipeline.json").read_bytes() == before
