"""Names and links in a shared folder lead nowhere else."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import fs
from tests.disklog.hostile import (
    WRONG_NAMES,
    change,
    inner,
    record,
    sealed,
    snapshots,
    use,
)
from tests.proving.numbers import SCHEMA, append, everything, numbers_of, stage

from streamfactory.arrowlog import Epoch, Staged
from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.arrowlog.disk.filesystems import FileSystemStorage
from streamfactory.spi import CorruptData, StreamError, Summary

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streamfactory.arrowlog.disk import DiskLog


@pytest.fixture
def victim(root: Path) -> Path:
    """A folder beside the log, which nothing may touch."""
    folder = root.parent / "victim"
    (folder / "log").mkdir(parents=True)
    for name in ("victim.txt", f"log/{0:020d}.json", "log/.tmp-" + "a" * 32):
        (folder / name).write_text("precious")
        os.utime(folder / name, (0, 0))
    (root.parent / "victim.txt").write_text("precious")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.fixture
def filled(log: DiskLog) -> DiskLog:
    """A topic with records, a snapshot with a part, and records since."""
    for n in range(3):
        append(log, {0: [n], 1: [n]}, "w", n)
    log.compact()
    append(log, {0: [3], 1: [3]}, "w", 3)
    return log


@pytest.mark.parametrize("name", WRONG_NAMES, ids=repr)
@pytest.mark.parametrize("place", ["removed", "segments"])
def test_a_record_that_names_no_segment_is_refused(
    filled: DiskLog, root: Path, store_factory: Any, place: str, name: Any
) -> None:
    path = max(inner(root, filled).glob("log/*.json"))

    def edit(plain: Any) -> None:
        if place == "segments":
            plain["segments"][0]["name"] = name
        elif not isinstance(name, str):
            plain["removed"] = name
        else:
            plain["removed"] = {name: 1}

    (root.parent / "victim.txt").write_text("precious")
    change(path, edit)
    store = store_factory()
    with pytest.raises(CorruptData) as caught:
        store.open("t")
    assert str(path) in caught.value.what
    assert place in caught.value.what
    assert "who can write the folder" in str(caught.value.remedy)
    assert all(isinstance(error, CorruptData) for error in use(store))
    assert (root.parent / "victim.txt").read_text() == "precious"


@pytest.mark.parametrize("name", WRONG_NAMES, ids=repr)
@pytest.mark.parametrize("member", ["removed", "parts", "recent", "small"])
def test_a_snapshot_with_a_wrong_name_is_passed_over(
    filled: DiskLog, root: Path, store_factory: Any, member: str, name: Any
) -> None:
    def edit(plain: Any) -> None:
        if member == "small" and isinstance(name, str):
            plain["small"] = {name: [0, 1, 1, 1]}
        else:
            plain[member] = [name]

    change(snapshots(root, filled)[-1], edit)
    store = store_factory()
    assert everything(store.open("t")) == {0: [0, 1, 2, 3], 1: [0, 1, 2, 3]}
    assert use(store) == []


@pytest.mark.parametrize(
    "incarnation", ["../elsewhere", "..", "", "/tmp", "A" * 32, "a" * 33, 7, ["a"]]
)
def test_a_name_stands_for_no_folder_elsewhere(
    filled: DiskLog, root: Path, store_factory: Any, incarnation: Any
) -> None:
    shutil.copytree(inner(root, filled), root.parent / "elsewhere")
    before = sorted((root.parent / "elsewhere").rglob("*"))
    path = root / "t.topic/000001.json"
    said = {"format": 1, "topic": "t", "incarnation": incarnation}
    path.write_bytes(sealed(said))
    errors = use(store_factory())
    assert [type(error) for error in errors] == [CorruptData] * 6
    assert all(str(path) in error.what for error in errors)
    assert sorted((root.parent / "elsewhere").rglob("*")) == before


def test_a_generation_of_another_topic_is_refused(
    filled: DiskLog, root: Path, store_factory: Any
) -> None:
    """Else whoever writes to one topic is made to write to another."""
    store_factory().create("u", SCHEMA)
    shutil.copy(root / "t.topic/000000.json", root / "u.topic/000001.json")
    with pytest.raises(CorruptData, match="another topic"):
        store_factory().open("u")


@pytest.mark.parametrize("name", WRONG_NAMES, ids=repr)
def test_a_commit_message_names_only_staged_files(
    log: DiskLog, victim: Path, name: Any
) -> None:
    before = contents(victim.parent)
    good = stage(log, {0: [1]})
    message = Staged(good.attempt, ({**good.files[0], "name": name},))
    with pytest.raises(CorruptData, match="files") as caught:
        log.discard(message)
    assert good.attempt in caught.value.what
    with pytest.raises(CorruptData, match="name"):
        log.commit(Epoch("w", 0, [message], Summary(1)))
    with pytest.raises(CorruptData, match="is repeated"):
        log.commit(Epoch("w", 0, [Staged("a", (*good.files, *good.files))], Summary(2)))
    assert contents(victim.parent).items() >= before.items()
    assert log.commit(Epoch("w", 0, [good], Summary(1))).held is None
    assert numbers_of(log) == [1]


@pytest.mark.parametrize(
    "members",
    [
        {"bytes": -1},
        {"bytes": True},
        {"full": 1},
        {"runs": 3},
        {"runs": [[0, 0, [1]]]},
        {"runs": [[0, 0, [], 8]]},
        {"runs": [[0, 0, [0], 8]]},
        {"runs": [[-1, 0, [1], 8]]},
        {"runs": [[0, 0, [1.0], 8]]},
        {"more": 1},
    ],
    ids=repr,
)
def test_a_commit_message_of_another_shape_is_refused(
    log: DiskLog, members: dict[str, Any]
) -> None:
    good = stage(log, {0: [1]})
    for file in ({**good.files[0], **members}, members):
        with pytest.raises(CorruptData):
            log.commit(Epoch("w", 0, [Staged("a", (file,))], Summary(1)))
    assert numbers_of(log) == []


@pytest.mark.parametrize("below", ["log", "data", "index", "", "topic"])
def test_a_folder_that_is_a_link_is_not_followed(
    filled: DiskLog, root: Path, victim: Path, store_factory: Any, below: str
) -> None:
    before = contents(victim)
    path = root / "t.topic" if below == "topic" else inner(root, filled) / below
    shutil.move(path, root.parent / "moved")
    path.symlink_to(victim)
    errors = use(store_factory())
    assert errors
    assert all(isinstance(error, CorruptData) for error in errors)
    assert any("symbolic link" in error.what for error in errors)
    assert contents(victim) == before


def test_a_folder_that_becomes_a_link_is_not_followed(
    filled: DiskLog, root: Path, victim: Path, store_factory: Any
) -> None:
    store = store_factory()
    log = store.open("t")
    assert numbers_of(log) == [0, 1, 2, 3]
    before = contents(victim)
    for folder in ("data", "log"):
        path = inner(root, filled) / folder
        shutil.move(path, root.parent / f"moved-{folder}")
        path.symlink_to(victim)
    errors = use(store)
    assert len(errors) == 6
    assert all(isinstance(error, CorruptData) for error in errors)
    assert contents(victim) == before


def test_what_was_left_of_a_topic_is_removed_without_following_links(
    filled: DiskLog, root: Path, victim: Path, store_factory: Any
) -> None:
    """The folder of an incarnation that has ended, with a link in place of its log."""
    before = contents(victim)
    ended = root / "t.topic" / ("b" * 32)
    ended.mkdir()
    for name in ("log", "data", "index"):
        (ended / name).symlink_to(victim)
    for number, incarnation in enumerate(["b" * 32, filled.incarnation], 1):
        said = {"format": 1, "topic": "t", "incarnation": incarnation}
        (root / f"t.topic/{number:06d}.json").write_bytes(sealed(said))
    abandoned = root / "t.topic" / ("c" * 32)
    abandoned.mkdir()
    (abandoned / "data").symlink_to(victim)
    assert use(store_factory()) == []
    assert contents(victim) == before


def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for fsync in ("always", "interval"):
        store = DiskLogStore(LocalStorage(tmp_path / "link", fsync=fsync), Settings())
        append(store.create(fsync, SCHEMA), {0: [1]}, "w", 0)
        assert numbers_of(store.open(fsync)) == [1]
        store.close()
    assert (tmp_path / "real/always.topic").is_dir()


def test_a_root_that_is_replaced_is_found_again(
    filled: DiskLog, root: Path, store_factory: Any
) -> None:
    """Folders are kept open: a copy put in their place is read nevertheless."""
    store = store_factory()
    log = store.open("t")
    shutil.copytree(root, root.parent / "copy")
    shutil.move(root, root.parent / "old")
    shutil.move(root.parent / "copy", root)
    append(log, {0: [4], 1: [4]}, "w", 4)
    assert numbers_of(store_factory().open("t")) == [0, 1, 2, 3, 4]
    old = DiskLogStore(LocalStorage(root.parent / "old"), Settings())
    assert numbers_of(old.open("t")) == [0, 1, 2, 3]


def _link(path: Path, victim: Path) -> None:
    path.symlink_to(victim / "victim.txt")


def _pipe(path: Path, _: Path) -> None:
    os.mkfifo(path)


def _folder(path: Path, _: Path) -> None:
    path.mkdir()


def _socket(path: Path, _: Path) -> None:
    # The paths of sockets are short.
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", [_link, _pipe, _folder, _socket])
@pytest.mark.parametrize(
    "kind", ["record", "next record", "snapshot", "segment", "part", "generation"]
)
def test_what_is_no_regular_file_is_refused(
    filled: DiskLog,
    root: Path,
    victim: Path,
    store_factory: Any,
    kind: str,
    make: Callable[[Path, Path], None],
) -> None:
    """A pipe would have its reader wait for ever, and a link lead elsewhere."""
    before = contents(victim)
    place = inner(root, filled)
    last = max(place.glob("log/*.json"))
    paths = {
        "record": last,
        "next record": last.with_name(f"{int(last.stem) + 1:020d}.json"),
        "snapshot": snapshots(root, filled)[-1],
        "segment": max(place.glob("data/*.arrow")),
        "part": max(place.glob("index/*.arrow")),
        "generation": root / "t.topic/000000.json",
    }
    path = paths[kind]
    path.unlink(missing_ok=True)
    make(path, victim)
    errors = use(store_factory())
    assert all(isinstance(error, StreamError) for error in errors)
    if kind in {"snapshot", "part"}:
        # All records are there, and say the same.
        assert not any(isinstance(error, CorruptData) for error in errors[:1])
    else:
        assert "not a regular file" in errors[0].what
        assert isinstance(errors[0], CorruptData)
    assert contents(victim) == before


@pytest.mark.parametrize("place", ["removed", "segments"])
def test_other_file_systems_have_the_same_names(tmp_path: Path, place: str) -> None:
    system = fs.LocalFileSystem()
    storage = FileSystemStorage(
        system, str(tmp_path / "topics"), "test://topics", single_writer=True
    )
    log = DiskLogStore(storage, Settings()).create("t", SCHEMA, 2)
    append(log, {0: [1]}, "w", 0)
    append(log, {0: [2]}, "w", 1)
    (tmp_path / "victim.txt").write_text("precious")
    path = record(tmp_path / "topics", log, 2)

    def edit(plain: Any) -> None:
        if place == "removed":
            plain["removed"] = {"../../../victim.txt": 1}
        else:
            plain["segments"][0]["name"] = "../../../victim.txt"

    change(path, edit)
    store = DiskLogStore(storage, Settings())
    assert all(isinstance(error, CorruptData) for error in use(store))
    assert (tmp_path / "victim.txt").read_text() == "precious"
