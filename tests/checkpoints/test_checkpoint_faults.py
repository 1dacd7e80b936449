"""Checkpoints in a folder whose disk fails, is full, or cannot be written."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from streamfactory.spi import (
    Checkpoint,
    CheckpointFailed,
    Partition,
    Position,
    PositionRefused,
    StreamError,
)
from streamfactory.wiring.core import durable
from streamfactory.wiring.streams.checkpoints import FileCheckpointStore

STEPS = [
    (Path, "mkdir"),
    (Path, "open"),
    (Path, "replace"),
    (os, "fsync"),
    (os, "open"),
    (fcntl, "flock"),
]


def at(offset: int) -> Checkpoint:
    return Checkpoint(Position({Partition("t", 0): offset}), 1)


def offsets(store: FileCheckpointStore) -> list[int]:
    found = store.load("g")
    return [n for one in found.values() for n in one.position.values()]


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS, errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step[1])
@pytest.mark.parametrize("calls", [0, 1, 2])
def test_a_save_that_fails_is_an_error_and_leaves_the_old_or_the_new(
    code: int, step: tuple[Any, str], calls: int, tmp_path: Path
) -> None:
    store, (owner, name) = FileCheckpointStore(tmp_path / "kept"), step
    if name != "mkdir":
        store.save("g", "i", at(1))
        assert offsets(store) == [1]
    real, left = getattr(owner, name), calls

    def failing(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(code, os.strerror(code))
        return real(*arguments, **named)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, name, failing)
        failed: StreamError | None = None
        try:
            store.save("g", "i", at(2))
        except (CheckpointFailed, PositionRefused) as error:
            failed = error
    if left < 0:
        assert failed is not None
        assert os.strerror(code) in str(failed)
    assert offsets(store) in ([1], [2], [])
    if failed is None:
        assert offsets(store) == [2]
    store.save("g", "i", at(3))
    assert offsets(FileCheckpointStore(tmp_path / "kept")) == [3]
    assert not list((tmp_path / "kept" / "g").glob(".*"))


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.EIO, "check the disk"),
        (errno.EACCES, "give this user the permission"),
        (errno.EMFILE, "raise the limit of open files"),
        (errno.ENOTDIR, "check the path"),
    ],
)
@pytest.mark.parametrize("call", ["listdir", "open"])
def test_a_checkpoint_that_the_system_does_not_read_is_not_to_be_reset(
    code: int, remedy: str, call: str, tmp_path: Path
) -> None:
    store = FileCheckpointStore(tmp_path)
    store.save("g", "i", at(1))

    def failing(*_: Any, **__: Any) -> Any:
        raise OSError(code, os.strerror(code))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, call, failing)
        with pytest.raises(PositionRefused) as caught:
            store.load("g")
    assert caught.value.remedy is not None
    assert caught.value.remedy.startswith(remedy)
    assert "reset" not in str(caught.value)
    assert offsets(store) == [1]


def test_a_failed_removal_of_what_was_not_saved_hides_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    store = FileCheckpointStore(tmp_path)
    store.save("g", "i", at(1))
    monkeypatch.setattr(os, "fsync", failing)
    monkeypatch.setattr(Path, "unlink", failing)
    with pytest.raises(CheckpointFailed, match="the previous one remains valid"):
        store.save("g", "i", at(2))
    assert offsets(FileCheckpointStore(tmp_path)) == [1]


def test_a_folder_that_another_process_keeps_locked_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "_PATIENCE", 0.1)
    store = FileCheckpointStore(tmp_path)
    store.save("g", "i", at(1))
    assert offsets(store) == [1]
    other = os.open(tmp_path / "g", os.O_RDONLY)
    try:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(CheckpointFailed, match="has locked its folder"):
            store.save("g", "i", at(2))
    finally:
        os.close(other)
    assert offsets(store) == [1]
    store.save("g", "i", at(2))
    assert offsets(store) == [2]
