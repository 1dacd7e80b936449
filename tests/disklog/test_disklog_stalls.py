"""Writers and readers that stall for so long that records are removed meanwhile."""

from __future__ import annotations

import dataclasses
import uuid
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from streamfactory.arrowlog import Epoch
from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.arrowlog.disk.records import Record
from streamfactory.spi import Summary

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streamfactory.arrowlog import Log
    from streamfactory.arrowlog.disk import Storage

SCHEMA = pa.schema([pa.field("n", pa.int64())])


class StallingStorage(LocalStorage):
    """Does something else right before its next publication of a record."""

    meanwhile: Callable[[], None] | None = None

    def within(self, folder: str) -> Storage:
        return StallingStorage(self.root / folder, fsync="never")

    def publish(self, name: str, data: bytes) -> bool:
        meanwhile = StallingStorage.meanwhile
        if meanwhile is not None and name.startswith("log/"):
            StallingStorage.meanwhile = None
            meanwhile()
        return super().publish(name, data)


def append(log: Log, number: int) -> None:
    stage = log.stage(uuid.uuid4().hex)
    stage.append(0, pa.record_batch([[number]], schema=SCHEMA))
    log.commit(Epoch(None, 0, [stage.seal()], Summary(1)))


def numbers(log: Log) -> list[int]:
    found: list[int] = []
    [partition] = log.bounds()
    at = partition.earliest
    while at < partition.latest:
        part = log.read(0, at, max_rows=1 << 30, max_bytes=1 << 60)
        assert part.rows is not None
        found += part.rows.column(0).to_pylist()
        at += part.rows.num_rows
    return found


def test_a_writer_whose_old_number_is_free_commits_after_later_ones(
    tmp_path: Path,
) -> None:
    slow = DiskLogStore(StallingStorage(tmp_path, fsync="never"), Settings())
    quick = DiskLogStore(LocalStorage(tmp_path, fsync="never"), Settings())
    stalled = slow.create("t", SCHEMA)
    follower = DiskLogStore(LocalStorage(tmp_path), Settings()).open("t")
    append(stalled, -1)
    assert numbers(follower) == [-1]
    others = quick.open("t")

    def others_go_on() -> None:
        for number in range(400):
            append(others, number)

    StallingStorage.meanwhile = others_go_on
    append(stalled, 1000)
    wanted = [-1, *range(400), 1000]
    fresh = DiskLogStore(LocalStorage(tmp_path), Settings()).open("t")
    assert [numbers(log) for log in (stalled, others, follower, fresh)] == [wanted] * 4


@pytest.mark.parametrize("fits", [True, False], ids=["fits", "does not fit"])
def test_a_reader_that_slept_takes_no_record_of_a_stalled_writer_for_the_next(
    tmp_path: Path, *, fits: bool
) -> None:
    store = DiskLogStore(LocalStorage(tmp_path, fsync="never"), Settings())
    log = store.create("t", SCHEMA)
    append(log, 0)
    sleeper = DiskLogStore(LocalStorage(tmp_path), Settings()).open("t")
    assert numbers(sleeper) == [0]
    known = next(tmp_path.glob("*/*/log/*1.json"))
    old = known.with_name(f"{2:020d}.json")
    append(log, 1)
    stale = old.read_bytes()
    for number in range(2, 400):
        append(log, number)
    assert not old.exists()
    if not fits:  # its writer knew less than the reader does
        record = Record.decode(stale, "stale", 2)
        stale = dataclasses.replace(record, at=record.at - 1000).encode()
    old.write_bytes(stale)  # what a stalled writer publishes, before it looks again
    assert numbers(sleeper) == [*range(400)]
