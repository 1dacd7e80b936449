"""Rows between their stage and their commit: in memory, or in a file once pickled."""

from __future__ import annotations

import errno
import os
import pickle
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from streamfactory.arrowlog import Epoch
from streamfactory.arrowlog.carried import CARRIED
from streamfactory.backends.shm import ring
from streamfactory.backends.shm.layout import STAGING
from streamfactory.backends.shm.messages import RowEncoder
from streamfactory.backends.shm.settings import Settings
from streamfactory.backends.shm.store import ShmLogStore
from streamfactory.backends.shm.writing import ShmProducerFactory
from streamfactory.spi import (
    CommitMessage,
    LastCommit,
    MessageTooLarge,
    MisuseError,
    Outgoing,
    StorageFailed,
    Summary,
    WriteContext,
)
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import default_manager

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streamfactory.arrowlog import Staged
    from streamfactory.backends.shm.log import ShmLog

ROWS = pa.record_batch({"number": pa.arange(0, CARRIED // 4)})
"""Twice as many bytes as a pickle has itself."""
FEW = ROWS.slice(5, 3)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[ShmLog]:
    store = ShmLogStore(tmp_path / "topics", Settings(capacity=1 << 24))
    yield store.create("t", ROWS.schema)
    store.close()


def stage(log: ShmLog, rows: pa.RecordBatch) -> Staged:
    found = log.stage(uuid.uuid4().hex)
    found.append(0, rows)
    return found.seal(carried=True)


def commit(log: ShmLog, staged: Staged) -> None:
    log.commit(Epoch(None, 0, [staged], Summary()))


def files(log: ShmLog) -> list[Path]:
    return list((log.folder / STAGING).iterdir())


def test_rows_that_their_process_commits_are_in_no_file(log: ShmLog) -> None:
    staged = stage(log, ROWS)
    assert files(log) == []
    commit(log, staged)
    assert log.read(0, 0, max_rows=1 << 30, max_bytes=1 << 30).rows is not None
    assert log.bounds()[0].latest == ROWS.num_rows
    with pytest.raises(MisuseError, match="no longer exists"):
        commit(log, staged)
    assert log.bounds()[0].latest == ROWS.num_rows


def message(factory: Any, rows: pa.RecordBatch) -> CommitMessage:
    """What a writer answers, as another process gets it."""
    context = WriteContext(None, 0, 0, uuid.uuid4().hex, schema=rows.schema)
    writer = factory.create_writer(context)
    writer.write(Outgoing(rows, 0))
    found = CommitMessage(context, Summary(rows.num_rows), writer.commit(), "digest")
    copied = pickle.loads(pickle.dumps(found))
    assert isinstance(copied, CommitMessage)
    return copied


@pytest.mark.parametrize("rows", [ROWS, FEW], ids=["many", "few"])
@pytest.mark.parametrize("commits", [True, False])
def test_a_pickled_message_is_committed_or_aborted_by_another_process(
    rows: pa.RecordBatch, commits: bool, tmp_path: Path, log: ShmLog
) -> None:
    given = {
        "streamType": "shm",
        "stream.shm.path": str(tmp_path / "topics"),
        "stream.shm.topic.name": "t",
    }
    made = configure(from_mapping(given), default_manager(), use="write")
    factory = ShmProducerFactory(made.config)
    sent = message(factory, rows)
    assert len(pickle.dumps(sent)) < CARRIED
    assert len(files(log)) == (rows is ROWS)
    committer = factory.create_committer(None)
    if commits:
        held: LastCommit | None = committer.commit(0, [sent])
        assert held is None
        assert log.bounds()[0].latest == rows.num_rows
        with pytest.raises(MisuseError, match="no longer exists"):
            committer.commit(0, [sent])
    else:
        committer.abort(0, [sent])
        assert log.bounds()[0].latest == 0
    assert files(log) == []
    factory.close()


def test_rows_that_no_ring_takes_are_refused_before_their_commit(log: ShmLog) -> None:
    found = log.stage(uuid.uuid4().hex)
    for _ in range(15):  # 2 MiB each: one more is twice what a ring has
        found.append(0, ROWS)
    with pytest.raises(MessageTooLarge, match="smaller epochs"):
        found.append(0, ROWS)


def test_a_ring_without_memory_refuses_an_epoch_and_takes_the_next_one(
    log: ShmLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(ring, "populate", full)
        with pytest.raises(StorageFailed, match="No space left"):
            commit(log, stage(log, ROWS))
    assert log.bounds()[0].latest == 0
    commit(log, stage(log, FEW))
    assert log.read(0, 0, max_rows=9, max_bytes=1 << 20).rows == FEW


VARIED = pa.record_batch(
    {
        "number": pa.array([None if n % 5 == 0 else n for n in range(9000)]),
        "text": pa.array([None if n % 7 == 0 else f"text {n}" for n in range(9000)]),
        "flag": pa.array([n % 3 == 0 for n in range(9000)]),
        "list": pa.array([[*range(n % 4)] for n in range(9000)]),
        "view": pa.array(["v" * (n % 20) for n in range(9000)], pa.string_view()),
    }
)


@pytest.mark.parametrize(("at", "count"), [(0, 9000), (13, 8000), (5, 3), (7, 0)])
def test_messages_are_those_of_arrow(at: int, count: int) -> None:
    rows, encoder = VARIED.slice(at, count), RowEncoder(VARIED.schema)
    for _ in range(2):
        assert b"".join(map(bytes, encoder.encode(rows))) == bytes(rows.serialize())


def test_large_columns_are_not_copied_for_a_message() -> None:
    parts = RowEncoder(ROWS.schema).encode(ROWS)
    [values] = [part for part in parts if len(part) == ROWS.nbytes]
    assert isinstance(values, pa.Buffer)
    assert values.address == ROWS.column(0).buffers()[1].address
