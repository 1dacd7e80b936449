"""`topics truncate` and `topics delete`: nothing goes that nobody wanted to go."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from streamfactory.spi import Checkpoint, Partition, Position
from streamfactory.wiring.streams.checkpoints import FileCheckpointStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.proving.commands import Outcome
    from tests.topics.conftest import Place

    Command = Callable[..., Outcome]


def earliest(topics: Command, stream: Path) -> list[int]:
    shown = topics("show", stream, "--json").json
    return [partition["earliest"] for partition in shown["partitions"]]


# --- what goes ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (("3",), [3, 3]),
        (("0",), [0, 0]),
        (("latest",), [10, 5]),
        (("largest",), [10, 5]),
        (("earliest",), [0, 0]),
        (("0=7",), [7, 0]),
        (("0=7", "1=latest"), [7, 5]),
        (("1=5", "0=10"), [10, 5]),
        (("2d",), [0, 0]),
        (("2100-01-01T00:00:00Z",), [10, 5]),
        (("1=2100-01-01T00:00:00Z",), [0, 5]),
        (('{"clicks": {"0": 4}}',), [4, 0]),
        (('{"version": 1, "offsets": {"clicks": {"0": 4, "1": 2}}}',), [4, 2]),
    ],
)
def test_everything_before_a_place_goes(
    before: tuple[str, ...], expected: list[int], place: Place, topics: Command
) -> None:
    stream = place.numbers("clicks", 10, 5)
    options = [word for text in before for word in ("--before", text)]
    looked = topics("truncate", stream, *options, "--dry-run", "--json").json
    assert looked["outcome"] == "dry-run"
    assert [p["before"] for p in looked["partitions"]] == expected
    assert earliest(topics, stream) == [0, 0]
    done = topics("truncate", stream, *options, "--yes", "--json")
    assert (done.status, done.json["outcome"]) == (0, "done")
    assert done.json["rows"] == looked["rows"] == sum(expected)
    assert earliest(topics, stream) == expected


def test_rows_before_a_time_go(place: Place, topics: Command) -> None:
    place.write("clicks", {"id": [1, 2, 3]})
    deadline = time.monotonic() + 10
    moment = datetime.now(UTC)
    while (datetime.now(UTC) - moment).total_seconds() < 0.003:
        assert time.monotonic() < deadline
    between = datetime.now(UTC).isoformat(timespec="milliseconds")
    while datetime.now(UTC).isoformat(timespec="milliseconds") == between:
        assert time.monotonic() < deadline
    place.write("clicks", {"id": [4]})
    stream = place.stream("clicks")
    assert topics("truncate", stream, "--before", between, "--yes").status == 0
    assert earliest(topics, stream) == [3]


def test_text_prints_what_was_removed(memory: Place, topics: Command) -> None:
    stream = memory.numbers("clicks", 10, 5)
    assert topics("truncate", stream, "--before", "0=4", "--dry-run").out == (
        "clicks: 4 rows would be deleted\n"
        "  PARTITION  FROM  BEFORE  ROWS\n"
        "  0          0     4       4\n"
    )
    done = topics("truncate", stream, "--before", "0=4", "--yes")
    assert done.out.splitlines()[0] == "clicks: 4 rows deleted"
    again = topics("truncate", stream, "--before", "0=4")
    assert (again.status, again.out) == (0, "clicks: 0 rows deleted\n")


@pytest.mark.parametrize(
    ("before", "status", "code", "what"),
    [
        ("11", 1, "offset_out_of_range", "offset 11 is beyond the latest offset 10"),
        ("1=6", 1, "offset_out_of_range", "offset 6 is beyond the latest offset 5"),
        (
            "2=1",
            1,
            "topic_not_found",
            "partition 2 does not exist; available are 0 to 1",
        ),
        (
            '{"clacks": {"0": 1}}',
            1,
            "position_refused",
            "the position has partition clacks-0, which is not of this stream",
        ),
        (
            '{"clicks": {"7": 1}}',
            1,
            "partition_vanished",
            "the position has a partition that no longer exists",
        ),
        (
            (
                '{"version": 1, "offsets": {"clicks": {"0": 1}}, '
                '"incarnations": {"clicks": "x"}}'
            ),
            1,
            "incarnation_changed",
            "topic 'clicks' was recreated: expected id 'x'",
        ),
        (
            "{",
            2,
            "usage",
            "Invalid value for '--before': not a position: '{' is not JSON.",
        ),
        (
            "soon",
            2,
            "usage",
            (
                "Invalid value for '--before': 'soon' is no offset, earliest or "
                "latest, time such as 2022-08-09T12:31:38Z, period before now such as "
                "2d, or position."
            ),
        ),
        ("-1", 2, "usage", "Invalid value for '--before': '-1' is no offset, "),
    ],
)
def test_a_place_that_is_none_is_refused(
    before: str, status: int, code: str, what: str, place: Place, topics: Command
) -> None:
    stream = place.numbers("clicks", 10, 5)
    done = topics("truncate", stream, f"--before={before}", "--yes", "--json")
    assert (done.status, done.error["error"]) == (status, code)
    assert done.error["what"].startswith(what)
    assert earliest(topics, stream) == [0, 0]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ((), "Give one of --before and --retention."),
        (("--before", "1", "--retention"), "Give one of --before and --retention."),
        (
            ("--before", "0=1", "--before", "0=2"),
            "Invalid value for '--before': partition 0 is given twice.",
        ),
        (
            ("--before", "1", "--before", "2"),
            (
                "Invalid value for '--before': wanted one for all partitions, or "
                "PARTITION= in front of each."
            ),
        ),
        (
            ("--before", "1", "--before", "0=2"),
            (
                "Invalid value for '--before': wanted one for all partitions, or "
                "PARTITION= in front of each."
            ),
        ),
    ],
)
def test_a_mistaken_line_is_refused(
    options: tuple[str, ...], what: str, memory: Place, topics: Command
) -> None:
    stream = memory.numbers("clicks", 5)
    done = topics("truncate", stream, *options, "--yes", "--json")
    assert (done.status, done.error["what"]) == (2, what)


# --- asking ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (
            ("truncate", "--before", "2"),
            (
                "clicks: 4 rows would be deleted: there is no terminal to ask at, so "
                "nothing was done"
            ),
        ),
        (
            ("delete",),
            (
                "clicks: would be deleted, with 7 offsets in 2 partitions: there is no "
                "terminal to ask at, so nothing was done"
            ),
        ),
    ],
)
def test_without_a_terminal_nothing_goes_unless_said(
    line: tuple[str, ...], what: str, place: Place, topics: Command
) -> None:
    stream = place.numbers("clicks", 4, 3)
    done = topics(line[0], stream, *line[1:], "--json")
    assert (done.status, done.out) == (2, "")
    assert done.error["what"] == what
    assert done.error["remedy"] == "look with --dry-run, then give --yes"
    assert topics("show", stream, "--json").json["rows"] == 7


@pytest.mark.parametrize(
    ("answer", "status", "outcome", "left"),
    [("y", 0, "done", 1), ("n", 130, "declined", 4), ("", 130, "declined", 4)],
)
def test_a_person_is_asked(
    answer: str,
    status: int,
    outcome: str,
    left: int,
    disk: Place,
    topics: Command,
    terminal: Command,
) -> None:
    stream = disk.numbers("clicks", 4)
    done = terminal("truncate", stream, "--before", 3, "--json", answer=answer)
    assert "3 rows would be deleted" in done.err
    assert (done.status, done.json["outcome"]) == (status, outcome)
    assert topics("show", stream, "--json").json["rows"] == left


@pytest.mark.parametrize(("answer", "there"), [("y", 0), ("n", 1)])
def test_a_person_is_asked_before_a_topic_is_deleted(
    answer: str, there: int, disk: Place, topics: Command, terminal: Command
) -> None:
    stream = disk.numbers("clicks", 4)
    done = terminal("delete", stream, answer=answer)
    assert "clicks: would be deleted, with 4 offsets in 1 partition\r\n" in done.err
    assert len(topics("list", stream, "--json").json["topics"]) == there
    document = {"y": "clicks: deleted, with 4 offsets in 1 partition\n"}
    assert done.out == document.get(answer, "clicks: nothing was done\n")


@pytest.mark.parametrize("line", [("truncate", "--before", "3"), ("delete",)])
def test_a_topic_that_came_while_it_asked_is_left_alone(
    line: tuple[str, ...], disk: Place, topics: Command, terminal: Command
) -> None:
    stream = disk.numbers("clicks", 4)

    def recreate() -> None:
        topics("delete", stream, "--yes")
        disk.numbers("clicks", 5)

    command, *words = line
    done = terminal(command, stream, *words, answer="y", meanwhile=recreate)
    assert done.status == 1
    assert "topic 'clicks' was recreated: expected id" in done.err
    assert topics("show", stream, "--json").json["rows"] == 5


def test_what_comes_while_it_asks_does_not_go(
    disk: Place, topics: Command, terminal: Command
) -> None:
    disk.numbers("clicks", 4)
    stream = retained(disk, rows="1")
    done = terminal(
        "truncate",
        stream,
        "--retention",
        "--json",
        answer="y",
        meanwhile=lambda: disk.numbers("clicks", 6),
    )
    assert (done.status, done.json["rows"]) == (0, 3)
    assert earliest(topics, stream) == [3]


# --- retention ------------------------------------------------------------------------


def retained(place: Place, **options: str) -> Path:
    said = {
        f"stream__{place.type}__retention__{key.replace('.', '__')}": value
        for key, value in options.items()
    }
    return place.stream("clicks", **said)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"rows": "4"}, [6, 1]),
        ({"rows": "100"}, [0, 0]),
        ({"age.millis": "1d"}, [0, 0]),
        ({"age.millis": "1d", "rows": "0"}, [10, 5]),
    ],
)
def test_the_configured_retention_is_applied(
    options: dict[str, str], expected: list[int], place: Place, topics: Command
) -> None:
    place.numbers("clicks", 10, 5)
    stream = retained(place, **options)
    looked = topics("truncate", stream, "--retention", "--dry-run", "--json").json
    assert looked["rows"] == sum(expected)
    assert looked["retention"] == {f"retention.{k}": v for k, v in options.items()}
    assert earliest(topics, stream) == [0, 0]
    done = topics("truncate", stream, "--retention", "--yes", "--json").json
    assert (done["rows"], done["outcome"]) == (sum(expected), "done")
    assert earliest(topics, stream) == expected


def test_old_rows_go_by_age(place: Place, topics: Command) -> None:
    place.numbers("clicks", 10)
    moment = time.monotonic()
    while time.monotonic() < moment + 0.01:
        pass
    stream = retained(place, age="1")
    looked = topics("truncate", stream, "--retention", "--dry-run", "--json").json
    assert looked["rows"] == 10
    topics("truncate", stream, "--retention", "--yes")
    assert earliest(topics, stream) == [10]


def test_bytes_are_counted_by_the_backend_alone(place: Place, topics: Command) -> None:
    place.numbers("clicks", 10)
    stream = retained(place, bytes="0")
    looked = topics("truncate", stream, "--retention", "--dry-run", "--json").json
    assert (looked["rows"], looked["unforeseen"]) == (0, ["retention.bytes=0"])
    said = topics("truncate", stream, "--retention", "--dry-run").out
    assert said.startswith("clicks: 0 rows or more would be deleted\n")
    assert topics("truncate", stream, "--retention").status == 2
    assert earliest(topics, stream) == [0]
    done = topics("truncate", stream, "--retention", "--yes", "--json").json
    assert (done["rows"], done["unforeseen"]) == (10, [])


def test_no_retention_is_none_to_apply(place: Place, topics: Command) -> None:
    stream = place.numbers("clicks", 10)
    done = topics("truncate", stream, "--retention", "--yes", "--json")
    assert (done.status, done.error["error"]) == (2, "config")
    assert done.error["what"] == ("no retention is configured")
    key = f"stream.{place.type}.retention.age.millis"
    assert done.error["remedy"] == f"set {key} or another retention option"


# --- what readers still want ----------------------------------------------------------


def save(
    folder: Path,
    group: str,
    offsets: dict[int, int],
    *,
    instance: str = "0-of-1",
    generation: int = 0,
    topic: str = "clicks",
    incarnation: str | None = None,
) -> None:
    position = {Partition(topic, number): offset for number, offset in offsets.items()}
    lives = {} if incarnation is None else dict.fromkeys(position, incarnation)
    checkpoint = Checkpoint(Position(position, lives), generation)
    FileCheckpointStore(folder).save(group, instance, checkpoint)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


def truncated(topics: Command, stream: Path, saved: Path, *words: str) -> Any:
    line = ("truncate", stream, *words, "--hold", saved, "--yes", "--json")
    done = topics(*line)
    assert done.status == 0, done.err
    return done.json["partitions"]


@pytest.mark.parametrize("words", [("--retention",), ("--before", "latest")])
def test_rows_that_a_checkpoint_needs_are_kept(
    words: tuple[str, ...], place: Place, topics: Command, saved: Path
) -> None:
    place.numbers("clicks", 10, 5)
    stream = retained(place, rows="0")
    save(saved, "slow", {0: 3, 1: 5})
    save(saved, "fast", {0: 9, 1: 4})
    partitions = truncated(topics, stream, saved, *words)
    assert [(p["before"], p["held_by"]) for p in partitions] == [
        (3, "slow"),
        (4, "fast"),
    ]
    assert earliest(topics, stream) == [3, 4]


def test_the_newest_checkpoint_of_a_group_holds(
    place: Place, topics: Command, saved: Path
) -> None:
    stream = place.numbers("clicks", 10)
    save(saved, "group", {0: 2}, instance="0-of-2", generation=4)
    save(saved, "group", {0: 8}, instance="0-of-1", generation=5)
    assert truncated(topics, stream, saved, "--before", "9")[0]["before"] == 8


def test_a_group_needs_all_of_an_unread_partition(
    place: Place, topics: Command, saved: Path
) -> None:
    stream = place.numbers("clicks", 10, 5)
    save(saved, "group", {0: 10})
    partitions = truncated(topics, stream, saved, "--before", "latest")
    assert [p["before"] for p in partitions] == [10, 0]
    assert partitions[1]["held_by"] == "group"


def test_a_checkpoint_behind_earliest_takes_nothing_back(
    place: Place, topics: Command, saved: Path
) -> None:
    stream = place.numbers("clicks", 10)
    topics("truncate", stream, "--before", 5, "--yes")
    save(saved, "late", {0: 2})
    partitions = truncated(topics, stream, saved, "--before", "7")
    assert (partitions[0]["before"], partitions[0]["rows"]) == (5, 0)


def test_groups_of_other_topics_hold_nothing(
    place: Place, topics: Command, saved: Path
) -> None:
    stream = place.numbers("clicks", 10)
    save(saved, "other", {0: 1}, topic="archive")
    done = topics("truncate", stream, "--before", "9", "--hold", saved, "--yes")
    assert done.status == 0
    assert done.err == f"warning: no checkpoint in {saved} is of the topic 'clicks'\n"
    assert earliest(topics, stream) == [9]


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_without_checkpoints_is_refused(
    place: Place, topics: Command, saved: Path, *, there: bool
) -> None:
    stream = place.numbers("clicks", 10)
    if there:
        save(saved, "group", {0: 3})
    folder = saved / "group"
    line = ("truncate", stream, "--before", "9", "--hold", folder, "--yes", "--json")
    done = topics(*line)
    assert (done.status, done.error["class"]) == (2, "misuse")
    assert str(folder) in done.error["what"]
    assert earliest(topics, stream) == [0]


def test_a_checkpoint_of_an_earlier_topic_is_refused(
    place: Place, topics: Command, saved: Path
) -> None:
    stream = place.numbers("clicks", 10)
    save(saved, "group", {0: 9}, incarnation="gone")
    line = ("truncate", stream, "--before", "9", "--hold", saved, "--yes", "--json")
    done = topics(*line)
    assert (done.status, done.error["error"]) == (1, "position_refused")
    assert done.error["what"] == (
        "the checkpoint of group 'group' is of an earlier incarnation of clicks-0: "
        "the offsets that it still needs are unknown"
    )
    assert earliest(topics, stream) == [0]


def test_a_corrupt_checkpoint_is_refused(
    place: Place, topics: Command, saved: Path
) -> None:
    stream = place.numbers("clicks", 10)
    save(saved, "group", {0: 9})
    (saved / "group" / "0-of-1.json").write_text("{")
    line = ("truncate", stream, "--before", "9", "--hold", saved, "--yes", "--json")
    done = topics(*line)
    assert (done.status, done.error["error"]) == (1, "position_refused")
    assert earliest(topics, stream) == [0]


# --- deleting -------------------------------------------------------------------------


def test_a_topic_is_deleted(place: Place, topics: Command) -> None:
    stream = place.numbers("clicks", 3, 4)
    place.numbers("archive", 1)
    looked = topics("delete", stream, "--dry-run")
    assert looked.out == "clicks: would be deleted, with 7 offsets in 2 partitions\n"
    done = topics("delete", stream, "--yes", "--json")
    document = {"topic": "clicks", "outcome": "done", "partitions": 2, "rows": 7}
    assert (done.status, done.json) == (0, document)
    left = topics("list", stream, "--json").json["topics"]
    assert [line["topic"] for line in left] == ["archive"]
    again = topics("delete", stream, "--yes", "--json")
    assert (again.status, again.error["error"]) == (1, "topic_not_found")


def test_another_topic_is_deleted_by_name(place: Place, topics: Command) -> None:
    stream = place.numbers("clicks", 3)
    place.numbers("archive", 1)
    done = topics("delete", stream, "--topic", "archive", "--yes")
    assert done.out == "archive: deleted, with 1 offset in 1 partition\n"
    assert topics("show", stream, "--json").json["rows"] == 3


def test_a_topic_of_the_same_name_is_another_one(place: Place, topics: Command) -> None:
    stream = place.numbers("clicks", 3)
    before = topics("show", stream, "--json").json["partitions"][0]["incarnation"]
    topics("delete", stream, "--yes")
    topics("create", stream, "--schema", "id bigint")
    after = topics("show", stream, "--json").json["partitions"][0]
    assert (after["rows"], after["incarnation"] != before) == (0, True)
    position = json.dumps(
        {
            "version": 1,
            "offsets": {"clicks": {"0": 3}},
            "incarnations": {"clicks": before},
        }
    )
    done = topics("truncate", stream, "--before", position, "--yes", "--json")
    assert done.error["error"] == "incarnation_changed"
    assert done.error["expected"] == before
