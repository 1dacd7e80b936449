"""Permissions of the files and folders that `file` makes."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import streamfactory
from streamfactory.spi import ConfigError
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=[0o022, 0o077, 0o000], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def properties(path: object, **options: str) -> dict[str, str]:
    return {
        "streamType": "file",
        "stream.file.path": str(path),
        "stream.file.topic.name": "t",
        "stream.file.compaction.files": "2",
        "stream.file.fsync": "never",
        **{f"stream.file.{key.replace('_', '.')}": v for key, v in options.items()},
    }


def made(root: Path, **options: str) -> tuple[set[int], set[int]]:
    """Permissions of all files, and of all folders, of a topic with all kinds."""
    with open_sink(properties(root, **options)) as sink:
        for epoch in range(70):  # with a snapshot, and merged segments
            rows = pa.table({"number": [epoch]})
            sink.put(rows, writer_id="w", epoch=epoch)
    assert {path.suffix for path in root.rglob("*") if path.is_file()} == {
        ".json",
        ".snapshot",
        ".arrow",
    }
    files: set[int] = set()
    folders: set[int] = set()
    for path in [root, *root.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        (folders if path.is_dir() else files).add(mode)
    with streamfactory.open(properties(root)) as stream:
        assert sum(rows.num_rows for rows in stream) == 70
    return files, folders


def test_the_umask_decides_where_nothing_is_said(tmp_path: Path, umask: int) -> None:
    assert made(tmp_path / "r") == ({0o666 & ~umask}, {0o777 & ~umask})


@pytest.mark.parametrize(
    ("options", "file", "folder"),
    [
        ({"mode": "600"}, 0o600, 0o700),
        ({"mode": "640"}, 0o640, 0o750),
        ({"mode": "0664"}, 0o664, 0o775),
        ({"mode": "640", "folder_mode": "770"}, 0o640, 0o770),
    ],
    ids=str,
)
def test_what_is_said_holds_whatever_the_umask_is(
    tmp_path: Path, umask: int, options: dict[str, str], file: int, folder: int
) -> None:
    assert made(tmp_path / "r", **options) == ({file}, {folder})


def test_folders_alone_can_be_said(tmp_path: Path, umask: int) -> None:
    assert made(tmp_path / "r", folder_mode="700") == ({0o666 & ~umask}, {0o700})


def test_the_setgid_bit_of_a_folder_is_kept(tmp_path: Path) -> None:
    root = tmp_path / "r"
    root.mkdir()
    root.chmod(0o2770)
    files, folders = made(root, mode="640", folder_mode="770")
    assert (files, folders) == ({0o640}, {0o2770})


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ({"mode": "rw"}, "octal"),
        ({"mode": "64"}, "octal"),
        ({"mode": "4640"}, "octal"),
        ({"mode": "440"}, "600"),
        ({"folder_mode": "600"}, "700"),
    ],
    ids=str,
)
def test_permissions_that_are_none_are_refused(
    tmp_path: Path, option: dict[str, str], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        open_sink(properties(tmp_path, **option))


@pytest.mark.parametrize("url", ["s3://bucket/streams", "hdfs://host/streams"])
def test_permissions_have_no_meaning_in_other_places(url: str) -> None:
    with pytest.raises(ConfigError, match="permissions of the bucket"):
        open_sink(properties(url, mode="600"))
