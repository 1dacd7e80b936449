"""What a table's folder may contain: regular files, reached without links.

A link, a pipe or a device in place of any file of a table is refused before anything,
also a client's library, opens it.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog.memory import InMemoryCatalog
from tests.tables.states import Fixture
from tests.tables.streams import table_properties
from tests.tables.test_delta import delete_by_vector, rows_of

import streamfactory
from streamfactory.spi import FormatRefused, StreamError, TopicNotFound

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def delta(folder: Path) -> Path:
    path = folder / "t"
    write_deltalake(str(path), rows_of(1))
    write_deltalake(str(path), rows_of(2), mode="append")
    return path


def iceberg(folder: Path) -> Path:
    catalog = InMemoryCatalog("t", warehouse=f"file://{folder}")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", pa.schema([("id", pa.int64())]))
    for number in (1, 2):
        table.append(rows_of(number))
    catalog.close()
    return folder / "n" / "t"


def hudi(folder: Path) -> Path:
    fixture = Fixture("hudi-mor", folder)
    fixture.show("update in logs")
    return fixture.folder


TABLES: dict[str, Callable[[Path], Path]] = {
    "delta": delta,
    "iceberg": iceberg,
    "hudi": hudi,
}
FILES = {
    "delta": ["_delta_log/*1.json", "*.parquet"],
    "iceberg": [
        "metadata/*.metadata.json",
        "metadata/snap*",
        "metadata/*m0*",
        "data/*",
    ],
    "hudi": [
        ".hoodie/hoodie.properties",
        ".hoodie/timeline/*.deltacommit",
        "city=rome/*.parquet",
        "city=rome/.*.log.*",
    ],
}
CASES = [(kind, pattern) for kind, patterns in FILES.items() for pattern in patterns]


def read(kind: str, path: Path, **options: str) -> list[dict[str, Any]]:
    properties = table_properties(kind, path, **options)
    with streamfactory.open(properties, follow=False) as stream:
        return [row for batch in stream for row in batch.rows.to_pylist()]


def linked(file: Path) -> None:
    target = file.parents[2] / "elsewhere"
    shutil.move(file, target)
    file.symlink_to(target)


def piped(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def device(file: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


@pytest.mark.parametrize(("kind", "pattern"), CASES)
@pytest.mark.parametrize("change", [linked, piped, device])
def test_a_file_that_is_not_regular_is_refused(
    kind: str, pattern: str, change: Callable[[Path], None], tmp_path: Path
) -> None:
    path = TABLES[kind](tmp_path / "a" / "b")
    before = read(kind, path)
    change(max(path.glob(pattern), key=lambda file: file.stat().st_mtime_ns))
    with pytest.raises(FormatRefused, match=r"not a regular file|symbolic link"):
        read(kind, path)
    if change is linked and kind != "hudi":
        option = {f"stream__{kind}__follow__links": "true"}
        assert read(kind, path, **option) == before


@pytest.mark.parametrize("kind", TABLES)
def test_a_folder_below_the_table_that_is_a_link_is_refused(
    kind: str, tmp_path: Path
) -> None:
    path = TABLES[kind](tmp_path / "a" / "b")
    name = {"delta": "_delta_log", "iceberg": "data", "hudi": ".hoodie"}[kind]
    shutil.move(path / name, tmp_path / "moved")
    (path / name).symlink_to(tmp_path / "moved")
    with pytest.raises(FormatRefused, match="symbolic link"):
        read(kind, path)


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_whose_own_path_is_a_link_is_read(kind: str, tmp_path: Path) -> None:
    path = TABLES[kind](tmp_path / "a" / "b")
    if kind == "hudi":
        pytest.skip("its log files name absolute paths of one length")
    (tmp_path / "link").symlink_to(path)
    assert len(read(kind, tmp_path / "link")) == 2


@pytest.mark.parametrize("kind", TABLES)
def test_a_link_that_leads_nowhere_is_no_table(kind: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "none")
    with pytest.raises(TopicNotFound):
        read(kind, tmp_path / "link")
    (tmp_path / "file").write_text("x")
    with pytest.raises(TopicNotFound):
        read(kind, tmp_path / "file")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("p", "file:///etc/passwd"),
        ("p", "/etc/passwd"),
        ("p", "../../secret"),
        ("u", "../../" + "0" * 20),
        ("u", "/etc/" + "0" * 20),
    ],
)
def test_a_vector_outside_of_the_table_is_not_opened(
    kind: str, text: str, tmp_path: Path
) -> None:
    path = tmp_path / "a" / "table"
    write_deltalake(str(path), rows_of(*range(4)))
    delete_by_vector(path, [1], storageType=kind, pathOrInlineDv=text, offset=1)
    with pytest.raises(FormatRefused, match="outside") as caught:
        read("delta", path)
    assert "root:" not in str(caught.value)


@pytest.mark.parametrize("made", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_vector_that_is_no_regular_file_is_refused(
    made: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "table"
    write_deltalake(str(path), rows_of(*range(4)))
    made(path / "v.bin")
    delete_by_vector(path, [1], storageType="p", pathOrInlineDv=f"{path}/v.bin")
    with pytest.raises(FormatRefused, match="not a regular file"):
        read("delta", path)


def test_a_vector_of_a_sparse_file_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "table"
    write_deltalake(str(path), rows_of(*range(4)))
    with (path / "v.bin").open("wb") as file:
        file.truncate(1 << 40)
    for size, match in ((20, "damaged"), (1 << 40, "more than")):
        delete_by_vector(
            path,
            [1],
            storageType="p",
            pathOrInlineDv=f"{path}/v.bin",
            offset=1,
            sizeInBytes=size,
        )
        with pytest.raises(StreamError, match=match):
            read("delta", path)
