"""What a commit waits for, what is synced later, and what waits for that."""

from __future__ import annotations

import errno
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.proving.numbers import SCHEMA, append, batch, numbers_of
from tests.proving.stepping import SteppedStorage

from streamfactory.arrowlog.disk import (
    DiskLogStore,
    LocalStorage,
    Settings,
    writeback,
)
from streamfactory.spi import StorageFailed

if TYPE_CHECKING:
    from pathlib import Path

    from streamfactory.arrowlog.disk import DiskLog, Storage

DEADLINE = 120.0


class Watched(LocalStorage):
    """Writes down what is synced, and fails to on request."""

    synced: list[Path]
    failing: list[str]

    def within(self, folder: str) -> Storage:
        inner = Watched(self.root / folder, fsync=self._fsync, interval=self._interval)
        inner.synced, inner.failing = self.synced, self.failing
        return inner

    def _sync(self, path: Path) -> None:
        if path.name in self.failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        super()._sync(path)
        self.synced.append(path)


def watched(root: Path, fsync: str, interval: float = 0.05) -> Watched:
    storage = Watched(root, fsync=fsync, interval=interval)
    storage.synced, storage.failing = [], []
    return storage


def topic(storage: LocalStorage) -> DiskLog:
    return DiskLogStore(storage, Settings()).create("t", SCHEMA)


def test_an_interval_ends_without_another_write(root: Path) -> None:
    """Everything in the order in which it has to be on the medium."""
    storage = watched(root, "interval")
    log = topic(storage)
    append(log, {0: [1]})
    place = root / "t.topic" / log.incarnation
    record = place / "log" / f"{1:020d}.json"
    deadline = time.monotonic() + DEADLINE
    while place / "log" not in _since(storage.synced, record):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    log.close()
    (segment,) = place.glob("data/*.arrow")
    order = [segment, place / "data", record, place / "log"]
    last = {path: at for at, path in enumerate(storage.synced)}
    assert sorted(order, key=last.__getitem__) == order


def _since(synced: list[Path], path: Path) -> list[Path]:
    """What was synced after a path; nothing if it was not."""
    return synced[synced.index(path) :] if path in synced else []


def test_what_is_deferred_during_a_sync_waits_for_it(root: Path) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    class Slow(Watched):
        def _sync(self, path: Path) -> None:
            if path.name == "first":
                begun.set()
                assert goes_on.wait(DEADLINE)
            super()._sync(path)

    storage = Slow(root, fsync="interval", interval=0.01)
    storage.synced, storage.failing = [], []
    root.mkdir()
    for name in ("first", "second"):
        (root / name).touch()
    storage.sync_file(root / "first")
    assert begun.wait(DEADLINE)
    storage.sync_file(root / "second")
    closing = threading.Thread(target=storage.close)
    closing.start()
    closing.join(0.1)
    assert (closing.is_alive(), storage.synced) == (True, [])
    goes_on.set()
    closing.join(DEADLINE)
    assert storage.synced == [root / "first", root / "second"]


def test_closing_ends_the_interval(root: Path) -> None:
    storage = watched(root, "interval", 3600)
    store = DiskLogStore(storage, Settings())
    log = store.create("t", SCHEMA)
    append(log, {0: [1]})
    assert storage.synced == []
    store.close()
    assert root / "t.topic" / "000000.json" in storage.synced
    place = root / "t.topic" / log.incarnation
    assert place / "log" / f"{1:020d}.json" in storage.synced


def test_what_could_not_be_synced_later_is_reported_to_the_next_commit(
    root: Path,
) -> None:
    storage = watched(root, "interval")
    log = topic(storage)
    storage.failing.append("data")

    def write_on() -> None:
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            append(log, {0: [1]})

    with pytest.raises(StorageFailed) as caught:
        write_on()
    folder = root / "t.topic" / log.incarnation / "data"
    assert f"{folder}: Input/output error" in caught.value.what
    storage.failing.clear()
    log.close()


def test_a_record_that_may_not_survive_is_reported(root: Path) -> None:
    """It is there all the same: a writer with a name finds it, and writes no other."""
    storage = watched(root, "always")
    log = topic(storage)
    storage.failing.append("log")
    with pytest.raises(StorageFailed) as caught:
        append(log, {0: [1]}, "w", 0)
    record = root / "t.topic" / log.incarnation / "log" / f"{1:020d}.json"
    assert caught.value.what.startswith(
        f"{record}: published, but may not survive a power failure: "
    )
    with pytest.raises(StorageFailed):  # nor is it held as long as it is not safe
        append(log, {0: [1]}, "w", 0)
    storage.failing.clear()
    assert append(log, {0: [1]}, "w", 0) is not None
    assert numbers_of(log) == [1]


def test_a_file_that_cannot_be_synced_is_not_committed(root: Path) -> None:
    storage = watched(root, "always")
    log = topic(storage)
    storage.failing.append("data")
    with pytest.raises(StorageFailed):
        append(log, {0: [1]}, "w", 0)
    storage.failing.clear()
    assert numbers_of(log) == []
    assert append(log, {0: [1]}, "w", 0) is None


def test_never_syncs_only_merged_segments(root: Path) -> None:
    """A merge that a power cut takes back needs the files that it was made of."""
    steps: list[str] = []
    storage = SteppedStorage(root, lambda name, _: steps.append(name), fsync="never")
    log = DiskLogStore(storage, Settings(merge_files=4)).create("t", SCHEMA)
    for n in range(4):
        append(log, {0: [n]})
    assert log.facts()["segments"] == 1
    assert not [name for name in steps if name.startswith(("sync", "remove"))]
    log.compact()
    removed = steps.index("remove segment")
    for name in ("sync part", "sync index", "sync snapshot", "sync log"):
        assert steps.index(name) < removed
    assert steps.count("remove segment") == 4
    assert numbers_of(log) == [0, 1, 2, 3]


def test_a_snapshot_that_was_killed_is_finished_by_the_next_one(root: Path) -> None:
    """What it named as removed is removed, though no new record says so."""
    storage = SteppedStorage(root, lambda *_: None, fsync="never")
    log = DiskLogStore(storage, Settings(merge_files=4)).create("t", SCHEMA)
    for n in range(4):
        append(log, {0: [n]})
    kept = {path: path.read_bytes() for path in root.rglob("data/*.arrow")}
    log.compact()
    (merged,) = root.rglob("data/*.arrow")
    for path, data in kept.items():
        path.write_bytes(data)  # as if the kill had come before
    other = DiskLogStore(LocalStorage(root, fsync="never"), Settings()).open("t")
    other.compact()
    assert list(root.rglob("data/*.arrow")) == [merged]
    assert numbers_of(other) == [0, 1, 2, 3]


def test_a_creation_makes_safe_what_one_before_it_was_killed_over(root: Path) -> None:
    """The folder of the topic exists already, and perhaps in no folder's medium."""
    (root / "t.topic").mkdir(parents=True)
    storage = watched(root, "always")
    topic(storage)
    assert root in storage.synced


LARGE = 64_000
"""Rows of a batch, which has more bytes than `writeback` may leave unsynced."""


def test_large_segment_is_synced_while_it_is_written(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writeback, "_EVERY", 1 << 16)
    storage = watched(root, "always")
    stage = topic(storage).stage("a")
    thread, original = threading.current_thread(), os.fsync
    early: list[int] = []

    def fsync(file: int) -> None:
        if threading.current_thread() is not thread:
            early.append(os.fstat(file).st_size)
        original(file)

    monkeypatch.setattr(os, "fsync", fsync)
    storage.synced.clear()
    for _ in range(10):
        stage.append(0, batch(range(LARGE)))
    assert not storage.synced
    stage.seal()
    assert early[0] >= 1 << 16
    assert [path.suffix for path in storage.synced if path.suffix] == [".arrow"]
    names = {one.name for one in threading.enumerate()}
    assert "write-back" not in names


def test_early_sync_that_fails_fails_the_attempt(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system reports lost bytes once: the sync at the end would succeed."""
    monkeypatch.setattr(writeback, "_EVERY", 1 << 16)
    log = topic(watched(root, "always"))
    stage = log.stage("a")
    thread, original = threading.current_thread(), os.fsync

    def fsync(file: int) -> None:
        if threading.current_thread() is not thread:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        original(file)

    monkeypatch.setattr(os, "fsync", fsync)
    stage.append(0, batch(range(LARGE)))
    with pytest.raises(StorageFailed):
        stage.seal()
    assert not list(root.glob("t.topic/*/data/*.arrow"))
    append(log, {0: [1]})
    assert numbers_of(log) == [1]
