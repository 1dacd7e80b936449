"""Topics in a folder: created, deleted, created again, and what is not a topic."""

from __future__ import annotations

import json
import os
import re
import zlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.proving.numbers import SCHEMA, append, batch, everything, numbers_of, stage

from streamfactory.arrowlog import Epoch
from streamfactory.spi import (
    CorruptData,
    FormatRefused,
    MisuseError,
    StorageFailed,
    StreamError,
    Summary,
    TopicNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streamfactory.arrowlog.disk import DiskLog, DiskLogStore


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def sealed(plain: dict[str, Any]) -> bytes:
    body = json.dumps(plain).encode()
    return b"%b\n%08x\n" % (body, zlib.crc32(body))


def test_a_topic_is_found_by_other_processes(
    log: DiskLog, store_factory: Callable[..., DiskLogStore]
) -> None:
    other = store_factory()
    assert other.names() == ["t"]
    found = other.open("t")
    assert (found.incarnation, found.schema) == (log.incarnation, SCHEMA)


def test_creating_a_topic_twice_is_refused(store: DiskLogStore, log: DiskLog) -> None:
    with pytest.raises(MisuseError) as caught:
        store.create("t", SCHEMA)
    assert caught.value.what == "topic 't' exists already"
    with pytest.raises(MisuseError):
        store.create("u", SCHEMA, 0)
    assert store.names() == ["t"]


def test_a_missing_topic_names_the_existing_topics(
    store: DiskLogStore, log: DiskLog
) -> None:
    with pytest.raises(TopicNotFound) as caught:
        store.open("x")
    place = log.storage.location.split("/t.topic")[0]
    assert (
        caught.value.what == f"topic 'x' does not exist in {place}; existing topics: t"
    )


def test_a_deleted_topic_leaves_nothing_but_its_end(
    store: DiskLogStore, log: DiskLog, root: Path
) -> None:
    append(log, {0: [1], 1: [2]})
    log.compact()
    append(log, {0: [3]})
    store.delete("t")
    folder = f"t.topic/{log.incarnation}"
    (end,) = (path for path in files(root) if path.startswith(folder))
    assert re.fullmatch(rf"{folder}/log/\d{{20}}\.json", end)
    assert store.names() == []
    with pytest.raises(TopicNotFound):
        store.delete("t")


def test_a_topic_that_is_created_again_is_another(
    store: DiskLogStore, log: DiskLog, other: DiskLog
) -> None:
    append(log, {0: [1]}, "w", 4)
    store.delete("t")
    again = store.create("t", SCHEMA, 1)
    assert again.incarnation != log.incarnation
    assert again.last("w") is None
    append(again, {0: [2]}, "w", 0)
    assert everything(again) == {0: [2]}


def test_an_old_process_writes_nothing_to_a_deleted_topic(
    store: DiskLogStore, log: DiskLog, other: DiskLog, root: Path
) -> None:
    append(other, {0: [1]})
    attempt = other.stage("begun before")
    attempt.append(0, batch([2]))
    sealed_before = stage(other, {0: [3]})
    store.delete("t")
    again = store.create("t", SCHEMA, 2)
    before = files(root)
    deeds: list[Callable[[], object]] = [
        lambda: other.stage("later"),
        lambda: other.commit(Epoch("w", 0, [sealed_before], Summary())),
        lambda: other.commit(Epoch("w", 0, [attempt.seal()], Summary())),
        lambda: other.claim("w", "me"),
        lambda: other.grow(3),
        lambda: other.truncate({0: 1}),
        other.bounds,
        other.compact,
        lambda: other.offsets_at(0, [0]),
    ]
    for deed in deeds:
        with pytest.raises(TopicNotFound) as caught:
            deed()
        assert caught.value.what == "the topic 't' was deleted"
    other.discard(sealed_before)
    assert files(root) == before
    assert everything(again) == {0: [], 1: []}


def test_a_killed_deletion_is_finished_by_the_next_process(
    store: DiskLogStore, log: DiskLog, store_factory: Callable[..., DiskLogStore]
) -> None:
    append(log, {0: [1]})
    log.journal.publish(lambda s: log.journal.record(s, deleted=True))  # killed here
    other = store_factory()
    with pytest.raises(TopicNotFound):
        other.open("t")
    assert other.names() == []
    again = other.create("t", SCHEMA, 1)
    assert everything(again) == {0: []}


def test_a_creation_after_a_killed_deletion_is_the_first_to_look(
    log: DiskLog, store_factory: Callable[..., DiskLogStore], root: Path
) -> None:
    append(log, {0: [1]})
    log.journal.publish(lambda state: log.journal.record(state, deleted=True))
    store_factory().create("t", SCHEMA, 1)
    left = [path for path in files(root) if log.incarnation in path]
    assert len(left) == 1, left


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "..",
        ".",
        "/etc",
        "a/b",
        "c:\\windows",
        "nul\0byte",
        ".tmp-x",
        "snow ☃ 雪",
        "%2E%2E",
        "a.topic",
        "~root",
        "x" * 200,
    ],
)
def test_no_name_leaves_the_root(store: DiskLogStore, root: Path, name: str) -> None:
    outside = sorted(path for path in root.parent.iterdir() if path != root)
    log = store.create(name, SCHEMA)
    append(log, {0: [1]})
    assert store.names() == [name]
    assert numbers_of(store.open(name)) == [1]
    (folder,) = root.iterdir()
    assert folder.name.endswith(".topic")
    assert sorted(path for path in root.parent.iterdir() if path != root) == outside
    store.delete(name)
    assert store.names() == []


@pytest.mark.parametrize("name", ["", "x" * 300, "雪" * 60, "\ud800"])
def test_names_that_no_folder_can_have_are_refused(
    store: DiskLogStore, root: Path, name: str
) -> None:
    deeds: list[Callable[[], object]] = [
        lambda: store.create(name, SCHEMA),
        lambda: store.open(name),
    ]
    for deed in deeds:
        with pytest.raises(MisuseError) as caught:
            deed()
        assert "1 to 200 characters" in caught.value.what
    assert not root.exists()


def test_foreign_folders_are_no_topics(
    store: DiskLogStore, log: DiskLog, root: Path
) -> None:
    for name in ("lost+found", "x%zz.topic", "y" * 240 + ".topic", "empty.topic"):
        (root / name).mkdir()
    (root / "file.topic").write_text("x")
    (root / "t.topic" / "notes.json").write_text("x")
    (root / "t.topic" / log.incarnation / "log" / "._0.json").write_text("x")
    (root / "t.topic" / log.incarnation / "log" / "copy.snapshot").write_text("x")
    append(log, {0: [1]})
    log.compact()
    assert store.names() == ["t"]


def test_a_damaged_topic_does_not_hide_sound_ones(
    store: DiskLogStore, log: DiskLog, root: Path
) -> None:
    store.create("u", SCHEMA)
    path = root / "u.topic" / "000000.json"
    path.write_bytes(path.read_bytes()[:-3])
    assert store.names() == ["t", "u"]
    deeds: list[Callable[[str], object]] = [
        store.open,
        store.delete,
        lambda name: store.create(name, SCHEMA),
    ]
    for deed in deeds:
        with pytest.raises(CorruptData) as caught:
            deed("u")
        assert caught.value.what == f"{path}: the file is truncated or was changed"


def test_newer_formats_are_refused(
    log: DiskLog, root: Path, store_factory: Callable[..., DiskLogStore]
) -> None:
    inner = root / "t.topic" / log.incarnation / "log"
    record = inner / f"{1:020d}.json"
    record.write_bytes(sealed({"format": 4, "version": 1, "id": "x", "at": 0}))
    with pytest.raises(FormatRefused) as caught:
        store_factory().open("t")
    assert (
        caught.value.what
        == f"{record}: the file has format 4, but this version supports 1, 2, 3"
    )
    with pytest.raises(FormatRefused):
        append(log, {0: [1]})
    record.unlink()
    append(log, {0: [1]})
    snapshot = inner / f"{1:020d}.snapshot"
    snapshot.write_bytes(sealed({"format": 4}))
    with pytest.raises(FormatRefused) as caught:
        store_factory().open("t")
    assert str(snapshot) in caught.value.what
    name = root / "t.topic" / "000001.json"
    name.write_bytes(sealed({"format": 4}))
    with pytest.raises(FormatRefused) as caught:
        store_factory().open("t")
    assert str(name) in caught.value.what
    assert store_factory().names() == ["t"]


@pytest.mark.parametrize("body", [b"", b"[]", b"3", b"{}", b"not json"])
def test_foreign_staged_rows_are_refused(log: DiskLog, root: Path, body: bytes) -> None:
    record = root / "t.topic" / log.incarnation / "log" / f"{1:020d}.json"
    record.write_bytes(b"%b\n%08x\n" % (body, zlib.crc32(body)))
    with pytest.raises(CorruptData) as caught:
        log.bounds()
    assert str(record) in caught.value.what


def test_a_missing_incarnation_is_reported(
    log: DiskLog, root: Path, store_factory: Callable[..., DiskLogStore]
) -> None:
    inner = root / "t.topic" / log.incarnation
    for path in inner.rglob("*.json"):
        path.unlink()
    store = store_factory()
    deeds: list[Callable[[str], object]] = [
        store.open,
        store.delete,
        lambda name: store.create(name, SCHEMA),
    ]
    for deed in deeds:
        with pytest.raises(CorruptData) as caught:
            deed("t")
        assert caught.value.what == f"{inner}/log/{0:020d}.json is missing"


def test_what_a_killed_creation_left_goes_after_a_day(
    store: DiskLogStore, log: DiskLog, root: Path
) -> None:
    orphan = root / "t.topic" / ("0" * 32) / "log"
    orphan.mkdir(parents=True)
    record = orphan / f"{0:020d}.json"
    record.write_bytes(b"x")
    store.delete("t")
    assert record.exists()
    os.utime(record, (0, 0))
    store.create("t", SCHEMA)
    assert not orphan.parent.exists()


def test_the_root_is_made_with_the_first_topic(store: DiskLogStore, root: Path) -> None:
    assert store.names() == []
    assert not root.exists()


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_segments_open_in_any_arrow_program(
    store_factory: Callable[..., DiskLogStore], root: Path, compression: str | None
) -> None:
    log = store_factory(compression=compression).create("t", SCHEMA)
    append(log, {0: range(10_000)})
    (path,) = root.rglob("data/*.arrow")
    assert pa.ipc.open_file(path).read_all().column(0).to_pylist() == [*range(10_000)]
    assert (path.stat().st_size < 80_000) is (compression is not None)
    assert numbers_of(log) == [*range(10_000)]


@pytest.fixture
def unprivileged() -> Callable[[Callable[[], None]], None]:
    """Runs something as a user who may only read; the tests may be root's."""

    def run(deed: Callable[[], None]) -> None:
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            deed()
        finally:
            os.seteuid(user)

    return run


def test_a_folder_that_may_only_be_read_can_be_read(
    unprivileged: Callable[[Callable[[], None]], None],
    log: DiskLog,
    root: Path,
    store_factory: Callable[..., DiskLogStore],
) -> None:
    append(log, {0: [1, 2]})
    reader = store_factory()
    staged = stage(log, {0: [3]})
    folders = [path for path in (root, *root.rglob("*")) if path.is_dir()]
    above = [path for path in root.parents if path.stat().st_mode & 0o055 != 0o055]
    modes = {path: path.stat().st_mode for path in (*above, *folders)}
    errors: list[StreamError] = []

    def deed() -> None:
        found = reader.open("t")
        assert numbers_of(found) == [1, 2]
        for write in (
            lambda: found.commit(Epoch(None, 0, [staged], Summary())),
            lambda: append(found, {0: [3]}),
            lambda: reader.create("u", SCHEMA),
            lambda: reader.delete("t"),
        ):
            with pytest.raises(StorageFailed) as caught:
                write()
            errors.append(caught.value)

    try:
        for path in above:
            path.chmod(modes[path] | 0o055)
        for path in folders:
            path.chmod(0o555)
        unprivileged(deed)
    finally:
        for path, mode in modes.items():
            path.chmod(mode)
    assert all(str(root) in error.what for error in errors)
    assert {error.remedy for error in errors} == {
        "give this user the permission to read it, and to write where it writes"
    }
    assert log.commit(Epoch(None, 0, [staged], Summary())).held is None
    assert numbers_of(log) == [1, 2, 3]
