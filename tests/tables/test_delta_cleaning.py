"""Versions of Delta tables that are removed, with the files that only they need."""

from __future__ import annotations

import contextlib
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable, write_deltalake
from tests.tables.lakes import DeltaLake
from tests.tables.test_delta import FEED, append, delete_by_vector, rows_of

from streamfactory.arrowlog.disk.local import LocalStorage
from streamfactory.spi import OffsetOutOfRange, StorageFailed
from streamfactory.wiring.topics.admin import open_admin

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streamfactory.wiring.writing.sink import Sink


@pytest.fixture
def lake(tmp_path: Path) -> DeltaLake:
    return DeltaLake(tmp_path)


@pytest.fixture
def sink(lake: DeltaLake) -> Iterator[Sink]:
    with lake.sink() as opened:
        yield opened


def versions(lake: DeltaLake) -> list[int]:
    """Of the commits that the log still has."""
    names = (lake.path / "_delta_log").glob("*.json")
    return sorted(int(path.stem) for path in names if path.stem.isdigit())


def compact(lake: DeltaLake) -> None:
    with open_admin(lake.config) as admin:
        admin.compact()


def test_versions_before_a_reader_are_removed_with_their_files(
    lake: DeltaLake, sink: Sink
) -> None:
    for number in range(4):
        sink.put({"id": [number]}, writer_id="w")
    first = lake.position_behind()
    compact(lake)
    behind = lake.position_behind()
    sink.put({"id": [4]}, writer_id="w")
    assert len(lake.data_files()) == 6
    lake.truncate(behind)
    assert len(lake.data_files()) == 2
    assert lake.changes_since(behind) == [4]
    with pytest.raises(OffsetOutOfRange):
        lake.changes_since(first)
    assert lake.ids() == [0, 1, 2, 3, 4]
    with lake.sink() as again:
        assert again.put({"id": [0]}, writer_id="w", epoch=2) is False
    sink.put({"id": [5]}, writer_id="w")
    assert lake.changes_since(behind) == [4, 5]
    with lake.sink() as again:
        again.put({"id": [6]}, writer_id="w")
    assert lake.ids() == [0, 1, 2, 3, 4, 5, 6]


def test_each_version_that_is_left_is_read_by_its_number(
    lake: DeltaLake, sink: Sink
) -> None:
    for number in range(3):
        sink.put({"id": [number]})
    compact(lake)
    at = lake.position_behind()
    for number in range(3, 6):
        sink.put({"id": [number]})
    last = DeltaTable(str(lake.path)).version()
    first = last - 2
    expected = {
        version: DeltaTable(str(lake.path), version).to_pyarrow_table().num_rows
        for version in range(first, last + 1)
    }
    lake.truncate(at)
    assert min(versions(lake)) == first
    for version, rows in expected.items():
        table = DeltaTable(str(lake.path), version)
        assert table.to_pyarrow_table().num_rows == rows


def test_a_removal_that_fails_continues_when_it_is_repeated(
    lake: DeltaLake, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        sink.put({"id": [number]})
    compact(lake)
    behind = lake.position_behind()
    shutil.copytree(lake.path, lake.folder / "before")
    names, remove = 0, LocalStorage.remove
    while True:  # fails behind each of the files in turn
        names += 1
        left = [names]

        def failing(self: LocalStorage, paths: Any, left: list[int] = left) -> None:
            for path in paths:
                if not left[0]:
                    what = "killed"
                    raise OSError(what)
                left[0] -= 1
                remove(self, [path])

        monkeypatch.setattr(LocalStorage, "remove", failing)
        with contextlib.suppress(StorageFailed):
            lake.truncate(behind)
            break
        monkeypatch.setattr(LocalStorage, "remove", remove)
        assert lake.ids() == [0, 1, 2, 3]
        assert lake.changes_since(behind) == []
        lake.truncate(behind)
        assert len(lake.data_files()) == 1
        assert len(versions(lake)) == 1
        shutil.rmtree(lake.path)
        shutil.copytree(lake.folder / "before", lake.path)
    assert names > 8


def test_rows_that_a_later_version_deletes_are_kept_for_its_readers(
    tmp_path: Path,
) -> None:
    lake = DeltaLake(tmp_path)
    write_deltalake(str(lake.path), rows_of(1, 2), configuration=FEED)
    append(lake.path, 3)
    DeltaTable(str(lake.path)).delete("id = 3")
    behind = lake.position_behind()
    append(lake.path, 4)
    DeltaTable(str(lake.path)).delete("id = 4")
    expected = lake.changes_since(behind)
    assert sorted(expected) == [4, 4]
    before = {*lake.path.rglob("*.parquet")}
    lake.truncate(behind)
    gone = before - {*lake.path.rglob("*.parquet")}
    assert gone
    assert lake.changes_since(behind) == expected
    assert lake.ids() == [1, 2]


def test_a_file_whose_rows_were_marked_is_kept(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    write_deltalake(str(lake.path), rows_of(1, 2, 3))
    delete_by_vector(lake.path, [1])
    behind = lake.position_behind()
    lake.truncate(behind)
    assert versions(lake) == [1]
    assert sorted(lake.changes_since(behind)) == []
    with open_admin(lake.config) as admin:
        assert admin.facts()["files"] == 1


def test_files_of_the_log_with_other_names_are_left(
    lake: DeltaLake, sink: Sink
) -> None:
    for number in range(2):
        sink.put({"id": [number]})
    log = lake.path / "_delta_log"
    others = [log / f"{0:020}.json.tmp", log / "0.json", log / f"{0:020}.notes"]
    for path in others:
        path.write_text("{}")
    (log / f"{0:020}.crc").write_text(json.dumps({}))
    lake.truncate(lake.position_behind())
    assert all(path.exists() for path in others)
    assert not (log / f"{0:020}.crc").exists()
