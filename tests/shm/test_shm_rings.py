"""Rings that wrap: room, leases, waiting writers, damage, and what the dead leave."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import streamfactory
from streamfactory import open_sink
from streamfactory.arrowlog import Epoch
from streamfactory.backends.shm.layout import LEASE_ENTRIES, PAGE, PINNED, READING
from streamfactory.backends.shm.leases import Leases, dead_leases, held_by_all
from streamfactory.backends.shm.settings import Settings
from streamfactory.backends.shm.store import ShmLogStore
from streamfactory.spi import (
    CorruptData,
    MessageTooLarge,
    MisuseError,
    NotAuthorized,
    OffsetOutOfRange,
    StorageFailed,
    StreamTimeout,
    Summary,
    TopicNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streamfactory.backends.shm.log import ShmLog

SCHEMA = pa.schema({"number": pa.int64(), "text": pa.string()})
CAPACITY = 1 << 16
EACH = 100
"""Rows of a batch: 16 of them wrap a ring of `CAPACITY` several times."""
PATIENCE = 0.3


def rows(first: int, count: int = EACH) -> pa.RecordBatch:
    numbers = [*range(first, first + count)]
    return pa.record_batch(
        [pa.array(numbers), pa.array([f"{n:020d}" for n in numbers])], schema=SCHEMA
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "topics"


@pytest.fixture
def store(root: Path) -> Iterator[Any]:
    made: list[ShmLogStore] = []

    def make(**settings: Any) -> ShmLogStore:
        given = {"capacity": CAPACITY, "patience": PATIENCE, **settings}
        made.append(ShmLogStore(root, Settings(**given)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def put(log: ShmLog, *batches: pa.RecordBatch, partition: int = 0) -> None:
    stage = log.stage(uuid.uuid4().hex)
    for batch in batches:
        stage.append(partition, batch)
    log.commit(Epoch(None, 0, [stage.seal(carried=True)], Summary()))


def fill(log: ShmLog, batches: range) -> None:
    """Put so many batches, one after another."""
    for number in batches:
        put(log, rows(number * EACH))


def numbers(log: ShmLog, partition: int = 0) -> list[int]:
    found: list[int] = []
    bounds = log.bounds()[partition]
    at = bounds.earliest
    while at < bounds.latest:
        part = log.read(partition, at, max_rows=1 << 20, max_bytes=1 << 40)
        assert part.rows is not None
        part.rows.validate(full=True)
        found += part.rows["number"].to_pylist()
        at += part.rows.num_rows
    return found


def test_a_ring_that_wraps_keeps_the_newest_rows_and_their_offsets(store: Any) -> None:
    log = store().create("t", SCHEMA)
    chance, first = random.Random(1), 0
    [bounds], held = log.bounds(), list[int]()
    for _ in range(200):
        count = chance.randrange(1, 3 * EACH)
        put(log, rows(first, count))
        first += count
        [bounds] = log.bounds()
        assert bounds.latest == first
        held = numbers(log)
        assert held == [*range(bounds.earliest, first)]
    assert bounds.earliest > 0
    assert numbers(store().open("t")) == held  # an opener that has seen no wrap
    with pytest.raises(OffsetOutOfRange):
        log.read(0, bounds.earliest - 1, max_rows=1, max_bytes=1)
    state = log.facts()
    assert int(state["bytes"]) <= CAPACITY


def test_an_epoch_larger_than_a_ring_is_refused_and_one_of_many_pieces_is_not(
    store: Any,
) -> None:
    log = store().create("t", SCHEMA)
    put(log, rows(0, 1200))  # of several records
    assert numbers(log) == [*range(1200)]
    with pytest.raises(MessageTooLarge, match="larger capacity"):
        put(log, rows(0, 3000))
    assert numbers(log) == [*range(1200)]


def test_a_batch_that_is_held_is_not_overwritten(store: Any) -> None:
    log = store().create("t", SCHEMA)
    put(log, rows(0))
    held = log.read(0, 0, max_rows=EACH, max_bytes=1 << 30).rows
    assert held is not None
    copy = held.to_pylist()
    with pytest.raises(StreamTimeout, match=f"process {os.getpid()} .* holds rows"):
        fill(log, range(1, 40))
    assert held.to_pylist() == copy
    before = log.bounds()
    del held
    put(log, rows(before[0].latest))
    assert numbers(log)[-1] == before[0].latest + EACH - 1


@pytest.mark.parametrize("which", range(1, 5))
def test_a_batch_that_was_given_up_with_older_ones_is_not_overwritten(
    which: int, store: Any
) -> None:
    log = store().create("t", SCHEMA)
    fill(log, range(5))
    held = log.read(0, which * EACH, max_rows=EACH, max_bytes=1 << 30).rows
    assert held is not None
    copy = held.to_pylist()
    with pytest.raises(StreamTimeout, match="holds rows"):
        fill(log, range(5, 60))
    assert log.bounds()[0].earliest >= which * EACH
    assert held.to_pylist() == copy


def test_who_holds_a_quarter_of_a_ring_gets_copies(store: Any) -> None:
    log = store().create("t", SCHEMA)
    kept: list[pa.RecordBatch] = []
    for number in range(12):
        put(log, rows(number * EACH))
        found = log.read(0, number * EACH, max_rows=EACH, max_bytes=1 << 30).rows
        assert found is not None
        kept.append(found)
    pins = [h for h in held_by_all(log.folder) if h.kind == PINNED]
    assert 0 < len(pins) < 12
    assert [b["number"][0].as_py() for b in kept] == [n * EACH for n in range(12)]
    kept.clear()
    assert [h for h in held_by_all(log.folder) if h.kind == PINNED] == []


def test_a_reader_that_copies_holds_no_writer_up(store: Any) -> None:
    log = store(copies=True).create("t", SCHEMA)
    put(log, rows(0))
    held = log.read(0, 0, max_rows=EACH, max_bytes=1 << 30).rows
    assert held is not None
    fill(log, range(1, 40))
    assert held["number"].to_pylist() == [*range(EACH)]


def test_a_writer_waits_for_readers_where_the_topic_says_so(store: Any) -> None:
    log = store(blocks=True, patience=30.0).create("t", SCHEMA)
    entry = log.begin_reading(0)
    assert entry is not None
    written = threading.Event()

    def write() -> None:
        fill(log, range(60))
        written.set()

    writer = threading.Thread(target=write)
    writer.start()
    found: list[int] = []
    while len(found) < 60 * EACH:
        at = len(found)
        log.move_reading(entry, 0, at)
        part = log.read(0, at, max_rows=EACH, max_bytes=1 << 30)
        if part.rows is None:
            assert log.wait(0, at, 20.0)
            continue
        found += part.rows["number"].to_pylist()
    log.end_reading(entry)
    writer.join(30)
    assert written.is_set()
    assert found == [*range(60 * EACH)]


def test_a_full_ring_gives_up_no_row_that_a_reader_still_needs(store: Any) -> None:
    log = store(blocks=True).create("t", SCHEMA)
    entry = log.begin_reading(0)
    assert entry is not None
    put(log, rows(0, 5))
    behind = CAPACITY // int(log.facts()["bytes"]) - 3
    for number in range(1, 400):  # records of a few rows: many are given up at a time
        put(log, rows(number * 5, 5))
        needed = max(0, number - behind) * 5
        log.move_reading(entry, 0, needed)
        assert log.bounds()[0].earliest <= needed
    assert log.bounds()[0].earliest > 0
    log.end_reading(entry)


def test_a_reader_for_which_no_writer_could_wait_is_refused(store: Any) -> None:
    log = store(blocks=True).create("t", SCHEMA)
    entries = [log.begin_reading(0) for _ in range(LEASE_ENTRIES)]
    with pytest.raises(MisuseError, match="1024 readers and batches"):
        log.begin_reading(0)
    for entry in entries:
        log.end_reading(entry)
    log.end_reading(log.begin_reading(0))


@pytest.mark.parametrize("reads", [True, False])
def test_a_writer_that_waits_in_vain_says_for_whom(reads: bool, store: Any) -> None:
    log = store(blocks=True).create("t", SCHEMA)
    entry = log.begin_reading(0) if reads else None
    with pytest.raises(StreamTimeout, match=r"not read|no reader") as caught:
        fill(log, range(40))
    assert ("no reader" in str(caught.value)) is not reads
    kept = numbers(log)
    assert kept == [*range(len(kept))]  # nothing was given up
    if entry is not None:
        log.end_reading(entry)


def test_a_replaced_topic_frees_its_bytes_and_keeps_its_offsets(store: Any) -> None:
    log = store().create("t", SCHEMA, 2)
    put(log, rows(0), partition=0)
    put(log, rows(7), partition=1)
    for number in range(60):
        stage = log.stage(uuid.uuid4().hex)
        stage.append(0, rows(number))
        epoch = Epoch(None, 0, [stage.seal()], Summary(), replace=True)
        log.commit(epoch)
    assert numbers(log) == [*range(59, 59 + EACH)]
    assert log.bounds()[0].earliest == 60 * EACH
    assert numbers(log, 1) == []


def test_dictionaries_survive_a_ring(store: Any) -> None:
    schema = pa.schema({"d": pa.dictionary(pa.int8(), pa.string())})
    log = store().create("t", schema)
    for number in range(30):
        column = pa.array([f"a{number}", "b", None, "b"]).dictionary_encode()
        column = column.cast(schema.field("d").type)
        put(log, pa.record_batch([column], schema=schema))
    part = log.read(0, 116, max_rows=9, max_bytes=1 << 30).rows
    assert part is not None
    assert part["d"].to_pylist() == ["a29", "b", None, "b"]


# --- the dead -----------------------------------------------------------------------

HOLDER = """
import sys, time
from pathlib import Path
from streamfactory.backends.shm.settings import Settings
from streamfactory.backends.shm.store import ShmLogStore
store = ShmLogStore(Path(sys.argv[1]), Settings(capacity=1 << 16, blocks=True))
log = store.open("t")
entry = log.begin_reading(0)
held = log.read(0, 0, max_rows=1, max_bytes=1 << 30)
print("holds", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("blocks", [True, False])
def test_leases_of_a_killed_reader_hold_nothing_up(
    blocks: bool, store: Any, root: Path
) -> None:
    log = store(blocks=blocks).create("t", SCHEMA)
    put(log, rows(0))
    reader = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(root)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "holds\n"
        kinds = {h.kind for h in held_by_all(log.folder) if h.process == reader.pid}
        assert kinds == ({PINNED, READING} if blocks else {PINNED})
        with pytest.raises(StreamTimeout):
            fill(log, range(1, 60))
    finally:
        reader.send_signal(signal.SIGKILL)
        reader.communicate()
    assert dead_leases(log.folder) == 1
    mine = log.begin_reading(0)
    if mine is not None:
        log.move_reading(mine, 0, log.bounds()[0].latest)
    for number in range(1, 60):
        put(log, rows(number * EACH))
        if mine is not None:
            log.move_reading(mine, 0, log.bounds()[0].latest)
    assert dead_leases(log.folder) == 0
    if mine is not None:
        log.end_reading(mine)


def test_a_forked_child_releases_no_lease_of_its_parent(store: Any) -> None:
    log = store().create("t", SCHEMA)
    put(log, rows(0))
    held = log.read(0, 0, max_rows=1, max_bytes=1 << 30).rows
    assert held is not None
    child = os.fork()
    if child == 0:
        del held
        log.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert [h.kind for h in held_by_all(log.folder)] == [PINNED]
    assert dead_leases(log.folder) == 0


def test_what_a_killed_creation_left_is_removed_by_the_next_one(
    store: Any, root: Path
) -> None:
    made = store()
    made.create("t", SCHEMA)
    left = root / f".left-{uuid.uuid4().hex}"
    left.mkdir()
    (left / "control").write_bytes(b"half")
    assert made.left_over() == [left]
    assert made.names() == ["t"]
    made.create("u", SCHEMA)
    assert not left.exists()


def test_a_deletion_that_was_killed_half_way_is_finished_by_the_next_creation(
    store: Any,
) -> None:
    made, other = store(), store()
    log = made.create("t", SCHEMA)
    put(log, rows(0))
    log.mark_deleted()  # and killed before the folder is removed
    assert other.names() == []
    with pytest.raises(TopicNotFound):
        other.open("t")
    again = other.create("t", SCHEMA)
    assert again.incarnation != log.incarnation
    assert numbers(again) == []
    with pytest.raises(TopicNotFound):
        log.bounds()


# --- what is not believed -----------------------------------------------------------


def test_a_folder_that_others_can_use_is_refused(store: Any, root: Path) -> None:
    store().create("t", SCHEMA)
    root.chmod(0o755)
    with pytest.raises(NotAuthorized, match="mode 700"):
        store().open("t")
    root.chmod(0o700)
    assert (root / "t.topic").stat().st_mode & 0o077 == 0


def damaged(path: Path, chance: random.Random, within: range) -> None:
    with path.open("r+b") as file:
        for _ in range(chance.randrange(1, 4)):
            file.seek(chance.choice(within))
            file.write(bytes([chance.randrange(256)]))


@pytest.mark.parametrize("seed", range(60))
def test_damaged_bytes_are_typed_errors_or_sound_rows(
    seed: int, store: Any, root: Path
) -> None:
    chance = random.Random(seed)
    first = store()
    log = first.create("t", SCHEMA)
    fill(log, range(4))
    used = int(log.facts()["bytes"])
    first.close()
    name, within = chance.choice(
        [("0.ring", range(PAGE, PAGE + used)), ("control", range(PAGE * 4))]
    )
    damaged(root / "t.topic" / name, chance, within)
    try:
        found = numbers(store().open("t"))
    except (CorruptData, TopicNotFound, OffsetOutOfRange, StorageFailed):
        return
    assert len(found) <= 4 * EACH


def test_reading_through_the_framework_records_a_loss_of_a_slow_reader(
    root: Path,
) -> None:
    given = {
        "streamType": "shm",
        "stream.shm.path": str(root),
        "stream.shm.topic.name": "t",
        "stream.shm.capacity": str(CAPACITY),
    }
    with open_sink(given) as sink:
        sink.put(rows(0))
        late = {**given, "out.of.range": "earliest"}
        with streamfactory.open(late, follow=True, start="earliest") as stream:
            batch = stream.next_batch(20.0)
            assert batch is not None
            del batch
            for number in range(1, 60):
                sink.put(rows(number * EACH))
            found = stream.next_batch(20.0)
            assert found is not None
            [loss] = found.losses
            assert (loss.start, loss.end) == (EACH, found.next_offset - found.num_rows)


def test_a_lease_file_ends_with_its_last_batch(tmp_path: Path) -> None:
    (tmp_path / "leases").mkdir()
    leases = Leases(tmp_path)
    entry = leases.add(PINNED, 0, 0)
    assert entry is not None
    leases.close()
    assert len(list(held_by_all(tmp_path))) == 1
    leases.remove(entry)
    assert list((tmp_path / "leases").iterdir()) == []
