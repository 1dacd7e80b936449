"""A folder of other programs' files: only regular files are opened, without links."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamfactory
from streamfactory.spi import FormatRefused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    pq.write_table(pa.table({"id": [1]}), folder / "a.parquet")
    pq.write_table(pa.table({"id": [777]}), tmp_path / "secret.parquet")
    return folder


def read(path: Path, **options: str) -> list[int]:
    properties = {
        "streamType": "file",
        "stream.file.path": str(path),
        "stream.file.format": "parquet",
    } | {f"stream.file.{key.replace('_', '.')}": text for key, text in options.items()}
    with streamfactory.open(properties, follow=False) as stream:
        return [x for b in stream for x in b.rows.column("id").to_pylist()]


SPECIAL: dict[str, Callable[[Path], None]] = {
    "link": lambda path: path.symlink_to("../secret.parquet"),
    "link to a sibling": lambda path: path.symlink_to("a.parquet"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to nowhere": lambda path: path.symlink_to("none"),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "pipe": os.mkfifo,
}


@pytest.mark.parametrize("kind", SPECIAL)
def test_what_is_no_regular_file_of_a_folder_is_refused(
    kind: str, folder: Path
) -> None:
    SPECIAL[kind](folder / "b.parquet")
    with pytest.raises(FormatRefused, match=r"b\.parquet' is not a regular file"):
        read(folder)
    assert read(folder, names="a*") == [1]


def test_a_listed_file_that_becomes_a_link_is_not_followed(
    folder: Path, tmp_path: Path
) -> None:
    assert read(folder) == [1]
    (folder / "a.parquet").unlink()
    (folder / "a.parquet").symlink_to(tmp_path / "secret.parquet")
    with pytest.raises(FormatRefused, match="not a regular file"):
        read(folder)


def test_links_are_followed_where_the_option_allows_them(folder: Path) -> None:
    (folder / "b.parquet").symlink_to("../secret.parquet")
    assert read(folder, follow_links="true") == [1, 777]


@pytest.mark.parametrize("form", ["file", "stream", "auto", "parquet"])
def test_a_path_that_is_a_pipe_is_refused(form: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FormatRefused, match="not a regular file"):
        read(tmp_path / "pipe", format=form)


def test_a_file_whose_own_path_is_a_link_is_read(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder / "a.parquet")
    assert read(tmp_path / "link") == [1]


def test_a_manifest_that_is_a_pipe_is_refused(folder: Path) -> None:
    manifest = folder / ".streamfactory-manifest"
    manifest.mkdir()
    os.mkfifo(manifest / f"{0:020}.jsonl")
    with pytest.raises(FormatRefused, match="not a regular file"):
        read(folder)


def test_a_manifest_that_is_a_link_is_refused(folder: Path, tmp_path: Path) -> None:
    read(folder)
    manifest = folder / ".streamfactory-manifest"
    manifest.rename(tmp_path / "moved")
    manifest.symlink_to(tmp_path / "moved")
    with pytest.raises(FormatRefused, match="symbolic link"):
        read(folder)
