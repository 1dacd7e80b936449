"""`pause` and `resume`: jobs wait without a loss, and are still paused after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.jobs.test_copy import SCHEMA, ids, properties, rows, source

import streamfactory as sf
from streamfactory.transfer.copies import open_copy
from streamfactory.wiring.config.catalogue import Catalogue

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.jobs.conftest import Memory
    from tests.proving.commands import Outcome

    from streamfactory.transfer.copying import Copied, Copy

    Command = Callable[..., Outcome]

__all__ = ["source"]

JOB = "copy/from/to"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STREAMFACTORY_STREAMS", str(tmp_path / "streams"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def opened(source: Path, sink: Path) -> Copy:
    from_, to = (Catalogue().one(path) for path in (source, sink))
    return open_copy(from_, to)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_copy_that_runs_commits_waits_and_continues(
    memory: Memory, source: Path, streamfactory: Command
) -> None:
    memory.create("to", SCHEMA, partitions=2)
    sink = memory.stream("to", realtime__segment__flush__threshold__time="1h")
    stop = threading.Event()
    done: list[Copied] = []
    seen: list[int] = []
    with opened(source, sink) as copy:
        follow = partial(copy.run, stop, follow=True, on_progress=seen.append)
        runs = threading.Thread(target=lambda: done.append(follow()), daemon=True)
        runs.start()
        try:
            until(lambda: seen and seen[-1] == 8)
            assert streamfactory("pause", JOB, "--why", "disk").status == 0
            until(lambda: sum(map(len, ids(memory, "to"))) == 8)
            [shown] = streamfactory("lag", "--json").json["paused"]
            assert (shown["job"], shown["why"]) == (JOB, "disk")
            memory.write("from", rows(8, 9))
            time.sleep(0.5)
            assert seen[-1] == 8
            assert streamfactory("resume", JOB).status == 0
            assert streamfactory("lag", "--json").json["paused"] == []
            until(lambda: seen[-1] == 10)
        finally:
            stop.set()
            runs.join(60)
    assert (done[0].rows, done[0].pause) == (10, None)
    assert ids(memory, "to") == ids(memory, "from")


def test_copy_that_would_end_does_not_begin_while_it_is_paused(
    memory: Memory, source: Path, streamfactory: Command
) -> None:
    sink = memory.stream("to")
    first = streamfactory("pause", JOB, "--why", "first", "--json").json
    # A second pause does not hide who was first, and why.
    assert streamfactory("pause", JOB, "--why", "second", "--json").json == first
    stopped = streamfactory("copy", source, sink, "--json")
    assert (stopped.status, stopped.json["rows"]) == (130, 0)
    assert stopped.json["pause"] == first["pause"]
    assert "why" in streamfactory("lag", "--json").json["paused"][0]
    text = streamfactory("copy", source, sink).out
    assert f": first; to continue: streamfactory resume {JOB}" in text
    other = streamfactory("copy", source, sink, "--writer", "other", "--json")
    assert other.json["rows"] == 8
    assert streamfactory("resume", JOB).status == 0
    assert streamfactory("copy", source, sink, "--json").json["rows"] == 8


def test_copy_that_is_killed_while_it_waits_is_still_paused(
    memory: Memory, project: Path, streamfactory: Command
) -> None:
    for name in ("from", "to"):
        body = {
            "streamType": "file",
            "stream.file.path": str(project / "data"),
            "stream.file.topic.name": name,
            "schema": "id bigint, name string",
            "realtime.segment.flush.threshold.time": "1h",
        }
        memory.folder.joinpath(f"{name}.json").write_text(
            json.dumps({"name": name, "properties": body})
        )
    source, sink = project / "from.json", project / "to.json"
    write(source, 0, 1)
    command = [sys.executable, "-m", "streamfactory", "copy", "--follow"]
    assert streamfactory("pause", JOB).status == 0
    process = subprocess.Popen(
        [*command, str(source), str(sink)], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        assert any("is paused since" in line for line in lines)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
    write(source, 2)
    assert streamfactory("resume", JOB).status == 0
    assert streamfactory("copy", source, sink, "--json").json["rows"] == 3
    assert streamfactory("copy", source, sink, "--json").json["rows"] == 0


def write(stream: Path, *numbers: int) -> None:
    with sf.open_sink(properties(stream)) as sink:
        sink.put(rows(*numbers))


def test_limit_is_followed_while_the_copy_runs(
    memory: Memory, streamfactory: Command
) -> None:
    memory.create("from", SCHEMA)
    memory.write("from", rows(*range(1000)))
    source = memory.stream("from", max__rows__per__second="50")
    stop = threading.Event()
    seen: list[int] = []
    with opened(source, memory.stream("to")) as copy:
        copying = partial(copy.run, stop, on_progress=seen.append)
        runs = threading.Thread(target=copying, daemon=True)
        began = time.monotonic()
        runs.start()
        try:
            until(lambda: seen and seen[-1] >= 100)
            assert time.monotonic() - began > 0.9  # 50 at once, then 50 per second
            assert seen[-1] < 500
            done = streamfactory("limit", JOB, "--rows", "100000", "--json")
            assert done.json["rate"] == {"rows": 100_000, "bytes": None}
            runs.join(15)
            assert not runs.is_alive()  # 18 s by the configured limit
        finally:
            stop.set()
            runs.join(60)
    assert ids(memory, "to") == [[*range(1000)]]


def test_a_pipeline_in_real_time_cannot_be_limited(
    project: Path, streamfactory: Command
) -> None:
    for folder in ("streams", "pipelines"):
        (project / folder).mkdir(exist_ok=True)
    for name in ("a", "b"):
        body = {"name": name, "properties": {"streamType": "kafka"}}
        (project / "streams" / f"{name}.json").write_text(json.dumps(body))
    for name, trigger in (("live", "real-time 30s"), ("usual", "10s")):
        text = f'trigger = "{trigger}"\ncheckpoint = "c"\n'
        text += '[source]\nstream = "a"\n[[sinks]]\nstream = "b"\n'
        (project / "pipelines" / f"{name}.toml").write_text(text)
    for target in ("live", "pipelines/live.toml", "pipeline/live"):
        done = streamfactory("limit", target, "--rows", "5")
        assert done.status != 0
        assert "pipeline/live cannot be limited" in done.err
    assert streamfactory("limit", "live", "--none").status == 0
    assert streamfactory("limit", "live", "--default").status == 0
    assert streamfactory("limit", "usual", "--rows", "5").status == 0


def test_limits_are_kept_with_a_pause_and_refused_for_pipelines(
    project: Path, streamfactory: Command
) -> None:
    assert streamfactory("limit", JOB, "--bytes", "4K", "--rows", "7").status == 0
    assert streamfactory("pause", JOB).status == 0
    shown = streamfactory("resume", JOB, "--json").json
    assert (shown["rate"], shown["pause"]) == ({"rows": 7, "bytes": 4096}, None)
    assert f"{JOB}: 7 rows/s and 4096 bytes/s" in streamfactory("limit", JOB).out
    assert streamfactory("limit", JOB, "--none", "--json").json["rate"] is not None
    assert streamfactory("limit", JOB, "--default", "--json").json["rate"] is None
    for arguments in (
        ("limit", "pipeline/p", "--bytes", "1"),
        ("limit", JOB, "--rows", "0"),
        ("limit", JOB, "--bytes", "0"),
        ("limit", JOB, "--bytes", "many"),
        ("limit", JOB, "--rows", "1", "--none"),
    ):
        assert streamfactory(*arguments).status == 2, arguments


def test_a_user_without_a_name_is_named_by_number(
    streamfactory: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54_321)
    shown = streamfactory("pause", JOB, "--json").json
    assert shown["pause"]["by"].startswith("54321@")


def test_lag_shows_lags_beside_a_state_that_cannot_be_read(
    project: Path, streamfactory: Command
) -> None:
    shown = streamfactory("pause", JOB, "--json").json
    Path(shown["file"]).write_text("{")
    done = streamfactory("lag", "--json")
    assert (done.status, done.json["lags"], done.json["paused"]) == (2, [], [])
    [problem] = done.json["problems"]
    assert (problem["target"], problem["class"]) == ("paused jobs", "config")


def test_names_stand_for_jobs(project: Path, streamfactory: Command) -> None:
    streams, pipelines = project / "streams", project / "pipelines"
    streams.mkdir()
    pipelines.mkdir()
    ticks = {"streamType": "socket", "Spool.Path": "spools/ticks"}
    for name, body in {"ticks": ticks, "plain": {"streamType": "memory"}}.items():
        document = {"name": name, "properties": body}
        (streams / f"{name}.json").write_text(json.dumps(document))
    text = 'checkpoint = "c"\n[source]\nstream = "plain"\n[[sinks]]\nstream = "x"\n'
    for name in ("spent", "ticks"):
        (pipelines / f"{name}.toml").write_text(text)
    for name, job in {
        "spent": "pipeline/spent",
        str(pipelines / "ticks.toml"): "pipeline/ticks",
        "spool/ticks": "spool/ticks",
        "copy/a/b": "copy/a/b",
    }.items():
        assert streamfactory("pause", name, "--json").json["job"] == job
    for name, why in {
        "ticks": "give pipeline/ticks or spool/ticks",
        "plain": "has no spool",
        "spint": "no pipeline or stream is named 'spint'",
        "copy/": "no pipeline or stream",
    }.items():
        done = streamfactory("pause", name)
        assert done.status == 2
        assert why in done.err
    (pipelines / "ticks.toml").unlink()
    assert streamfactory("resume", "ticks", "--json").json["job"] == "spool/ticks"
