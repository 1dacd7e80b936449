"""Definitions that are proposed for what is at a place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.tables.states import Fixture

import streamfactory
from streamfactory.spi import ConfigError, MisuseError, SchemaUnknown, StreamError
from streamfactory.transfer import recognition
from streamfactory.transfer.discovering import Place, discover, types_with_places
from streamfactory.wiring.config.definition import StreamDefinition
from streamfactory.wiring.config.documents import Document, read_toml
from streamfactory.wiring.config.files import definitions_of
from streamfactory.wiring.config.written import toml_of
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.proving.commands import Outcome

ROWS = pa.table({"id": [1, 2, 3], "city": ["a", "b", None]})


def properties(found: StreamDefinition) -> dict[str, str]:
    return {one.key: one.text for one in found.properties}


def found(place: Path | str, topic: str = "", kind: str = "") -> dict[str, str]:
    return properties(discover(Place("x", str(place), kind, topic)).definition)


def ids(place: Path | str) -> list[int]:
    with streamfactory.open(found(place)) as stream:
        return [row["id"] for batch in stream for row in batch.rows.to_pylist()]


def arrow(path: Path) -> None:
    with pa.ipc.new_file(path, ROWS.schema) as file:
        file.write_table(ROWS)


def test_a_folder_of_arrow_or_parquet_files_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    arrow(tmp_path / "a" / "1.arrow")
    assert found(tmp_path / "a")["stream.file.format"] == "auto"
    assert ids(tmp_path / "a") == ids(tmp_path / "a" / "1.arrow") == [1, 2, 3]
    (tmp_path / "p").mkdir()
    for name in ("1.parquet", "2.parquet"):
        pq.write_table(ROWS, tmp_path / "p" / name)
    assert "stream.file.names" not in found(tmp_path / "p")
    (tmp_path / "p" / "README").write_text("no rows")
    assert found(tmp_path / "p")["stream.file.names"] == "*.parquet"
    assert ids(tmp_path / "p") == [1, 2, 3] * 2


@pytest.mark.parametrize(
    ("name", "text", "ddl"),
    [
        ("a.csv", "id,at\n1,2024-01-01\n", "id bigint, at date"),
        ("a.jsonl", '{"id": 1, "in": {"b": 2.5}}\n', "id bigint, in struct<b:double>"),
    ],
)
def test_text_is_published_into_a_stream_of_its_columns(
    tmp_path: Path, name: str, text: str, ddl: str
) -> None:
    folder = tmp_path / "it's here"
    folder.mkdir()
    (folder / name).write_text(text)
    got = discover(Place("x y", str(folder)))
    assert properties(got.definition)["schema"] == ddl
    assert got.rows is not None
    assert got.rows.num_rows == 1
    quoted = str(folder).replace("'", "'\"'\"'")
    end = name.removeprefix("a")
    run = f"run: streamfactory publish 'x y' '{quoted}'/*{end} --writer 'x y'"
    assert run in got.notes


def test_a_pattern_matches_what_was_found_and_nothing_else(tmp_path: Path) -> None:
    def command() -> str:
        notes = discover(Place("x", str(tmp_path))).notes
        return next(one for one in notes if one.startswith("run: "))

    for name in ("a.csv", "b.csv", ".c.csv"):
        (tmp_path / name).write_text("id\n1\n")
    assert f"publish x {tmp_path}/*.csv --" in command()
    (tmp_path / "_tmp.csv").write_text("broken")
    assert f"publish x {tmp_path}/[!_]*.csv --" in command()
    (tmp_path / "linked.csv").symlink_to(tmp_path / "a.csv")
    assert f"publish x {tmp_path}/a.csv {tmp_path}/b.csv --" in command()
    for number in range(30):  # too many to name
        (tmp_path / f"{number}.csv").write_text("id\n1\n")
    assert f"publish x {tmp_path}/[!_]*.csv --" in command()
    notes = discover(Place("x", str(tmp_path))).notes
    assert "the pattern of the command matches 'linked.csv', too" in notes


@pytest.mark.parametrize("name", ["delta-feed", "iceberg-cow", "hudi-cow"])
def test_a_table_is_recognised_by_its_folder(tmp_path: Path, name: str) -> None:
    table, kind = Fixture(name, tmp_path), name.partition("-")[0]
    table.show(-1)
    got = found(table.folder)
    assert got == {"streamType": kind, f"stream.{kind}.path": str(table.folder)}
    with streamfactory.open(got, start="earliest") as stream:
        assert sum(batch.num_rows for batch in stream)


def test_one_of_several_topics_is_chosen(tmp_path: Path) -> None:
    def write(topic: str, rows: pa.Table, **more: str) -> None:
        options = {
            "streamType": "file",
            "stream.file.path": str(tmp_path),
            "stream.file.topic.name": topic,
            **{f"stream.file.{key}": value for key, value in more.items()},
        }
        options |= {"stream.file.fsync": "never"}
        with open_sink(options) as sink:
            sink.put(rows)

    write("orders", ROWS)
    assert found(tmp_path)["stream.file.topic.name"] == "orders"
    messages = {"messages": "true", "decoder.class.name": "raw"}
    json = [b'{"id": 1}', b"no JSON", b'{"id": 2, "b": true}']
    write("events", pa.table({"value": json}), **messages)
    write("octets", pa.table({"value": [b"\xff\xfe"]}), **messages)
    got = discover(Place("x", str(tmp_path)))
    assert got.topics == ("events", "octets", "orders")
    got = discover(Place("x", str(tmp_path), topic="events"))
    assert properties(got.definition)["schema"] == "id bigint, b boolean"
    got = discover(Place("x", topic="octets", like=got.definition))
    kept = properties(got.definition)
    assert "schema" not in kept
    assert kept["stream.file.decoder.class.name"] == "raw"
    assert "no columns of JSON were found" in got.notes[0]
    with pytest.raises(StreamError, match="nowhere"):
        discover(Place("x", str(tmp_path), topic="nowhere"))


def test_hostile_places_are_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    (tmp_path / "only").mkdir()
    os.mkfifo(tmp_path / "only" / "a.csv")
    (tmp_path / "only" / "b.csv").symlink_to("/etc/passwd")
    (tmp_path / "bare.csv").write_text("id\n")
    for name, refused in {
        "pipe": "neither a file nor a folder",
        "link": "there is no file",
        "none": "there is no file",
        "x\0y": "there is no file",
        "n" * 5000: "there is no file",
        "empty": "has no files of Arrow",
        "only": "has no files of Arrow",
    }.items():
        with pytest.raises(ConfigError, match=refused):
            discover(Place("x", f"{tmp_path}/{name}"))
    with pytest.raises(SchemaUnknown, match="has no rows"):
        discover(Place("x", str(tmp_path / "bare.csv")))
    for place in ("s3://bucket/rows", "other://x", ""):
        with pytest.raises(MisuseError, match=r"cannot be recognised|no place"):
            discover(Place("x", place))
    with pytest.raises(MisuseError, match="has no place"):
        discover(Place("x", "y", "memory"))
    monkeypatch.setattr(recognition, "MOST_ENTRIES", 3)
    for number in range(5):
        (tmp_path / "empty" / f"{number}.csv").write_text("id\n1\n")
    got = discover(Place("x", str(tmp_path / "empty")))
    assert got.notes[0].startswith("only 3 of its files")


def test_relative_places_are_those_of_the_definition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "project" / "rows").mkdir(parents=True)
    pq.write_table(ROWS, tmp_path / "project" / "rows" / "a.parquet")
    got = discover(Place("x", "rows", folder=str(tmp_path / "project")))
    assert properties(got.definition)["stream.file.path"] == "rows"
    with pytest.raises(ConfigError):
        discover(Place("x", "rows"))


@pytest.mark.parametrize("value", ["a'b", 'q"\\', "x\x7f\x01\u202e", "é😀", ""])
def test_a_definition_is_written_as_it_is_read(value: str) -> None:
    given = {"streamType": value or "x", "stream.file.topic.name": value}
    one = StreamDefinition.of("n.1", given)
    document = Document(Path("x.toml"), toml_of(one))
    document.body = read_toml(document)
    (read,) = definitions_of(document)
    assert read.name == one.name
    assert properties(read) == given


def test_types_without_a_place_are_not_offered() -> None:
    offered = set(types_with_places())
    assert {"delta", "file", "flight", "hudi", "iceberg", "kafka"} <= offered
    assert not {"memory", "push", "socket"} & offered


def test_the_command_prints_a_file(
    tmp_path: Path, streamfactory_command: Callable[..., Outcome]
) -> None:
    place = tmp_path / "rows"
    place.mkdir()
    pq.write_table(ROWS, place / "a.parquet")
    outcome = streamfactory_command("discover", str(place), "--name", "x")
    assert outcome.status == 0
    (tmp_path / "x.toml").write_text(outcome.out)
    checked = streamfactory_command("check", str(tmp_path / "x.toml"), "--json")
    assert checked.json["ok"]
    outcome = streamfactory_command("discover", "--name", "x")
    assert outcome.status == 2
