"""Epochs on disk: whole, once, re-based, fenced, from several processes."""

from __future__ import annotations

import threading
from itertools import permutations
from typing import TYPE_CHECKING, Any

import pytest
from tests.proving.numbers import (
    SCHEMA,
    HandClock,
    append,
    batch,
    everything,
    numbers_of,
    stage,
)

from streamfactory.arrowlog import Committed, Epoch, PartitionBounds, Staged
from streamfactory.arrowlog.disk import DiskLog, DiskLogStore, LocalStorage, Settings
from streamfactory.spi import (
    LastCommit,
    MisuseError,
    Partition,
    Position,
    SchemaMismatch,
    StorageFailed,
    Summary,
    TopicNotFound,
    WriterFenced,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_offsets_are_given_by_commits_not_by_staging(log: DiskLog) -> None:
    early = stage(log, {0: [1, 2], 1: [3]})
    assert append(log, {0: [9]}) is None
    assert log.commit(Epoch(None, 0, [early], Summary())).held is None
    assert everything(log) == {0: [9, 1, 2], 1: [3]}
    assert log.bounds() == [PartitionBounds(0, 0, 3), PartitionBounds(1, 0, 1)]


@pytest.mark.parametrize("order", sorted(permutations("aabb")))
def test_two_processes_commit_in_any_order(
    log: DiskLog, other: DiskLog, order: tuple[str, ...]
) -> None:
    """Each stages before the other has committed, and so has to re-base."""
    both = {"a": log, "b": other}
    epochs = [
        (name, stage(both[name], {0: [n], 1: [n]})) for n, name in enumerate(order)
    ]
    for n, (name, staged) in enumerate(epochs):
        done = both[name].commit(Epoch(name, n, [staged], Summary(2))).held
        assert done is None
    for one in both.values():
        assert everything(one) == {0: [0, 1, 2, 3], 1: [0, 1, 2, 3]}
        last_a, last_b = one.last("a"), one.last("b")
        assert last_a is not None
        assert last_b is not None
        assert {last_a.epoch, last_b.epoch} == {
            max(n for n, name in enumerate(order) if name == "a"),
            max(n for n, name in enumerate(order) if name == "b"),
        }


def test_a_repeated_epoch_is_stored_once(
    log: DiskLog, other: DiskLog, store_factory: Callable[..., DiskLogStore]
) -> None:
    position = Position({Partition("s", 0): 5})
    kept = LastCommit(3, position, Summary(1))
    first = append(log, {0: [1]}, "w", 3, summary=Summary(1), position=position)
    assert first is None
    for one in (log, other, store_factory().open("t")):
        for epoch in (3, 2):
            assert append(one, {0: [1, 1]}, "w", epoch) == kept
        assert one.last("w") == kept
        assert one.last("v") is None
        assert everything(one) == {0: [1], 1: []}


def test_what_was_staged_for_a_repeated_epoch_is_removed(
    log: DiskLog, root: Path
) -> None:
    append(log, {0: [1]}, "w", 0)
    before = sorted(root.rglob("*.arrow"))
    assert append(log, {0: [1]}, "w", 0) is not None
    assert sorted(root.rglob("*.arrow")) == before


def test_the_very_files_of_an_epoch_may_be_committed_again(log: DiskLog) -> None:
    """As whoever has lost the answer does: they are held, and so stay."""
    staged = stage(log, {0: [1, 2]})
    assert log.commit(Epoch("w", 0, [staged], Summary(2))).held is None
    assert log.commit(Epoch("w", 0, [staged], Summary(2))).held is not None
    log.discard(staged)
    assert numbers_of(log) == [1, 2]


def test_what_is_discarded_cannot_be_committed(log: DiskLog, other: DiskLog) -> None:
    staged = stage(log, {0: [1]})
    other.discard(staged)
    other.discard(staged)
    with pytest.raises(MisuseError) as caught:
        log.commit(Epoch("w", 0, [staged], Summary()))
    assert caught.value.what == f"what attempt {staged.attempt} staged no longer exists"
    assert caught.value.remedy == "abort the epoch and write it again"
    assert append(log, {0: [1]}, "w", 0) is None


def test_a_staged_file_that_was_cut_short_is_not_committed(
    log: DiskLog, root: Path
) -> None:
    staged = stage(log, {0: [1, 2, 3]})
    (path,) = root.rglob("data/*.arrow")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(MisuseError):
        log.commit(Epoch("w", 0, [staged], Summary()))
    assert everything(log) == {0: [], 1: []}


def test_claiming_a_writer_fences_earlier_instances(
    log: DiskLog, other: DiskLog
) -> None:
    assert log.claim("w", "old") is None
    append(log, {0: [1]}, "w", 0, instance="old")
    late = stage(log, {0: [2]})
    assert other.claim("w", "new") == LastCommit(0, None, Summary(1))
    with pytest.raises(WriterFenced) as caught:
        log.commit(Epoch("w", 1, [late], Summary(), instance="old"))
    assert caught.value.what == ("epoch 1: another instance has claimed writer 'w'")
    assert append(other, {0: [3]}, "w", 1, instance="new") is None
    assert numbers_of(log) == [1, 3]


def test_a_claim_by_the_same_instance_is_no_step(log: DiskLog) -> None:
    log.claim("w", "me")
    version = log.facts()["version"]
    assert log.claim("w", "me") is None
    assert log.facts()["version"] == version


def test_replacing_moves_earliest_past_all_that_was_there(
    log: DiskLog, other: DiskLog
) -> None:
    append(log, {0: [1, 2], 1: [3]})
    append(other, {0: [4]}, "w", 0, replace=True)
    for one in (log, other):
        assert one.bounds() == [PartitionBounds(0, 2, 3), PartitionBounds(1, 1, 1)]
        assert everything(one) == {0: [4], 1: []}


def test_a_topic_grows_for_all_processes_and_never_shrinks(
    log: DiskLog, other: DiskLog
) -> None:
    log.grow(3)
    append(other, {2: [1]})
    assert numbers_of(log, 2) == [1]
    other.grow(3)
    with pytest.raises(MisuseError) as caught:
        other.grow(2)
    assert caught.value.what == "topic 't' has 3 partitions, and cannot have fewer"
    with pytest.raises(TopicNotFound):
        append(log, {3: [1]})


def test_an_epoch_without_rows_is_an_epoch(log: DiskLog) -> None:
    assert append(log, {}, "w", 7) is None
    assert log.last("w") == LastCommit(7, None, Summary(0))
    assert append(log, {0: []}, "w", 8) is None
    assert everything(log) == {0: [], 1: []}


def test_one_attempt_named_twice_is_appended_once(log: DiskLog) -> None:
    staged = stage(log, {0: [1]})
    log.commit(Epoch("w", 0, [staged, staged], Summary()))
    assert numbers_of(log) == [1]


def test_rows_of_another_schema_are_refused(log: DiskLog) -> None:
    attempt = log.stage("a")
    with pytest.raises(SchemaMismatch) as caught:
        attempt.append(0, batch([1]).rename_columns(["other"]))
    assert (
        caught.value.what
        == "the rows have schema other bigint, the log has number bigint"
    )
    attempt.discard()


def test_writers_are_forgotten_by_their_last_commit(
    log: DiskLog, clock: HandClock
) -> None:
    append(log, {}, "old", 0)
    append(log, {}, "kept", 0)
    clock.ms += 10_000
    append(log, {}, "fresh", 0)
    log.forget(5, keep="kept")
    known = {name for name in ("old", "kept", "fresh") if log.last(name)}
    assert known == {"kept", "fresh"}


def test_many_threads_commit_each_epoch_once(log: DiskLog, other: DiskLog) -> None:
    """Half of them in another process's store; the records are shared among them."""
    failures: list[BaseException] = []

    def write(name: str, one: DiskLog) -> None:
        try:
            for epoch in range(20):
                assert append(one, {epoch % 2: [epoch]}, name, epoch) is None
                assert append(one, {0: [-1]}, name, epoch) is not None
        except BaseException as error:
            failures.append(error)

    threads = [
        threading.Thread(target=write, args=(f"{n}", (log, other)[n % 2]))
        for n in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert not failures
    found = everything(log)
    assert sorted(found[0]) == sorted(6 * [n for n in range(20) if n % 2 == 0])
    assert sorted(found[1]) == sorted(6 * [n for n in range(20) if n % 2 == 1])


class Interrupted(LocalStorage):
    """A folder that fails, on request, before a call by its name."""

    failing: set[str]
    called: list[str]

    def within(self, folder: str) -> LocalStorage:
        inner = Interrupted(self.root / folder, fsync="never")
        inner.failing, inner.called = self.failing, self.called
        return inner

    def settle(self, folder: str) -> None:
        self._called(f"settle {folder}")
        super().settle(folder)

    def remove(self, names: Any) -> None:
        names = list(names)
        if names:
            self._called("remove")
        super().remove(names)

    def _called(self, what: str) -> None:
        self.called.append(what)
        if what in self.failing:
            msg = f"{self.location}: broken"
            raise StorageFailed(msg)


@pytest.fixture
def interrupted(root: Path) -> DiskLog:
    storage = Interrupted(root, fsync="never")
    storage.failing, storage.called = set(), []
    return DiskLogStore(storage, Settings()).create("t", SCHEMA, 1)


def test_a_discard_that_fails_costs_no_commit(
    interrupted: DiskLog, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor that of another thread, which travels in the same record."""
    assert isinstance(interrupted.storage, Interrupted)
    append(interrupted, {0: [1]}, "w", 0)
    late = stage(interrupted, {0: [1]})
    interrupted.storage.failing.add("remove")
    queue = interrupted._commits
    requests = threading.Barrier(3)
    answers: dict[str, Any] = {}

    def commit(name: str, staged: Staged, *, replace: bool) -> None:
        requests.wait(120)
        epoch = Epoch(name, 0, [staged], Summary(1), replace=replace)
        answers[name] = queue.commit(epoch)

    fresh = stage(interrupted, {0: [2]})
    threads = [
        threading.Thread(target=commit, args=("w", late), kwargs={"replace": True}),
        threading.Thread(target=commit, args=("v", fresh), kwargs={"replace": False}),
    ]
    for thread in threads:
        thread.start()
    with interrupted.journal.publishing:
        requests.wait(120)
        while len(queue._waiting) < 2:
            pass
    for thread in threads:
        thread.join(120)
    interrupted.storage.failing.clear()
    assert answers["w"] == Committed(LastCommit(0, None, Summary(1)))
    assert answers["v"] == Committed(placed={0: range(1, 2)})
    assert interrupted.last("v") == LastCommit(0, None, Summary(1))
    assert numbers_of(interrupted) == [1, 2]
    assert "discarding" in caplog.text


def test_a_repeated_epoch_is_held_only_when_its_record_is_safe(
    interrupted: DiskLog,
) -> None:
    """Whoever published it may have been killed before the folder was synced."""
    assert isinstance(interrupted.storage, Interrupted)
    append(interrupted, {0: [1]}, "w", 0)
    del interrupted.storage.called[:]
    assert append(interrupted, {0: [1]}, "w", 0) is not None
    assert "settle log" in interrupted.storage.called


def test_what_was_committed_cannot_be_committed_as_another_epoch(
    log: DiskLog, other: DiskLog
) -> None:
    """Nor by a writer without a name: its rows would be there twice."""
    staged = stage(log, {0: [1]})
    log.commit(Epoch(None, 0, [staged], Summary(1)))
    deeds: list[tuple[DiskLog, str | None]] = [(log, None), (other, None), (log, "w")]
    for _ in range(2):
        for one, writer in deeds:
            with pytest.raises(MisuseError) as caught:
                one.commit(Epoch(writer, 1, [staged], Summary(1)))
            assert (
                caught.value.what
                == f"what attempt {staged.attempt} staged no longer exists"
            )
        append(log, {1: [1]})
        log.compact()
    assert numbers_of(log) == [1]


def test_two_that_commit_the_same_files_in_one_record_are_distinguished(
    log: DiskLog,
) -> None:
    staged = stage(log, {0: [1]})
    outcomes: list[object] = []

    def commit() -> None:
        try:
            outcomes.append(log.commit(Epoch(None, 0, [staged], Summary(1))).held)
        except MisuseError as error:
            outcomes.append(error.what)

    threads = [threading.Thread(target=commit) for _ in range(2)]
    with log.journal.publishing:
        for thread in threads:
            thread.start()
        while len(log._commits._waiting) < 2:
            pass
    for thread in threads:
        thread.join(120)
    refused = f"what attempt {staged.attempt} staged no longer exists"
    assert sorted(outcomes, key=str) == [None, refused]
    assert numbers_of(log) == [1]
