"""Reading many batches in one call: the same rows as one read after the other."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from streamfactory.arrowlog import Epoch, MemoryLogStore
from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.spi import OffsetOutOfRange, Summary

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streamfactory.arrowlog import Log

SCHEMA = pa.schema({"n": pa.int64()})
SIZES = (3, 1, 40, 2, 2, 700, 5)
"""Rows of the epochs."""
LAST = sum(SIZES)
ROW = 8
"""Bytes."""
FIRST = 2
"""Rows before it were removed."""


@pytest.fixture(params=["memory", "disk"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    store: MemoryLogStore | DiskLogStore = MemoryLogStore()
    if request.param == "disk":
        storage = LocalStorage(tmp_path, fsync="never")
        store = DiskLogStore(storage, Settings())
    log = store.create("t", SCHEMA, 1)
    at = 0
    for epoch, count in enumerate(SIZES):
        stage = log.stage(uuid.uuid4().hex)
        stage.append(0, pa.record_batch([pa.array(range(at, at + count))], SCHEMA))
        log.commit(Epoch("w", epoch, [stage.seal()], Summary(count)))
        at += count
    log.truncate({0: FIRST})
    yield log
    if isinstance(store, DiskLogStore):
        store.close()


@pytest.mark.parametrize("start", [FIRST, 3, 4, 20, 44, 48, 500, LAST - 1])
@pytest.mark.parametrize("max_rows", [1, 2, 41, 100, 10_000])
@pytest.mark.parametrize("max_bytes", [1, 8, 100, 4000, 1 << 20])
def test_run_has_the_rows_of_single_reads_within_the_limits(
    log: Log, start: int, max_rows: int, max_bytes: int
) -> None:
    run = log.read_run(0, start, max_rows=max_rows, max_bytes=max_bytes)
    at, rows, size = start, 0, 0
    for one in run:
        assert rows < max_rows
        assert size < max_bytes
        single = log.read(0, at, max_rows=max_rows - rows, max_bytes=max_bytes - size)
        assert one.rows is not None
        assert one.start == at
        assert one.rows.equals(single.rows)
        assert one.size == single.size
        assert one.rows.column(0).to_pylist() == [*range(at, at + len(one.rows))]
        at, rows, size = at + len(one.rows), rows + len(one.rows), size + one.size
    assert rows <= max_rows
    assert at == LAST or rows == max_rows or size > max_bytes - ROW
    assert run[-1].bounds.latest == LAST


def test_run_at_latest_has_no_rows(log: Log) -> None:
    (found,) = log.read_run(0, LAST, max_rows=10, max_bytes=1000)
    assert found.rows is None
    assert found.start == found.bounds.latest == LAST


@pytest.mark.parametrize("start", [0, FIRST - 1, LAST + 1])
def test_run_outside_of_the_log_is_refused(log: Log, start: int) -> None:
    with pytest.raises(OffsetOutOfRange):
        log.read_run(0, start, max_rows=10, max_bytes=1000)
