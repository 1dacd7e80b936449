"""Another program of the same user writes into a topic: checksums keep nobody out."""

from __future__ import annotations

import os
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from streamfactory.arrowlog import Epoch
from streamfactory.backends.shm import layout
from streamfactory.backends.shm.layout import Part, State
from streamfactory.backends.shm.settings import Settings
from streamfactory.backends.shm.store import ShmLogStore
from streamfactory.spi import CorruptData, Summary

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streamfactory.arrowlog import Staged
    from streamfactory.backends.shm.log import ShmLog

CAPACITY = 1 << 16
ROWS = pa.record_batch({"number": [1, 2, 3], "text": ["a", None, "c"]})


@contextmanager
def topic(root: Path, **settings: Any) -> Iterator[ShmLog]:
    store = ShmLogStore(root, Settings(capacity=CAPACITY, patience=0.1, **settings))
    try:
        if "t" in store.names():
            yield store.open("t")
        else:
            yield store.create("t", ROWS.schema, 2)
    finally:
        store.close()


def stage(log: ShmLog, rows: pa.RecordBatch = ROWS, *, carried: bool = True) -> Staged:
    found = log.stage(uuid.uuid4().hex)
    found.append(0, rows)
    return found.seal(carried=carried)


def commit(log: ShmLog, staged: Staged, number: int = 0) -> None:
    log.commit(Epoch("w", number, [staged], Summary(3)))


def read(log: ShmLog, partition: int = 0) -> pa.RecordBatch | None:
    [*bounds] = log.bounds()
    start = bounds[partition].earliest
    return log.read(partition, start, max_rows=9, max_bytes=1 << 20).rows


def seal(root: Path, state: State) -> None:
    """Put a state into the slot of the last commit, with the checksum that it has."""
    path = root / "t.topic" / layout.CONTROL
    with path.open("r+b") as file:
        head = file.read(layout.PAGE)
        schema = layout.CONTROL_HEAD.unpack_from(head)[5]
        number = int.from_bytes(head[64:72], "little")
        at = layout.slot_at(number, schema, layout.SLOT)
        if state.number != number:
            file.seek(64)
            file.write(state.number.to_bytes(8, "little"))
            at = layout.slot_at(state.number, schema, layout.SLOT)
        file.seek(at)
        file.write(layout.encode_state(state, b'{"writers":{},"recent":[]}'))


@pytest.mark.parametrize(
    ("number", "part"),
    [
        (2, Part(0, 3, CAPACITY - 32, CAPACITY)),  # no header has room before the end
        (2, Part(0, 3, 0, 2**63)),
        (2, Part(0, 2**63, 0, 320)),
        (2, Part(2**63, 2**64 - 1, 0, 320)),
        (2, Part(3, 0, 0, 320)),
        (2, Part(0, 3, 320, 0)),
        (2, Part(0, 2, 0, 320)),  # fewer rows than its record has
        (2**64 - 1, Part(0, 3, 0, 320)),
    ],
)
def test_bounds_that_a_topic_cannot_have_are_damage(
    number: int, part: Part, tmp_path: Path
) -> None:
    with topic(tmp_path / "topics") as log:
        commit(log, stage(log))
    seal(tmp_path / "topics", State(number, 0, [part, Part(0, 0, 0, 0)]))
    # Closing raises nothing either.
    with topic(tmp_path / "topics") as log, pytest.raises(CorruptData, match="damaged"):
        read(log)


def test_a_partition_that_vanishes_while_it_is_read_is_damage(tmp_path: Path) -> None:
    with topic(tmp_path / "topics") as log:
        commit(log, stage(log))
        state = log._control.state()
        part = state.parts[0]
        seal(tmp_path / "topics", State(state.number + 2, 0, []))
        with pytest.raises(CorruptData, match="vanished"), log._whole:
            log._reader.read(0, part, 0)


@pytest.mark.parametrize("again", [False, True])
def test_each_copy_of_a_record_is_checked(tmp_path: Path, *, again: bool) -> None:
    with topic(tmp_path / "topics", copies=True) as log:
        commit(log, stage(log))
        if again:
            assert read(log) == ROWS
        with (tmp_path / "topics" / "t.topic" / "0.ring").open("r+b") as file:
            data = file.read()
            at = data.index(b"ac", layout.PAGE + layout.RECORD_HEAD)
            file.seek(at)
            file.write(b"\xff\xfe")
        with pytest.raises(CorruptData):
            read(log)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    path.symlink_to(path.with_suffix(".kept"))
    path.with_suffix(".kept").write_bytes(b"")


def compressed(path: Path) -> None:
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    long = pa.record_batch({"number": [1], "text": ["x" * (1 << 20)]})
    with pa.ipc.new_stream(str(path), ROWS.schema, options=options) as writer:
        writer.write_batch(long, custom_metadata={b"partition": "0"})


def nowhere(path: Path) -> None:
    with pa.ipc.new_stream(str(path), ROWS.schema) as writer:
        writer.write_batch(ROWS)


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


@pytest.mark.parametrize("other", [fifo, link, compressed, nowhere, huge])
def test_staged_rows_that_were_replaced_are_refused(other: Any, tmp_path: Path) -> None:
    with topic(tmp_path / "topics") as log:
        staged = stage(log, carried=False)
        [path] = (tmp_path / "topics" / "t.topic" / layout.STAGING).iterdir()
        path.unlink()
        other(path)
        with pytest.raises(CorruptData, match="is not a file of staged rows"):
            commit(log, staged)


def test_an_attempt_without_rows_stages_no_file(tmp_path: Path) -> None:
    with topic(tmp_path / "topics") as log:
        staged = log.stage(uuid.uuid4().hex).seal()
        commit(log, staged)
        assert not staged.files
        assert log.bounds()[0].latest == 0
