"""Records, snapshots and parts that anybody may have written: typed errors, no more."""

from __future__ import annotations

import base64
import copy
import json
import shutil
import subprocess
import sys
import tracemalloc
import zlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.disklog.hostile import (
    change,
    inner,
    record,
    sealed,
    snapshots,
    unsealed,
    use,
)
from tests.proving.generated import cases
from tests.proving.numbers import (
    SCHEMA,
    HandClock,
    append,
    everything,
    numbers_of,
    store_at,
)
from tests.proving.tiers import sample

from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage
from streamfactory.arrowlog.disk.index import PART_SCHEMA
from streamfactory.arrowlog.disk.records import Record, SmallSegment
from streamfactory.arrowlog.disk.snapshots import Snapshot
from streamfactory.spi import CorruptData, MisuseError, StreamError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streamfactory.arrowlog.disk import DiskLog

ALL = {0: [0, 1, 2, 3], 1: [0, 1, 2, 3]}


@pytest.fixture
def filled(log: DiskLog) -> DiskLog:
    """A topic with two snapshots and records since."""
    for n in range(2):
        append(log, {0: [n], 1: [n]}, "w", n)
        log.compact()
    for n in range(2, 4):
        append(log, {0: [n], 1: [n]}, "w", n)
    return log


# --- records ------------------------------------------------------------------------


@pytest.mark.timeout(60)
@pytest.mark.parametrize("version", [0, 1, 3, 2**62])
def test_a_record_of_another_version_is_refused(
    log: DiskLog, root: Path, store_factory: Any, version: int
) -> None:
    """A reader that believed it would read the same file for ever."""
    append(log, {0: [1]}, "w", 0)
    append(log, {0: [2]}, "w", 1)
    path = record(root, log, 2)
    change(path, lambda plain: plain.update(version=version))
    with pytest.raises(CorruptData) as caught:
        store_factory().open("t")
    assert caught.value.what == f"{path}: the content is that of version {version}"


def test_partitions_without_number_take_no_memory(
    log: DiskLog, root: Path, store_factory: Any
) -> None:
    append(log, {0: [1]}, "w", 0)
    change(record(root, log, 1), lambda plain: plain.update(partitions=300_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptData, match="partitions is 300000000"):
            store_factory().open("t")
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("member", ["id", "version", "at", "format"])
def test_a_record_without_a_member_is_refused(
    log: DiskLog, root: Path, store_factory: Any, member: str
) -> None:
    append(log, {0: [1]}, "w", 0)
    change(record(root, log, 1), lambda plain: plain.pop(member))
    with pytest.raises(CorruptData, match=member):
        store_factory().open("t")


def no_text() -> str:
    """A schema whose one column has a name that is not UTF-8."""
    sound = pa.schema([pa.field("precious", pa.int64())]).serialize().to_pybytes()
    return base64.b64encode(sound.replace(b"precious", b"\xff" * 8)).decode()


@pytest.mark.parametrize(
    "schema",
    [
        *("AAAA", "", "=", "AAA", "\u00e4", base64.b64encode(bytes(64)).decode()),
        no_text(),
    ],
)
def test_a_schema_that_is_none_is_refused(
    log: DiskLog, root: Path, store_factory: Any, schema: str
) -> None:
    path = record(root, log, 0)
    change(path, lambda plain: plain.update(schema=schema))
    with pytest.raises(CorruptData, match="schema") as caught:
        store_factory().open("t")
    assert str(path) in caught.value.what


@pytest.mark.parametrize("member", ["schema", "partitions"])
def test_a_first_record_has_schema_and_partitions(
    log: DiskLog, root: Path, store_factory: Any, member: str
) -> None:
    change(record(root, log, 0), lambda plain: plain.pop(member))
    with pytest.raises(CorruptData, match=member):
        store_factory().open("t")


@pytest.mark.parametrize(
    "members",
    [
        {"partitions": 1},
        {"at": 0},
        {"earliest": {"2": 0}},
        {"earliest": {"0": 4}},
        {"earliest": {"-1": 0}},
        {"earliest": {"0" * 5000: 0}},
        {"unknown": 1},
        {"deleted": 1},
        {"writers": {"w": {"owner": "x"}}},
        {"writers": {"w": {"owner": "x", "at": 1, "epoch": -1}}},
        {"writers": {"\ud800": {"owner": "x", "at": 1}}},
        {"forgotten": [1]},
        {"void": [0]},
        {"void": "12"},
        {"segments": [{}]},
        {"segments": None},
    ],
    ids=lambda members: str(members)[:40],
)
def test_a_record_that_does_not_continue_the_topic_is_refused(
    log: DiskLog,
    clock: HandClock,
    root: Path,
    store_factory: Any,
    members: dict[str, Any],
) -> None:
    clock.ms = 5.0
    append(log, {0: [1]}, "w", 0)
    append(log, {0: [2]}, "w", 1)
    reader = store_factory().open("t")
    append(log, {0: [3]}, "w", 2)
    change(record(root, log, 3), lambda plain: plain.update(members))
    with pytest.raises(CorruptData):
        store_factory().open("t")
    for _ in range(2):  # nothing of it was applied the first time
        with pytest.raises(CorruptData):
            reader.bounds()


RUN = [0, 2, 0, [1], 8, 5, 5]


@pytest.mark.parametrize(
    "run",
    [
        [2, 0, *RUN[2:]],
        [0, 3, *RUN[2:]],
        [0, -1, *RUN[2:]],
        [0, 2**62, *RUN[2:]],
        [0, 2, 2**31, *RUN[3:]],
        [0, 2, 0, [], *RUN[4:]],
        [0, 2, 0, [0], *RUN[4:]],
        [0, 2, 0, [2**40], *RUN[4:]],
        [0, 2, 0, [True], *RUN[4:]],
        [0, 2, 0, [1], 8, 6, 5],
        RUN[:6],
        [*RUN, 0],
        ["0", *RUN[1:]],
        [0.0, *RUN[1:]],
    ],
    ids=str,
)
def test_a_run_that_cannot_be_is_refused(
    log: DiskLog, clock: HandClock, root: Path, store_factory: Any, run: list[Any]
) -> None:
    clock.ms = 5.0
    for n in range(3):
        append(log, {0: [n]}, "w", n)
    path = record(root, log, 3)
    change(path, lambda plain: plain["segments"][0].update(runs=[RUN]))
    assert store_factory().open("t").bounds()[0].latest == 3
    change(path, lambda plain: plain["segments"][0].update(runs=[run]))
    with pytest.raises(CorruptData):
        store_factory().open("t")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"1",
        b"null",
        b"[" * 100_000,
        b'{"format":1,"a":' * 50_000,
        b'{"format":' + b"9" * 10_000 + b"}",
        b'{"format":NaN}',
        b'{"format":true}',
        b"\xff\xfe",
    ],
    ids=lambda body: str(body[:16]),
)
def test_json_that_is_no_record_is_refused(
    filled: DiskLog, root: Path, store_factory: Any, body: bytes
) -> None:
    data = b"%b\n%08x\n" % (body, zlib.crc32(body))
    last = max(inner(root, filled).glob("log/*.json"))
    for path in (last, root / "t.topic/000000.json"):
        path.write_bytes(data)
        with pytest.raises(CorruptData) as caught:
            store_factory().open("t")
        assert str(path) in caught.value.what


@pytest.mark.parametrize("kind", ["record", "snapshot", "generation"])
def test_a_file_that_is_too_long_is_not_read(
    filled: DiskLog, root: Path, store_factory: Any, kind: str
) -> None:
    path = {
        "record": max(inner(root, filled).glob("log/*.json")),
        "snapshot": snapshots(root, filled)[-1],
        "generation": root / "t.topic/000000.json",
    }[kind]
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    tracemalloc.start()
    try:
        errors = use(store_factory())
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert all(isinstance(error, CorruptData) for error in errors)
    assert bool(errors) == (kind != "snapshot")


# --- snapshots ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "members",
    [
        {"version": 0},
        {"at": -1},
        {"schema": "AAAA"},
        {"schema": 1},
        {"earliest": [0]},
        {"earliest": [0, 10**9]},
        {"latest": [1, -1]},
        {"latest": "12"},
        {"earliest": [], "latest": []},
        {"writers": []},
        {"small": {"x": [1]}},
        {"segments": None},
        {"deleted": 0},
        {"recent": [1]},
        {"parts": ["index/" + "0" * 32 + ".arrow"]},
        {"unknown": 1},
        None,
    ],
    ids=str,
)
@pytest.mark.parametrize("count", [1, 2])
def test_a_bad_snapshot_falls_back_to_the_one_before_or_to_all_records(
    log: DiskLog,
    root: Path,
    store_factory: Any,
    members: dict[str, Any] | None,
    count: int,
) -> None:
    for n in range(4):
        append(log, {0: [n], 1: [n]}, "w", n)
        if n < count:
            log.compact()
    taken = snapshots(root, log)
    assert len(taken) == count
    if members is None:
        change(taken[-1], lambda plain: plain.pop("writers"))
    else:
        change(taken[-1], lambda plain: plain.update(members))
    store = store_factory()
    assert everything(store.open("t")) == ALL
    assert use(store) == []


def test_with_bad_snapshots_alone_the_topic_is_refused(
    filled: DiskLog, root: Path, store_factory: Any
) -> None:
    for path in snapshots(root, filled):
        change(path, lambda plain: plain.pop("parts"))
    assert not record(root, filled, 0).exists()
    with pytest.raises(CorruptData, match="parts is missing"):
        store_factory().open("t")


# --- parts of the index -------------------------------------------------------------


def _edited(rows: pa.RecordBatch, name: str, values: Any) -> pa.RecordBatch:
    at = PART_SCHEMA.get_field_index(name)
    kind = PART_SCHEMA.field(at).type
    column = pa.array(values, kind.value_type if name == "file" else kind)
    if name == "file":
        column = column.dictionary_encode()
    return rows.set_column(at, PART_SCHEMA.field(at), column)


PARTS: dict[str, Callable[[pa.RecordBatch], Any]] = {
    "partition beyond": lambda rows: _edited(rows, "partition", [0, 7]),
    "partition negative": lambda rows: _edited(rows, "partition", [-1, 1]),
    "unsorted": lambda rows: _edited(rows, "partition", [1, 0]),
    "nulls": lambda rows: _edited(rows, "base", [None, 0]),
    "no rows of a run": lambda rows: _edited(rows, "rows", [0, 1]),
    "base negative": lambda rows: _edited(rows, "base", [-5, 0]),
    "base too high": lambda rows: _edited(rows, "base", [2**63 - 1, 0]),
    "batches": lambda rows: _edited(rows, "batches", [[1], [7]]),
    "batches of nothing": lambda rows: _edited(rows, "batches", [[], [1]]),
    "batches negative": lambda rows: _edited(rows, "batches", [[-1, 2], [1]]),
    "file": lambda rows: _edited(rows, "file", ["../../../victim", "data/x"]),
    "time": lambda rows: _edited(rows, "first_ms", [10**15, 0]),
    "no rows": lambda rows: rows.slice(0, 0),
    "columns": lambda rows: rows.select(["partition", "base"]),
}


def part_file(*batches: pa.RecordBatch, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


PART_FILES: dict[str, Callable[[pa.RecordBatch], bytes]] = {
    "compressed": lambda rows: part_file(rows, compression="zstd"),
    "two": lambda rows: part_file(rows, rows),
    "noise": lambda _: b"ARROW1\0\0" + bytes(100),
    "short": lambda rows: part_file(rows)[:200],
}


@pytest.mark.parametrize("name", PARTS)
def test_part_with_bad_rows_is_passed_over(
    filled: DiskLog, root: Path, store_factory: Any, name: str
) -> None:
    """The snapshot before, and the records, say the same."""
    check_part_is_passed_over(
        filled, root, store_factory, lambda rows: part_file(PARTS[name](rows))
    )


@pytest.mark.parametrize("name", PART_FILES)
def test_part_that_is_a_bad_file_is_passed_over(
    filled: DiskLog, root: Path, store_factory: Any, name: str
) -> None:
    check_part_is_passed_over(filled, root, store_factory, PART_FILES[name])


def check_part_is_passed_over(
    filled: DiskLog,
    root: Path,
    store_factory: Any,
    edited: Callable[[pa.RecordBatch], bytes],
) -> None:
    newest = snapshots(root, filled)[-1]
    path = inner(root, filled) / unsealed(newest)["parts"][-1]
    rows = pa.ipc.open_file(path.read_bytes()).get_batch(0)
    assert rows.num_rows == 2
    path.write_bytes(edited(rows))
    path.chmod(0o666)  # anybody could have written it
    store = store_factory()
    assert everything(store.open("t")) == ALL
    assert use(store) == []


# --- segments -----------------------------------------------------------------------

_CUT = """
import os, sys
from pathlib import Path
from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.spi import CorruptData
root = Path(sys.argv[1])
log = DiskLogStore(LocalStorage(root), Settings()).open("t")
first = log.read(0, 0, max_rows=10, max_bytes=1 << 30).rows
[segment] = root.glob("*/*/data/*.arrow")
os.truncate(segment, 5000)
assert first.column(0).to_pylist() == list(range(10))
try:
    log.read(0, 100_000, max_rows=10, max_bytes=1 << 30).rows.column(0).to_pylist()
except CorruptData as error:
    assert str(segment) in error.what
    print("refused")
"""


def test_a_segment_that_others_can_truncate_is_not_mapped(
    store: DiskLogStore, root: Path
) -> None:
    """A reader of mapped bytes that are cut off is killed by the system."""
    log = store.create("t", SCHEMA)
    append(log, {0: list(range(200_000))}, "w", 0)
    [segment] = root.glob("*/*/data/*.arrow")
    segment.chmod(0o666)
    done = subprocess.run(
        [sys.executable, "-c", _CUT, str(root)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "refused\n"), done.stderr


@pytest.mark.parametrize(
    ("mode", "mapped"), [(0o644, True), (0o600, True), (0o664, False), (0o646, False)]
)
def test_only_files_of_this_user_are_mapped(
    tmp_path: Path, mode: int, mapped: bool
) -> None:
    storage = LocalStorage(tmp_path)
    (tmp_path / "x").write_bytes(bytes(1 << 20))
    (tmp_path / "x").chmod(mode)
    opened = storage.open("x")
    assert opened.own == mapped
    before = pa.total_allocated_bytes()
    data = opened.file.read_buffer(1 << 20)
    assert (pa.total_allocated_bytes() - before < 1 << 20) == mapped
    assert bytes(data) == bytes(1 << 20)
    assert opened.file.size() == 1 << 20
    opened.file.seek(1 << 19)
    assert opened.file.read(10) == bytes(10)


@pytest.mark.parametrize(
    "times",
    [
        b"x",
        b"{}",
        b"[]",
        b"[[1,5]]",
        b"[[0]]",
        b'[["0",5]]',
        b"[[0,5],[0,6]]",
        b"[[0,5],[9,6]]",
        b"[" * 100_000,
    ],
    ids=lambda times: str(times[:16]),
)
def test_wrong_append_times_of_a_segment_are_refused(
    log: DiskLog, clock: HandClock, root: Path, store_factory: Any, times: bytes
) -> None:
    for n in range(3):
        clock.ms = float(n)
        append(log, {0: [n]}, "w", n)
    log.compact()
    [segment] = inner(root, log).glob("data/*.arrow")
    rows = pa.ipc.open_file(segment.read_bytes()).get_batch(0)
    with pa.ipc.new_file(segment, rows.schema) as writer:
        writer.write_batch(rows, custom_metadata={"appended": times})
    found = store_factory().open("t")
    with pytest.raises(CorruptData, match="times of its rows"):
        found.offsets_at(1, [0])


# --- what is written can be read ----------------------------------------------------


def test_an_unreadable_record_is_not_written(
    log: DiskLog, store_factory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamfactory.arrowlog.disk.sealed.SEALED_BYTES", 4096)
    append(log, {0: [1]}, "w", 0)
    with pytest.raises(MisuseError, match="bytes") as caught:
        append(log, {0: [2]}, "w" * 5000, 0)
    assert "smaller epochs" in str(caught.value.remedy)
    append(log, {0: [3]}, "w", 1)
    assert numbers_of(store_factory().open("t")) == [1, 3]


@pytest.mark.parametrize(
    ("writer", "epoch"), [("\ud800", 0), ("w", -1), ("w", 2**62 + 1)]
)
def test_a_writer_that_the_format_cannot_hold_is_refused(
    log: DiskLog, store_factory: Any, writer: str, epoch: int
) -> None:
    with pytest.raises(MisuseError):
        append(log, {0: [1]}, writer, epoch)
    append(log, {0: [2]}, "w", 0)
    assert numbers_of(store_factory().open("t")) == [2]


def test_a_topic_has_a_bounded_number_of_partitions(
    store: DiskLogStore, log: DiskLog
) -> None:
    with pytest.raises(MisuseError, match="100000"):
        store.create("u", SCHEMA, 100_001)
    with pytest.raises(MisuseError, match="100000"):
        log.grow(100_001)
    log.grow(100_000)
    assert len(log.bounds()) == 100_000


# --- anything at all ----------------------------------------------------------------

_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.sampled_from(["../../x", "data/" + "a" * 32 + ".arrow", "a" * 32]),
    st.lists(st.integers(-1, 3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def _places(plain: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The ways to every value inside of one."""
    found = [path]
    if isinstance(plain, dict | list):
        items = plain.items() if isinstance(plain, dict) else enumerate(plain)
        for key, value in items:
            found += _places(value, (*path, key))
    return found


def _mutated(plain: Any, draw: st.DrawFn) -> Any:
    """A value with one of its parts replaced, removed, doubled or added to."""
    plain = copy.deepcopy(plain)
    path = draw(st.sampled_from(_places(plain)[1:]))
    around = plain
    for key in path[:-1]:
        around = around[key]
    match draw(st.integers(0, 3)):
        case 0:
            del around[path[-1]]
        case 1 if isinstance(around, list):
            around.append(copy.deepcopy(around[path[-1]]))
        case 2 if isinstance(around[path[-1]], int):
            around[path[-1]] += draw(st.integers(-3, 3))
        case _:
            around[path[-1]] = draw(_VALUES)
    return plain


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a topic of records, snapshots, parts and merged segments."""
    root = tmp_path_factory.mktemp("mutated") / "topics"
    store = store_at(root, HandClock(5.0))
    log = store.create("t", SCHEMA, 2)
    for n in range(2):
        append(log, {0: [n], 1: [n]}, "w", n)
        log.compact()
    for n in range(2, 4):
        append(log, {0: [n], 1: [n]}, "w", n)
    store.close()
    return root


@pytest.mark.parametrize(
    "examples",
    sample(
        [100, 300],
        "more mutations",
        shown_by="tests/disklog/test_disklog_hostile_content.py::test_a_mutated_topic_is_read_or_refused",
    ),
)
def test_a_mutated_topic_is_read_or_refused(
    topics: Path, tmp_path_factory: pytest.TempPathFactory, examples: int
) -> None:
    """Whatever one file says: typed errors, and nothing changes outside."""

    @settings(max_examples=examples)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        use_mutated(topics, tmp_path_factory, data)

    check()


def use_mutated(
    topics: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("one") / "topics"
    shutil.copytree(topics, root)
    files = sorted([*root.rglob("*.json"), *root.rglob("*.snapshot")])
    path = data.draw(st.sampled_from(files))
    plain = data.draw(st.composite(lambda draw: _mutated(unsealed(path), draw))())
    path.write_bytes(sealed(plain))
    (root.parent / "x").write_text("precious")
    store = store_at(root, HandClock(6.0))
    errors = use(store)
    store.close()
    assert all(isinstance(error, StreamError) for error in errors)
    assert not any(error.code == "untranslated" for error in errors)
    assert (root.parent / "x").read_text() == "precious"
    assert sorted(path.name for path in root.parent.iterdir()) == ["topics", "x"]


@settings(max_examples=cases(200), deadline=None)
@given(st.data())
def test_what_is_decoded_is_encoded_to_the_same(data: st.DataObject) -> None:
    """A record that is taken means what it says: nothing of it is left out."""
    plain = {
        "format": 1,
        "version": 3,
        "id": "a" * 32,
        "at": 7,
        "writers": {"w": {"owner": "o", "at": 5, "epoch": 2, "rows": 1, "sums": {}}},
        "earliest": {"1": 4},
        "segments": [
            {
                "name": "data/" + "b" * 32 + ".arrow",
                "bytes": 100,
                "level": 0,
                "full": False,
                "runs": [[0, 2, 0, [1, 2], 24, 5, 6]],
            }
        ],
        "removed": {"data/" + "c" * 32 + ".arrow": 5},
        "void": [2],
    }
    mutated = data.draw(st.composite(lambda draw: _mutated(plain, draw))())
    try:
        found = Record.decode(sealed(mutated), "here", 3)
    except StreamError:
        return
    again = json.loads(found.encode().partition(b"\n")[0])
    empty: tuple[Any, ...] = (None, {}, [], False)
    for member, value in mutated.items():
        if value not in empty and member != "writers":
            assert again[member] == value or member == "earliest"
    assert Record.decode(found.encode(), "here", 3).encode() == found.encode()


def test_a_snapshot_is_decoded_to_what_was_encoded() -> None:
    name = "data/" + "b" * 32 + ".arrow"
    part = "index/" + "b" * 32 + ".arrow"
    taken = Snapshot(
        4,
        5,
        "x",
        [0],
        [2],
        {},
        {name: SmallSegment(0, 1, 2, 3)},
        1,
        False,
        ["a" * 32],
        [part],
        [name],
    )
    assert Snapshot.decode(taken.encode(), "here", 4) == taken
