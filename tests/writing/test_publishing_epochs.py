"""Epochs of `publish`: never more rows than wanted, and exact wherever they end."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import csv, parquet
from tests.proving.generated import cases

import streamfactory
from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.arrowlog.disk.loading import load_record
from streamfactory.arrowlog.disk.names import records
from streamfactory.transfer.inputs import InputOptions, open_input
from streamfactory.transfer.publishing import open_publisher

if TYPE_CHECKING:
    from pathlib import Path

    from streamfactory.transfer.inputs import Input

FORMATS = ["csv", "jsonl", "parquet", "arrow", "arrows"]
ROWS = 5_000


def written(path: Path, table: pa.Table) -> Path:
    """A file of the format that its name says, in one batch where it has any."""
    match path.suffix:
        case ".csv":
            csv.write_csv(table, path)
        case ".jsonl":
            lines = [f'{{"id":{n}}}\n' for n in table.column("id").to_pylist()]
            path.write_text("".join(lines))
        case ".parquet":
            parquet.write_table(table, path)
        case ".arrow":
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table)
        case ".arrows":
            with pa.ipc.new_stream(path, table.schema) as writer:
                writer.write_table(table)
    return path


@pytest.fixture
def numbers(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    name = getattr(request, "param", "csv")
    return written(tmp_path / f"a.{name}", pa.table({"id": range(ROWS)}))


def stream(root: Path, **options: str) -> dict[str, str]:
    return {
        "streamType": "file",
        "stream.file.path": str(root),
        "stream.file.topic.name": "t",
        "stream.file.fsync": "never",
        "realtime.segment.flush.threshold.rows": "300",
        "realtime.segment.flush.threshold.time": "1h",
        **options,
    }


def epochs_of(root: Path) -> dict[int, int]:
    """Rows of each epoch, of the records of a topic."""
    store = DiskLogStore(LocalStorage(root), Settings())
    storage = store.open("t").storage
    found = [load_record(storage, n) for n in records(storage.names("log"))]
    states = [state for record in found for state in record.writers.values()]
    return {s.epoch: s.rows for s in states if s.epoch is not None}


def rows_of(properties: dict[str, str]) -> list[Any]:
    with streamfactory.open(properties) as opened:
        table = opened.to_reader().read_all()
    found: list[Any] = table.column("id").to_pylist()
    return found


@pytest.mark.parametrize("numbers", FORMATS, indirect=True)
def test_an_epoch_has_at_most_so_many_rows(tmp_path: Path, numbers: Path) -> None:
    properties = stream(tmp_path / "topics")
    with open_publisher(properties, [str(numbers)], writer_id="w") as publisher:
        done = publisher.run(threading.Event())
    assert (done.rows, done.epochs) == (ROWS, -(-ROWS // 300))
    # The first records are gone with the snapshots since.
    assert set(epochs_of(tmp_path / "topics").values()) <= {300, ROWS % 300}
    assert rows_of(properties) == [*range(ROWS)]


@pytest.mark.parametrize("numbers", FORMATS, indirect=True)
def test_a_stopped_run_continues_inside_a_batch(tmp_path: Path, numbers: Path) -> None:
    properties = stream(tmp_path / "topics")
    runs = 0
    while True:
        stop = threading.Event()

        def tell(rows: int, stop: threading.Event = stop) -> None:
            if rows >= 900:
                stop.set()

        with open_publisher(properties, [str(numbers)], writer_id="w") as publisher:
            done = publisher.run(stop, on_progress=tell)
        runs += 1
        assert done.rows <= 900
        if done.complete:
            break
    assert runs == -(-ROWS // 900)
    assert rows_of(properties) == [*range(ROWS)]


@pytest.mark.parametrize("numbers", ["csv", "arrow"], indirect=True)
def test_an_input_that_changed_is_refused_in_the_middle_of_a_batch(
    tmp_path: Path, numbers: Path
) -> None:
    properties, stop = stream(tmp_path / "topics"), threading.Event()
    with open_publisher(properties, [str(numbers)], writer_id="w") as publisher:
        publisher.run(
            stop, on_progress=lambda rows: stop.set() if rows >= 300 else None
        )
    written(numbers, pa.table({"id": range(1 if numbers.suffix == ".csv" else 0, 200)}))
    with (
        open_publisher(properties, [str(numbers)], writer_id="w") as publisher,
        pytest.raises(streamfactory.spi.PositionRefused),
    ):
        publisher.run(threading.Event())


def test_small_epochs_do_not_pile_up(tmp_path: Path) -> None:
    """What cuts epochs says nothing of which segments are merged."""
    path = written(tmp_path / "a.csv", pa.table({"id": range(3_000)}))
    for option in (
        {"realtime.segment.flush.threshold.rows": "10"},
        {
            "realtime.segment.flush.threshold.rows": "0",
            "realtime.segment.flush.threshold.segment.size": "80",
            "batch.rows": "10",
        },
    ):
        root = tmp_path / f"topics-{len(option)}"
        properties = stream(root, **{"stream.file.compaction.files": "8", **option})
        with open_publisher(properties, [str(path)]) as publisher:
            done = publisher.run(threading.Event())
        assert done.epochs >= 300 or len(option) > 1
        assert len(list(root.rglob("data/*.arrow"))) < 40
        assert rows_of(properties) == [*range(3_000)]


# --- inputs -------------------------------------------------------------------------


def everything(one: Input, most: int) -> tuple[list[Any], list[tuple[int, str, int]]]:
    """All rows, and where the input stood behind each piece."""
    schema = one.columns(10.0)
    assert schema is not None
    one.expect(schema)
    rows: list[Any] = []
    marks: list[tuple[int, str, int]] = []
    while not one.finished:
        piece = one.read(10.0, most)
        if piece is not None:
            assert 0 < piece.num_rows <= most
            rows += piece.to_pylist()
            marks.append((one.offset, one.digest(), len(rows)))
    return rows, marks


_VALUES = st.text(alphabet='a"\n,', max_size=6)


pieces = settings(
    max_examples=cases(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
inputs = {
    "values": st.lists(_VALUES, min_size=1, max_size=12),
    "most": st.integers(1, 5),
    "block": st.integers(20, 200),
}


def ids(values: list[str]) -> pa.Table:
    return pa.table({"id": [f"x{value}" for value in values]})


@pieces
@given(kind=st.sampled_from(["csv", "arrows", "parquet"]), **inputs)
def test_pieces_of_an_input_are_the_whole_and_go_on_anywhere(
    tmp_path: Path, values: list[str], most: int, block: int, kind: str
) -> None:
    table = ids(values)
    path = written(tmp_path / f"a.{kind}", table)
    check_pieces_are_the_whole(path, table, most, block)


@pieces
@given(**inputs)
def test_pieces_of_csv_without_a_last_line_end_are_the_whole(
    tmp_path: Path, values: list[str], most: int, block: int
) -> None:
    table = ids(values)
    path = written(tmp_path / "a.csv", table)
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    check_pieces_are_the_whole(path, table, most, block)


@pieces
@given(last=st.sampled_from(["", "\n"]), **inputs)
def test_pieces_of_json_lines_with_empty_ones_are_the_whole(
    tmp_path: Path, values: list[str], most: int, block: int, last: str
) -> None:
    table, path = ids(values), tmp_path / "a.jsonl"
    lines = [json.dumps(row) for row in table.to_pylist()]
    path.write_text("\n\n".join(lines) + last)
    check_pieces_are_the_whole(path, table, most, block)


def check_pieces_are_the_whole(
    path: Path, table: pa.Table, most: int, block: int
) -> None:
    options = InputOptions(block_size=block, batch_rows=4)
    opened = open_input(str(path), options=options)
    rows, marks = everything(opened, most)
    opened.close()
    assert rows == table.to_pylist()
    for offset, digest, taken in marks:
        again = open_input(str(path), options=options)
        schema = again.columns(10.0)
        assert schema is not None
        again.expect(schema)
        again.skip(offset, digest)
        assert (again.offset, again.digest()) == (offset, digest)
        left: list[Any] = []
        while not again.finished:
            piece = again.read(10.0, 1000)
            left += [] if piece is None else piece.to_pylist()
        again.close()
        assert left == rows[taken:]
