"""`doctor`: one remedy for each problem, and no secret in its output."""

from __future__ import annotations

import json
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from streamfactory.cli.doctor import streams
from streamfactory.spi.topics import TO_COMPACT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.proving.commands import Outcome

    Command = Callable[..., Outcome]


@pytest.fixture
def catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "catalogue"
    folder.mkdir()
    monkeypatch.setenv("STREAMFACTORY_STREAMS", str(folder))
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    return folder


def findings(done: Outcome) -> dict[tuple[str, str], Any]:
    return {(one["area"], one["name"]): one for one in done.json["findings"]}


def test_a_sound_machine_has_no_errors(
    streamfactory: Command, catalogue: Path, clicks: Path
) -> None:
    (catalogue / "clicks.toml").write_text(clicks.read_text())
    done = streamfactory("doctor", "--json")
    assert (done.status, done.json["ok"], done.err) == (0, True, ""), done.out
    found = findings(done)
    assert found["stream", "clicks"]["level"] == "ok"
    assert "2 partitions, 3 offsets" in found["stream", "clicks"]["what"]
    assert found["catalogue", str(catalogue)]["what"] == "1 stream"
    version = "{}.{}.{}".format(*sys.version_info[:3])
    assert version in found["python", "interpreter"]["what"]
    assert found["extra", "kafka"]["what"].startswith("confluent-kafka ")
    for area in ("spark", "network", "files", "clock", "plug-in"):
        assert any(key[0] == area for key in found), area
    text = streamfactory("doctor", "--no-streams").out
    assert text.splitlines()[-1] == "0 errors, 0 warnings"
    assert "clicks" not in text


def test_each_problem_has_a_remedy(
    streamfactory: Command,
    catalogue: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho 3.1\n")
    other.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", str(tmp_path / "none"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    (catalogue / "broken.toml").write_text("[properties\n")
    (catalogue / "gone.toml").write_text(
        "[properties]\nstreamType = 'flight'\n'stream.flight.topic.name' = 'gone'\n"
        "'stream.flight.location' = 'grpc://127.0.0.1:1'\n"
        "'stream.flight.connection.timeout.millis' = '300'\n"
    )
    done = streamfactory("doctor", "--json")
    assert done.status == 1
    problems = [one for one in done.json["findings"] if one["level"] != "ok"]
    assert {(one["area"], one["name"]) for one in problems} == {
        ("spark", "PYSPARK_PYTHON"),
        ("spark", "PYSPARK_DRIVER_PYTHON"),
        ("spark", "JAVA_HOME"),
        ("spark", "SPARK_HOME"),
        ("catalogue", str(catalogue / "broken.toml")),
        ("stream", "gone"),
    }
    assert all(one["remedy"] for one in problems)
    mine = "{}.{}".format(*sys.version_info)
    found = findings(done)["spark", "PYSPARK_PYTHON"]
    assert found["what"] == f"{other}, Python 3.1, but this is {mine}"
    assert streamfactory("doctor").out.count("    remedy: ") == len(problems)


def test_a_folder_that_cannot_be_written_is_found(
    streamfactory: Command, catalogue: Path, clicks: Path, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    text = clicks.read_text() + f"'checkpoint.location' = '{file}/kept'\n"
    (catalogue / "clicks.toml").write_text(text)
    done = streamfactory("doctor", "--json")
    assert done.status == 1
    (error,) = [one for one in done.json["findings"] if one["level"] == "error"]
    assert error["what"] == f"checkpoint.location: {file} is not a writable folder"


def test_no_secret_is_printed(
    streamfactory: Command,
    catalogue: Path,
    stranger: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STREAMFACTORY_API_TOKEN", "hunter2")
    monkeypatch.setenv("SPARK_REMOTE", "sc://me:hunter2@host")
    path = stranger(stream__stranger__password="hunter2")
    body = json.loads(path.read_text())
    properties = {k.replace("__", "."): v for k, v in body["properties"].items()}
    (catalogue / "strange.json").write_text(json.dumps({"properties": properties}))
    for more in ((), ("--json",)):
        done = streamfactory("doctor", *more)
        assert "STREAMFACTORY_API_TOKEN" in done.out
        assert "hunter2" not in done.out + done.err


def test_secrets_in_settings_of_a_variable_are_masked(
    streamfactory: Command, catalogue: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "PYSPARK_SUBMIT_ARGS",
        "--conf spark.hadoop.fs.s3a.secret.key=hunter2 --conf spark.executor.cores=3 "
        "--conf spark.executorEnv.API_TOKEN=hunter2 pyspark-shell",
    )
    done = streamfactory("doctor", "--no-streams", "--json")
    shown = findings(done)["environment", "PYSPARK_SUBMIT_ARGS"]["what"]
    assert shown == (
        "--conf spark.hadoop.fs.s3a.secret.key=*** --conf spark.executor.cores=3 "
        "--conf spark.executorEnv.API_TOKEN=*** pyspark-shell"
    )


def test_the_version_of_java_is_found_behind_the_options_that_it_prints(
    streamfactory: Command,
    catalogue: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        "echo 'Picked up JAVA_TOOL_OPTIONS: -Dapp.version=\"8\" -Xmx1g' >&2\n"
        "echo 'openjdk version \"17.0.12\" 2024-07-16' >&2\n"
        "echo 'OpenJDK Runtime Environment (build 17.0.12+7)' >&2\n"
    )
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    done = streamfactory("doctor", "--no-streams", "--json")
    (found,) = [
        one for one in done.json["findings"] if "17.0.12" in one["what"] + one["name"]
    ]
    assert found["level"] == "ok"
    assert "app.version" not in found["what"]


def test_streams_can_be_named_and_left_out(
    streamfactory: Command, catalogue: Path, clicks: Path
) -> None:
    (catalogue / "broken-type.toml").write_text("[properties]\nstreamType = 'none'\n")
    assert streamfactory("doctor", clicks).status == 0
    assert streamfactory("doctor", clicks, "--no-streams").status == 2
    assert streamfactory("doctor").status == 1


def test_facts_that_do_not_arrive_delay_nothing_else(
    streamfactory: Command,
    catalogue: Path,
    clicks: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (catalogue / "clicks.toml").write_text(clicks.read_text())
    ended = threading.Event()
    monkeypatch.setattr(streams, "_SECONDS", 0.1)
    monkeypatch.setattr(streams, "open_admin", lambda _: ended.wait(60))
    done = streamfactory("doctor", "clicks")
    ended.set()
    assert done.status == 0
    assert "WARNING  facts of the topic: no answer within 0.1 s" in done.out


@pytest.mark.parametrize("size", [{}, {"files": 1000, "bytes": 2000}])
def test_files_to_merge_are_a_warning_whatever_else_a_type_shows(
    streamfactory: Command,
    catalogue: Path,
    clicks: Path,
    monkeypatch: pytest.MonkeyPatch,
    size: dict[str, int],
) -> None:
    (catalogue / "clicks.toml").write_text(clicks.read_text())
    facts = {TO_COMPACT: 100, **size}
    monkeypatch.setattr(streams, "_facts", lambda _: facts)
    done = streamfactory("doctor", "clicks")
    assert done.status == 0
    total = "1,000 files of 2,000 bytes, of which 100" if size else "100 files"
    assert f"WARNING  {total} can be merged" in done.out


def test_left_overs_in_shared_memory_are_found_and_removed(
    streamfactory: Command, catalogue: Path, tmp_path: Path
) -> None:
    (catalogue / "rows.toml").write_text(
        f"""[properties]
streamType = "shm"
"stream.shm.path" = "{tmp_path / "memory"}"
"stream.shm.topic.name" = "rows"
"stream.shm.capacity" = "64KiB"
schema = "id bigint"
"""
    )
    assert streamfactory("topics", "create", "rows").status == 0
    assert streamfactory("doctor", "--json").json["ok"]
    left = tmp_path / "memory" / ".left-0"
    left.mkdir()  # as a process leaves it that was killed while it made a topic
    done = streamfactory("doctor", "rows")
    assert done.status == 0
    assert "WARNING  killed processes left 1 files or folders" in done.out
    assert "remedy: run: streamfactory topics compact rows" in done.out
    assert streamfactory("topics", "compact", "rows").status == 0
    assert not left.exists()
    assert "killed" not in streamfactory("doctor", "rows").out
