"""Where Spark finds named streams, and what relative paths start from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.proving.sessions import Topic

from streamfactory.spark import register
from streamfactory.spark.catalogues import CONF, Home
from streamfactory.spark.definition import configured_by
from streamfactory.spi import ConfigError, UnknownStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLACES = ("option", "session", "environment", "home", "process")


@pytest.fixture
def projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Folders with a catalogue each; the last one is the working folder."""
    monkeypatch.delenv("STREAMFACTORY_STREAMS", raising=False)
    found = {name: tmp_path / name for name in PLACES}
    for name, folder in found.items():
        streams = folder / "configs" / "streams"
        streams.mkdir(parents=True)
        (streams / "clicks.toml").write_text(
            '[properties]\nstreamType = "file"\n"stream.file.path" = "data"\n'
            f'"stream.file.topic.name" = "{name}"\nschema = "id bigint"\n'
        )
    monkeypatch.chdir(found["process"])
    return found


def test_catalogue_is_that_of_option_session_environment_and_folder(
    projects: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = {
        name: str(folder / "configs/streams") for name, folder in projects.items()
    }
    options = {"stream": "clicks", "streams": streams["option"]}
    home = Home(str(projects["home"]), streams["session"])
    monkeypatch.setenv("STREAMFACTORY_STREAMS", streams["environment"])
    assert found(options, home) == ("option", projects["option"])
    del options["streams"]
    assert found(options, home) == ("session", projects["session"])
    home = Home(home.folder)
    assert found(options, home) == ("environment", projects["environment"])
    monkeypatch.delenv("STREAMFACTORY_STREAMS")
    assert found(options, home) == ("home", projects["home"])
    assert found(options, None) == ("process", projects["process"])
    # A Spark on another machine does not have the program's folder.
    assert found(options, Home("/nowhere")) == ("process", projects["process"])


def test_names_of_folders_are_relative_to_the_program(
    projects: dict[str, Path],
) -> None:
    home = Home(str(projects["home"]), "../session/configs/streams")
    assert found({"stream": "clicks"}, home)[0] == "session"
    options = {"STREAM": "clicks", "Streams": "../option/configs/streams"}
    assert found(options, home)[0] == "option"
    file = {"stream": "configs/streams/clicks.toml"}
    assert found(file, Home(str(projects["home"]))) == ("home", projects["home"])
    assert found(file, Home("/nowhere")) == ("process", projects["process"])


def found(options: dict[str, str], home: Home | None) -> tuple[str, Path]:
    """The topic of the stream that is found, and the project of its data."""
    config = configured_by(options, home)[0].config
    data = Path(os.path.normpath(config["path"]))
    assert config.settings["path"].text == config["path"]  # as executors parse it
    return config.topic, data.parent


@pytest.mark.parametrize(
    ("options", "home", "looked"),
    [
        (
            {"streams": "{option}"},
            Home(),
            "known in {option} (option streams) are clicks",
        ),
        ({}, Home("", "{session}"), f"known in {{session}} ({CONF}) are clicks"),
        ({}, Home("{home}"), "known in {home}/configs/streams are clicks"),
        (
            {"streams": "{option}/none"},
            Home(),
            (
                "{option}/none (option streams) does not exist: set the option "
                "`streams`, spark.streamfactory.streams or STREAMFACTORY_STREAMS to "
            ),
        ),
    ],
)
def test_unknown_stream_is_an_error_that_names_the_folder(
    options: dict[str, str], home: Home, looked: str, projects: dict[str, Path]
) -> None:
    def whole(text: str) -> str:
        for name, folder in projects.items():
            inside = folder if name == "home" else folder / "configs" / "streams"
            text = text.replace(f"{{{name}}}", str(inside))
        return text

    options = {key: whole(text) for key, text in options.items()}
    streams = None if home.streams is None else whole(home.streams)
    with pytest.raises(UnknownStream) as caught:
        configured_by({"stream": "click", **options}, Home(whole(home.folder), streams))
    assert whole(looked) in str(caught.value)


def test_path_in_a_folder_that_spark_deletes_is_refused(
    projects: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark import SparkFiles

    here = str(projects["process"])
    monkeypatch.setattr(SparkFiles, "_root_directory", here)
    options = {
        "streamType": "file",
        "stream.file.path": "out",
        "stream.file.topic.name": "t",
        "schema": "id bigint",
    }
    with pytest.raises(ConfigError, match=r"which Spark deletes"):
        configured_by(options)
    home = Home(str(projects["home"]))
    assert configured_by(options, home)[0].config["path"] == f"{home.folder}/out"
    # What the program added to the session is there.
    (projects["process"] / "out").mkdir()
    assert configured_by(options)[0].config["path"] == f"{here}/out"


def test_session_names_the_catalogue_of_its_queries(
    spark: SparkSession, projects: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = {"stream.file.path": str(projects["session"] / "data")}
    topic = Topic(projects["session"], "session", **place)
    topic.write(id=[1, 2])
    session = spark.newSession()
    monkeypatch.chdir(projects["session"])
    session.conf.set(CONF, "configs/streams")
    register(session)
    monkeypatch.chdir(projects["home"])
    rows = session.read.format("streamfactory").load("clicks")
    assert sorted(row.id for row in rows.collect()) == [1, 2]
    rows.write.format("streamfactory").option("stream", "clicks").mode("append").save()
    assert sorted(topic.column("id")) == [1, 1, 2, 2]
