"""Folders without hard links, other file systems, and the one writer they can have."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs
import pytest
from tests.objects.stage import SCHEMA, append, numbers_of

import streamfactory
from streamfactory.arrowlog import Retention
from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.arrowlog.disk.filesystems import FileSystemStorage
from streamfactory.arrowlog.disk.single import SingleWriterStorage
from streamfactory.spi import NotInstalled, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.arrowlog.disk import Storage

ROOT = Path(__file__).parents[2]
CHILD = """
import sys
from pathlib import Path
from streamfactory.arrowlog.disk.single import SingleWriterStorage
from streamfactory.spi import StorageFailed
try:
    print(SingleWriterStorage(Path(sys.argv[1])).publish("log/9", b"child"))
except StorageFailed as error:
    print(error)
"""


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that refuses hard links, as FAT does."""

    def refuse(*args: Any, **how: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)


@pytest.fixture(params=["single", "arrow", "fsspec"])
def one_writer(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """Places that one writer at a time may write."""
    made: dict[str, Callable[[], Storage]] = {
        "single": lambda: SingleWriterStorage(tmp_path),
        "arrow": lambda: FileSystemStorage(
            pafs.LocalFileSystem(),
            str(tmp_path),
            f"hdfs://namenode{tmp_path}",
            single_writer=True,
        ),
        "fsspec": lambda: FileSystemStorage.of(
            f"memory:/{tmp_path}", single_writer=True
        ),
    }
    return made[str(request.param)]()


def read(properties: dict[str, str]) -> list[int]:
    with streamfactory.open(properties) as stream:
        found: list[int] = stream.to_reader().read_all().column("number").to_pylist()
        return found


@pytest.mark.usefixtures("no_links")
def test_a_folder_without_hard_links_is_refused_with_a_message(tmp_path: Path) -> None:
    store = DiskLogStore(LocalStorage(tmp_path), Settings())
    with pytest.raises(StorageFailed) as caught:
        store.create("clicks", SCHEMA)
    message = str(caught.value)
    assert "this file system has no hard links" in message
    assert "several writers require exclusive publication" in message
    assert store.names() == []
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.usefixtures("no_links")
def test_one_writer_writes_where_there_are_no_links(one_writer: Storage) -> None:
    store = DiskLogStore(one_writer, Settings(merge_files=4))
    log = store.create("clicks", SCHEMA, 1)
    for epoch in range(30):
        append(log, [epoch])
    log.compact()
    log.retain(Retention(rows=20), {})
    again = DiskLogStore(one_writer, Settings())
    assert again.names() == ["clicks"]
    assert numbers_of(again.open("clicks")) == list(range(10, 30))
    store.delete("clicks")
    assert again.names() == []


def test_one_writer_never_writes_over_a_record(one_writer: Storage) -> None:
    inner = one_writer.within("topic")
    assert inner.publish("log/0", b"one") is True
    assert inner.publish("log/0", b"two") is False
    assert inner.read("log/0") == b"one"
    assert inner.names("log") == ["0"]
    assert inner.size("log/0") == 3
    # A file whose age nobody knows is never swept: fsspec's memory tells none.
    in_memory = one_writer.location.startswith("memory:")
    assert list(inner.ages("log")) == ([] if in_memory else ["0"])


def test_missing_files_are_missing_everywhere(one_writer: Storage) -> None:
    assert one_writer.names("none") == []
    assert one_writer.ages("none") == {}
    for attempt in (one_writer.read, one_writer.size, one_writer.open):
        with pytest.raises(FileNotFoundError):
            attempt("none")
    one_writer.remove(["none"])
    one_writer.remove_folder("none")


def test_the_second_writer_of_a_folder_is_refused(tmp_path: Path) -> None:
    storage = SingleWriterStorage(tmp_path)
    assert storage.within("topic").publish("log/0", b"ours") is True
    answer = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert answer.stdout.strip() == (
        f"{tmp_path}: another process writes there, but single.writer=true is set; "
        f"let one "
        "process write, or use a file system with hard links"
    )
    # This process goes on, and so does the next one after it.
    assert SingleWriterStorage(tmp_path).publish("log/1", b"ours") is True


def test_a_file_system_is_read_by_all_and_written_on_request_only(
    tmp_path: Path,
) -> None:
    append(DiskLogStore(LocalStorage(tmp_path), Settings()).create("a", SCHEMA), [1, 2])
    url = f"hdfs://namenode{tmp_path}"
    storage = FileSystemStorage(pafs.LocalFileSystem(), str(tmp_path), url)
    log = DiskLogStore(storage, Settings()).open("a")
    assert numbers_of(log) == [1, 2]
    with pytest.raises(StorageFailed) as caught:
        append(log, [3])
    assert str(caught.value) == (
        f"{log.storage.location}: the file system does not support exclusive "
        f"creation; write to "
        "a folder or an object store, or set single.writer=true and let one process "
        "write"
    )
    assert numbers_of(log) == [1, 2]


def test_an_unknown_scheme_is_reported() -> None:
    with pytest.raises(StorageFailed) as caught:
        FileSystemStorage.of("nowhere://x/y")
    assert str(caught.value).startswith("nowhere://x/y: ")


def test_without_fsspec_the_command_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(NotInstalled) as caught:
        FileSystemStorage.of("memory://x/y")
    assert caught.value.remedy == (
        "run: pip install fsspec, and the package for that scheme"
    )


def test_a_file_url_is_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    append(DiskLogStore(LocalStorage(folder), Settings()).create("a", SCHEMA), [1])
    properties = {
        "streamType": "file",
        "stream.file.path": f"file://{tmp_path}/with%20space",
        "stream.file.topic.name": "a",
    }
    assert read(properties) == [1]


def test_a_url_supported_by_fsspec_is_read() -> None:
    url = "memory://places/read"
    storage = FileSystemStorage.of(url, single_writer=True)
    append(DiskLogStore(storage, Settings()).create("a", SCHEMA), [1, 2, 3])
    properties = {
        "streamType": "file",
        "stream.file.path": url,
        "stream.file.topic.name": "a",
    }
    assert read(properties) == [1, 2, 3]
