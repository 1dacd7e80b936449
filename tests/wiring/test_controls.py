"""States of jobs: what is written is read, and what is not a state is refused."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from streamfactory.spi import ConfigError, StorageFailed
from streamfactory.wiring.controls.control import Control
from streamfactory.wiring.controls.states import (
    Controls,
    JobState,
    Pause,
    copy_job,
)
from streamfactory.wiring.core import durable
from streamfactory.wiring.core.throttle import Rate
from streamfactory.wiring.metrics.snapshot import metrics

if TYPE_CHECKING:
    from pathlib import Path

PAUSE = Pause("2026-11-29T03:00:00.000Z", "ann@host", "löschen\nof disks")
JOBS = [
    "copy/a/b",
    "copy/a-b",
    "pipeline/Ä" + "x" * 300,
    "spool/../../etc",
    "copy/\udcff",
]


def paused_by_metric(job: str) -> float | None:
    samples = metrics().select("job.paused")
    return next((one.value for one in samples if one.labels == (job,)), None)


def test_states_are_read_as_written(tmp_path: Path) -> None:
    controls = Controls(tmp_path / "new" / "controls")
    assert controls.all() == {}
    for job in JOBS:
        assert controls.read(job) == JobState()
        controls.change(job, lambda _: JobState(PAUSE, Rate(bytes=7)))
        assert controls.path(job).parent == controls.folder
    assert controls.all() == {
        job: JobState(PAUSE, Rate(bytes=7)) for job in sorted(JOBS)
    }
    assert len(list(controls.folder.iterdir())) == len(JOBS)
    controls.change(JOBS[0], lambda _: JobState())
    controls.change(JOBS[0], lambda _: JobState())
    assert controls.read(JOBS[0]) == JobState()
    assert list(controls.all()) == sorted(JOBS[1:])


def test_folder_is_beside_the_catalogue_or_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMFACTORY_STREAMS", "there/streams")
    assert Controls().folder == tmp_path / "there" / "controls"
    monkeypatch.setenv("STREAMFACTORY_CONTROLS", "elsewhere")
    assert Controls().folder == tmp_path / "elsewhere"


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"version": True},
        {"job": None},
        {"more": 1},
        {"pause": "yes"},
        {"pause": {"since": "x"}},
        {"pause": {"since": 1, "by": "", "why": ""}},
        {"rate": 5},
        {"rate": {"rows": 0, "bytes": None}},
        {"rate": {"rows": True, "bytes": None}},
        {"rate": {"rows": 1}},
    ],
)
def test_what_is_no_state_is_refused(change: dict[str, object], tmp_path: Path) -> None:
    controls = Controls(tmp_path)
    controls.change("copy/a/b", lambda _: JobState(PAUSE))
    path = controls.path("copy/a/b")
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ConfigError, match=path.name):
        controls.read("copy/a/b")
    with pytest.raises(ConfigError):
        Control("copy/a/b", controls)


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, "\x00", '{"version": 1}'])
def test_what_is_no_document_is_refused(text: str, tmp_path: Path) -> None:
    controls = Controls(tmp_path)
    controls.path("copy/a/b").write_text(text)
    with pytest.raises(ConfigError):
        controls.read("copy/a/b")


def test_a_job_that_reads_without_limits_logs_that_a_rate_has_no_effect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    controls = Controls(tmp_path)
    controls.change("pipeline/p", lambda _: JobState(rate=Rate(5)))
    Control("pipeline/p", controls, limited=False)
    assert "a rate has no effect: 5 rows" in caplog.text


def test_state_of_another_job_is_refused(tmp_path: Path) -> None:
    controls = Controls(tmp_path)
    controls.change("copy/a/b", lambda _: JobState(PAUSE))
    text = controls.path("copy/a/b").read_text()
    controls.path("copy/c/d").write_text(text)
    with pytest.raises(ConfigError, match="another job: 'copy/a/b'"):
        controls.read("copy/c/d")
    with pytest.raises(ConfigError, match="another job"):
        controls.all()


def test_file_that_is_removed_meanwhile_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    controls = Controls(tmp_path)
    controls.change("copy/a/b", lambda _: JobState(PAUSE))
    listed = list(tmp_path.iterdir())
    controls.change("copy/a/b", lambda _: JobState())
    monkeypatch.setattr(type(tmp_path), "glob", lambda *_: iter(listed))
    assert controls.all() == {}


def test_folder_that_another_process_keeps_locked_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "_PATIENCE", 0.1)
    controls = Controls(tmp_path)
    with (
        durable.locked_folder(tmp_path),
        pytest.raises(StorageFailed, match="has locked its folder"),
    ):
        controls.change("copy/a/b", lambda _: JobState(PAUSE))
    assert controls.read("copy/a/b") == JobState()


def test_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageFailed, match="STREAMFACTORY_CONTROLS"):
        Controls(tmp_path / "file" / "controls").change(
            "copy/a", lambda _: JobState(PAUSE)
        )


def test_job_follows_its_state_whatever_happens_to_the_file(tmp_path: Path) -> None:
    controls = Controls(tmp_path)
    control = Control("copy/a/b", controls)
    wait_for(control, None)
    assert paused_by_metric("copy/a/b") == 0
    controls.change("copy/a/b", lambda _: JobState(PAUSE, Rate(rows=5)))
    wait_for(control, PAUSE)
    assert control.rate(Rate(rows=1)) == Rate(rows=5)
    assert paused_by_metric("copy/a/b") == 1
    controls.path("copy/a/b").write_text("{")
    time.sleep(0.3)
    wait_for(control, PAUSE)
    with pytest.raises(ConfigError, match="delete it"):
        controls.change("copy/a/b", lambda _: JobState())
    controls.path("copy/a/b").unlink()
    wait_for(control, None)
    assert control.rate(Rate(rows=1)) == Rate(rows=1)


def wait_for(control: Control, pause: Pause | None) -> None:
    deadline = time.monotonic() + 30
    while control.pause != pause:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_jobs_of_copies_are_their_writer_ids() -> None:
    assert copy_job("copy/a/b") == "copy/a/b"
    assert copy_job("mine") == "copy/mine"


def test_changes_at_the_same_time_are_all_made(tmp_path: Path) -> None:
    controls = Controls(tmp_path / "controls")

    def count(state: JobState) -> JobState:
        rows = 1 if state.rate is None else (state.rate.rows or 0) + 1
        return replace(state, rate=Rate(rows=rows))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: controls.change("copy/a/b", count), range(80)))
    assert controls.read("copy/a/b").rate == Rate(rows=80)
