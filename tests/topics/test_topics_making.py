"""`topics create` and `topics grow`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import parquet

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.proving.commands import Outcome
    from tests.topics.conftest import Place

    Command = Callable[..., Outcome]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", "string")])


def test_a_topic_is_created_by_ddl(place: Place, topics: Command) -> None:
    stream = place.stream("clicks")
    ddl = "id bigint not null, name string"
    done = topics("create", stream, "--schema", ddl, "--partitions", 3)
    assert (done.status, done.err) == (0, "")
    assert done.out == (
        "clicks: created with 3 partitions\n"
        "columns:\n  id    int64   not null\n  name  string\n"
        f"as Spark DDL: {ddl}\n"
    )
    shown = topics("show", stream, "--json").json
    assert (shown["schema"]["ddl"], len(shown["partitions"])) == (ddl, 3)


def arrow_file(path: Path) -> None:
    with pa.ipc.new_file(path, SCHEMA):
        pass


def arrow_stream(path: Path) -> None:
    with pa.ipc.new_stream(path, SCHEMA):
        pass


def parquet_file(path: Path) -> None:
    parquet.write_table(SCHEMA.empty_table(), path)


@pytest.mark.parametrize("make", [arrow_file, arrow_stream, parquet_file])
def test_a_topic_has_the_columns_of_a_file(
    make: Callable[[Path], None], place: Place, topics: Command, tmp_path: Path
) -> None:
    file = tmp_path / "no-suffix"
    make(file)
    done = topics("create", place.stream("clicks"), "--schema-from", file, "--json")
    assert done.json["schema"]["ddl"] == "id bigint not null, name string"
    assert done.json["partitions"] == 1


def test_types_are_stored_as_sinks_get_them(
    place: Place, topics: Command, tmp_path: Path
) -> None:
    schema = pa.schema(
        [("t", pa.large_string()), ("at", pa.timestamp("ms", "Europe/Paris"))],
        metadata={"made": "by hand"},
    )
    parquet.write_table(schema.empty_table(), tmp_path / "x.parquet")
    stream = place.stream("clicks")
    assert topics("create", stream, "--schema-from", "x.parquet").status == 0
    columns = topics("show", stream, "--json").json["schema"]["columns"]
    assert [c["type"] for c in columns] == ["string", "timestamp[ms, tz=UTC]"]
    place.write("clicks", {"t": ["a"], "at": [None]})
    assert topics("list", stream, "--json").json["topics"][0]["rows"] == 1


def test_a_topic_of_messages_is_created(place: Place, topics: Command) -> None:
    stream = place.stream("events")
    done = topics("create", stream, "--messages")
    assert "columns, of undecoded messages:\n" in done.out
    schema = topics("show", stream, "--json").json["schema"]
    assert schema["messages"] is True
    assert schema["columns"][0]["name"] == "key"


def test_partitions_are_what_the_configuration_says(
    place: Place, topics: Command
) -> None:
    key = f"stream__{place.type}__partitions"
    stream = place.stream("clicks", **{key: "4"})
    done = topics("create", stream, "--schema", "id bigint", "--json")
    assert done.json["partitions"] == 4


def test_an_existing_topic_is_left_alone(place: Place, topics: Command) -> None:
    stream = place.numbers("clicks", 3)
    done = topics("create", stream, "--schema", "other string", "--json")
    assert (done.status, done.error["class"]) == (2, "misuse")
    assert done.error["what"] == "topic 'clicks' exists already"
    assert topics("show", stream, "--json").json["rows"] == 3


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ((), "Give one of --schema, --schema-from and --messages."),
        (
            ("--messages", "--schema", "id bigint"),
            "Give one of --schema, --schema-from and --messages.",
        ),
        (
            ("--schema", "id number"),
            (
                "Invalid value for '--schema': 'id number' is not a schema: found "
                "'number', expected a type."
            ),
        ),
        (
            ("--schema", "_key binary, id bigint"),
            "column '_key' of rows to write says where they go",
        ),
        (
            ("--schema", "id bigint", "--partitions", 0),
            "Invalid value for '--partitions': 0 is not in the range x>=1.",
        ),
    ],
)
def test_a_bad_schema_is_refused(
    options: tuple[object, ...], what: str, place: Place, topics: Command
) -> None:
    stream = place.stream("clicks")
    done = topics("create", stream, *options, "--json")
    assert (done.status, done.error["what"]) == (2, what)
    assert topics("list", stream, "--json").json == {"topics": []}


@pytest.mark.parametrize(
    ("content", "code", "what"),
    [
        (None, "config", "x cannot be read: No such file or directory"),
        (b"id,name\n1,a\n", "format_refused", "x is neither Arrow nor Parquet: "),
        (b"", "format_refused", "x is neither Arrow nor Parquet: "),
        (b"PAR1 and no more", "format_refused", "x is neither Arrow nor Parquet: "),
        (b"ARROW1 and no more", "format_refused", "x is neither Arrow nor Parquet: "),
    ],
)
def test_a_file_without_columns_is_refused(
    content: bytes | None,
    code: str,
    what: str,
    place: Place,
    topics: Command,
    tmp_path: Path,
) -> None:
    if content is not None:
        (tmp_path / "x").write_bytes(content)
    done = topics("create", place.stream("clicks"), "--schema-from", "x", "--json")
    status = 2 if content is None else 1
    assert (done.status, done.error["error"]) == (status, code)
    assert done.error["what"].startswith(what)


def test_a_topic_grows(place: Place, topics: Command) -> None:
    stream = place.numbers("clicks", 3)
    assert topics("grow", stream, 3).out == "clicks: 3 partitions, 1 before\n"
    assert topics("grow", stream, 3).out == "clicks: already has 3 partitions\n"
    expected = {"topic": "clicks", "partitions_before": 3, "partitions": 4}
    assert topics("grow", stream, 4, "--json").json == expected
    shown = topics("show", stream, "--json").json
    assert [p["rows"] for p in shown["partitions"]] == [3, 0, 0, 0]


def test_a_topic_never_shrinks(place: Place, topics: Command) -> None:
    stream = place.numbers("clicks", 3, 3)
    done = topics("grow", stream, 1, "--json")
    assert done.status == 2
    assert (
        done.error["what"] == "topic 'clicks' has 2 partitions, and cannot have fewer"
    )
    assert topics("show", stream, "--json").json["rows"] == 6


def test_a_stream_with_a_decoder_needs_no_columns(
    place: Place, topics: Command
) -> None:
    raw = {f"stream__{place.type}__decoder__class__name": "raw"}
    done = topics("create", place.stream("clicks", **raw), "--json")
    assert (done.status, done.json["schema"]["messages"]) == (0, True)


def test_a_stream_without_a_decoder_needs_columns_or_messages(
    place: Place, topics: Command
) -> None:
    stream = place.stream("clicks")
    done = topics("create", stream)
    assert done.status == 2
    assert "Give one of --schema, --schema-from and --messages." in done.err
    assert topics("show", stream).status == 1
