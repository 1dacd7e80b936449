"""Epochs in files that another program writes: here the test, elsewhere Spark."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamfactory.spi import StorageFailed, WriteKind
from streamfactory.wiring.streams.opening import open_sink
from streamfactory.wiring.streams.stream import open_stream

if TYPE_CHECKING:
    from streamfactory.wiring.writing.files import FileWriter
    from streamfactory.wiring.writing.sink import Sink

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture
def properties(tmp_path: Path) -> dict[str, str]:
    return {
        "streamType": "file",
        "stream.file.path": str(tmp_path / "topics"),
        "stream.file.topic.name": "t",
        "stream.file.segment.format": "parquet",
        "stream.file.fsync": "never",
    }


def writer_of(sink: Sink, epoch: int) -> FileWriter:
    return sink.files.writer(
        ROWS.schema, writer_id="w", epoch=epoch, kind=WriteKind.BATCH
    )


def fill(writer: FileWriter, rows: pa.Table = ROWS) -> list[tuple[int, str]]:
    folder = Path(writer.begin().folder)
    folder.mkdir()
    options = {"compression": "none", "use_dictionary": False, "store_schema": False}
    pq.write_table(rows, folder / "x.parquet", **options)
    return [(0, "x.parquet")]


def commit(sink: Sink, epoch: int) -> None:
    with closing(sink.committer(writer_id="w", kind=WriteKind.BATCH)) as committer:
        with closing(writer_of(sink, epoch)) as writer:
            assert not writer.drains
            message = writer.commit(fill(writer), ROWS.num_rows)
        # The writer is closed: the files are the committer's.
        assert committer.commit(epoch, [message])


def ids(properties: dict[str, str]) -> list[int]:
    with open_stream(properties) as stream:
        found: list[int] = stream.to_reader().read_all().column("id").to_pylist()
    return found


def test_files_of_a_closed_writer_can_be_committed(properties: dict[str, str]) -> None:
    with open_sink(properties) as sink:
        commit(sink, 0)
        commit(sink, 1)
    assert ids(properties) == [1, 2, 3, 1, 2, 3]


def test_an_epoch_that_is_committed_is_only_counted(
    properties: dict[str, str],
) -> None:
    with open_sink(properties) as sink:
        commit(sink, 0)
        commit(sink, 1)
        for epoch in (0, 1):
            with closing(writer_of(sink, epoch)) as writer:
                assert writer.drains
        with closing(writer_of(sink, 2)) as writer:
            assert not writer.drains
    compared = {**properties, "epoch.mismatch": "fail"}
    with open_sink(compared) as sink, closing(writer_of(sink, 1)) as writer:
        assert not writer.drains


@pytest.mark.parametrize("rows", [2, 4])
def test_files_with_another_number_of_rows_are_refused(
    properties: dict[str, str], tmp_path: Path, rows: int
) -> None:
    with open_sink(properties) as sink, closing(writer_of(sink, 0)) as writer:
        with pytest.raises(StorageFailed, match=f"{rows} rows were written, but .* 3"):
            writer.commit(fill(writer), rows)
        assert writer.counters.failures == 1
        assert writer.counters.rows == 0
    assert not list(tmp_path.rglob("*.parquet"))
