"""A profile replaces properties of the catalogue's streams."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest
from tests.proving.commands import command_of
from tests.wiring.test_catalogue import MEMORY

from streamfactory.spi import ConfigError
from streamfactory.wiring.config.catalogue import Catalogue
from streamfactory.wiring.config.definition import Property
from streamfactory.wiring.config.loading import find_definition, load
from streamfactory.wiring.config.profiles import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.proving.commands import Outcome

PROD = """\
[types.Memory]
"batch.rows" = 10
"batch.bytes" = "1M"

[streams.clicks]
"Batch.Rows" = 20

[streams.'taxi-rides'.stream.memory]
partitions = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    streams = tmp_path / "streams"
    streams.mkdir()
    topic = '"stream.memory.topic.name" = "clicks"\n"batch.rows" = 1\n'
    (streams / "clicks.toml").write_text(MEMORY + topic)
    (streams / "rides.toml").write_text(f'name = "taxi-rides"\n{MEMORY}')
    (streams / "orders.toml").write_text('[properties]\nstreamType = "file"\n')
    write(tmp_path, PROD)
    monkeypatch.setenv(ENVIRONMENT, "prod")
    monkeypatch.setenv("STREAMFACTORY_STREAMS", str(streams))
    return streams


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    return command_of(capsys)


def write(place: Path, text: str, name: str = "prod") -> Path:
    path = place / "profiles" / f"{name}.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def values(folder: Path, name: str) -> dict[str, str]:
    return {one.key.lower(): one.text for one in Catalogue(folder).one(name).properties}


def test_properties_of_a_stream_come_before_those_of_its_type(folder: Path) -> None:
    assert values(folder, "clicks") == {
        "streamtype": "memory",
        "stream.memory.topic.name": "clicks",
        "batch.rows": "20",
        "batch.bytes": "1M",
    }
    found = values(folder, "taxi-rides")
    assert (found["batch.rows"], found["stream.memory.partitions"]) == ("10", "3")
    assert values(folder, "orders") == {"streamtype": "file"}
    assert Catalogue(folder).broken() == {}


def test_each_value_has_its_place_as_origin(folder: Path) -> None:
    origins = {
        one.key: one.origin for one in Catalogue(folder).get("clicks").properties
    }
    profile = folder.parent / "profiles" / "prod.toml"
    assert origins["Batch.Rows"] == f"{profile}:6"
    assert origins["batch.bytes"] == f"{profile}:3"
    assert origins["streamType"] == f"{folder / 'clicks.toml'}:2"


def test_files_and_snapshots_have_the_profile_and_maps_have_none(folder: Path) -> None:
    assert values(folder, str(folder / "clicks.toml"))["batch.rows"] == "20"
    snapshot = Catalogue(folder).snapshot()
    assert snapshot.get("clicks") == Catalogue(folder).get("clicks")
    properties = {"streamType": "memory", "stream.memory.topic.name": "clicks"}
    assert find_definition(properties).properties == (
        Property("streamType", "memory", "argument"),
        Property("stream.memory.topic.name", "clicks", "argument"),
    )


@pytest.mark.parametrize("streams", ["configs/streams", "streams"])
def test_relative_paths_start_where_those_of_the_streams_do(
    streams: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / streams
    folder.mkdir(parents=True)
    own = '"stream.file.path" = "a"\n"stream.file.topic.name" = "t"\n'
    (folder / "clicks.toml").write_text(f'[properties]\nstreamType = "file"\n{own}')
    write(folder.parent, '[streams.clicks]\n"stream.file.path" = "b"\n')
    found = []
    for profile in ("", "prod"):
        monkeypatch.setenv(ENVIRONMENT, profile)
        definition = Catalogue(folder).get("clicks")
        found.append(load(definition, "read").config["path"])
    project = tmp_path if streams.startswith("configs") else folder
    assert found == [str(project / "a"), str(project / "b")]


def test_without_a_profile_nothing_is_replaced(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT, "")
    assert values(folder, "clicks")["batch.rows"] == "1"


def test_the_type_may_be_replaced(folder: Path) -> None:
    text = '[types.file]\n"batch.rows" = 7\n[streams.clicks]\nstreamType = "FILE"\n'
    write(folder.parent, text)
    assert values(folder, "clicks")["batch.rows"] == "7"


@pytest.mark.parametrize("name", ["prd", "../profiles/prod", "prod\n", ".prod", "x/y"])
def test_an_unknown_profile_is_an_error_of_every_lookup(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT, name)
    for call in (Catalogue(folder).names, lambda: Catalogue(folder).one("clicks")):
        with pytest.raises(ConfigError, match=r"no profile is named .*known in .*prod"):
            call()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[stream.clicks]\n", "stream: is not a table .*did you mean streams.*:1"),
        ("types = 3\n", "types: is no table"),
        ('[streams]\n"batch.rows" = 3\n', "streams.batch.rows: is a value.*:2"),
        ('[types.file]\n"batch.rows" = [1]\n', "batch.rows: .*:2"),
        ("[types.file]\n'a' = 1\n'A' = 2\n", "A: is defined twice.*:3"),
        ("[types.file]\n[types.File]\n", "types.File: is defined twice.*:1.*:2"),
        ("[types.file\n", "TOML"),
    ],
)
def test_a_malformed_profile_is_an_error_with_its_lines(
    text: str, problem: str, folder: Path
) -> None:
    write(folder.parent, text)
    with pytest.raises(ConfigError) as caught:
        Catalogue(folder).get("clicks")
    shown = "\n".join([str(caught.value), *map(str, caught.value.problems)])
    assert re.search(problem, shown)


def test_tables_without_effect_are_reported(
    folder: Path, command: Callable[..., Outcome]
) -> None:
    tables = "[streams.klicks]", "[types.memori]", "[types.push]"
    path = write(folder.parent, "".join(f'{one}\n"batch.rows" = 3\n' for one in tables))
    assert values(folder, "clicks")["batch.rows"] == "1"
    done = command("validate")
    assert done.status == 2
    assert f"{path}: 2 errors" in done.out
    assert "streams.klicks: is no stream of the catalogue; did you mean clicks?" in (
        done.out
    )
    assert "types.memori: is no type of streams; did you mean memory?" in done.out
    assert "types.push" not in done.out  # it is installed


def test_the_command_line_names_a_profile_for_one_command(
    folder: Path, command: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ENVIRONMENT)
    shown = command("--profile", "prod", "validate", "clicks", "--effective")
    assert "batch.rows" in shown.out
    assert "prod.toml:6" in shown.out
    assert ENVIRONMENT not in os.environ
    assert "prod.toml" not in command("validate", "clicks", "--effective").out
    assert command("--profile", "prd", "validate", "clicks").status == 2
    assert folder.exists()
