"""What `run --ship` packs for executors."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest
from tests.proving.commands import command_of

from streamfactory.spark.pipelines.archive import pack, plugins_of, ship
from streamfactory.wiring.config.definition import from_mapping

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    archive = pack(folder / "packages.zip", {"file", "json"})
    with zipfile.ZipFile(archive) as file:
        file.extractall(folder / "packages")
    return folder / "packages"


def test_a_python_without_packages_finds_types_decoders_and_what_they_need(
    packed: Path,
) -> None:
    code = (
        "import streamfactory, sys\n"
        "from streamfactory.wiring.plugins.manager import default_manager\n"
        "print(default_manager().backend('file').name,"
        " default_manager().decoder('json').name, streamfactory.__file__)"
    )
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(
        command,
        env={"PYTHONPATH": str(packed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    file, json, place = done.stdout.split()
    assert (file, json) == ("file", "json")
    assert place.startswith(str(packed))


def test_neither_spark_nor_other_types_are_packed(packed: Path) -> None:
    names = {path.name.lower() for path in packed.iterdir()}
    assert {"streamfactory", "pyarrow", "msgspec"} <= names
    assert not names & {"pyspark", "py4j", "confluent_kafka", "deltalake", "pytest"}


def test_the_types_and_decoders_of_streams_are_known() -> None:
    stream = from_mapping(
        {
            "streamType": "kafka",
            "stream.kafka.topic.name": "t",
            "stream.kafka.decoder.class.name": "AVRO",
        }
    )
    assert plugins_of([stream]) == {"kafka", "avro"}


def test_settings_of_the_user_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamfactory.spark.pipelines.archive.pack", lambda a, _: a)
    given = {"spark.archives": "a.zip#a", "spark.executorEnv.PYTHONPATH": "mine"}
    found = ship({**given, "spark.executor.cores": "2"}, [], tmp_path)
    assert found == {
        "spark.archives": f"a.zip#a,{tmp_path}/streamfactory-packages.zip"
        "#streamfactory-packages",
        "spark.executorEnv.PYTHONPATH": "./streamfactory-packages:mine",
        "spark.executor.cores": "2",
    }


def test_ship_without_a_cluster_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = command_of(capsys, "run")(tmp_path / "any.toml", "--ship")
    assert outcome.status == 2
    assert "--ship needs the --master of a cluster" in outcome.err
