"""A full disk: reported with the file's name, and nothing is lost or half there."""

from __future__ import annotations

import errno
import io
import os
import uuid
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.proving.numbers import SCHEMA, batch, everything, numbers_of, stage

from streamfactory.arrowlog import Epoch
from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, NewBlob, Settings
from streamfactory.spi import MisuseError, StorageFailed, Summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from streamfactory.arrowlog import Staged
    from streamfactory.arrowlog.disk import DiskLog, Storage


class Space:
    """What is left of a disk, for all that is written by `os.write`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 1 << 40
        self._write = os.write
        monkeypatch.setattr(os, "write", self.write)

    def write(self, file: int, data: bytes | memoryview) -> int:
        fitting = memoryview(data)[: self.left]
        self.left -= len(fitting)
        if len(data) and not fitting:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._write(file, fitting)


class _Sink(io.RawIOBase):
    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY)

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        view, size = memoryview(data), len(data)
        while view:
            view = view[os.write(self._file, view) :]
        return size

    def close(self) -> None:
        if not self.closed:
            os.close(self._file)
        super().close()


class FiniteStorage(LocalStorage):
    """A folder whose segments are written by `os.write`, as its records are."""

    def within(self, folder: str) -> Storage:
        return FiniteStorage(self.root / folder, fsync="never")

    def create(self, name: str) -> NewBlob:
        blob = super().create(name)
        blob.sink.close()
        blob.sink = pa.PythonFile(_Sink(self.root / name), "w")
        return blob


@pytest.fixture
def space(monkeypatch: pytest.MonkeyPatch) -> Space:
    return Space(monkeypatch)


@pytest.fixture
def store_factory(root: Path, space: Space) -> Iterator[Callable[[], DiskLogStore]]:
    made: list[DiskLogStore] = []

    def make() -> DiskLogStore:
        made.append(DiskLogStore(FiniteStorage(root, fsync="never"), Settings()))
        return made[-1]

    yield make
    for store in made:
        store.close()


class Journey:
    """Everything that writes, step by step; each step can be taken again."""

    def __init__(self, store: DiskLogStore, name: str) -> None:
        self._store = store
        self._name = name
        self._staged: dict[int, Staged] = {}
        self.expected: dict[int, list[int]] = {}

    @property
    def log(self) -> DiskLog:
        return self._store.open(self._name)

    def steps(self) -> list[tuple[Callable[[], None], dict[int, list[int]]]]:
        """Deeds, and what is there after each."""
        return [
            (self._create, {0: [], 1: []}),
            (lambda: self._commit(0), {0: [0], 1: [0]}),
            (lambda: self._commit(1), {0: [0, 1], 1: [0, 1]}),
            (self._compact, {0: [0, 1], 1: [0, 1]}),
            (lambda: self.log.grow(3), {0: [0, 1], 1: [0, 1], 2: []}),
            (lambda: self.log.truncate({0: 1}), {0: [1], 1: [0, 1], 2: []}),
            (lambda: self._commit(2, replace=True), {0: [2], 1: [2], 2: []}),
            (self._compact, {0: [2], 1: [2], 2: []}),
        ]

    def _compact(self) -> None:
        self.log.compact()

    def _create(self) -> None:
        self._store.create(self._name, SCHEMA, 2)

    def _commit(self, epoch: int, *, replace: bool = False) -> None:
        if epoch not in self._staged:
            self._staged[epoch] = stage(self.log, {0: [epoch], 1: [epoch]})
        self.log.commit(
            Epoch("w", epoch, [self._staged[epoch]], Summary(2), replace=replace)
        )


@pytest.mark.parametrize("number", range(8))
def test_a_disk_that_is_full_at_any_byte_costs_nothing(
    number: int, store_factory: Callable[[], DiskLogStore], space: Space, root: Path
) -> None:
    size = written(store_factory(), number, space)
    refusals = 0
    for left in [*range(0, size, max(1, size // 12)), size - 1]:
        store = store_factory()
        journey = Journey(store, uuid.uuid4().hex)
        before: dict[int, list[int]] | None = None
        for deed, after in journey.steps()[:number]:
            deed()
            before = after
        deed, after = journey.steps()[number]
        space.left = left
        refusals += refused(deed, root)
        space.left = 1 << 40
        assert not list(root.rglob(".tmp-*"))
        for one in (store, store_factory()):
            if before is None:
                assert journey._name not in one.names()
            else:
                assert everything(one.open(journey._name)) in (before, after)
        for again, then in journey.steps()[number:]:
            again()
            for one in (store, store_factory()):
                assert everything(one.open(journey._name)) == then
        journey.log.compact()
        held = journey.log.journal.known.index.files()
        folder = root / f"{journey._name}.topic" / journey.log.incarnation
        files = {f"data/{path.name}" for path in folder.glob("data/*")}
        assert files <= held
    assert refusals > 3


def written(store: DiskLogStore, number: int, space: Space) -> int:
    """How many bytes a step writes."""
    journey = Journey(store, uuid.uuid4().hex)
    for deed, _ in journey.steps()[:number]:
        deed()
    before = space.left
    journey.steps()[number][0]()
    return before - space.left


def refused(deed: Callable[[], None], root: Path) -> bool:
    """Whether a full disk was reported, with its remedy."""
    error: StorageFailed | None = None
    try:
        deed()
    except StorageFailed as caught:
        error = caught
    if error is None:
        return False
    assert str(root) in error.what
    assert "No space left on device" in error.what
    assert error.remedy == "free some space; nothing was committed"
    return True


def test_a_stage_that_lost_rows_is_never_sealed(
    store_factory: Callable[[], DiskLogStore], space: Space, root: Path
) -> None:
    """Else an epoch would be there without some of them, without an error."""
    log = store_factory().create("t", SCHEMA)
    attempt = log.stage("a")
    space.left = 1000
    with pytest.raises(StorageFailed) as caught:
        attempt.append(0, batch(range(100_000)))
    assert "data/" in caught.value.what
    space.left = 1 << 40
    for deed in (lambda: attempt.append(0, batch([1])), attempt.seal):
        with pytest.raises(MisuseError) as refused:
            deed()
        assert refused.value.what == "what attempt a staged no longer exists"
    attempt.discard()
    assert not list(root.rglob("*.arrow"))
    staged = stage(log, {0: [1]})
    log.commit(Epoch(None, 0, [staged], Summary()))
    assert numbers_of(log) == [1]


def test_a_commit_survives_housekeeping_that_finds_no_space(
    store_factory: Callable[[], DiskLogStore],
    space: Space,
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = store_factory().create("t", SCHEMA)
    for epoch in range(63):
        log.commit(Epoch("w", epoch, [stage(log, {0: [epoch]})], Summary(1)))
    staged = stage(log, {0: [63]})
    space.left = 1000
    assert log.commit(Epoch("w", 63, [staged], Summary(1))).held is None
    assert "housekeeping" in caplog.text
    space.left = 1 << 40
    assert numbers_of(log) == [*range(64)]
    assert numbers_of(store_factory().open("t")) == [*range(64)]
    log.commit(Epoch("w", 64, [stage(log, {0: [64]})], Summary(1)))
    assert int(log.facts()["small segments"]) < 3
