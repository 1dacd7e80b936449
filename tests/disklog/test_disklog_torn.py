"""Files cut short, damaged or lost: ignored where that is safe, else named."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from tests.proving.numbers import SCHEMA, append, everything, numbers_of, store_at

from streamfactory.arrowlog.disk.names import snapshots
from streamfactory.spi import CorruptData, StreamError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streamfactory.arrowlog.disk import DiskLog, DiskLogStore


def record(log: DiskLog, version: int) -> Path:
    return folder(log) / f"log/{version:020d}.json"


def snapshot(log: DiskLog, version: int) -> Path:
    return folder(log) / f"log/{version:020d}.snapshot"


def folder(log: DiskLog) -> Path:
    from pathlib import Path

    return Path(log.storage.location)


def versions_of_snapshots(log: DiskLog) -> list[int]:
    return snapshots(log.storage.names("log"))


@pytest.fixture
def taken(store_factory: Callable[..., DiskLogStore]) -> DiskLog:
    """A topic with two snapshots, and records since."""
    log = store_factory().create("t", SCHEMA, 2)
    for n in range(3):
        append(log, {0: [n], 1: [n]}, "w", n)
        log.compact()
    append(log, {0: [3], 1: [3]}, "w", 3)
    assert len(versions_of_snapshots(log)) == 2
    return log


ALL = {0: [0, 1, 2, 3], 1: [0, 1, 2, 3]}


def test_a_last_record_cut_at_any_byte_is_as_if_it_never_was(
    log: DiskLog, tmp_path: Path
) -> None:
    append(log, {0: [1]}, "w", 0)
    append(log, {0: [2], 1: [2]}, "w", 1)
    whole = record(log, 2).read_bytes()
    shutil.copytree(tmp_path / "topics", tmp_path / "copy")
    torn = tmp_path / "copy" / record(log, 2).relative_to(tmp_path / "topics")
    for length in range(len(whole)):
        torn.write_bytes(whole[:length])
        store = store_at(tmp_path / "copy")
        found = store.open("t")
        assert everything(found) == {0: [1], 1: []}
        last = found.last("w")
        assert last is not None
        assert last.epoch == 0
        store.close()


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_the_next_writer_declares_a_torn_record_void(
    log: DiskLog, share: float, store_factory: Callable[..., DiskLogStore]
) -> None:
    append(log, {0: [1]}, "w", 0)
    append(log, {0: [2]}, "w", 1)
    append(log, {0: [3]}, "w", 2)
    for version in (2, 3):
        whole = record(log, version).read_bytes()
        record(log, version).write_bytes(whole[: int(share * len(whole))])
    found = store_factory().open("t")
    append(found, {0: [4]}, "w", 1)
    append(found, {0: [5]}, "w", 2)
    assert record(log, 4).exists()
    for one in (found, store_factory().open("t")):
        assert numbers_of(one) == [1, 4, 5]
    found.compact()
    assert numbers_of(store_factory().open("t")) == [1, 4, 5]


def test_a_torn_record_before_later_records_is_refused(
    log: DiskLog, store_factory: Callable[..., DiskLogStore]
) -> None:
    for n in range(4):
        append(log, {0: [n]}, "w", n)
    path = record(log, 2)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptData) as caught:
        store_factory().open("t")
    assert caught.value.what == (
        f"{folder(log)}: log/{2:020d}.json is truncated, but log/{3:020d}.json records "
        f"otherwise"
    )


def test_a_missing_record_before_later_records_is_refused(
    log: DiskLog, store_factory: Callable[..., DiskLogStore]
) -> None:
    """Else its number would be taken once more, and those behind it stand on that."""
    for n in range(4):
        append(log, {0: [n]}, "w", n)
    record(log, 2).unlink()
    with pytest.raises(CorruptData) as caught:
        store_factory().open("t")
    assert caught.value.what == (
        f"{record(log, 2)} is missing, but log/{3:020d}.json depends on it"
    )


def test_a_flipped_byte_is_never_believed(
    log: DiskLog, store_factory: Callable[..., DiskLogStore]
) -> None:
    append(log, {0: [1]}, "w", 0)
    append(log, {0: [2]}, "w", 1)
    path = record(log, 1)
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(CorruptData):
            store_factory().open("t")


@pytest.mark.parametrize("length", [0, 1, -1, -10, None])
def test_a_damaged_snapshot_falls_back_to_the_one_before(
    taken: DiskLog, store_factory: Callable[..., DiskLogStore], length: int | None
) -> None:
    path = snapshot(taken, versions_of_snapshots(taken)[-1])
    if length is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:length])
    found = store_factory().open("t")
    assert everything(found) == ALL
    append(found, {0: [4], 1: [4]}, "w", 4)
    found.compact()
    assert numbers_of(store_factory().open("t")) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("length", [0, 1, -1, -10, None])
def test_a_damaged_part_falls_back_to_the_snapshot_before(
    taken: DiskLog, store_factory: Callable[..., DiskLogStore], length: int | None
) -> None:
    state = taken.journal.known
    older = {part.name for part in store_factory().open("t").journal.known.index.parts}
    assert older == {part.name for part in state.index.parts}
    newest = max(folder(taken).glob("index/*.arrow"), key=lambda p: p.stat().st_mtime)
    if length is None:
        newest.unlink()
    else:
        newest.write_bytes(newest.read_bytes()[:length])
    found = store_factory().open("t")
    assert everything(found) == ALL
    append(found, {0: [4], 1: [4]}, "w", 4)
    for _ in range(3):
        found.compact()
        append(found, {}, "v", int(found.facts()["version"]))
    assert numbers_of(store_factory().open("t")) == [0, 1, 2, 3, 4]
    assert numbers_of(taken) == [0, 1, 2, 3, 4]


def test_a_damaged_snapshot_does_not_stop_the_cleaning(
    taken: DiskLog, store_factory: Callable[..., DiskLogStore]
) -> None:
    path = snapshot(taken, versions_of_snapshots(taken)[-1])
    path.write_bytes(b"")
    found = store_factory().open("t")
    for n in range(4, 8):
        append(found, {0: [n], 1: [n]}, "w", n)
        found.compact()
    assert not path.exists()
    assert len(versions_of_snapshots(found)) == 2
    assert len(list(folder(found).glob("log/*"))) < 10
    assert len(list(folder(found).glob("index/*"))) <= 4


def test_without_a_good_snapshot_the_first_one_is_named(
    taken: DiskLog, store_factory: Callable[..., DiskLogStore]
) -> None:
    for version in versions_of_snapshots(taken):
        snapshot(taken, version).write_bytes(b"")
    with pytest.raises(CorruptData) as caught:
        store_factory().open("t")
    last = snapshot(taken, versions_of_snapshots(taken)[-1])
    assert caught.value.what == f"{last}: the file is truncated or was changed"
    for version in versions_of_snapshots(taken):
        snapshot(taken, version).unlink()
    with pytest.raises(CorruptData) as caught:
        store_factory().open("t")
    assert "the records before" in caught.value.what


def test_a_snapshot_whose_own_record_is_lost_still_opens(
    taken: DiskLog, store_factory: Callable[..., DiskLogStore]
) -> None:
    """It is a state; a topic that looks for its record for ever would never open."""
    taken.compact()
    for path in folder(taken).glob("log/*.json"):
        path.unlink()
    found = store_factory().open("t")
    assert everything(found) == ALL
    append(found, {0: [4], 1: [4]}, "w", 4)
    assert numbers_of(store_factory().open("t")) == [0, 1, 2, 3, 4]


def test_a_snapshot_with_a_hole_behind_it_is_refused(
    taken: DiskLog, store_factory: Callable[..., DiskLogStore]
) -> None:
    append(taken, {0: [4]}, "w", 4)
    append(taken, {0: [5]}, "w", 5)
    newest = versions_of_snapshots(taken)[-1]
    for version in (newest, newest + 1):
        record(taken, version).unlink()
    with pytest.raises(CorruptData) as caught:
        store_factory().open("t")
    assert caught.value.what.startswith(f"{record(taken, newest + 1)} is missing")


@pytest.mark.parametrize("how", ["empty", "half", "no footer", "zeros", "missing"])
def test_a_damaged_segment_is_named_and_the_rest_is_read(
    log: DiskLog, store_factory: Callable[..., DiskLogStore], how: str
) -> None:
    append(log, {0: [1, 2]})
    (path,) = folder(log).glob("data/*.arrow")
    append(log, {0: [3]})
    whole = path.read_bytes()
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(
            {
                "empty": b"",
                "half": whole[: len(whole) // 2],
                "no footer": whole[:-10],
                "zeros": whole[: len(whole) // 2].ljust(len(whole), b"\0"),
            }[how]
        )
    found = store_factory().open("t")
    with pytest.raises(CorruptData) as caught:
        numbers_of(found)
    assert str(path) in caught.value.what
    assert numbers_of(found, start=2) == [3]
    verified = found.verify()
    assert verified.rows == 1
    (problem,) = verified.problems
    assert problem.startswith("partition 0, offset 0: ")
    assert str(path) in problem


def test_a_damaged_segment_does_not_stop_commits_or_merges_elsewhere(
    log: DiskLog, caplog: pytest.LogCaptureFixture
) -> None:
    append(log, {0: [1]})
    (path,) = folder(log).glob("data/*.arrow")
    path.write_bytes(b"")
    for n in range(2, 70):
        append(log, {0: [n]})
    assert numbers_of(log, start=1) == [*range(2, 70)]
    assert str(path) in caplog.text


def test_temporary_records_of_the_dead_are_ignored_and_swept(log: DiskLog) -> None:
    import os

    left = folder(log) / "log" / f".tmp-{0:032x}"
    left.write_bytes(b"x")
    append(log, {0: [1]})
    log.compact()
    assert left.exists()
    os.utime(left, (0, 0))
    log.compact()
    assert not left.exists()
    assert numbers_of(log) == [1]


def test_a_topic_that_lost_acknowledged_rows_is_refused(
    log: DiskLog, other: DiskLog, tmp_path: Path
) -> None:
    """A backup that was put back under a running process."""
    append(log, {0: [1]})
    shutil.copytree(folder(log), tmp_path / "backup")
    append(log, {0: [2]})
    assert numbers_of(other) == [1, 2]
    shutil.rmtree(folder(log))
    shutil.copytree(tmp_path / "backup", folder(log))
    with pytest.raises(StreamError) as caught:
        append(other, {0: [3]})
    assert isinstance(caught.value, CorruptData)
    assert caught.value.what == (f"{folder(log)}: the records from 2 to 2 are missing")
