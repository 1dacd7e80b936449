"""Files that another program writes, staged and committed as segments."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.disklog.hostile import inner
from tests.proving.numbers import SCHEMA, append, everything

from streamfactory.arrowlog import Epoch
from streamfactory.arrowlog.disk import LocalStorage
from streamfactory.spi import (
    CorruptData,
    MessageTooLarge,
    MisuseError,
    Summary,
    TopicNotFound,
    Unsupported,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.proving.numbers import HandClock

    from streamfactory.arrowlog.disk import DiskLog, DiskLogStore
    from streamfactory.arrowlog.stages import FileStage

    Stores = Callable[..., DiskLogStore]

DAY = 24 * 3600


@pytest.fixture
def store(store_factory: Stores) -> DiskLogStore:
    return store_factory(segment_format="parquet", merge_files=3)


@pytest.fixture
def log(store: DiskLogStore) -> DiskLog:
    return store.create("t", SCHEMA, 2)


@pytest.fixture
def text(store: DiskLogStore) -> DiskLog:
    return store.create("text", pa.schema({"word": pa.string()}))


def begun(log: DiskLog) -> FileStage:
    """A stage whose folder the other program has made."""
    stage = log.stage_files(uuid.uuid4().hex)
    Path(stage.folder).mkdir()
    return stage


def write(path: Path, table: pa.Table, **options: Any) -> None:
    """As Spark does: without dictionaries, and without Arrow's schema."""
    path.parent.mkdir(exist_ok=True)
    plain = {"compression": "none", "use_dictionary": False, "store_schema": False}
    pq.write_table(table, path, **{**plain, **options})


def numbers(*values: int) -> pa.Table:
    return pa.table({"number": pa.array(values, pa.int64())})


def rests(root: Path, log: DiskLog) -> list[str]:
    """Staged folders, and all segments."""
    folder = inner(root, log)
    found = [*folder.glob("staging/*"), *folder.glob("data/*")]
    return sorted(path.name for path in found)


def test_files_are_read_by_partition_and_offset_with_their_time(
    log: DiskLog, store_factory: Stores, root: Path, clock: HandClock
) -> None:
    append(log, {0: [1], 1: [2]})
    segments = len(rests(root, log))
    clock.ms += 5000
    stage = begun(log)
    write(Path(stage.folder, "b=1", "x.parquet"), numbers(5, 6, 7), row_group_size=2)
    write(Path(stage.folder, "y.parquet"), numbers(3), compression="zstd")
    write(Path(stage.folder, "z.parquet"), numbers(4), compression="lz4")
    write(Path(stage.folder, "empty.parquet"), numbers())
    assert stage.names("b=1") == ["x.parquet"]
    files = [(0, "y.parquet"), (0, "empty.parquet"), (1, "b=1/x.parquet")]
    sealed = stage.seal([*files, (0, "z.parquet")])
    assert stage.counts == {0: (2, 2 * 8), 1: (3, 3 * 8)}
    assert sum(batch.num_rows for batch in stage.batches()) == 5
    other = store_factory().open("t")
    assert everything(other) == {0: [1], 1: [2]}
    # The file without rows is removed, and the others are no longer the stage's.
    stage.discard()
    assert len(rests(root, log)) == segments + 3
    log.commit(Epoch("w", 0, [sealed], Summary(5)))
    assert everything(other) == {0: [1, 3, 4], 1: [2, 5, 6, 7]}
    assert other.offsets_at(5000, [0, 1]) == {0: 1, 1: 1}
    assert other.verify().problems == ()
    assert [file.rows for file in other.files(1, 0, 4)] == [1, 3]
    assert not list(inner(root, log).glob("staging/*"))
    # Merges and retention treat them as all segments.
    append(log, {0: [8], 1: [9]})
    log.compact()
    assert everything(other) == {0: [1, 3, 4, 8], 1: [2, 5, 6, 7, 9]}
    assert other.offsets_at(5000, [0, 1]) == {0: 1, 1: 1}


def test_a_repeated_epoch_removes_its_files(log: DiskLog, root: Path) -> None:
    found = []
    for _ in range(2):
        stage = begun(log)
        write(Path(stage.folder, "x.parquet"), numbers(1, 2))
        sealed = stage.seal([(0, "x.parquet")])
        found.append(log.commit(Epoch("w", 7, [sealed], Summary(2))).held)
    assert [last is None for last in found] == [True, False]
    assert everything(log) == {0: [1, 2], 1: []}
    assert len(rests(root, log)) == 1


HOSTILE: dict[str, tuple[pa.Table, dict[str, Any]]] = {
    "another column": (pa.table({"other": ["a"]}), {}),
    "another type": (pa.table({"word": [1]}), {}),
    "no columns": (pa.table({"word": ["a"], "more": [1]}), {}),
    "a dictionary": (pa.table({"word": ["a"] * 9}), {"use_dictionary": True}),
    "another compression": (pa.table({"word": ["a"]}), {"compression": "snappy"}),
    "an encoding of prefixes": (
        pa.table({"word": ["a" * 999] * 99}),
        {"column_encoding": "DELTA_BYTE_ARRAY"},
    ),
}


@pytest.mark.parametrize("kind", sorted(HOSTILE))
def test_files_that_readers_would_refuse_are_refused(
    text: DiskLog, root: Path, kind: str
) -> None:
    table, options = HOSTILE[kind]
    stage = begun(text)
    write(Path(stage.folder, "good.parquet"), pa.table({"word": ["a"]}))
    write(Path(stage.folder, "bad.parquet"), table, **options)
    with pytest.raises(CorruptData, match="cannot be a segment of the topic"):
        stage.seal([(0, "good.parquet"), (0, "bad.parquet")])
    assert rests(root, text) == []


def test_an_unknown_compression_is_refused(text: DiskLog, root: Path) -> None:
    """Arrow ends the process when it is asked for the name of such a codec."""
    sound, refusals = Path(begun(text).folder, "sound.parquet"), []
    write(sound, pa.table({"word": ["a"]}), compression="zstd")
    content = sound.read_bytes()
    # The number is 6, as Thrift writes it; other fields may have the same byte.
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    for at in range(footer, len(content) - 8):
        if content[at] == 2 * 6:
            stage = begun(text)
            damaged = content[:at] + bytes([2 * 9]) + content[at + 1 :]
            Path(stage.folder, "x.parquet").write_bytes(damaged)
            try:
                stage.seal([(0, "x.parquet")])
            except CorruptData as error:
                refusals.append(error.what)
    assert any("has the compression 9" in what for what in refusals)


def test_a_folder_in_the_place_of_a_file_is_refused(log: DiskLog, root: Path) -> None:
    stage = begun(log)
    Path(stage.folder, "x.parquet").mkdir()
    with pytest.raises(CorruptData, match="not a regular file"):
        stage.seal([(0, "x.parquet")])
    assert rests(root, log) == []


def test_a_row_group_that_expands_too_far_is_too_large(
    store: DiskLogStore, root: Path
) -> None:
    lists = pa.list_(pa.struct([(f"f{n}", pa.int64()) for n in range(300)]))
    log = store.create("lists", pa.schema({"lists": lists}))
    stage = begun(log)
    write(Path(stage.folder, "x.parquet"), pa.table({"lists": pa.nulls(50_000, lists)}))
    with pytest.raises(MessageTooLarge, match="lists that are null or empty"):
        stage.seal([(0, "x.parquet")])
    assert rests(root, log) == []


def test_a_stage_begins_while_a_sweep_removes_its_folder(
    log: DiskLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, left = LocalStorage.create, [True]

    def swept(storage: LocalStorage, name: str) -> Any:
        if name.endswith("/begun") and left:
            left.clear()
            raise FileNotFoundError(name)
        return create(storage, name)

    monkeypatch.setattr(LocalStorage, "create", swept)
    stage = begun(log)
    write(Path(stage.folder, "x.parquet"), numbers(1))
    log.commit(Epoch(None, 0, [stage.seal([(0, "x.parquet")])], Summary(1)))
    assert everything(log)[0] == [1]


def test_what_is_no_file_of_the_stage_is_refused(
    log: DiskLog, root: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.parquet"
    write(secret, numbers(1))
    for path in ("../begun", "/etc/passwd", "..", ".hidden", "a/b/c", "", "x\n"):
        with pytest.raises(CorruptData, match="has the name"):
            begun(log).seal([(0, path)])
    stage = begun(log)
    Path(stage.folder, "link.parquet").symlink_to(secret)
    with pytest.raises(CorruptData, match="not a regular file"):
        stage.seal([(0, "link.parquet")])
    stage = begun(log)
    Path(stage.folder, "out").symlink_to(tmp_path)
    with pytest.raises(CorruptData, match="symbolic link"):
        stage.seal([(0, "out/secret.parquet")])
    stage = begun(log)
    Path(stage.folder, "cut.parquet").write_bytes(secret.read_bytes()[:-9])
    with pytest.raises(CorruptData, match="no footer"):
        stage.seal([(0, "cut.parquet")])
    with pytest.raises(MisuseError, match="no longer exist"):
        begun(log).seal([(0, "missing.parquet")])
    stage = begun(log)
    write(Path(stage.folder, "x.parquet"), numbers(1))
    with pytest.raises(TopicNotFound):
        stage.seal([(2, "x.parquet")])
    assert rests(root, log) == []
    assert secret.exists()


def test_the_sweep_removes_old_attempts_and_no_others(log: DiskLog, root: Path) -> None:
    old, young, moved = begun(log), begun(log), begun(log)
    for stage in (old, young):
        write(Path(stage.folder, "x.parquet"), numbers(1))
    mark = Path(old.folder).with_name("begun")
    os.utime(mark, (mark.stat().st_atime, mark.stat().st_mtime - DAY - 60))
    # A task that writes after the sweep.
    Path(moved.folder).with_name("begun").unlink()
    log.sweep()
    assert rests(root, log) == [Path(young.folder).parent.name]
    # The rows of the task that the sweep removed would be missing.
    Path(old.folder).mkdir(parents=True)
    write(Path(old.folder, "y.parquet"), numbers(2))
    with pytest.raises(MisuseError, match="no longer exist"):
        old.seal([(0, "y.parquet")])
    log.commit(Epoch(None, 0, [young.seal([(0, "x.parquet")])], Summary(1)))
    assert everything(log)[0] == [1]


def test_topics_of_other_segments_take_no_files(store_factory: Stores) -> None:
    log = store_factory().create("plain", SCHEMA)
    with pytest.raises(Unsupported, match="segments of the format arrow") as caught:
        log.stage_files(uuid.uuid4().hex)
    assert "segment.format=parquet" in str(caught.value.remedy)


def test_permissions_of_files_are_those_of_the_topic(tmp_path: Path) -> None:
    from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
    from streamfactory.arrowlog.disk.folders import Modes

    storage = LocalStorage(tmp_path / "m", fsync="never", modes=Modes(0o600, 0o700))
    store = DiskLogStore(storage, Settings(segment_format="parquet"))
    stage = begun(store.create("t", SCHEMA))
    write(Path(stage.folder, "x.parquet"), numbers(1))
    stage.seal([(0, "x.parquet")])
    [path] = tmp_path.rglob("data/*")
    assert path.stat().st_mode & 0o777 == 0o600
    store.close()
