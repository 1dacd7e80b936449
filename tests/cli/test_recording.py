"""Every command that changes something is recorded where the catalogue asks for it."""

from __future__ import annotations

import importlib
import inspect
import json
from typing import TYPE_CHECKING, Any

import click
import pytest

from streamfactory.cli import program as program_module
from streamfactory.cli.recording import CHANGES, OWN, UNCHANGING, recording
from streamfactory.ui import runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.proving.commands import Outcome

    Command = Callable[..., Outcome]

RECORD = """
[properties]
streamType = "file"
"stream.file.topic.name" = "record"
"stream.file.path" = "{0}/topics"
"audit.record" = "true"
"""
ROWS = """
[properties]
streamType = "file"
"stream.file.topic.name" = "{1}"
"stream.file.path" = "{0}/topics"
schema = "id BIGINT"
"""


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """All commands, by their path."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        words = f"{path} {name}".strip()
        if isinstance(found, click.Group):
            yield from commands(found, words)
        else:
            yield words, found


COLUMNS = ("kind", "name", "what", "outcome")
ALL = dict(commands(program_module.root))


def test_every_command_is_in_one_table() -> None:
    tables = [*CHANGES, *OWN, *UNCHANGING]
    assert sorted(tables) == sorted(ALL)


@pytest.mark.parametrize("path", CHANGES)
def test_recorded_command_names_what_it_changes(path: str) -> None:
    command, whole = ALL[path], CHANGES[path]
    named = {whole.parameter, whole.pipeline, whole.unless} - {""}
    assert named <= {one.name for one in command.params}
    assert getattr(command.callback, "recorded_as", None) == whole
    before = command.callback
    assert recording(command, path).callback is before


def test_run_that_a_page_starts_is_recorded_by_the_page_alone() -> None:
    words = [*runs._COMMAND[runs._COMMAND.index("run") + 1 :], "a.toml"]
    given = ALL["run"].make_context("run", words).params
    assert given[CHANGES["run"].unless] is True


@pytest.mark.parametrize("path", sorted(OWN))
def test_commands_that_record_themselves_do(path: str) -> None:
    body = inspect.unwrap(ALL[path].callback)  # type: ignore[arg-type]
    module = importlib.import_module(body.__module__)
    assert "recorded(" in inspect.getsource(module)
    assert not hasattr(ALL[path].callback, "recorded_as")


@pytest.fixture
def catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a record, and the streams ``one`` and ``two``."""
    streams = tmp_path / "configs" / "streams"
    streams.mkdir(parents=True)
    (streams / "record.toml").write_text(RECORD.format(tmp_path))
    for name in ("one", "two"):
        (streams / f"{name}.toml").write_text(ROWS.format(tmp_path, name))
    (tmp_path / "rows.jsonl").write_text('{"id": 1}\n{"id": 2}\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STREAMFACTORY_STREAMS", raising=False)
    return tmp_path


def rows(streamfactory: Command) -> list[dict[str, Any]]:
    found = streamfactory("audit", "--json")
    return list(json.loads(found.out)["rows"])


def test_jobs_are_recorded_with_their_outcome(
    catalogue: Path, streamfactory: Command
) -> None:
    streamfactory("topics", "create", "record")
    assert streamfactory("publish", "one", "rows.jsonl").status == 0
    assert streamfactory("copy", "one", "two", "--writer", "w").status == 0
    assert streamfactory("topics", "compact", "two").status == 0
    assert streamfactory("copy", "nowhere", "two", "--writer", "w").status != 0
    assert streamfactory("topics", "show", "two").status == 0
    found = [tuple(one[c] for c in COLUMNS) for one in rows(streamfactory)]
    expected = [
        ("stream", "one", "published into", "begun"),
        ("stream", "one", "published into", "made"),
        ("stream", "two", "copied into", "begun"),
        ("stream", "two", "copied into", "made"),
        ("topic", "two", "compacted", "begun"),
        ("topic", "two", "compacted", "made"),
        ("stream", "two", "copied into", "begun"),
        ("stream", "two", "copied into", "failed"),
    ]
    assert [one for one in found if one[2] != "created"] == expected


def test_backfills_are_recorded_by_what_they_change(
    catalogue: Path, streamfactory: Command
) -> None:
    streamfactory("topics", "create", "record")
    streamfactory("publish", "one", "rows.jsonl")
    assert streamfactory("copy", "one", "two").status == 0
    before = len(rows(streamfactory))
    assert streamfactory("backfill", "one", "two", "--list").status == 0
    assert len(rows(streamfactory)) == before
    assert streamfactory("backfill", "one", "two").status == 0
    assert streamfactory("backfill", "nowhere.toml").status != 0
    found = [tuple(one[c] for c in COLUMNS) for one in rows(streamfactory)[before:]]
    assert found == [
        ("stream", "two", "backfilled", "begun"),
        ("stream", "two", "backfilled", "made"),
        ("pipeline", "nowhere.toml", "backfilled", "begun"),
        ("pipeline", "nowhere.toml", "backfilled", "failed"),
    ]


def test_status_that_is_a_failure_is_recorded_as_one(
    catalogue: Path, streamfactory: Command
) -> None:
    streamfactory("topics", "create", "record")
    command = click.Command(
        "run",
        callback=lambda **_: 1,
        params=[click.Argument(["files"]), click.Option(["--attached"], is_flag=True)],
    )
    context = recording(command, "run").make_context("run", ["s3://a:hunter2@b/c"])
    assert command.invoke(context) == 1
    begun, failed = [one for one in rows(streamfactory) if one["what"] != "created"]
    assert (begun["outcome"], failed["outcome"]) == ("begun", "failed")
    assert failed["reason"] == "it ended with status 1"
    assert "hunter2" not in json.dumps([begun, failed])
    by_page = command.make_context("run", ["two", "--attached"])
    assert command.invoke(by_page) == 1
    assert len([one for one in rows(streamfactory) if one["what"] != "created"]) == 2


def test_job_that_cannot_be_recorded_is_not_begun(
    catalogue: Path, streamfactory: Command
) -> None:
    streamfactory("topics", "create", "record")
    streamfactory("publish", "one", "rows.jsonl")
    record = catalogue / "configs" / "streams" / "record.toml"
    record.write_text(record.read_text() + '"nonsense" = "x"\n')
    assert streamfactory("publish", "one", "rows.jsonl").status != 0
    shown = streamfactory("topics", "show", "one", "--json")
    latest = json.loads(shown.out)["partitions"][0]["latest"]
    assert latest == 2
