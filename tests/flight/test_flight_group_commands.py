"""Commands over groups whose checkpoints a server keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.flight.conftest import stream
from tests.proving.changes import change_at_once
from tests.proving.commands import Outcome, command_of

import streamfactory
from streamfactory.spi import NotAuthorized
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import StreamDefinition
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.source import Source
from streamfactory.wiring.streams.opening import open_sink
from streamfactory.wiring.topics.admin import open_admin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import ExitStack
    from pathlib import Path

    from streamfactory.wiring.serving.process import ServerProcess

    Command = Callable[..., Outcome]


@pytest.fixture(params=["memory", "folder"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    place: dict[str, Any] = {"memory": True}
    if request.param == "folder":
        place = {"path": str(tmp_path / "topics")}
    with streamfactory.serve(**place) as server:
        yield server


@pytest.fixture
def clicks(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """A stream of ten rows in the catalogue, and another one."""
    monkeypatch.setenv("STREAMFACTORY_STREAMS", str(tmp_path / "streams"))
    for name in ("clicks", "orders"):
        write_definition(tmp_path / "streams" / f"{name}.toml", stream(server, name))
        with open_sink(stream(server, name)) as sink:
            sink.put(pa.table({"n": list(range(10))}), writer_id="w", epoch=0)
    return stream(server, "clicks")


def write_definition(path: Path, properties: dict[str, str]) -> None:
    path.parent.mkdir(exist_ok=True)
    lines = [f'"{key}" = "{value}"\n' for key, value in properties.items()]
    path.write_text(f"[properties]\n{''.join(lines)}")


def save(properties: dict[str, str], group: str, rows: int) -> None:
    """Have a group read so many rows, and save its position."""
    more = {
        "stream.flight.consumer.type": "highlevel",
        "group.id": group,
        "startingOffsets": "earliest",
        "batch.rows": str(rows),
    }
    with streamfactory.open({**properties, **more}) as member:
        batch = member.next_batch(timeout=30)
        assert batch is not None
        assert batch.num_rows == rows
        member.commit()


@pytest.fixture
def checkpoint(capsys: pytest.CaptureFixture[str]) -> Command:
    return command_of(capsys, "checkpoint")


@pytest.fixture
def topics(capsys: pytest.CaptureFixture[str]) -> Command:
    return command_of(capsys, "topics")


@pytest.fixture
def groups(clicks: dict[str, str]) -> None:
    """Two groups read clicks, another one orders."""
    save(clicks, "billing", 3)
    save(clicks, "reports", 7)
    save({**clicks, "stream.flight.topic.name": "orders"}, "shipping", 1)


@pytest.mark.usefixtures("groups")
def test_groups_of_a_server_are_shown(checkpoint: Command) -> None:
    shown = checkpoint("show", "--server", "clicks", "--json").json
    found = {
        (one["group"], line["topic"], line["offset"])
        for one in shown["groups"]
        for line in one["offsets"]
    }
    assert found == {
        ("billing", "clicks", 3),
        ("reports", "clicks", 7),
        ("shipping", "orders", 1),
    }
    (one,) = checkpoint("show", "billing", "--server", "clicks", "--json").json[
        "groups"
    ]
    assert one["group"] == "billing"


@pytest.mark.usefixtures("groups")
def test_of_two_changes_of_a_group_at_once_one_is_made(
    clicks: dict[str, str], checkpoint: Command
) -> None:
    def source(stack: ExitStack) -> Source:
        definition = StreamDefinition.of("clicks", clicks)
        made = Source(configure(definition, default_manager(), use="read"))
        stack.callback(made.close)
        return made

    for n in (0, 1):
        moves = ({0: 4 + 2 * n}, {0: 5 + 2 * n})
        outcomes = change_at_once(source, "billing", *moves)
        (refused,) = [error for error in outcomes if error is not None]
        assert "has changed meanwhile" in str(refused)
        (made,) = checkpoint("show", "billing", "--server", "clicks", "--json").json[
            "groups"
        ]
        (place,) = made["offsets"]
        assert place["offset"] == moves[outcomes.index(None)][0]


@pytest.mark.usefixtures("groups")
def test_lag_of_the_groups_of_a_server_is_counted(checkpoint: Command) -> None:
    lag = checkpoint("lag", "--server", "clicks", "--json").json
    assert {one["source"]: one["behind"] for one in lag["sources"]} == {
        "group billing": 7,
        "group reports": 3,
    }
    lag = checkpoint("lag", "reports", "--server", "clicks", "--json").json
    assert lag["behind"] == 3
    refused = checkpoint("lag", "shipping", "--server", "clicks")
    assert refused.status == 2
    assert "no checkpoint is of the stream" in refused.err


@pytest.mark.usefixtures("groups")
def test_rows_that_groups_of_a_server_want_are_kept(topics: Command) -> None:
    words = ("truncate", "clicks", "--before", "latest", "--yes", "--json")
    (line,) = topics(*words, "--hold-groups").json["partitions"]
    assert (line["earliest"], line["before"], line["held_by"]) == (0, 3, "billing")
    (line,) = topics(*words).json["partitions"]
    assert line["before"] == 10


@pytest.mark.usefixtures("clicks")
def test_nothing_is_held_by_mistake(topics: Command) -> None:
    refused = topics("truncate", "clicks", "--before", "latest", "--hold-groups")
    assert refused.status == 2
    assert "no group has a checkpoint on the server" in refused.err


@pytest.mark.usefixtures("groups")
def test_checkpoints_of_a_group_are_deleted_on_request(
    checkpoint: Command, clicks: dict[str, str]
) -> None:
    words = ("delete", "billing", "--server", "clicks")
    assert checkpoint(*words).status == 2  # there is nobody to ask
    assert checkpoint(*words, "--dry-run", "--json").json["outcome"] == "dry-run"
    assert checkpoint("show", "billing", "--server", "clicks").status == 0
    done = checkpoint(*words, "--yes", "--json").json
    assert done == {"group": "billing", "outcome": "done", "checkpoints": 1} | done
    assert checkpoint("show", "billing", "--server", "clicks").status != 0
    names = {
        one["group"]
        for one in checkpoint("show", "--server", "clicks", "--json").json["groups"]
    }
    assert names == {"reports", "shipping"}
    with open_admin(clicks) as admin:
        admin.checkpoints().delete("billing")  # a repeated call has no effect
    save(clicks, "billing", 2)  # begins again, at earliest
    assert (
        checkpoint("lag", "billing", "--server", "clicks", "--json").json["behind"] == 8
    )


def test_type_that_keeps_no_checkpoints_is_refused(
    checkpoint: Command, tmp_path: Path
) -> None:
    path = tmp_path / "kept.toml"
    write_definition(
        path,
        {
            "streamType": "file",
            "stream.file.path": str(tmp_path / "logs"),
            "stream.file.topic.name": "t",
        },
    )
    refused = checkpoint("show", "--server", path)
    assert refused.status == 2
    assert "stream type 'file' stores no checkpoints" in refused.err
    assert checkpoint("show").status == 2
    assert checkpoint("lag", "g", "--server", path, "--stream", path).status == 2


def test_groups_need_rights_to_be_seen_and_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALICE", "alice-has-a-long-token")
    monkeypatch.setenv("BOB", "bob-has-another-token")
    access = tmp_path / "access.toml"
    access.write_text(
        '[tokens]\nalice = "${env:ALICE}"\nbob = "${env:BOB}"\n'
        '[topics."*"]\nread = ["*"]\nwrite = ["alice"]\n'
        '[groups."*"]\nread = ["alice"]\nwrite = ["alice"]\n'
        '[groups."shared"]\nread = ["bob"]\n'
    )
    with streamfactory.serve(memory=True, access_file=str(access)) as server:
        alice = stream(server, "clicks", token="${env:ALICE}")
        with open_sink(alice) as sink:
            sink.put(pa.table({"n": [1, 2]}), writer_id="w", epoch=0)
        for group in ("own", "shared"):
            save(alice, group, 1)
        with open_admin(stream(server, "clicks", token="${env:BOB}")) as admin:
            store = admin.checkpoints()
            assert list(store.groups()) == ["shared"]
            with pytest.raises(NotAuthorized):
                store.delete("shared")
        with open_admin(alice) as admin:
            assert list(admin.checkpoints().groups()) == ["own", "shared"]
