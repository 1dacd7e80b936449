"""Named streams in a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streamfactory.spi import ConfigError, UnknownStream
from streamfactory.wiring.config.catalogue import Catalogue

if TYPE_CHECKING:
    from pathlib import Path

if TYPE_CHECKING:
    from pathlib import Path

MEMORY = '[properties]\nstreamType = "memory"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    streams = tmp_path / "streams"
    streams.mkdir()
    (streams / "clicks.toml").write_text(MEMORY)
    (streams / "rides.json").write_text(
        '{"name": "taxi-rides", "properties": {"streamType": "memory"}}'
    )
    (streams / "orders.properties").write_text("streamType=memory\n")
    (streams / "notes.txt").write_text("not a stream")
    (streams / ".clicks.toml").write_text("left by an editor")
    return streams


def test_names_are_what_the_files_claim(folder: Path) -> None:
    assert Catalogue(folder).names() == ["clicks", "orders", "taxi-rides"]


def test_stream_is_found_by_its_name_or_by_its_file(folder: Path) -> None:
    catalogue = Catalogue(folder)
    assert catalogue.get("taxi-rides").name == "taxi-rides"
    assert catalogue.get("rides") == catalogue.get("taxi-rides")
    assert catalogue.get("clicks").origin == str(folder / "clicks.toml")


def test_a_claimed_name_goes_before_the_name_of_a_file(folder: Path) -> None:
    (folder / "other.toml").write_text(f'name = "rides"\n{MEMORY}')
    assert Catalogue(folder).get("rides").origin == str(folder / "other.toml")


def test_unknown_name_lists_the_known_and_the_nearest(folder: Path) -> None:
    with pytest.raises(UnknownStream) as caught:
        Catalogue(folder).get("clikcs")
    assert str(caught.value) == (
        f"no stream is named 'clikcs'; known in {folder} are clicks, orders, "
        "taxi-rides; did you mean 'clicks'?"
    )


def test_name_claimed_by_two_files_names_both(folder: Path) -> None:
    (folder / "again.toml").write_text(f'name = "clicks"\n{MEMORY}')
    catalogue = Catalogue(folder)
    with pytest.raises(ConfigError) as caught:
        catalogue.get("clicks")
    assert str(caught.value) == (
        f"stream 'clicks' is defined in {folder / 'again.toml'} and "
        f"{folder / 'clicks.toml'}; rename one of them"
    )
    assert catalogue.get("orders").name == "orders"


def test_broken_file_hinders_no_other_stream(folder: Path) -> None:
    (folder / "broken.toml").write_text("[properties")
    catalogue = Catalogue(folder)
    assert catalogue.get("clicks").name == "clicks"
    assert catalogue.names() == ["clicks", "orders", "taxi-rides"]
    assert list(catalogue.broken()) == [folder / "broken.toml"]


def test_unknown_name_mentions_files_that_could_not_be_read(folder: Path) -> None:
    (folder / "broken.toml").write_text("[properties")
    with pytest.raises(UnknownStream) as caught:
        Catalogue(folder).get("sales")
    path = folder / "broken.toml"
    assert str(caught.value) == (
        f"no stream is named 'sales'; known in {folder} are clicks, orders, "
        f"taxi-rides\n  {path}: could not be read, so its streams are unknown; "
        f"to see why: streamfactory validate {path}"
    )


def test_name_of_a_broken_file_gets_what_is_wrong_with_it(folder: Path) -> None:
    (folder / "broken.toml").write_text("[properties")
    with pytest.raises(ConfigError) as caught:
        Catalogue(folder).get("broken")
    assert "is not TOML" in str(caught.value)
    assert not isinstance(caught.value, UnknownStream)


def test_file_with_several_streams_requires_a_name(folder: Path) -> None:
    maps = [
        {"streamType": "kafka", "stream.kafka.topic.name": topic}
        for topic in ("a", "b")
    ]
    body = str({"tableName": "many", "streamConfigMaps": maps}).replace("'", '"')
    (folder / "table.json").write_text(body)
    catalogue = Catalogue(folder)
    assert catalogue.get("many_a").name == "many_a"
    assert [d.name for d in catalogue.find(str(folder / "table.json"))] == [
        "many_a",
        "many_b",
    ]
    with pytest.raises(ConfigError) as caught:
        catalogue.get("table")
    assert str(caught.value) == (
        f"{folder / 'table.json'} defines several streams: many_a, many_b (stream "
        "'table'); name one of them"
    )


@pytest.mark.parametrize(
    "name",
    ["../secret", "..", "/etc/passwd", "sub/clicks", "clicks/", "", "a\0b", "c" * 5000],
)
def test_names_are_never_used_as_paths(folder: Path, name: str) -> None:
    (folder.parent / "secret.toml").write_text(MEMORY)
    (folder / "sub").mkdir()
    (folder / "sub" / "clicks.toml").write_text(MEMORY)
    with pytest.raises(UnknownStream):
        Catalogue(folder).get(name)


def test_path_is_read_where_there_is_such_a_file(folder: Path) -> None:
    [definition] = Catalogue(folder / "none").find(str(folder / "clicks.toml"))
    assert definition.name == "clicks"


def test_what_is_no_path_is_a_name(folder: Path) -> None:
    [definition] = Catalogue(folder).find("taxi-rides")
    assert definition.name == "taxi-rides"


def test_name_that_looks_like_a_path_reports_that_there_is_no_file(
    folder: Path,
) -> None:
    with pytest.raises(UnknownStream) as caught:
        Catalogue(folder).find("clicks.toml")
    assert str(caught.value).endswith("; no file with that path exists either")


def test_environment_names_the_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMFACTORY_STREAMS", str(folder))
    assert Catalogue().get("clicks").name == "clicks"
    assert Catalogue(folder.parent).names() == []


def test_default_folder_is_below_the_working_directory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STREAMFACTORY_STREAMS", raising=False)
    (folder.parent / "configs").mkdir()
    folder.rename(folder.parent / "configs" / "streams")
    monkeypatch.chdir(folder.parent)
    assert Catalogue().get("clicks").origin == "configs/streams/clicks.toml"


def test_folder_that_is_missing_has_no_streams(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert Catalogue(missing).names() == []
    with pytest.raises(UnknownStream) as caught:
        Catalogue(missing).get("clicks")
    assert str(caught.value) == (
        f"no stream is named 'clicks'; the folder {missing} does not exist: set "
        f"STREAMFACTORY_STREAMS to another"
    )


def test_folder_that_is_empty_reports_it(tmp_path: Path) -> None:
    with pytest.raises(UnknownStream) as caught:
        Catalogue(tmp_path).get("clicks")
    assert str(caught.value) == (
        f"no stream is named 'clicks'; the folder {tmp_path} defines no stream"
    )


def test_file_instead_of_a_folder(folder: Path) -> None:
    path = folder / "clicks.toml"
    with pytest.raises(ConfigError) as caught:
        Catalogue(path).names()
    assert str(caught.value) == f"the folder '{path}' cannot be read: Not a directory"
