"""The log in memory: offsets by commit, atomic, idempotent, and it lets go."""

from __future__ import annotations

import ctypes
import gc
import pickle
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from streamfactory.arrowlog import (
    Committed,
    Epoch,
    MemoryLog,
    MemoryLogStore,
    PartitionBounds,
    Retention,
    Staged,
)
from streamfactory.spi import (
    LastCommit,
    MisuseError,
    OffsetOutOfRange,
    Partition,
    Position,
    SchemaMismatch,
    Summary,
    TopicNotFound,
    Verification,
    WriterFenced,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = pa.schema({"n": pa.int64()})
DAY = 24 * 3600 * 1000


class HandClock:
    """Milliseconds, moved by hand."""

    def __init__(self) -> None:
        self.ms = 1_000.0

    def __call__(self) -> float:
        return self.ms


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def log(clock: HandClock) -> MemoryLog:
    return MemoryLog("t", SCHEMA, 2, clock)


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(numbers)}, schema=SCHEMA)


def staged(log: MemoryLog, attempt: str, **rows: list[int]) -> Staged:
    """Stage rows; ``p0=[1, 2]`` goes to partition 0."""
    stage = log.stage(attempt)
    for name, numbers in rows.items():
        stage.append(int(name[1:]), batch(*numbers))
    return stage.seal()


def commit(
    log: MemoryLog,
    epoch: int,
    writer: str | None = "w",
    *,
    instance: str = "",
    **rows: list[int],
) -> LastCommit | None:
    one = staged(log, f"{writer}-{epoch}", **rows)
    return log.commit(Epoch(writer, epoch, [one], Summary(), instance=instance)).held


def replace(log: MemoryLog, epoch: int, **rows: list[int]) -> LastCommit | None:
    one = staged(log, f"replace-{epoch}", **rows)
    return log.commit(Epoch("w", epoch, [one], Summary(), replace=True)).held


def numbers(log: MemoryLog, partition: int = 0) -> list[int]:
    found: list[int] = []
    start = log.bounds()[partition].earliest
    while start < log.bounds()[partition].latest:
        part = log.read(partition, start, max_rows=3, max_bytes=2**20)
        assert part.rows is not None
        assert part.start == start
        found += part.rows.column("n").to_pylist()
        start += part.rows.num_rows
    return found


def test_offsets_are_given_by_commits_not_by_staging(log: MemoryLog) -> None:
    early = staged(log, "early", p0=[1, 2], p1=[3])
    assert commit(log, 0, "other", p0=[9]) is None
    assert log.commit(Epoch("w", 0, [early], Summary())).held is None
    assert numbers(log, 0) == [9, 1, 2]
    assert log.bounds() == [PartitionBounds(0, 0, 3), PartitionBounds(1, 0, 1)]


def test_staged_is_plain_and_pickles(log: MemoryLog) -> None:
    one = staged(log, "a", p0=[1, 2], p1=[3])
    assert pickle.loads(pickle.dumps(one)) == Staged("a")


def test_read_answers_at_least_a_row_and_never_more_than_asked(log: MemoryLog) -> None:
    commit(log, 0, p0=[*range(10)])
    assert log.read(0, 4, max_rows=3, max_bytes=2**20).rows == batch(4, 5, 6)
    assert log.read(0, 4, max_rows=3, max_bytes=1).rows == batch(4)
    assert log.read(0, 2, max_rows=9, max_bytes=32).rows == batch(2, 3, 4, 5)
    part = log.read(0, 8, max_rows=9, max_bytes=2**20)
    assert (part.rows, part.size) == (batch(8, 9), 16)
    nothing = log.read(0, 10, max_rows=9, max_bytes=2**20)
    assert (nothing.rows, nothing.bounds) == (None, PartitionBounds(0, 0, 10))


def test_read_outside_the_bounds_names_the_bounds(log: MemoryLog) -> None:
    commit(log, 0, p0=[*range(10)])
    log.truncate({0: 4})
    for start in (3, 11):
        with pytest.raises(OffsetOutOfRange) as caught:
            log.read(0, start, max_rows=1, max_bytes=1)
        error = caught.value
        assert (error.earliest, error.latest, error.offset) == (4, 10, start)
        assert error.partition == Partition("t", 0)


def test_same_epoch_twice_has_the_effect_of_once(log: MemoryLog) -> None:
    position = Position({Partition("s", 0): 5})
    one = staged(log, "a", p0=[1])
    kept = LastCommit(3, position, Summary(1))
    epoch = Epoch("w", 3, [one], Summary(1), position=position)
    assert log.commit(epoch) == Committed(placed={0: range(1)})
    for number in (3, 2):
        again = staged(log, f"b{number}", p0=[1])
        assert log.commit(Epoch("w", number, [again], Summary(9))).held == kept
    assert log.last("w") == kept
    assert log.last("v") is None
    assert numbers(log) == [1]


def test_writer_without_a_name_is_never_recognised(log: MemoryLog) -> None:
    for _ in range(2):
        assert commit(log, 0, None, p0=[1]) is None
    assert numbers(log) == [1, 1]


def test_one_attempt_named_twice_is_appended_once(log: MemoryLog) -> None:
    one = staged(log, "a", p0=[1, 2], p1=[3])
    log.commit(Epoch("w", 0, [one, one], Summary()))
    assert (numbers(log, 0), numbers(log, 1)) == ([1, 2], [3])


def test_commit_of_missing_rows_appends_nothing(log: MemoryLog) -> None:
    commit(log, 0, p0=[0])
    there, gone = staged(log, "there", p0=[1]), staged(log, "gone", p1=[2])
    log.discard(gone)
    with pytest.raises(MisuseError) as caught:
        log.commit(Epoch("w", 1, [there, gone], Summary(), replace=True))
    assert str(caught.value) == (
        "what attempt gone staged no longer exists; abort the epoch and write it again"
    )
    assert (numbers(log, 0), numbers(log, 1)) == ([0], [])
    assert log.last("w") == LastCommit(0, None, Summary())
    log.commit(Epoch("w", 1, [there], Summary()))
    assert numbers(log) == [0, 1]


def test_rows_that_do_not_belong_are_refused_while_staging(log: MemoryLog) -> None:
    stage = log.stage("a")
    with pytest.raises(SchemaMismatch) as caught:
        stage.append(0, pa.RecordBatch.from_pydict({"n": ["x"]}))
    assert caught.value.what == "the rows have schema n string, the log has n bigint"
    for partition in (2, -1):
        with pytest.raises(TopicNotFound) as missing:
            stage.append(partition, batch(1))
        assert missing.value.what == (
            f"topic 't' has no partition {partition}: its partitions are 0 to 1"
        )
    log.commit(Epoch("w", 0, [stage.seal()], Summary()))
    assert log.bounds() == [PartitionBounds(0, 0, 0), PartitionBounds(1, 0, 0)]


def test_sealed_rows_do_not_change_any_more(log: MemoryLog) -> None:
    stage = log.stage("a")
    stage.append(0, batch(1))
    sealed = stage.seal()
    stage.append(0, batch(2))
    log.commit(Epoch("w", 0, [sealed], Summary()))
    assert numbers(log) == [1]


def test_a_reader_never_sees_half_of_an_epoch() -> None:
    log, partitions, epochs = MemoryLog("t", SCHEMA, 4), range(4), 300
    seen: list[tuple[int, ...]] = []
    written, looked = threading.Event(), threading.Event()

    def read() -> None:
        done = False
        while not done:
            done = written.is_set()
            seen.append(tuple(partition.latest for partition in log.bounds()))
            looked.set()
            for partition, latest in zip(partitions, seen[-1], strict=True):
                if latest:
                    assert log.read(partition, latest - 1, max_rows=1, max_bytes=1).rows

    def write(name: str) -> None:
        for epoch in range(epochs):
            if epoch % 50 == 0:  # however threads are scheduled, it looks in between
                looked.clear()
                assert looked.wait(120)
            rows: Any = {f"p{partition}": [epoch] for partition in partitions}
            commit(log, epoch, name, **rows)

    writers = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    reader = threading.Thread(target=read)
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join(120)
    written.set()
    reader.join(120)
    assert not any(thread.is_alive() for thread in (reader, *writers))
    assert [bounds for bounds in seen if len(set(bounds)) > 1] == []
    assert seen == sorted(seen)
    assert seen[-1] == (2 * epochs,) * 4
    assert len(set(seen)) > 2


def test_replace_moves_earliest_past_everything_in_the_same_step(
    log: MemoryLog,
) -> None:
    commit(log, 0, p0=[1, 2], p1=[3])
    replace(log, 1, p0=[4])
    assert log.bounds() == [PartitionBounds(0, 2, 3), PartitionBounds(1, 1, 1)]
    assert numbers(log) == [4]
    replace(log, 1, p0=[4])
    assert log.bounds() == [PartitionBounds(0, 2, 3), PartitionBounds(1, 1, 1)]


def test_truncate_moves_earliest_forward_only_and_never_past_latest(
    log: MemoryLog,
) -> None:
    commit(log, 0, p0=[*range(10)])
    for before, earliest in ((4, 4), (2, 4), (-5, 4), (99, 10)):
        log.truncate({0: before})
        assert log.bounds()[0] == PartitionBounds(0, earliest, 10)
    commit(log, 1, p0=[10, 11])
    assert numbers(log) == [10, 11]
    assert log.bounds()[0] == PartitionBounds(0, 10, 12)


def tracked(log: MemoryLog, epoch: int) -> weakref.ref[Any]:
    """Commit rows; answers a reference that tells when they are let go."""
    buffer = pa.py_buffer(bytes(8 * 4))
    column = pa.Array.from_buffers(pa.int64(), 4, [None, buffer])
    rows = pa.RecordBatch.from_arrays([column], schema=SCHEMA)
    stage = log.stage(f"a{epoch}")
    stage.append(0, rows)
    log.commit(Epoch("w", epoch, [stage.seal()], Summary()))
    return weakref.ref(rows)


@pytest.mark.parametrize(
    "drop",
    [
        lambda log: log.truncate({0: 8}),
        lambda log: replace(log, 9, p0=[1]),
        lambda log: log.mark_deleted(),
    ],
)
def test_what_is_truncated_replaced_or_deleted_is_let_go(
    log: MemoryLog, drop: Callable[[MemoryLog], Any]
) -> None:
    rows = [tracked(log, epoch) for epoch in range(2)]
    gc.collect()
    assert all(one() is not None for one in rows)
    drop(log)
    gc.collect()
    assert [one() for one in rows] == [None, None]


def test_a_chunk_goes_when_its_last_row_does(log: MemoryLog) -> None:
    first, second = tracked(log, 0), tracked(log, 1)
    log.truncate({0: 3})
    gc.collect()
    assert first() is not None
    log.truncate({0: 4})
    gc.collect()
    assert first() is None
    assert second() is not None


# --- what is staged and never decided -------------------------------------------


def attempts(log: MemoryLog) -> set[str]:
    return set(log._staged)


def test_nothing_stays_of_attempts_that_were_discarded_or_came_too_late(
    log: MemoryLog,
) -> None:
    one = staged(log, "a", p0=[1])
    log.discard(one)
    log.discard(one)
    commit(log, 0, p0=[1])
    late = staged(log, "late", p0=[1])
    log.commit(Epoch("w", 0, [late], Summary()))
    open_stage = log.stage("open")
    open_stage.append(0, batch(1))
    open_stage.discard()
    assert attempts(log) == set()


def test_undecided_rows_are_swept_after_a_day(log: MemoryLog, clock: HandClock) -> None:
    old = staged(log, "old", p0=[1])
    clock.ms += DAY
    staged(log, "young", p0=[2])
    assert attempts(log) == {"old", "young"}
    clock.ms += 1
    staged(log, "last", p0=[3])
    assert attempts(log) == {"young", "last"}
    with pytest.raises(MisuseError) as caught:
        log.commit(Epoch("w", 0, [old], Summary()))
    assert caught.value.remedy == "abort the epoch and write it again"


# --- time, growth, writers ------------------------------------------------------


def test_offsets_by_time_take_the_later_time_where_the_clock_goes_back(
    log: MemoryLog, clock: HandClock
) -> None:
    for epoch, now in enumerate((1000, 3000, 2000, 4000)):
        clock.ms = now
        commit(log, epoch, p0=[epoch, epoch])

    def at(ms: int) -> int | None:
        return log.offsets_at(ms, [0])[0]

    assert [at(ms) for ms in (0, 1000, 1001, 3000)] == [0, 0, 2, 2]
    assert [at(ms) for ms in (3001, 4000, 4001)] == [6, 6, None]
    assert log.offsets_at(0, [1]) == {1: None}
    log.truncate({0: 3})
    assert [at(ms) for ms in (0, 3000, 3001)] == [3, 3, 6]


def test_growth_adds_empty_partitions_and_never_takes_any(log: MemoryLog) -> None:
    commit(log, 0, p0=[1])
    log.grow(3)
    log.grow(3)
    assert [partition.latest for partition in log.bounds()] == [1, 0, 0]
    commit(log, 1, p2=[5])
    assert numbers(log, 2) == [5]
    with pytest.raises(MisuseError) as caught:
        log.grow(2)
    assert caught.value.what == "topic 't' has 3 partitions, and cannot have fewer"


def test_idle_writers_are_forgotten_and_the_one_that_writes_is_kept(
    log: MemoryLog, clock: HandClock
) -> None:
    commit(log, 0, "old", p0=[1])
    clock.ms += 5_000
    commit(log, 0, "young", p0=[1])
    log.forget(5.0)
    assert log.last("old") is not None
    clock.ms += 1
    log.forget(5.0)
    assert (log.last("old"), log.last("young")) == (
        None,
        LastCommit(0, None, Summary()),
    )
    clock.ms += 60_000
    log.forget(0, keep="young")
    assert log.last("young") is not None


# --- who commits ----------------------------------------------------------------


def test_the_last_instance_to_claim_a_writer_is_the_one_that_commits(
    log: MemoryLog,
) -> None:
    assert log.claim("w", "old") is None
    assert commit(log, 0, p0=[0], instance="old") is None
    assert log.claim("w", "new") == LastCommit(0, None, Summary())
    one = staged(log, "late", p0=[1])
    with pytest.raises(WriterFenced) as caught:
        log.commit(Epoch("w", 1, [one], Summary(), instance="old"))
    assert caught.value.what == ("epoch 1: another instance has claimed writer 'w'")
    assert numbers(log) == [0]
    assert attempts(log) == {"late"}
    assert log.last("w") == LastCommit(0, None, Summary())
    assert commit(log, 1, p0=[2], instance="new") is None
    assert numbers(log) == [0, 2]


def test_claims_are_of_one_writer_and_looking_claims_nothing(log: MemoryLog) -> None:
    commit(log, 0, "a", p0=[1], instance="one")
    commit(log, 0, "b", p0=[2], instance="other")
    log.claim("b", "another")
    assert log.last("a") == LastCommit(0, None, Summary())
    assert commit(log, 1, "a", p0=[3], instance="one") is None
    assert commit(log, 0, None, p0=[4], instance="whoever") is None
    assert numbers(log) == [1, 2, 3, 4]


def test_a_claim_outlives_idleness_as_long_as_the_writer_does(
    log: MemoryLog, clock: HandClock
) -> None:
    log.claim("w", "old")
    clock.ms += 5_000
    log.claim("w", "new")
    log.forget(5.0)
    with pytest.raises(WriterFenced):
        commit(log, 0, p0=[1], instance="old")
    clock.ms += 5_001
    log.forget(5.0)
    assert commit(log, 0, p0=[1], instance="old") is None


# --- retention ------------------------------------------------------------------


def kept(log: MemoryLog) -> list[int]:
    return [partition.earliest for partition in log.bounds()]


@pytest.fixture
def aged(log: MemoryLog, clock: HandClock) -> MemoryLog:
    """Four commits of 10 rows, 80 bytes, one second apart; the last is just made."""
    for epoch in range(4):
        clock.ms = 1_000.0 * epoch
        rows = [*range(10 * epoch, 10 * epoch + 10)]
        commit(log, epoch, p0=rows)
    return log


@pytest.mark.parametrize(
    ("retention", "earliest"),
    [
        (Retention(), 0),
        (Retention(age=3.0), 0),
        (Retention(age=2.999), 10),
        (Retention(age=1.5), 20),
        (Retention(age=0.0), 30),
        (Retention(rows=100), 0),
        (Retention(rows=15), 25),
        (Retention(rows=0), 40),
        (Retention(size=320), 0),
        (Retention(size=319), 1),
        (Retention(size=160), 20),
        (Retention(size=100), 28),
        (Retention(size=40), 35),
        (Retention(size=0), 40),
        (Retention(age=1.5, rows=35, size=300), 20),
        (Retention(age=2.5, rows=15, size=300), 25),
        (Retention(age=2.5, rows=35, size=80), 30),
    ],
    ids=str,
)
def test_the_strictest_retention_decides(
    aged: MemoryLog, retention: Retention, earliest: int
) -> None:
    aged.retain(retention, {})
    assert kept(aged) == [earliest, 0]
    assert numbers(aged) == [*range(earliest, 40)]


def test_rows_grow_too_old_while_nothing_is_written(
    aged: MemoryLog, clock: HandClock
) -> None:
    clock.ms += 1_000
    aged.retain(Retention(age=1.0), {})
    assert kept(aged) == [30, 0]
    clock.ms += 1
    aged.retain(Retention(age=1.0), {})
    assert kept(aged) == [40, 0]
    aged.retain(Retention(age=1.0), {})
    assert kept(aged) == [40, 0]


@pytest.mark.parametrize(
    "retention",
    [Retention(age=0.5), Retention(rows=1), Retention(size=8)],
    ids=str,
)
def test_retention_keeps_what_is_held_and_gives_nothing_back(
    log: MemoryLog, clock: HandClock, retention: Retention
) -> None:
    commit(log, 0, p0=[*range(10)], p1=[*range(10)])
    clock.ms += 1_000
    commit(log, 1, p0=[10], p1=[10])
    log.retain(retention, {0: 4})
    assert kept(log) == [4, 10]
    log.retain(retention, {0: 2, 1: 3})
    assert kept(log) == [4, 10]
    log.retain(retention, {0: 99})
    assert kept(log) == [10, 10]


# --- verification ---------------------------------------------------------------


def test_verify_counts_the_rows_that_are_held(log: MemoryLog) -> None:
    assert log.verify() == Verification(0)
    commit(log, 0, p0=[*range(10)], p1=[1, 2])
    commit(log, 1, p0=[10, 11])
    log.truncate({0: 3})
    assert log.verify() == Verification(11)


def test_verify_names_the_rows_that_were_damaged_since() -> None:
    schema = pa.schema({"s": pa.string()})
    log = MemoryLog("t", schema, 2)
    for epoch, text in enumerate(("fine", "also")):
        stage = log.stage(f"a{epoch}")
        stage.append(1, pa.record_batch([pa.array([text])], schema=schema))
        log.commit(Epoch("w", epoch, [stage.seal()], Summary()))
    assert log.verify() == Verification(2)
    kept = log.read(1, 1, max_rows=1, max_bytes=100).rows
    assert kept is not None
    ctypes.memset(kept.column(0).buffers()[2].address, 0xFF, 1)
    found = log.verify()
    what = "column 's': Invalid: Invalid UTF8 sequence at string index 0"
    assert found.rows == 1
    (problem,) = found.problems
    assert problem.startswith(f"partition 1, offset 1: {what}")


# --- waiting --------------------------------------------------------------------


def test_wait_ends_when_rows_come(log: MemoryLog) -> None:
    assert not log.wait(0, 0, 0.0)
    timer = threading.Timer(0.05, lambda: commit(log, 0, p0=[1]))
    timer.start()
    assert log.wait(0, 0, 30)
    assert log.wait(0, 0, 0.0)
    timer.join()


def test_rows_of_another_partition_end_no_wait(log: MemoryLog) -> None:
    commit(log, 0, p1=[1])
    began = time.monotonic()
    assert not log.wait(0, 0, 0.05)
    assert time.monotonic() - began >= 0.05


@pytest.mark.parametrize("before", [True, False])
def test_cancelled_wait_returns_whether_it_had_begun_or_not(
    log: MemoryLog, *, before: bool
) -> None:
    cancelled = threading.Event()

    def cancel() -> None:
        cancelled.set()
        log.wake()

    timer = threading.Timer(0.05, cancel)
    if before:
        cancel()
    else:
        timer.start()
    began = time.monotonic()
    assert not log.wait(0, 0, 300, cancelled)
    assert time.monotonic() - began < 100
    if not before:
        timer.join()


def test_waking_one_reader_does_not_wake_another(log: MemoryLog) -> None:
    timer = threading.Timer(0.01, log.wake)
    timer.start()
    began = time.monotonic()
    assert not log.wait(0, 0, 0.1, threading.Event())
    assert time.monotonic() - began >= 0.1
    timer.join()


def test_deleting_ends_a_wait_and_fails_every_caller(clock: HandClock) -> None:
    topics = MemoryLogStore(clock)
    log = topics.create("t", SCHEMA)
    one = staged(log, "a", p0=[1])
    stage = log.stage("b")
    stage.append(0, batch(1))
    timer = threading.Timer(0.05, lambda: topics.delete("t"))
    timer.start()
    assert not log.wait(0, 0, 30)
    timer.join()
    uses: list[Callable[[], Any]] = [
        log.bounds,
        lambda: log.read(0, 0, max_rows=1, max_bytes=1),
        lambda: log.commit(Epoch("w", 0, [one], Summary())),
        lambda: log.last("w"),
        lambda: log.offsets_at(0, [0]),
        lambda: log.truncate({0: 1}),
        lambda: log.grow(5),
        lambda: log.claim("w", "me"),
        lambda: log.retain(Retention(rows=1), {}),
        log.verify,
        stage.seal,
    ]
    for use in uses:
        with pytest.raises(TopicNotFound) as caught:
            use()
        assert caught.value.what == "the topic 't' was deleted"


# --- the store ------------------------------------------------------------------


def test_topics_are_created_opened_and_deleted_by_name() -> None:
    topics = MemoryLogStore()
    one = topics.create("b", SCHEMA, 3)
    topics.create("a", SCHEMA.with_metadata({"x": "y"}))
    assert topics.names() == ["a", "b"]
    assert topics.open("b") is one
    assert topics.open("a").schema.metadata is None
    topics.delete("b")
    assert topics.names() == ["a"]
    assert topics.create("b", SCHEMA).incarnation != one.incarnation


def test_what_cannot_be_is_refused_with_a_message() -> None:
    topics = MemoryLogStore()
    for use in (topics.open, topics.delete):
        with pytest.raises(TopicNotFound) as caught:
            use("t")
        assert (
            caught.value.what
            == "topic 't' does not exist in memory; existing topics: none"
        )
    topics.create("t", SCHEMA)
    with pytest.raises(MisuseError) as taken:
        topics.create("t", SCHEMA)
    assert str(taken.value) == ("topic 't' exists already; open it, or delete it first")
    with pytest.raises(MisuseError) as empty:
        topics.create("u", SCHEMA, 0)
    assert empty.value.what == "a topic can have 1 to 100000 partitions, not 0"
    assert topics.names() == ["t"]
