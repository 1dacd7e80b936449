"""Delta tables as sinks: what differs from other tables, see `test_table_sinks`."""

from __future__ import annotations

import contextlib
import json
import os
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.tables.lakes import ID, DeltaLake, staged
from tests.tables.streams import table_properties

import streamfactory
from streamfactory.spi import (
    CorruptData,
    Partition,
    Position,
    SchemaMismatch,
    StreamError,
    Unsupported,
)
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streamfactory.wiring.writing.sink import Sink


def sink_of(path: Path) -> Sink:
    return open_sink({"streamType": "delta", "stream.delta.path": str(path)})


def ids(path: Path) -> list[int]:
    """Read by deltalake."""
    found: list[int] = DeltaTable(str(path)).to_pyarrow_table()["id"].to_pylist()
    return sorted(found)


@pytest.fixture
def lake(tmp_path: Path) -> DeltaLake:
    return DeltaLake(tmp_path)


@pytest.fixture
def path(lake: DeltaLake) -> Path:
    return lake.path


@pytest.fixture
def sink(lake: DeltaLake) -> Iterator[Sink]:
    with lake.sink() as opened:
        yield opened


# --- what is committed ----------------------------------------------------------------


def test_an_epoch_is_a_commit_with_its_writer_epoch_and_position(
    path: Path, sink: Sink
) -> None:
    position = Position({Partition("a", 0): 7})
    sink.put({"id": [1, 2]}, writer_id="w", epoch=3, source_position=position)
    table = DeltaTable(str(path))
    assert table.transaction_version("w") == 3
    info = table.history(1)[0]["streamfactory"]
    assert info == {"writer": "w", "epoch": 3, "position": position.to_json()}


def test_what_is_known_of_a_writer_outlives_the_log_of_its_commit(
    path: Path, sink: Sink
) -> None:
    position = Position({Partition("a", 0): 7})
    sink.put({"id": [1]}, writer_id="w", epoch=5, source_position=position)
    for number in range(3):
        write_deltalake(str(path), pa.table({"id": [number]}), mode="append")
    DeltaTable(str(path)).create_checkpoint()
    commits = sorted((path / "_delta_log").glob("*.json"))
    for commit in commits[:-1]:
        commit.unlink()
    with (
        sink_of(path) as again,
        contextlib.closing(again.committer(writer_id="w")) as committer,
    ):
        last = committer.last()
        assert last is not None
        assert (last.epoch, last.source_position) == (5, position)


def test_a_table_that_forgets_writers_takes_rows_without_a_writer_id_only(
    path: Path,
) -> None:
    """Its checkpoints leave out what the log has of writers, after a while."""
    name = "delta.setTransactionRetentionDuration"
    DeltaTable.create(str(path), ID, configuration={name: "interval 30 days"})
    with sink_of(path) as sink:
        with pytest.raises(Unsupported, match="forgets the epochs of writers"):
            sink.put({"id": [1]}, writer_id="w", epoch=0)
        sink.put({"id": [2]})
    assert ids(path) == [2]


def test_a_sink_whose_log_was_cleaned_meanwhile_continues(
    path: Path, sink: Sink
) -> None:
    sink.put({"id": [0]}, writer_id="w")
    for number in range(1, 4):
        write_deltalake(str(path), pa.table({"id": [number]}), mode="append")
    DeltaTable(str(path)).create_checkpoint()
    for commit in sorted((path / "_delta_log").glob("*.json"))[:-1]:
        commit.unlink()
    sink.put({"id": [4]}, writer_id="w")
    assert ids(path) == [0, 1, 2, 3, 4]


def test_a_hundred_commits_make_a_checkpoint(path: Path, sink: Sink) -> None:
    for number in range(100):
        sink.put({"id": [number]})
    names = [one.name for one in (path / "_delta_log").glob("*.checkpoint.parquet")]
    assert names == [f"{100:020}.checkpoint.parquet"]
    sink.put({"id": [100]}, writer_id="w")
    with sink_of(path) as again:
        assert again.put({"id": [0]}, writer_id="w", epoch=0) is False
    assert ids(path) == list(range(101))


def test_only_one_record_of_a_writer_is_kept(path: Path, sink: Sink) -> None:
    for number in range(5):
        sink.put({"id": [number]}, writer_id="w")
    assert len(list((path / "_streamfactory").iterdir())) == 1


# --- others commit meanwhile ----------------------------------------------------------


@pytest.mark.parametrize(
    "other", [pa.table({"id": ["text"]}), pa.table({"another": [1]})]
)
def test_a_column_that_is_changed_between_refuses_the_epoch(
    lake: DeltaLake,
    path: Path,
    sink: Sink,
    monkeypatch: pytest.MonkeyPatch,
    other: pa.Table,
) -> None:
    sink.put({"id": [0]}, writer_id="w")
    lake.disturb(
        monkeypatch,
        lambda: write_deltalake(
            str(path), other, mode="overwrite", schema_mode="overwrite"
        ),
    )
    with pytest.raises(SchemaMismatch, match=r"column 'id' of the table was changed"):
        sink.put({"id": [1]}, writer_id="w")
    assert DeltaTable(str(path)).to_pyarrow_table().equals(other)


# --- repeated, and lost ---------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["../../etc/passwd", "/etc/passwd", "part-0.parquet", "a/part-0.parquet", ""],
)
def test_a_message_that_names_another_file_is_refused(
    name: str, path: Path, sink: Sink
) -> None:
    message = staged(sink, 0, [1])
    message.payload["files"][0]["path"] = name
    with contextlib.closing(sink.committer(writer_id="w")) as committer:
        for call in (committer.commit, committer.abort):
            with pytest.raises(CorruptData, match=r"no name of a data file"):
                call(0, [message])
    assert ids(path) == []


def test_a_record_that_was_removed_is_no_new_writer(path: Path, sink: Sink) -> None:
    sink.put({"id": [0]}, writer_id="w", epoch=0)
    for file in (path / "_streamfactory").iterdir():
        file.unlink()
    with sink_of(path) as again, pytest.raises(CorruptData, match="last epoch"):
        again.put({"id": [0]}, writer_id="w", epoch=0)
    assert ids(path) == [0]


# --- partitions -----------------------------------------------------------------------


def test_rows_go_to_the_partitions_of_a_table_that_has_some(path: Path) -> None:
    schema = pa.schema(
        [("id", pa.int64()), ("city", pa.string()), ("day", pa.date32())]
    )
    DeltaTable.create(str(path), schema, partition_by=["city", "day"])
    rows = [
        {"id": n, "city": city, "day": day}
        for n, (city, day) in enumerate(
            (city, day)
            for city in ("rome", None, "a/b c%é")
            for day in (date(2024, 5, 1), None, date(9999, 12, 31))
        )
    ]
    with sink_of(path) as sink:
        sink.put(rows + rows)
    table = DeltaTable(str(path))
    found = table.to_pyarrow_table().sort_by("id").to_pylist()
    assert found == sorted(rows + rows, key=lambda row: int(str(row["id"])))
    assert len(table.file_uris()) == len(rows)
    one = table.to_pyarrow_table(filters=[("city", "=", "rome")])
    assert sorted(one["id"].to_pylist()) == [0, 0, 1, 1, 2, 2]
    at = table_properties("delta", path, stream__delta__change__columns="false")
    with streamfactory.open(at, follow=False) as stream:
        seen = [row for batch in stream for row in batch.rows.to_pylist()]
    assert sorted(seen, key=lambda row: row["id"]) == found
    with sink_of(path) as sink, pytest.raises(SchemaMismatch, match="empty text"):
        sink.put({"id": [1], "city": [""]})


def test_partitions_whose_names_are_too_long_for_folders_have_none(path: Path) -> None:
    cities = ["x" * 300, "rome"]
    rows = [{"id": n, "city": city} for n, city in enumerate(cities)]
    config = {"streamType": "delta", "stream.delta.path": str(path)}
    with open_sink({**config, "stream.delta.partition.by": "city"}) as sink:
        sink.put(rows)
    found = DeltaTable(str(path)).to_pyarrow_table().sort_by("id").to_pylist()
    assert found == rows
    assert len([*path.glob("*.parquet")]) == 1
    assert len([*path.glob("city=rome/*.parquet")]) == 1


# --- what is refused ------------------------------------------------------------------


def refused(path: Path, match: str) -> None:
    with sink_of(path) as sink, pytest.raises(Unsupported, match=match):
        sink.put({"id": [1]})


def test_tables_whose_rows_are_checked_by_writers_are_refused(path: Path) -> None:
    write_deltalake(str(path), pa.table({"id": [1]}))
    DeltaTable(str(path)).alter.add_constraint({"positive": "id > 0"})
    refused(path, "check constraints")


@pytest.mark.parametrize("feature", ["rowTracking", "inCommitTimestamp", "unknown"])
def test_features_that_a_writer_does_not_have_are_refused(
    path: Path, feature: str
) -> None:
    write_deltalake(str(path), pa.table({"id": [1]}))
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7}
    action = {"protocol": {**protocol, "writerFeatures": [feature]}}
    commit = path / "_delta_log" / f"{1:020}.json"
    commit.write_text(json.dumps(action))
    refused(path, feature)


def test_errors_of_a_sink_are_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with (
        sink_of(tmp_path / "file" / "t") as sink,
        pytest.raises(StreamError, match="file"),
    ):
        sink.put({"id": [1]})


def test_small_decimals_of_partitions_are_written_without_an_exponent(
    path: Path,
) -> None:
    kind = pa.decimal128(20, 10)
    schema = pa.schema([("k", kind), ("id", pa.int64())])
    DeltaTable.create(str(path), schema, partition_by=["k"])
    values = [Decimal("1E-10"), Decimal("0E-10"), None, Decimal("12.5")]
    with sink_of(path) as sink:
        sink.put(pa.record_batch([pa.array(values, kind), [0, 1, 2, 3]], schema=schema))
    found = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    assert {row["id"]: row["k"] for row in found} == dict(enumerate(values))


def test_a_writer_named_like_a_pointer_hides_no_other_writer(sink: Sink) -> None:
    for writer in ("w", "streamfactory:w", "streamfactory:streamfactory:w"):
        assert sink.put({"id": [1]}, writer_id=writer, epoch=5)
    for writer in ("w", "streamfactory:w"):
        assert not sink.put({"id": [1]}, writer_id=writer, epoch=5)
        assert sink.put({"id": [2]}, writer_id=writer, epoch=6)


def test_an_absurd_checkpoint_interval_fails_no_commit(path: Path) -> None:
    DeltaTable.create(str(path), ID)
    log = path / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            options = line["metaData"]["configuration"]
            options["delta.checkpointInterval"] = "1" * 5000
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with sink_of(path) as sink:
        sink.put({"id": [1]})
    assert ids(path) == [1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_commit_after_a_fork_is_there_without_its_checkpoint(path: Path) -> None:
    """The library of checkpoints panics in a child of a process that has used it."""
    configuration = {"delta.checkpointInterval": "1"}
    DeltaTable.create(str(path), ID, configuration=configuration)
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException), sink_of(path) as sink:
            sink.put({"id": [1]})
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert ids(path) == [1]
    assert not [*(path / "_delta_log").glob("*.checkpoint.parquet")]
