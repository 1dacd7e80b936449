"""Rows of small epochs within their records: they are rows like all others."""

from __future__ import annotations

import json
import pickle
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.disklog.hostile import change, inner, record, sealed, snapshots, unsealed
from tests.proving.numbers import (
    SCHEMA,
    HandClock,
    append,
    batch,
    everything,
    numbers_of,
    stage,
    store_at,
)

from streamfactory.arrowlog import Epoch, Retention, Staged
from streamfactory.arrowlog.carried import CarriedRows
from streamfactory.arrowlog.disk import (
    DiskLogStore,
    LocalStorage,
    Settings,
    records,
    state,
)
from streamfactory.arrowlog.disk.records import to_base64
from streamfactory.spi import (
    CorruptData,
    FormatRefused,
    MisuseError,
    Summary,
    TopicNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streamfactory.arrowlog.disk import DiskLog

DEADLINE = 60.0
DICTIONARY = pa.schema([pa.field("number", pa.dictionary(pa.int32(), pa.string()))])


def files(root: Path) -> list[str]:
    return sorted(path.name for path in root.rglob("data/*.arrow"))


def formats(root: Path, log: DiskLog) -> list[int]:
    """Formats of the records and snapshots, by name."""
    places = sorted(inner(root, log).glob("log/*"))
    return [unsealed(path)["format"] for path in places]


def inline(log: DiskLog, *numbers: int) -> None:
    append(log, {0: list(numbers)}, carried=True)


def test_rows_of_a_small_epoch_are_in_no_file(
    log: DiskLog, other: DiskLog, root: Path
) -> None:
    inline(log, 1, 2)
    append(log, {0: [3], 1: [4]}, carried=True)
    assert files(root) == []
    for reader in (log, other):
        assert everything(reader) == {0: [1, 2, 3], 1: [4]}
        assert reader.verify().rows == 4
        assert reader.facts()["inline segments"] == 2
        assert reader.facts()["segments"] == 0


def test_larger_epoch_is_a_file(log: DiskLog, root: Path) -> None:
    """32 KiB are 4096 numbers."""
    append(log, {0: range(4096)}, carried=True)
    assert files(root) == []
    append(log, {0: range(4097)}, carried=True)
    assert len(files(root)) == 1
    assert numbers_of(log) == [*range(4096), *range(4097)]


def test_small_attempts_of_a_large_epoch_are_one_file(log: DiskLog, root: Path) -> None:
    parts = [stage(log, {0: range(n, n + 3000)}, carried=True) for n in (0, 3000)]
    staged = stage(log, {0: [6000], 1: [1]})
    parts += [staged, stage(log, {0: [6001]}, carried=True)]
    assert len(files(root)) == 1
    log.commit(Epoch("w", 0, parts, Summary(6003)))
    assert len(files(root)) == 3
    assert everything(log) == {0: [*range(6002)], 1: [1]}


def test_files_of_a_large_epoch_that_is_refused_are_removed(
    log: DiskLog, root: Path
) -> None:
    parts = [stage(log, {0: range(3000)}, carried=True) for _ in range(2)]
    log.claim("w", "another")
    epoch = Epoch("w", 0, parts, Summary(6000), instance="me")
    with pytest.raises(Exception, match="another instance"):
        log.commit(epoch)
    log.claim("w", "me")
    assert log.commit(epoch).held is None
    before = files(root)
    assert log.commit(epoch).held is not None
    assert (len(before), files(root)) == (1, before)


def test_option_of_zero_bytes_keeps_all_rows_in_files(
    store_factory: Callable[..., DiskLogStore], root: Path
) -> None:
    log = store_factory(inline_size=0).create("t", SCHEMA)
    inline(log, 1)
    assert len(files(root)) == 1
    assert formats(root, log) == [1, 1]


def test_parquet_topics_have_files_only(
    store_factory: Callable[..., DiskLogStore], root: Path
) -> None:
    log = store_factory(segment_format="parquet").create("t", SCHEMA)
    inline(log, 1)
    assert len(list(root.rglob("data/*.parquet"))) == 1
    assert formats(root, log) == [2, 2]


def test_format_rises_with_the_first_inline_record_and_stays(
    store_factory: Callable[..., DiskLogStore], root: Path
) -> None:
    """A topic of an earlier version is read and continued."""
    old = store_factory(inline_size=0).create("t", SCHEMA)
    append(old, {0: [1]}, "w", 0)
    old.compact()
    assert set(formats(root, old)) == {1}
    log = store_factory().open("t")
    append(log, {0: [2]}, "w", 1)
    assert set(formats(root, old)) == {1}
    inline(log, 3)
    append(log, {0: [4]}, "w", 2)
    assert formats(root, log)[-2:] == [3, 3]
    log.compact()
    assert formats(root, log)[-1] == 3
    assert numbers_of(old) == numbers_of(store_factory().open("t")) == [1, 2, 3, 4]


def test_earlier_version_refuses_an_inline_record_by_its_number(
    log: DiskLog, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inline(log, 1)
    monkeypatch.delitem(records._RECORDS, records.INLINE)
    with pytest.raises(FormatRefused, match="has format 3"):
        store_at(root).open("t")


def test_format_does_not_fall(log: DiskLog, root: Path) -> None:
    inline(log, 1)
    append(log, {0: [2]})
    change(record(root, log, 2), lambda plain: plain.update(format=1))
    with pytest.raises(CorruptData, match="another format"):
        store_at(root).open("t")


def test_merge_moves_inline_rows_into_a_file(
    log: DiskLog, other: DiskLog, root: Path, clock: HandClock
) -> None:
    for n in range(5):
        clock.ms = 1000 * n
        append(log, {0: [n], 1: [10 + n]}, carried=True)
    before = everything(other)
    log.compact()
    assert len(files(root)) == 1
    for reader in (log, other):
        assert reader.facts()["inline segments"] == 0
        assert everything(reader) == before
        assert [reader.offsets_at(1000 * n, [1])[1] for n in range(5)] == [*range(5)]
        assert reader.sizes(0) == log.sizes(0)


def test_snapshot_finds_few_inline_rows(log: DiskLog, root: Path) -> None:
    """They are merged before it is written: a reader of the topic reads few records."""
    for n in range(64):
        inline(log, n)
    assert len(files(root)) == 1
    assert "inline" not in unsealed(snapshots(root, log)[-1])
    assert numbers_of(store_at(root).open("t")) == [*range(64)]


def test_snapshot_has_the_inline_rows_that_are_left(log: DiskLog, root: Path) -> None:
    """Those of another process that were committed after the merge."""
    inline(log, 1)
    log._housekeeper.snapshot()
    for version in range(2):
        record(root, log, version).unlink()
    inline(log, 2)
    reader = store_at(root).open("t")
    assert numbers_of(reader) == [1, 2]
    assert reader.facts()["inline segments"] == 2
    reader.compact()
    assert numbers_of(reader) == [1, 2]
    assert len(files(root)) == 1


def test_retention_removes_inline_rows(log: DiskLog, other: DiskLog) -> None:
    for n in range(4):
        inline(log, n)
    log.retain(Retention(rows=2), {})
    for reader in (log, other):
        assert numbers_of(reader) == [2, 3]
        assert reader.facts()["inline segments"] == 2
    log.truncate({0: 4})
    assert log.facts()["inline segments"] == 0
    assert log.facts()["segments"] == 0


def test_replacing_epoch_releases_inline_rows(log: DiskLog, other: DiskLog) -> None:
    inline(log, 1)
    append(log, {0: [2]}, "w", 0, carried=True, replace=True)
    for reader in (log, other):
        assert numbers_of(reader) == [2]
        assert reader.bounds()[0].earliest == 1
        assert reader.facts()["inline segments"] == 1


def test_follower_of_another_process_gets_inline_rows(
    log: DiskLog, other: DiskLog
) -> None:
    inline(log, 1)
    done = threading.Thread(target=inline, args=(log, 2))
    done.start()
    assert other.wait(0, 1, DEADLINE)
    done.join(DEADLINE)
    assert numbers_of(other, 0, 1) == [2]


def test_epochs_of_several_threads_share_records(log: DiskLog) -> None:
    """Each has its own offsets, whether its rows are in the record or in a file."""
    begin = threading.Barrier(12)
    placed: dict[int, range] = {}

    def write(number: int) -> None:
        begin.wait(DEADLINE)
        for n in range(20):
            numbers = range(1000 * number + 2 * n, 1000 * number + 2 * n + 2)
            staged = stage(log, {0: numbers}, carried=bool((number + n) % 3))
            epoch = Epoch(f"w{number}", n, [staged], Summary(2))
            placed[1000 * number + 2 * n] = log.commit(epoch).placed[0]

    threads = [threading.Thread(target=write, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    found = numbers_of(log)
    assert len(found) == 480
    for first, span in placed.items():
        assert found[span.start : span.stop] == [first, first + 1]
    assert log.journal.known.version < 240 + 20


def test_interrupted_leader_passes_its_place_on(
    log: DiskLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = log.storage.publish

    def interrupted(name: str, data: bytes) -> bool:
        monkeypatch.setattr(log.storage, "publish", original)
        raise KeyboardInterrupt

    monkeypatch.setattr(log.storage, "publish", interrupted)
    with pytest.raises(KeyboardInterrupt):
        inline(log, 1)
    inline(log, 2)
    assert numbers_of(log) == [2]


def test_dictionaries_that_cannot_be_combined_are_separate_segments(
    store: DiskLogStore, root: Path
) -> None:
    log = store.create("d", DICTIONARY)
    attempts: list[Staged] = []
    for words in (["a", "b"], ["c", "a"]):
        attempt = log.stage(f"{len(attempts)}")
        column = pa.array(words).dictionary_encode()
        attempt.append(0, pa.record_batch([column], schema=DICTIONARY))
        attempts.append(attempt.seal(carried=True))
    log.commit(Epoch(None, 0, attempts, Summary(4)))
    assert files(root) == []
    found = map(str, numbers_of(store_at(root).open("d")))
    assert list(found) == ["a", "b", "c", "a"]


def test_carried_rows_are_pickled_as_they_are_and_not_as_their_buffers(
    log: DiskLog,
) -> None:
    attempt = log.stage("a")
    attempt.append(0, batch(range(100_000)).slice(500, 2))
    data = pickle.dumps(attempt.seal(carried=True))
    assert len(data) < 2000
    log.commit(Epoch(None, 0, [pickle.loads(data)], Summary(2)))
    assert numbers_of(log) == [500, 501]


def test_rows_that_were_staged_for_a_deleted_topic_are_refused(
    store: DiskLogStore, log: DiskLog
) -> None:
    staged = stage(log, {0: [1]}, carried=True)
    store.delete("t")
    with pytest.raises(TopicNotFound):
        log.commit(Epoch(None, 0, [staged], Summary(1)))
    again = store.create("t", SCHEMA, 2)
    with pytest.raises(MisuseError, match="was deleted"):
        again.commit(Epoch(None, 0, [staged], Summary(1)))
    assert numbers_of(again) == []


def test_carried_rows_of_a_missing_partition_or_another_schema_are_refused(
    log: DiskLog,
) -> None:
    staged = stage(log, {0: [1]}, carried=True).rows
    assert staged is not None
    ((_, rows),) = staged.parts
    place = log.incarnation
    wrong = CarriedRows(place, SCHEMA, [(7, rows)], 8)
    with pytest.raises(TopicNotFound, match="partition 7"):
        log.commit(Epoch(None, 0, [Staged("a", (), wrong)], Summary(1)))
    wrong = CarriedRows(place, DICTIONARY, [(0, rows)], 8)
    with pytest.raises(MisuseError, match="another schema"):
        log.commit(Epoch(None, 0, [Staged("a", (), wrong)], Summary(1)))
    assert numbers_of(log) == []


def refused_again(log: DiskLog, staged: Staged) -> None:
    """Commit an attempt that was committed before."""
    with pytest.raises(MisuseError, match=f"{staged.attempt} staged no longer exists"):
        log.commit(Epoch(None, 0, [staged], Summary(1)))


@pytest.mark.parametrize("carried", [True, False], ids=["carried", "in a file"])
def test_attempt_that_is_committed_again_without_a_writer_id_is_refused(
    log: DiskLog, other: DiskLog, *, carried: bool
) -> None:
    staged = stage(log, {0: [1]}, carried=carried)
    log.commit(Epoch(None, 0, [staged], Summary(1)))
    for process in (log, other):
        refused_again(process, staged)
        assert numbers_of(process) == [1]


def test_carried_attempt_is_refused_after_its_rows_were_merged(
    log: DiskLog, root: Path, store_factory: Callable[..., DiskLogStore]
) -> None:
    """The snapshot has it, with which a process begins."""
    staged = stage(log, {0: [1]}, carried=True)
    log.commit(Epoch(None, 0, [staged], Summary(1)))
    log.compact()
    for version in range(log.journal.known.version):
        record(root, log, version).unlink()
    refused_again(store_factory().open("t"), staged)
    assert numbers_of(log) == [1]


def test_carried_attempts_that_were_written_to_a_file_are_refused_again(
    log: DiskLog, root: Path
) -> None:
    parts = [stage(log, {0: range(3000)}, carried=True) for _ in range(2)]
    log.commit(Epoch(None, 0, parts, Summary(6000)))
    before = files(root)
    with pytest.raises(MisuseError, match="no longer exists"):
        log.commit(Epoch(None, 0, parts, Summary(6000)))
    refused_again(log, parts[1])
    assert files(root) == before
    assert len(numbers_of(log)) == 6000


def test_same_carried_attempt_of_two_threads_is_committed_once(log: DiskLog) -> None:
    staged = stage(log, {0: [1]}, carried=True)
    refused: list[MisuseError] = []

    def commit() -> None:
        try:
            log.commit(Epoch(None, 0, [staged], Summary(1)))
        except MisuseError as error:
            refused.append(error)

    threads = [threading.Thread(target=commit) for _ in range(6)]
    with log.journal.publishing:  # all but the leader share one record
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert len(refused) == 5
    assert numbers_of(log) == [1]


def test_number_of_attempts_that_are_remembered_is_limited(
    log: DiskLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "_ATTEMPTS", 3)
    attempts = [stage(log, {0: [n]}, carried=True) for n in range(5)]
    for staged in attempts:
        log.commit(Epoch(None, 0, [staged], Summary(1)))
    assert log.journal.known.attempts == tuple(one.attempt for one in attempts[-3:])


def test_attempt_whose_id_a_record_cannot_have_is_refused(log: DiskLog) -> None:
    for attempt in ("", "two words", "x" * 65, "\ud800"):
        staged = Staged(attempt, rows=stage(log, {0: [1]}, carried=True).rows)
        with pytest.raises(MisuseError, match="cannot be stored"):
            log.commit(Epoch(None, 0, [staged], Summary(1)))
    assert numbers_of(log) == []


# --- hostile records -----------------------------------------------------------


def _segment(plain: Any) -> Any:
    return plain["segments"][0]


def _content(numbers: list[int], schema: pa.Schema = SCHEMA, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    options_ = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_file(sink, schema, options=options_) as writer:
        column = pa.array(numbers).cast(schema.field(0).type)
        writer.write_batch(pa.record_batch([column], schema=schema))
    return bytes(sink.getvalue())


def _put(plain: Any, content: bytes) -> None:
    _segment(plain).update(content=to_base64(content), bytes=len(content))


WRONG_MEMBERS: dict[str, Callable[[Any], object]] = {
    "no text": lambda plain: _segment(plain).update(content=7),
    "no base64": lambda plain: _segment(plain).update(content="%%%%"),
    "line breaks": lambda plain: _segment(plain).update(
        content=_segment(plain)["content"][:76] + "\n" + _segment(plain)["content"][76:]
    ),
    "length": lambda plain: _segment(plain).update(bytes=7),
    "attempt": lambda plain: plain.update(attempts=["two words"]),
    "format 1": lambda plain: plain.update(format=1),
}


@pytest.mark.parametrize("edit", WRONG_MEMBERS.values(), ids=WRONG_MEMBERS)
def test_record_with_a_wrong_content_is_refused(
    log: DiskLog, root: Path, edit: Callable[[Any], object]
) -> None:
    inline(log, 1, 2)
    change(record(root, log, 1), edit)
    with pytest.raises(CorruptData) as caught:
        store_at(root).open("t")
    assert str(record(root, log, 1)) in caught.value.what


WRONG_ROWS: dict[str, Callable[[Any], object]] = {
    "noise": lambda plain: _put(plain, b"x" * 500),
    "empty": lambda plain: _put(plain, b""),
    "fewer rows": lambda plain: _put(plain, _content([1])),
    "another type": lambda plain: _put(
        plain, _content([1, 2], pa.schema([("number", pa.int32())]))
    ),
    "a null": lambda plain: _put(plain, _content([1, None])),  # type: ignore[list-item]
    "more bytes than committed": lambda plain: _put(
        plain, _content([0] * 500_000, compression="zstd")
    ),
    "other batches": lambda plain: _segment(plain)["runs"][0].__setitem__(2, 3),
}
REQUIRED = pa.schema([pa.field("number", pa.int64(), nullable=False)])


@pytest.mark.parametrize("edit", WRONG_ROWS.values(), ids=WRONG_ROWS)
def test_inline_rows_are_validated_as_those_of_a_file(
    store: DiskLogStore, root: Path, edit: Callable[[Any], object]
) -> None:
    log = store.create("r", REQUIRED)
    attempt = log.stage("a")
    attempt.append(0, pa.record_batch([pa.array([1, 2], pa.int64())], schema=REQUIRED))
    log.commit(Epoch(None, 0, [attempt.seal(carried=True)], Summary(2)))
    change(record(root, log, 1), edit)
    reader = store_at(root).open("r")
    with pytest.raises(CorruptData) as caught:
        numbers_of(reader)
    assert "data/" in caught.value.what
    assert reader.verify().problems


def test_snapshot_with_wrong_inline_rows_is_not_used(log: DiskLog, root: Path) -> None:
    inline(log, 1)
    log._housekeeper.snapshot()
    (place,) = snapshots(root, log)
    plain = unsealed(place)
    plain["inline"] = dict.fromkeys(plain["inline"], "%%%%")
    place.write_bytes(sealed(plain))
    assert numbers_of(store_at(root).open("t")) == [1]


def test_torn_inline_record_is_ignored(log: DiskLog, root: Path) -> None:
    """Its epoch was not acknowledged; the next writer takes the number behind it."""
    inline(log, 1)
    inline(log, 2)
    place = record(root, log, 2)
    place.write_bytes(place.read_bytes()[:-30])
    again = store_at(root).open("t")
    assert numbers_of(again) == [1]
    inline(again, 3)
    assert numbers_of(store_at(root).open("t")) == [1, 3]
    assert json.loads(record(root, log, 3).read_bytes().split(b"\n")[0])["void"] == [2]


def test_every_commit_of_a_small_epoch_syncs_twice(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = DiskLogStore(LocalStorage(root), Settings()).create("t", SCHEMA)
    inline(log, 0)
    synced: list[str] = []
    monkeypatch.setattr(LocalStorage, "_sync", lambda _, path: synced.append(path.name))
    for n in range(10):
        inline(log, n)
    assert len(synced) == 20
    assert synced[1::2] == ["log"] * 10
