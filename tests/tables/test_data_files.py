"""New data files: how long they get, and what is in memory while they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamfactory.arrowlog.disk.local import LocalStorage
from streamfactory.tables import datafiles
from streamfactory.tables.datafiles import DataFiles, PartitionField

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string())])
BY_P = PartitionField("p", "p", lambda column: column, is_stored=False)


def rows(first: int, count: int, partitions: int) -> pa.RecordBatch:
    ids = np.arange(first, first + count)
    named = pa.array([f"p{number % partitions}" for number in range(count)])
    return pa.record_batch([ids, named], schema=SCHEMA)


def test_rows_keep_their_order_and_numbers_within_each_partition(
    tmp_path: Path,
) -> None:
    made = DataFiles(LocalStorage(tmp_path), "part", SCHEMA, [BY_P])
    made.add(rows(0, 10, 3), np.arange(100, 110))
    made.add(rows(10, 10, 3), np.arange(110, 120))
    found = {str(file.values["p"]): file for file in made.finish()}
    assert sorted(found) == ["p0", "p1", "p2"]
    for number in range(3):
        file = found[f"p{number}"]
        ids = pq.read_table(tmp_path / file.path)["id"].to_pylist()
        expected = [*range(number, 10, 3), *range(10 + number, 20, 3)]
        assert ids == expected
        assert made.numbers[file.path].tolist() == [100 + one for one in expected]


def test_open_files_that_the_storage_keeps_in_memory_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalStorage, "largest", 1 << 20)
    monkeypatch.setattr(datafiles, "_BUFFERED", 1 << 17)
    monkeypatch.setattr(datafiles, "_HELD", 1 << 18)
    made = DataFiles(LocalStorage(tmp_path), "part", SCHEMA, [BY_P])
    for number in range(20):
        made.add(rows(number * 20_000, 20_000, 4))
        assert sum(one.size for one in made._open.values()) <= 1 << 18
    sizes = [file.rows for file in made.finish()]
    assert sum(sizes) == 400_000
    assert len(sizes) < 40


def test_rows_that_are_written_again_wait_by_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datafiles, "_BUFFERED", 1 << 20)
    made = DataFiles(LocalStorage(tmp_path), "part", SCHEMA, [BY_P])
    made.add(rows(0, 500_000, 1), np.arange(500_000))
    made.finish()
    made.keep(np.arange(1, 500_000))
    (file,) = made.finished
    assert (file.rows, dict(file.values)) == (499_999, {"p": "p0"})
    written = pq.ParquetFile(tmp_path / file.path)
    assert written.metadata.num_row_groups > 1
    assert written.read()["id"].to_pylist() == list(range(1, 500_000))
    files = [one for one in tmp_path.rglob("*") if one.is_file()]
    assert files == [tmp_path / file.path]
