"""Merges keep rows, offsets and times, whoever reads and writes meanwhile."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.proving.numbers import (
    SCHEMA,
    HandClock,
    append,
    everything,
    numbers_of,
    stage,
)

from streamfactory.arrowlog import Epoch
from streamfactory.arrowlog.clocks import LogClock
from streamfactory.arrowlog.disk import journal
from streamfactory.arrowlog.disk.names import snapshots
from streamfactory.arrowlog.disk.staging import BATCH_ROWS
from streamfactory.spi import MisuseError, OffsetOutOfRange, Summary

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streamfactory.arrowlog.disk import DiskLog, DiskLogStore


@pytest.fixture
def log(store_factory: Callable[..., DiskLogStore]) -> DiskLog:
    """A topic that is merged only on request."""
    return store_factory(merge_files=10_000).create("t", SCHEMA, 2)


def test_a_merge_keeps_rows_and_offsets(log: DiskLog, other: DiskLog) -> None:
    for n in range(30):
        append(log, {0: [n, -n], 1: [n]} if n % 3 else {1: [n]})
    before = {name: everything(one) for name, one in (("a", log), ("b", other))}
    halves = {at: numbers_of(other, 0, at) for at in range(40)}
    log.compact()
    assert log.facts()["segments"] == 1
    for one in (log, other):
        assert everything(one) == before["a"] == before["b"]
        assert {at: numbers_of(one, 0, at) for at in range(40)} == halves


def test_a_merge_leaves_only_the_files_of_its_rows(log: DiskLog, root: Path) -> None:
    for n in range(5):
        append(log, {0: [n]})
    log.compact()
    (path,) = root.rglob("data/*.arrow")
    assert pa.ipc.open_file(path).read_all().num_rows == 5


def test_a_reader_inside_a_merged_range_continues(log: DiskLog, other: DiskLog) -> None:
    for n in range(20):
        append(log, {0: [3 * n, 3 * n + 1, 3 * n + 2]})
    seen: list[int] = []
    while len(seen) < 60:
        part = other.read(0, len(seen), max_rows=2, max_bytes=1 << 20)
        assert part.rows is not None
        seen += part.rows.column("number").to_pylist()
        if len(seen) % 10 < 2:
            append(log, {1: [0]})
            log.compact()
    assert seen == [*range(60)]


def test_small_epochs_are_merged_during_writing(
    store_factory: Callable[..., DiskLogStore], root: Path
) -> None:
    log = store_factory(merge_files=4).create("t", SCHEMA)
    for n in range(200):
        append(log, {0: [n]})
        assert int(log.facts()["small segments"]) <= 4 * 5
    log.compact()
    assert numbers_of(log) == [*range(200)]
    assert len(list(root.rglob("data/*.arrow"))) == 1


def test_full_segments_are_left_alone(
    store_factory: Callable[..., DiskLogStore], root: Path
) -> None:
    log = store_factory(merge_files=2, segment_size=80).create("t", SCHEMA)
    append(log, {0: range(10)})
    (full,) = root.rglob("data/*.arrow")
    for n in range(10, 40):
        append(log, {0: [n]})
    log.compact()
    assert full.exists()
    assert numbers_of(log) == [*range(40)]
    assert log.facts()["small segments"] == 0


def test_rows_that_were_let_go_are_not_merged(log: DiskLog, root: Path) -> None:
    for n in range(10):
        append(log, {0: [n], 1: [n]})
    log.truncate({0: 10, 1: 4})
    log.compact()
    (path,) = root.rglob("data/*.arrow")
    assert pa.ipc.open_file(path).read_all().num_rows == 6
    assert everything(log) == {0: [], 1: [4, 5, 6, 7, 8, 9]}
    assert log.facts()["segments"] == 1


def test_two_processes_that_merge_at_once_agree(log: DiskLog, other: DiskLog) -> None:
    for n in range(12):
        append((log, other)[n % 2], {0: [n]})
    failures: list[BaseException] = []

    def compact(log: DiskLog) -> None:
        try:
            log.compact()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=compact, args=(one,)) for one in (log, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures
    assert numbers_of(log) == numbers_of(other) == [*range(12)]
    assert log.facts()["segments"] == 1


def test_counts_stay_right_however_often_rows_move(
    log: DiskLog, other: DiskLog
) -> None:
    """A segment that was merged away is let go once, not again with its rows."""
    for n in range(200):
        append(log, {0: [n]})
        if n % 20 == 19:
            log.compact()
    for before in (50, 120, 199):
        log.truncate({0: before})
        for one in (log, other):
            assert one.facts()["segments"] == 1
            assert one.facts()["bytes"] == 200 * 8
    log.truncate({0: 200})
    log.compact()
    facts = log.facts()
    assert (facts["segments"], facts["small segments"], facts["bytes"]) == (0, 0, 0)


# --- dictionaries -----------------------------------------------------------------

WORDS = pa.dictionary(pa.int32(), pa.string())
TINY = pa.dictionary(pa.int8(), pa.string())


def words(*values: str | None) -> pa.Array:
    return pa.array(values, pa.string()).dictionary_encode()


def tiny(n: int) -> pa.Array:
    return words(*(f"{n}-{i}" for i in range(100))).cast(TINY)


def inside(n: int) -> pa.Array:
    field = pa.field("word", WORDS)
    return pa.StructArray.from_arrays([words(f"w{n}", None)], fields=[field])


def listed(n: int) -> pa.Array:
    return pa.ListArray.from_arrays([0, 1, 3], words("same", f"w{n}", f"w{n + 1}"))


def foreign(n: int) -> pa.Array:
    """Dictionaries that Arrow does not unify."""
    values = pa.array([[n], [n + 1]], pa.list_(pa.int64()))
    return pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), values)


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize(
    ("make", "segments"),
    [
        (lambda _: words("a", "b", None), 1),  # the same
        (lambda n: words("a", *(f"w{i}" for i in range(n))), 1),  # growing
        (lambda n: words(f"w{n}", f"w{n + 1}"), 1),  # replaced
        (inside, 1),
        (listed, 1),
        (tiny, 12),  # that one file cannot hold
        (foreign, 12),
    ],
)
def test_dictionaries_are_kept(
    make: Callable[[int], pa.Array],
    segments: int,
    compression: str | None,
    store_factory: Callable[..., DiskLogStore],
) -> None:
    """In one epoch, in many, and in merges; a merge that helps nothing ends."""
    store = store_factory(compression=compression, merge_files=4)
    schema = pa.schema([pa.field("word", make(0).type)])
    log, wanted = store.create("t", schema), []
    for epoch in range(6):
        attempt = log.stage(f"{epoch}")
        for n in (2 * epoch, 2 * epoch + 1):
            attempt.append(0, pa.record_batch([make(n)], schema=schema))
            wanted += make(n).to_pylist()
        log.commit(Epoch("w", epoch, [attempt.seal()], Summary()))
    for _ in range(2):
        assert words_of(log) == wanted
        log.compact()
    assert words_of(store_factory().open("t")) == wanted
    assert log.facts()["segments"] == segments


def words_of(log: DiskLog) -> list[Any]:
    found: list[Any] = []
    while len(found) < log.bounds()[0].latest:
        part = log.read(0, len(found), max_rows=1 << 30, max_bytes=1 << 40)
        assert part.rows is not None
        assert part.rows.schema == log.schema
        found += part.rows.column("word").to_pylist()
    return found


# --- time -------------------------------------------------------------------------


def times_of(log: DiskLog, times: range) -> list[int | None]:
    return [log.offsets_at(at, [0])[0] for at in times]


@pytest.mark.parametrize("rows", [1, 3, BATCH_ROWS])
def test_offsets_by_time_are_exact_at_every_epoch(
    rows: int, log: DiskLog, other: DiskLog, clock: HandClock
) -> None:
    """Before merges and after each, whether epochs share a batch or not."""
    wanted: dict[int, int] = {}
    for n in range(9):
        clock.ms = 100 + 10 * n
        wanted[100 + 10 * n] = n * rows
        append(log, {0: range(rows)})
        if n % 3 == 2:
            log.compact()
        if n == 4:
            other.compact()

    def first(at: int) -> int | None:
        return next((offset for time, offset in wanted.items() if time >= at), None)

    every = range(95, 195)
    for _ in range(2):
        for one in (log, other):
            assert times_of(one, every) == [first(at) for at in every]
        log.compact()


def test_a_clock_that_goes_back_stands_still(
    log: DiskLog, other: DiskLog, clock: HandClock
) -> None:
    for ms in (100, 300, 50, 200, 400):
        clock.ms = ms
        append((log, other)[ms == 50], {0: [ms], 1: [ms]})
    for _ in range(2):
        assert times_of(other, range(99, 102)) == [0, 0, 1]
        assert times_of(other, range(299, 303)) == [1, 1, 4, 4]
        assert times_of(other, range(400, 402)) == [4, None]
        log.compact()


def test_a_clock_that_goes_back_within_a_record_does_so_too(
    store_factory: Callable[..., DiskLogStore], clock: HandClock
) -> None:
    """Each look at it is earlier: the epochs of a record have one time all the same."""

    class Falling(HandClock):
        def __call__(self) -> float:
            self.ms -= 1
            return self.ms

    log = store_factory().create("t", SCHEMA)
    log.journal.clock = LogClock("t", Falling(10_000))
    for n in range(5):
        append(log, {0: [n]})
    runs = log.journal.known.index.recent()
    times = [at for run in runs for at in (run.first_ms, run.last_ms)]
    assert times == sorted(times)
    assert log.offsets_at(times[0], [0]) == {0: 0}
    assert log.journal.known.at >= times[-1]


def test_offsets_by_time_are_found_during_a_merge(
    log: DiskLog, other: DiskLog, clock: HandClock
) -> None:
    """The run that was found may be gone before it is looked into."""
    for n in range(8):
        clock.ms = 100 + n
        append(log, {0: [n, n]})
    log.compact()
    assert times_of(other, range(104, 105)) == [8]
    other.segments.close()
    clock.ms = 200
    append(log, {0: [9]})
    find = other.journal.refreshed

    def refreshed_too_early(**options: bool) -> Any:
        state = find(**options)
        other.journal.refreshed = find  # type: ignore[method-assign]
        log.compact()
        return state

    other.journal.refreshed = refreshed_too_early  # type: ignore[method-assign]
    assert times_of(other, range(104, 105)) == [8]


def test_offsets_by_time_of_rows_that_were_let_go_are_the_first_held(
    log: DiskLog, clock: HandClock
) -> None:
    for n in range(8):
        clock.ms = 100 + n
        append(log, {0: [n]})
        if n % 4 == 3:
            log.compact()
    clock.ms = 200
    append(log, {0: [8]})
    log.truncate({0: 8})
    log.segments.close()
    assert times_of(log, range(101, 103)) == [8, 8]
    assert times_of(log, range(200, 202)) == [8, None]
    log.truncate({0: 9})
    assert times_of(log, range(101, 102)) == [None]


# --- everybody at once --------------------------------------------------------------


def test_readers_and_writers_continue_during_merges_and_retention(  # noqa: C901 - four roles of one play
    store_factory: Callable[..., DiskLogStore],
) -> None:
    """Threads of one store, and other stores, which are as other processes."""
    log = store_factory(merge_files=4).create("t", SCHEMA, 2)
    total, failures, done = 150, list[BaseException](), threading.Event()
    seen: dict[tuple[int, int], list[int]] = {}

    def guarded(deed: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                deed()
            except BaseException as error:
                failures.append(error)
                done.set()

        return threading.Thread(target=run)

    def write(one: DiskLog, writer: int) -> None:
        for n in range(total):
            append(one, {writer: [n]}, f"{writer}", n)

    def read(one: DiskLog, reader: int, partition: int) -> None:
        numbers = seen[reader, partition] = []
        while len(numbers) < total and not done.is_set():
            part = one.read(partition, len(numbers), max_rows=3, max_bytes=1 << 20)
            if part.rows is None:
                one.wait(partition, len(numbers), 0.05)
            else:
                numbers += part.rows.column("number").to_pylist()

    def tidy(one: DiskLog) -> None:
        while not done.is_set():
            one.compact()

    store = store_factory(merge_files=4)
    workers = [
        guarded(lambda: write(log, 0)),
        guarded(lambda: write(store.open("t"), 1)),
        guarded(lambda: read(log, 0, 0)),
        guarded(lambda: read(store_factory().open("t"), 1, 1)),
        guarded(lambda: read(store.open("t"), 2, 0)),
    ]
    compactor = guarded(lambda: tidy(store_factory().open("t")))
    for thread in (*workers, compactor):
        thread.start()
    for thread in workers:
        thread.join(120)
        assert not thread.is_alive()
    done.set()
    compactor.join(120)
    assert not failures
    assert all(numbers == [*range(total)] for numbers in seen.values())
    assert len(seen) == 3


# --- retention ----------------------------------------------------------------------


def test_late_readers_are_reported_what_is_left(log: DiskLog, other: DiskLog) -> None:
    for n in range(10):
        append(log, {0: [n]})
    assert numbers_of(other)[0] == 0
    log.truncate({0: 6})
    other.bounds()
    for one in (log, other):
        with pytest.raises(OffsetOutOfRange) as caught:
            one.read(0, 5, max_rows=1, max_bytes=1)
        error = caught.value
        assert (error.earliest, error.latest, error.offset) == (6, 10, 5)


def test_files_go_with_their_last_row_of_any_partition(
    log: DiskLog, root: Path
) -> None:
    append(log, {0: [0], 1: [0]})
    (both,) = root.rglob("data/*.arrow")
    append(log, {0: [1]})
    (one,) = set(root.rglob("data/*.arrow")) - {both}
    log.truncate({0: 2})
    log.compact()
    assert both.exists()
    assert not one.exists()
    log.truncate({1: 1})
    log.compact()
    assert not list(root.rglob("data/*.arrow"))


def test_a_commit_that_meets_the_sweep_is_refused_and_written_again(
    log: DiskLog, other: DiskLog, root: Path
) -> None:
    staged = stage(log, {0: [1]})
    (path,) = root.rglob("data/*.arrow")
    other.compact()
    assert path.exists()
    os.utime(path, (0, 0))
    other.compact()
    assert not path.exists()
    with pytest.raises(MisuseError):
        log.commit(Epoch("w", 0, [staged], Summary(1)))
    assert append(log, {0: [1]}, "w", 0) is None


# --- snapshots ----------------------------------------------------------------------


PARTITIONS = 100


@pytest.fixture
def wide(store_factory: Callable[..., DiskLogStore]) -> DiskLog:
    """A topic whose first part has many runs, one in each partition."""
    store = store_factory(merge_files=1000, segment_size=2 * PARTITIONS * 8)
    log = store.create("wide", SCHEMA, PARTITIONS)
    for _ in range(2):
        append(log, {partition: [partition] for partition in range(PARTITIONS)})
    log.compact()
    return log


def replace_the_first_part(wide: DiskLog, follower: DiskLog) -> None:
    """Have so many runs that all parts become one, and then merge them to one run.

    Of the runs since the first snapshot there are few in the end: whoever follows from
    there would keep the first part as it is, and name it once more.
    """
    first = {part.name for part in wide.journal.known.index.parts}
    for n in range(PARTITIONS):
        append(wide, {0: [n]})
    follower.bounds()
    wide._housekeeper.snapshot()
    for n in range(3):
        follower.bounds()
        wide.compact()
        append(wide, {0: [n]})
    names = set(wide.storage.names("index"))
    assert not {f"index/{name}" for name in names} & first


def test_a_process_that_only_follows_takes_its_snapshot_from_the_newest(
    wide: DiskLog, store_factory: Callable[..., DiskLogStore]
) -> None:
    """Its own parts are gone: a snapshot that names them would open for nobody."""
    follower = store_factory(merge_files=1000).open("wide")
    replace_the_first_part(wide, follower)
    append(follower, {1: [-1]})
    follower._housekeeper.snapshot()
    assert everything(store_factory().open("wide")) == everything(wide)
    assert numbers_of(wide, 1) == [1, 1, -1]


def test_a_snapshot_whose_parts_went_meanwhile_is_withdrawn(
    log: DiskLog, store_factory: Callable[..., DiskLogStore]
) -> None:
    """As others do who write two snapshots between its parts and itself."""
    append(log, {0: [1], 1: [2]})
    parts_of = log._housekeeper._parts

    def parts_that_go(state: Any) -> Any:
        names, written = parts_of(state)
        log.storage.remove(written)
        return names, written

    log._housekeeper._parts = parts_that_go  # type: ignore[method-assign]
    log.compact()
    assert not snapshots(log.storage.names("log"))
    assert everything(store_factory().open("t")) == {0: [1], 1: [2]}


@pytest.mark.long("10,000 epochs")
def test_ten_thousand_epochs_leave_a_few_hundred_files(
    store_factory: Callable[..., DiskLogStore], root: Path
) -> None:
    log = store_factory().create("t", SCHEMA)
    for n in range(10_000):
        append(log, {0: [n]}, "w", n)
    files = [path for path in root.rglob("*") if path.is_file()]
    assert len(files) < 400
    assert len([path for path in files if path.parent.name == "log"]) < 250
    found = store_factory().open("t")
    assert numbers_of(found) == [*range(10_000)]
    last = found.last("w")
    assert last is not None
    assert last.epoch == 9_999


def test_a_process_that_only_follows_releases_what_a_snapshot_has(
    log: DiskLog, other: DiskLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its memory would grow with every record."""
    monkeypatch.setattr(journal, "_READ", 16)
    for number in range(100):
        append(log, {0: [number]})
        assert other.bounds()[0].latest == number + 1
    assert other.journal.known.snapshot > 0
    assert len(other.journal.known.index.recent()) < 60
    assert numbers_of(other) == list(range(100))
