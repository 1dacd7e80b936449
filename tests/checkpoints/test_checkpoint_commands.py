"""``streamfactory checkpoint``: what it says, and what it refuses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from streamfactory.spark.checkpoints import PipelineCheckpoint
from streamfactory.spi import Checkpoint, Partition, Position
from streamfactory.wiring.streams.checkpoints import FileCheckpointStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack
    from pathlib import Path

    from tests.checkpoints.conftest import QueryFolder, Topic
    from tests.proving.commands import Outcome

    Command = Callable[..., Outcome]
    Ran = Callable[..., QueryFolder]


@pytest.fixture
def two(query: QueryFolder, topic: Topic) -> QueryFolder:
    """Two batches, of which the last one is not done."""
    query.plan(topic.at(3, 1), begun=[topic.at(0, 0)])
    query.commit()
    query.plan(topic.at(7, 3))
    return query


def life(topic: Topic) -> str:
    return topic.at(0).incarnations[Partition(topic.name, 0)]


# --- show ------------------------------------------------------------------------


def test_show_prints_the_position_of_a_query(
    checkpoint: Command, two: QueryFolder, topic: Topic
) -> None:
    found = checkpoint("show", two.folder, "--json")
    assert found.status == 0
    plain = found.json["query"]
    assert plain.pop("age_seconds") >= 0
    assert plain.pop("committed_at").endswith("Z")
    lines = [
        {"topic": "clicks", "partition": p, "offset": o, "incarnation": life(topic)}
        for p, o in ((0, 3), (1, 1), (0, 7), (1, 3))
    ]
    assert plain == {
        "id": "a-query",
        "last_batch": 0,
        "unfinished_batch": 1,
        "planned_at": "2026-01-01T00:00:00.000Z",
        "watermark": None,
        "sources": [
            {
                "source": 0,
                "name": None,
                "position": topic.at(3, 1).to_json(),
                "offsets": lines[:2],
                "planned": lines[2:],
            }
        ],
        "notes": [],
    }
    assert found.json["pipeline"] is None
    assert found.json["groups"] is None


def test_show_is_a_page_for_people(
    checkpoint: Command, two: QueryFolder, topic: Topic
) -> None:
    out = checkpoint("show", two.folder).out.splitlines()
    assert out[0] == str(two.folder)
    assert out[1] == "query:             a-query"
    assert out[2].startswith("last batch:        0, committed 20")
    assert out[2].endswith(" s ago)")
    assert out[3:] == [
        "unfinished batch:  1, planned 2026-01-01T00:00:00.000Z: will be repeated",
        "watermark:         none",
        "",
        "source 0:",
        "  TOPIC   PARTITION  OFFSET  PLANNED TO  INCARNATION",
        f"  clicks  0          3       7           {life(topic)}",
        f"  clicks  1          1       3           {life(topic)}",
    ]


def test_show_prints_the_watermark_of_the_last_commit(
    checkpoint: Command, frozen: Callable[[str], Path]
) -> None:
    folder = frozen("two")
    query = checkpoint("show", folder, "--json").json["query"]
    assert query["watermark"] == "2026-01-01T00:00:24.000Z"
    assert len(query["sources"]) == 2


def test_show_of_a_query_that_has_only_a_name(
    checkpoint: Command, query: QueryFolder
) -> None:
    query.begin()
    found = checkpoint("show", query.folder)
    assert found.status == 0
    assert "last batch:  none" in found.out


def test_show_prints_the_history_of_a_pipeline(
    checkpoint: Command, tmp_path: Path, topic: Topic, stack: ExitStack, ran: Ran
) -> None:
    folder, sources = str(tmp_path / "p"), {"input": topic.source(stack)}
    PipelineCheckpoint.open(folder, "delays", sources)
    PipelineCheckpoint.open(folder, "delays", sources, reset="earliest#2")
    unbegun = checkpoint("show", folder).out.splitlines()
    assert unbegun[:5] == [
        folder,
        "pipeline:                  delays",
        "generation:                2: --reset is new: starts at earliest#2",
        "last --reset:              earliest#2",
        "last --ignore-checkpoint:  none",
    ]
    ran(f"{folder}/2", topic.at(3, 1))
    found = checkpoint("show", folder, "--json").json
    assert found["pipeline"]["generation"] == 2
    assert found["query"]["last_batch"] == 0


# --- lag -------------------------------------------------------------------------


def test_lag_is_from_the_next_batch_to_the_latest(
    checkpoint: Command, two: QueryFolder, topic: Topic, tmp_path: Path
) -> None:
    found = checkpoint("lag", two.folder, "--stream", topic.file(tmp_path), "--json")
    assert found.status == 0
    assert found.json["behind"] == 10
    [source] = found.json["sources"]
    assert (source["source"], source["stream"]) == ("source 0", "clicks")
    assert source["partitions"] == [
        {
            "topic": "clicks",
            "partition": partition,
            "offset": offset,
            "latest": latest,
            "behind": latest - offset,
            "remark": None,
            "commits": None,
            "waiting": 0,
            "waiting_since": None,
            "skipped": 0,
            "skipped_ranges": 0,
        }
        for partition, offset, latest in ((0, 3, 10), (1, 1, 4))
    ]


def test_lag_moves_while_the_query_stands_still(
    checkpoint: Command, two: QueryFolder, topic: Topic, tmp_path: Path
) -> None:
    stream = topic.file(tmp_path)
    topic.write(5, 0)
    found = checkpoint("lag", two.folder, "--stream", stream)
    assert found.out.splitlines() == [
        f"{two.folder}: 15 behind",
        "",
        "source 0, stream clicks: 15 behind",
        "  TOPIC   PARTITION  OFFSET  LATEST  BEHIND  REMARK",
        "  clicks  0          3       15      12",
        "  clicks  1          1       4       3",
    ]


def test_lag_reports_expired_offsets(
    checkpoint: Command, query: QueryFolder, topic: Topic, tmp_path: Path
) -> None:
    stream = topic.file(tmp_path)
    query.plan(topic.at(3))
    query.commit()
    topic.truncate({0: 5})
    lines = checkpoint("lag", query.folder, "--stream", stream, "--json").json
    by_partition = lines["sources"][0]["partitions"]
    assert [(p["behind"], p["remark"]) for p in by_partition] == [
        (7, "2 expired"),
        (4, "new"),
    ]


def test_lag_of_a_recreated_stream_is_unknown(
    checkpoint: Command, two: QueryFolder, topic: Topic, tmp_path: Path
) -> None:
    topic.delete()
    topic.write(100, 100)
    found = checkpoint("lag", two.folder, "--stream", topic.file(tmp_path), "--json")
    assert found.json["behind"] is None
    partitions = found.json["sources"][0]["partitions"]
    assert [p["remark"] for p in partitions] == ["recreated", "recreated"]


def test_lag_requires_a_stream_for_each_source(
    checkpoint: Command, two: QueryFolder
) -> None:
    found = checkpoint("lag", two.folder, "--json")
    assert found.status == 2
    assert found.error["what"] == (
        f"{two.folder} has 1 sources, and 0 streams are named"
    )
    assert found.error["remedy"] == (
        "name each with --stream, in the order of the query"
    )


def test_lag_against_another_stream_is_refused(
    checkpoint: Command, two: QueryFolder, other: Topic, tmp_path: Path
) -> None:
    found = checkpoint("lag", two.folder, "--stream", other.file(tmp_path), "--json")
    assert found.status == 1
    assert found.error["error"] == "position_refused"
    assert found.error["what"] == (
        "the position has partition clicks-0, which is not of this stream"
    )


def test_lag_before_anything_was_planned_is_refused(
    checkpoint: Command, query: QueryFolder, topic: Topic, tmp_path: Path
) -> None:
    query.begin()
    found = checkpoint("lag", query.folder, "--stream", topic.file(tmp_path), "--json")
    assert found.status == 1
    remedy = "run it first; on Spark, `checkpoint next` shows where it starts"
    assert found.error["remedy"] == remedy


# --- diff ------------------------------------------------------------------------


def test_diff_of_two_batches_shows_the_progress_of_each_partition(
    checkpoint: Command, two: QueryFolder
) -> None:
    found = checkpoint("diff", two.folder, "--batches", 0, 1)
    assert found.status == 0
    assert found.out.splitlines() == [
        f"from {two.folder}, batch 0",
        f"to   {two.folder}, batch 1",
        "",
        "source 0:",
        "  TOPIC   PARTITION  FROM  TO  MOVED  REMARK",
        "  clicks  0          3     7   +4",
        "  clicks  1          1     3   +2",
    ]


def test_diff_of_two_checkpoints_shows_recreated_missing_and_new_partitions(
    checkpoint: Command, two: QueryFolder, topic: Topic, ran: Ran, tmp_path: Path
) -> None:
    strange = Position(
        {Partition("clicks", 0): 1, Partition("clicks", 9): 4},
        {Partition("clicks", 0): "another", Partition("clicks", 9): "another"},
    )
    ran(tmp_path / "else", strange)
    found = checkpoint("diff", two.folder, tmp_path / "else", "--json").json
    assert found["equal"] is False
    moves = found["sources"][0]["partitions"]
    assert [(m["partition"], m["offsets"], m["remark"]) for m in moves] == [
        (0, None, "recreated"),
        (1, None, "gone"),
        (9, None, "new"),
    ]


def test_diff_of_what_is_the_same_reports_it(
    checkpoint: Command, two: QueryFolder
) -> None:
    found = checkpoint("diff", two.folder, two.folder)
    assert found.out.splitlines()[-1] == "no difference"


def test_diff_of_different_queries_is_refused(
    checkpoint: Command, two: QueryFolder, frozen: Callable[[str], Path]
) -> None:
    folder = frozen("two")
    found = checkpoint("diff", two.folder, folder, "--json")
    assert found.status == 2
    assert found.error["what"] == (
        f"{two.folder} is of source 0; {folder} of source 0, source 1"
    )


def test_diff_requires_a_second_checkpoint(
    checkpoint: Command, two: QueryFolder
) -> None:
    assert checkpoint("diff", two.folder).status == 2
    again = checkpoint("diff", two.folder, two.folder, "--batches", 0, 1, "--json")
    assert again.status == 2
    assert again.error["what"] == "nothing to compare with"


def test_diff_with_a_batch_that_is_not_kept_is_refused(
    checkpoint: Command, two: QueryFolder
) -> None:
    found = checkpoint("diff", two.folder, "--batches", 0, 9, "--json")
    assert found.status == 1
    assert found.error["what"] == (
        f"{two.folder}: batch 9 is not kept; kept are: 0 to 1"
    )


# --- next ------------------------------------------------------------------------


def test_next_shows_a_batch_that_is_repeated_as_planned(
    checkpoint: Command, two: QueryFolder, topic: Topic, tmp_path: Path
) -> None:
    stream = topic.file(tmp_path, maxOffsetsPerTrigger="1")
    found = checkpoint("next", two.folder, "--stream", stream)
    assert found.status == 0
    head, *rest = found.out.splitlines()
    assert head == (
        "batch 1 was planned and not finished; it is repeated as planned, "
        "and reads 6 offsets"
    )
    assert rest == [
        "",
        "source 0, stream clicks: 4 left for later",
        "  TOPIC   PARTITION  FROM  TO  OFFSETS  TASKS",
        "  clicks  0          3     7   4        1",
        "  clicks  1          1     3   2        1",
    ]


def test_next_replays_the_first_batch_from_its_pinned_start(
    checkpoint: Command, query: QueryFolder, topic: Topic, tmp_path: Path
) -> None:
    query.plan(topic.at(7, 3), begun=[topic.at(2, 2)])
    stream = topic.file(tmp_path)
    found = checkpoint("next", query.folder, "--stream", stream, "--json").json
    assert (found["batch"], found["replay"], found["offsets"]) == (0, True, 6)


def test_next_plans_by_the_limits_of_the_stream(
    checkpoint: Command, two: QueryFolder, topic: Topic, tmp_path: Path
) -> None:
    two.commit()
    stream = topic.file(tmp_path, maxOffsetsPerTrigger="2", maxRecordsPerPartition="1")
    topic.write(3, 0)
    found = checkpoint("next", two.folder, "--stream", stream, "--json").json
    assert (found["batch"], found["replay"]) == (2, False)
    [source] = found["sources"]
    assert source["waiting"] == 7 - source["offsets"]
    assert [(p["start"], p["end"], p["tasks"]) for p in source["partitions"]] == [
        (7, 8, 1),
        (3, 4, 1),
    ]


def test_next_of_a_query_that_is_at_the_end_reads_nothing(
    checkpoint: Command, query: QueryFolder, topic: Topic, tmp_path: Path
) -> None:
    query.plan(topic.at(10, 4))
    query.commit()
    found = checkpoint("next", query.folder, "--stream", topic.file(tmp_path))
    assert found.out.splitlines() == [
        "batch 1 reads 0 offsets",
        "",
        "source 0, stream clicks: 0 left for later",
        "  nothing",
    ]


def test_next_before_the_first_batch_begins_where_the_stream_says(
    checkpoint: Command, query: QueryFolder, topic: Topic, tmp_path: Path
) -> None:
    query.begin()
    stream = topic.file(tmp_path, startingOffsets="earliest")
    found = checkpoint("next", query.folder, "--stream", stream, "--json").json
    assert (found["batch"], found["replay"], found["offsets"]) == (0, False, 14)


def test_next_fails_where_the_batch_would(
    checkpoint: Command, query: QueryFolder, topic: Topic, tmp_path: Path
) -> None:
    query.plan(topic.at(3, 1))
    query.commit()
    topic.truncate({0: 5})
    found = checkpoint("next", query.folder, "--stream", topic.file(tmp_path), "--json")
    assert found.status == 1
    assert found.error["error"] == "offset_out_of_range"
    assert found.error["offset"] == 3


@pytest.mark.parametrize(
    ("error", "offset"), [("offset_out_of_range", 3), ("topic_not_found", None)]
)
def test_next_fails_where_a_batch_that_is_repeated_would(
    error: str,
    offset: int | None,
    checkpoint: Command,
    two: QueryFolder,
    topic: Topic,
    tmp_path: Path,
) -> None:
    if offset is None:
        topic.delete()
    else:
        topic.truncate({0: 5})
    stream = topic.file(tmp_path)
    found = checkpoint("next", two.folder, "--stream", stream, "--json")
    assert found.status == 1
    assert found.error["error"] == error
    assert found.error.get("offset") == offset


def test_next_fails_where_a_batch_that_is_repeated_was_of_a_recreated_topic(
    checkpoint: Command, two: QueryFolder, topic: Topic, tmp_path: Path
) -> None:
    stream = topic.file(tmp_path)
    topic.delete()
    topic.write(10, 4)
    found = checkpoint("next", two.folder, "--stream", stream, "--json")
    assert found.status == 1
    assert found.error["error"] == "incarnation_changed"


def test_next_shows_a_repeated_batch_that_continues_after_a_loss(
    checkpoint: Command, two: QueryFolder, topic: Topic, tmp_path: Path
) -> None:
    topic.truncate({0: 5})
    stream = topic.file(tmp_path, **{"out.of.range": "earliest"})
    assert checkpoint("next", two.folder, "--stream", stream).status == 0


# --- files of pipelines ----------------------------------------------------------


def pipeline(folder: Path, topic: Topic, name: str = "delays") -> Path:
    path = folder / f"{name}.toml"
    stream = topic.file(folder)
    lines = [
        f'checkpoint = "{folder}/kept"',
        *("[source]", f'stream = "{stream}"'),
        *("[[sinks]]", f'stream = "{stream}"'),
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_the_file_of_a_pipeline_names_its_checkpoint_and_its_stream(
    checkpoint: Command, topic: Topic, tmp_path: Path, stack: ExitStack, ran: Ran
) -> None:
    file, sources = pipeline(tmp_path, topic), {"input": topic.source(stack)}
    opened = PipelineCheckpoint.open(str(tmp_path / "kept"), "delays", sources)
    ran(opened.folder, topic.at(3, 1))
    assert checkpoint("show", file, "--json").json["pipeline"]["name"] == "delays"
    assert checkpoint("lag", file, "--json").json["behind"] == 10
    assert checkpoint("next", file, "--json").json["offsets"] == 10


def test_a_position_that_was_shown_is_the_way_back(
    checkpoint: Command, topic: Topic, tmp_path: Path, stack: ExitStack, ran: Ran
) -> None:
    kept, sources = str(tmp_path / "kept"), {"input": topic.source(stack)}
    old = PipelineCheckpoint.open(kept, "delays", sources)
    ran(old.folder, topic.at(3, 1))
    PipelineCheckpoint.open(kept, "delays", sources, reset="latest")
    shown = checkpoint("show", old.folder, "--json").json["query"]["sources"][0]
    back = PipelineCheckpoint.open(kept, "delays", sources, reset=shown["position"])
    assert back.start == {"input": {"startingOffsets": '{"clicks":{"0":3,"1":1}}'}}


def test_next_of_a_generation_that_has_not_begun_begins_where_the_reset_says(
    checkpoint: Command, topic: Topic, tmp_path: Path, stack: ExitStack
) -> None:
    file, sources = pipeline(tmp_path, topic), {"input": topic.source(stack)}
    kept, reset = str(tmp_path / "kept"), topic.at(9, 4).to_json()
    PipelineCheckpoint.open(kept, "delays", sources, reset=reset)
    assert checkpoint("next", file, "--json").json["offsets"] == 1


def test_a_pipeline_that_has_not_run_has_no_checkpoint(
    checkpoint: Command, topic: Topic, tmp_path: Path
) -> None:
    found = checkpoint("show", pipeline(tmp_path, topic), "--json")
    assert found.status == 1
    assert found.error["what"] == (
        f"the pipeline 'delays' has not run yet: the folder {tmp_path}/kept "
        "does not exist"
    )


def test_the_checkpoint_of_another_pipeline_is_refused(
    checkpoint: Command, topic: Topic, tmp_path: Path, stack: ExitStack
) -> None:
    sources = {"input": topic.source(stack)}
    PipelineCheckpoint.open(str(tmp_path / "kept"), "counts", sources)
    found = checkpoint("show", pipeline(tmp_path, topic), "--json")
    assert found.status == 1
    assert found.error["what"] == (
        f"{tmp_path}/kept is the checkpoint of 'counts', not of 'delays'"
    )


def test_a_file_that_is_no_pipeline_is_bad_input(
    checkpoint: Command, topic: Topic, tmp_path: Path
) -> None:
    path = tmp_path / "odd.toml"
    path.write_text("nothing = 1\n", encoding="utf-8")
    found = checkpoint("show", path, "--json")
    assert found.status == 2
    assert found.error["problems"]


# --- groups ----------------------------------------------------------------------


@pytest.fixture
def groups(tmp_path: Path, topic: Topic) -> Path:
    """Two instances of a group, of which the second has taken a partition over."""
    store = FileCheckpointStore(tmp_path / "groups")
    store.save("billing", "0", Checkpoint(topic.at(2, 1), 4))
    store.save("billing", "1", Checkpoint(topic.at(6), 5))
    return tmp_path / "groups"


def test_show_prints_each_instance_of_a_group(
    checkpoint: Command, groups: Path
) -> None:
    for folder in (groups, groups / "billing"):
        found = checkpoint("show", folder, "--json").json
        assert found["query"] is None
        assert [
            (g["group"], g["instance"], g["generation"], g["offsets"][0]["offset"])
            for g in found["groups"]
        ] == [("billing", "0", 4, 2), ("billing", "1", 5, 6)]
    page = checkpoint("show", groups).out
    assert "group billing, instance 1, save 5:" in page


def test_show_of_a_file_is_of_its_instance(checkpoint: Command, groups: Path) -> None:
    found = checkpoint("show", groups / "billing" / "1.json", "--json").json
    [one] = found["groups"]
    assert (one["group"], one["instance"], one["generation"]) == ("billing", "1", 5)


def test_lag_of_a_group_goes_by_the_later_save(
    checkpoint: Command, groups: Path, topic: Topic, tmp_path: Path
) -> None:
    found = checkpoint("lag", groups, "--stream", topic.file(tmp_path), "--json").json
    assert found["sources"][0]["source"] == "group billing"
    assert [p["offset"] for p in found["sources"][0]["partitions"]] == [6, 1]
    assert found["behind"] == 7


def test_groups_have_no_batches(
    checkpoint: Command, groups: Path, topic: Topic, tmp_path: Path
) -> None:
    found = checkpoint("next", groups, "--stream", topic.file(tmp_path), "--json")
    assert found.status == 2
    assert found.error["what"] == (
        f"{groups} has checkpoints of groups, which have no batches"
    )


def test_a_corrupt_checkpoint_of_a_group_is_refused(
    checkpoint: Command, groups: Path
) -> None:
    path = groups / "billing" / "0.json"
    path.write_text(json.dumps({"version": 1}), encoding="utf-8")
    found = checkpoint("show", groups, "--json")
    assert found.status == 1
    assert found.error["what"] == f"{path} is not a checkpoint"


# --- refusals --------------------------------------------------------------------


def test_a_folder_that_is_not_there_is_refused(
    checkpoint: Command, tmp_path: Path
) -> None:
    found = checkpoint("show", tmp_path / "absent")
    assert (found.status, found.out) == (2, "")
    what = f"the folder {tmp_path}/absent does not exist"
    assert found.err == f"error: [config] {what}; check the path\n"


def test_an_unknown_stream_is_bad_input(checkpoint: Command, two: QueryFolder) -> None:
    found = checkpoint("lag", two.folder, "--stream", "nope", "--json")
    assert found.status == 2
    assert found.error["error"] == "unknown_stream"
