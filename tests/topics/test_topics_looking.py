"""`topics list` and `topics show`: what is there, and what is wrong with it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.proving.commands import Outcome
    from tests.topics.conftest import Place

    Command = Callable[..., Outcome]


def test_all_topics_of_the_place_are_listed(place: Place, topics: Command) -> None:
    stream = place.numbers("clicks", 3, 4)
    place.numbers("archive", 1)
    done = topics("list", stream)
    assert (done.status, done.err) == (0, "")
    assert done.out == (
        "TOPIC    PARTITIONS  ROWS\narchive  1           1\nclicks   2           7\n"
    )
    line = {"topic": "archive", "partitions": 1, "rows": 1, "problem": None}
    assert topics("list", stream, "--json").json["topics"][0] == line


def test_an_empty_place_has_no_topics(place: Place, topics: Command) -> None:
    stream = place.stream("clicks")
    assert topics("list", stream).out == "there are no topics\n"
    assert topics("list", stream, "--json").json == {"topics": []}


def test_rows_are_those_that_are_held(place: Place, topics: Command) -> None:
    stream = place.numbers("clicks", 5)
    topics("truncate", stream, "--before", 2, "--yes")
    assert topics("list", stream, "--json").json["topics"][0]["rows"] == 3


def test_a_topic_that_cannot_be_read_hides_no_other(
    disk: Place, topics: Command, tmp_path: Path
) -> None:
    stream = disk.numbers("clicks", 3)
    disk.numbers("broken", 3)
    for record in (tmp_path / "topics" / "broken.topic").rglob("*.json"):
        record.write_text("{}")
    done = topics("list", stream, "--json")
    assert done.status == 1
    broken, clicks = done.json["topics"]
    assert (clicks["rows"], clicks["problem"]) == (3, None)
    assert broken["rows"] is None
    assert "broken.topic" in broken["problem"]
    assert topics("list", stream).out.splitlines()[0].split()[-1] == "PROBLEM"


def test_a_type_without_a_list_of_topics_reports_it(
    topics: Command, tmp_path: Path
) -> None:
    stream = tmp_path / "wire.json"
    properties = {
        "streamType": "socket",
        "stream.socket.listen": "127.0.0.1:9700",
        "schema": "id bigint",
    }
    stream.write_text(json.dumps({"properties": properties}))
    done = topics("list", stream, "--json")
    assert (done.status, done.error["error"]) == (2, "unsupported")
    assert done.error["what"] == "this stream cannot list topics"
    made = topics("create", stream, "--schema", "id bigint", "--json")
    assert (made.status, made.error["error"]) == (2, "unsupported")
    assert (
        made.error["what"]
        == "stream type 'socket' does not support topic administration"
    )


def test_a_topic_is_shown(memory: Place, topics: Command) -> None:
    stream = memory.numbers("clicks", 3, 4)
    topics("truncate", stream, "--before", "1=2", "--yes")
    done = topics("show", stream)
    assert (done.status, done.err) == (0, "")
    first, life, *rest = done.out.splitlines()
    assert first == "clicks: 5 rows in 2 partitions"
    assert life.startswith("incarnation: ")
    assert rest == [
        "",
        "PARTITION  EARLIEST  LATEST  ROWS  STATE",
        "0          0         3       3     active",
        "1          2         4       2     active",
        "",
        "columns:",
        "  id  int64",
        "as Spark DDL: id bigint",
    ]


def test_what_the_topic_is_made_of_is_shown(disk: Place, topics: Command) -> None:
    stream = disk.numbers("clicks", 3)
    shown = topics("show", stream, "--json").json
    assert (shown["facts"]["segments"], shown["facts"]["inline segments"]) == (0, 1)
    assert shown["facts"]["incarnation"] == shown["partitions"][0]["incarnation"]
    assert "\nfacts:\n" in topics("show", stream).out


def test_columns_without_a_name_in_spark_are_shown(
    place: Place, topics: Command
) -> None:
    rows = pa.record_batch({"n": pa.array([1], pa.uint64())})
    place.write("odd", rows)
    shown = topics("show", place.stream("odd"), "--json").json["schema"]
    assert shown["columns"] == [{"name": "n", "type": "uint64", "nullable": True}]
    assert shown["ddl"] is None


def test_another_topic_of_the_place_is_shown(place: Place, topics: Command) -> None:
    stream = place.numbers("clicks", 3)
    place.numbers("archive", 1, 1)
    shown = topics("show", stream, "--topic", "archive", "--json").json
    assert (shown["topic"], len(shown["partitions"])) == ("archive", 2)


def test_a_topic_that_is_not_there_is_reported(place: Place, topics: Command) -> None:
    stream = place.numbers("clicks", 1)
    done = topics("show", stream, "--topic", "clacks", "--json")
    assert (done.status, done.error["error"]) == (1, "topic_not_found")
    assert "'clacks'" in done.error["what"]
    assert done.error["what"].endswith("existing topics: clicks")
    empty = topics("show", stream, "--topic", " ", "--json")
    assert (empty.status, empty.error["what"]) == (
        2,
        "the name of a topic must not be empty",
    )


def test_a_stream_of_several_topics_has_to_name_one(
    place: Place, topics: Command
) -> None:
    place.numbers("clicks", 2)
    path = place.stream("both")
    body = json.loads(path.read_text())
    del body["properties"][f"stream.{place.type}.topic.name"]
    body["properties"]["subscribe"] = "clicks"
    path.write_text(json.dumps(body))
    refused = topics("show", path, "--json")
    assert refused.status == 2
    assert refused.error["what"] == "this stream reads several topics"
    assert topics("show", path, "--topic", "clicks", "--json").json["rows"] == 2
    assert len(topics("list", path, "--json").json["topics"]) == 1


def test_foreign_files_are_shown_and_not_changed(
    topics: Command, tmp_path: Path
) -> None:
    with pa.ipc.new_file(tmp_path / "foreign.arrow", pa.schema([("n", "int64")])) as f:
        f.write_batch(pa.record_batch({"n": [1, 2]}))
    stream = tmp_path / "foreign.json"
    properties = {
        "streamType": "file",
        "stream.file.path": str(tmp_path / "foreign.arrow"),
        "stream.file.format": "file",
    }
    stream.write_text(json.dumps({"properties": properties}))
    shown = topics("show", stream, "--json")
    assert (shown.status, shown.json["rows"], shown.json["facts"]) == (0, 2, {})
    done = topics("delete", stream, "--yes", "--json")
    assert (done.status, done.error["error"]) == (2, "unsupported")
    assert (tmp_path / "foreign.arrow").exists()


def test_a_typo_suggests_the_nearest_command(topics: Command) -> None:
    done = topics("trunkate", "clicks")
    assert (done.status, done.out) == (2, "")
    assert done.err == (
        "error: [usage] No such command 'trunkate'. Did you mean 'truncate'? "
        "(see streamfactory topics --help)\n"
    )


def test_no_command_gets_the_help(topics: Command) -> None:
    done = topics()
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("Usage: streamfactory topics [OPTIONS] COMMAND")
