"""Retention by age, with clocks that run ahead of the log and of the machine."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from streamfactory.arrowlog import Epoch, MemoryLogStore, Retention
from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.spi import Summary

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.arrowlog import Log, LogStore
    from streamfactory.arrowlog.disk.log import DiskLog

HOUR = 3600.0
SCHEMA = pa.schema({"n": pa.int64()})


class Clock:
    """The machine's time, plus seconds."""

    ahead = 0.0

    def __call__(self) -> float:
        return (time.time() + self.ahead) * 1000


@pytest.fixture(params=["memory", "disk", "files"])
def opened(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Callable[[Clock], LogStore]:
    """Opens the store; "files" writes no rows into records."""
    if request.param == "memory":
        return MemoryLogStore
    settings = Settings(inline_size=0) if request.param == "files" else Settings()
    return lambda clock: DiskLogStore(LocalStorage(tmp_path), settings, clock)


def commit(log: Log, epoch: int, rows: int = 10) -> None:
    stage = log.stage(f"attempt-{epoch}")
    stage.append(0, pa.record_batch({"n": pa.array(range(rows), pa.int64())}))
    log.commit(Epoch("w", epoch, [stage.seal()], Summary(rows)))


def held(log: Log) -> int:
    (bounds,) = log.bounds()
    return bounds.latest - bounds.earliest


@pytest.mark.parametrize("ahead", [2 * HOUR, 400 * 24 * HOUR])
def test_a_commit_of_a_clock_that_runs_ahead_expires_no_row(
    opened: Callable[[Clock], LogStore],
    ahead: float,
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    log = opened(clock).create("t", SCHEMA)
    for epoch in range(3):
        commit(log, epoch)
    clock.ahead = ahead
    commit(log, 3)
    log.retain(Retention(age=HOUR), {})
    assert held(log) == 40
    assert "'t': the log's clock runs" in caplog.text
    clock.ahead = 0
    commit(log, 4)
    log.retain(Retention(age=HOUR), {})
    assert held(log) == 50
    clock.ahead = 60
    log.retain(Retention(age=30), {})
    assert held(log) == 0


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the clock of the whole process ahead; that of the storage stays."""
    real = time.time

    def set_ahead(seconds: float) -> None:
        monkeypatch.setattr(time, "time", lambda: real() + seconds)

    return set_ahead


def file_of(log: DiskLog, offset: int) -> Path:
    run = log.journal.known.index.find(0, offset)
    assert run is not None
    return Path(log.storage.location, run.file)


def on_disk(tmp_path: Path) -> DiskLog:
    store = DiskLogStore(LocalStorage(tmp_path), Settings(inline_size=0))
    return store.create("t", SCHEMA) if not store.names() else store.open("t")


def test_a_machine_whose_clock_runs_ahead_of_the_storage_expires_no_row(
    tmp_path: Path,
    inside: Callable[[float], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = on_disk(tmp_path)
    commit(log, 0)
    inside(2 * HOUR)
    commit(log, 1)
    log.retain(Retention(age=HOUR), {})
    log.forget(HOUR)
    assert held(log) == 20
    assert log.owner("w") is not None
    assert "the storage's time is used" in caplog.text


def test_rows_after_a_commit_of_the_future_expire_by_the_times_of_their_files(
    tmp_path: Path,
    inside: Callable[[float], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = on_disk(tmp_path)
    commit(log, 0)
    inside(400 * 24 * HOUR)
    commit(log, 1)
    inside(0)
    log = on_disk(tmp_path)  # of another program
    commit(log, 2)
    log.retain(Retention(age=HOUR), {})
    assert held(log) == 30
    old = time.time() - 2 * HOUR
    os.utime(file_of(log, 10), (old, old))
    log.retain(Retention(age=HOUR), {})
    assert held(log) == 30  # the first rows are young, and so are those after them
    late = time.time() + 1.5 * HOUR
    os.utime(file_of(log, 20), (late, late))
    inside(1.5 * HOUR)
    log.retain(Retention(age=HOUR), {})
    assert held(log) == 10
    assert "rows expire by the times of their files" in caplog.text
