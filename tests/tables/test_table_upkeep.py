"""Upkeep of tables: they are created, and small files merged, without other rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.transforms import BucketTransform
from tests.proving.commands import command_of
from tests.tables.lakes import ID, DeltaLake, IcebergLake

import streamfactory
from streamfactory.cli.doctor import streams
from streamfactory.spi import MisuseError, StreamTimeout, Unsupported
from streamfactory.tables import committing, datafiles
from streamfactory.wiring.topics.admin import open_admin

if TYPE_CHECKING:
    from pathlib import Path

    from tests.tables.lakes import Lake


@pytest.fixture(params=[DeltaLake, IcebergLake], ids=lambda kind: kind.kind)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    made: Lake = request.param(tmp_path / "lake")
    return made


def facts(lake: Lake) -> dict[str, Any]:
    with open_admin(lake.config) as admin:
        return dict(admin.facts())


def compact(lake: Lake) -> None:
    with open_admin(lake.config) as admin:
        admin.compact()


def named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, str]
) -> None:
    """Make a stream the definition ``orders`` of a catalogue."""
    lines = [f'"{key}" = "{text}"' for key, text in config.items()]
    (folder / "orders.toml").write_text("\n".join(["[properties]", *lines]))
    monkeypatch.setenv("STREAMFACTORY_STREAMS", str(folder))


def test_small_files_are_merged_and_no_row_changes(lake: Lake) -> None:
    with lake.sink() as sink:
        for number in range(5):
            sink.put({"id": [number]}, writer_id="w")
        with streamfactory.open(lake.config, follow=True) as stream:
            batches = iter(stream)
            read = {next(batches).rows["id"][0].as_py() for _ in range(5)}
            assert read == {0, 1, 2, 3, 4}
            assert facts(lake)["files to compact"] == 5
            compact(lake)
            found = facts(lake)
            assert (found["files"], found["files to compact"]) == (1, 0)
            assert lake.ids() == [0, 1, 2, 3, 4]
            # A reader sees no change, and the writer goes on.
            sink.put({"id": [5]}, writer_id="w")
            assert next(batches).rows["id"].to_pylist() == [5]
    before = len(lake.data_files())
    compact(lake)
    compact(lake)
    assert facts(lake)["files"] == 1
    assert len(lake.data_files()) == before + 1


def test_partitions_are_merged_each_by_itself(lake: Lake) -> None:
    lake.config[f"stream.{lake.kind}.partition.by"] = "p"
    with lake.sink() as sink:
        sink.put({"id": [1, 2, 3], "p": ["a", "b", "c"]})
        sink.put({"id": [4], "p": ["a"]})
    assert facts(lake)["files to compact"] == 2
    compact(lake)
    assert facts(lake)["files"] == 3
    assert lake.ids() == [1, 2, 3, 4]


def test_more_partitions_than_files_may_be_open_are_merged_at_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datafiles, "_OPEN", 2)
    lake.config[f"stream.{lake.kind}.partition.by"] = "p"
    with lake.sink() as sink:
        for number in range(2):
            sink.put({"id": [number] * 3, "p": ["a", "b", "c"]})
    assert facts(lake)["files"] == 6
    compact(lake)
    assert (facts(lake)["files"], facts(lake)["files to compact"]) == (3, 0)
    assert lake.ids() == [0, 0, 0, 1, 1, 1]


def test_rows_that_compress_well_are_merged_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datafiles, "_LARGEST", 1 << 20)
    rows = pa.table({"id": pa.array(np.zeros(300_000, np.int64))})
    with lake.sink() as sink:
        sink.put(rows)
        sink.put(rows)
    compact(lake)
    assert (facts(lake)["files"], facts(lake)["files to compact"]) == (1, 0)
    assert len(lake.rows()) == 600_000


def test_partitions_that_change_between_are_those_of_the_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = IcebergLake(tmp_path)

    def divide() -> None:
        with lake.table() as table, table.update_spec() as update:
            update.add_field("id", BucketTransform(4), "id_bucket")

    with lake.sink() as sink:
        sink.put({"id": [1, 2]})
        sink.put({"id": [3]})
    before = len(lake.data_files())
    lake.disturb(monkeypatch, divide)
    compact(lake)
    assert lake.ids() == [1, 2, 3]
    with lake.table() as table:
        assert {one.file.spec_id for one in table.scan().plan_files()} == {1}
    # The first copies are removed.
    assert len(lake.data_files()) == before + facts(lake)["files"]


def test_a_compaction_that_others_always_precede_leaves_no_files(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lake.sink() as sink:
        sink.put({"id": [1]})
        sink.put({"id": [2]})
    before = lake.data_files()
    monkeypatch.setattr(committing, "_PATIENCE", 0.1)
    monkeypatch.setattr(lake.committing, "commit", lambda *_: False)
    with pytest.raises(StreamTimeout, match="the compaction"):
        compact(lake)
    assert sorted(lake.data_files()) == sorted(before)


def test_a_compaction_whose_answer_is_lost_removes_no_file(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lake.sink() as sink:
        sink.put({"id": [1]})
        sink.put({"id": [2]})
    lake.lose_an_answer(monkeypatch)
    compact(lake)
    assert lake.ids() == [1, 2]
    assert facts(lake)["files"] == 1


def test_a_commit_between_is_kept(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with lake.sink() as sink:
        sink.put({"id": [1]})
        sink.put({"id": [2]})
    before = len(lake.data_files())
    lake.disturb(monkeypatch, lambda: lake.append({"id": [7]}))
    compact(lake)
    assert lake.ids() == [1, 2, 7]
    assert facts(lake)["files"] == 2
    assert len(lake.data_files()) == before + 2  # written once


def test_rows_that_are_changed_between_are_not_restored(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lake.sink() as sink:
        sink.put({"id": [1, 2]})
        sink.put({"id": [3]})
    keyed = {**lake.config, "producer.key.columns": "id"}

    def delete() -> None:
        with streamfactory.open_sink(keyed) as other:
            other.put({"id": [1], "_change": ["delete"]})

    lake.disturb(monkeypatch, delete)
    compact(lake)
    assert lake.ids() == [2, 3]
    assert facts(lake)["files"] == 1


def test_a_table_is_created_once(lake: Lake) -> None:
    with open_admin(lake.config) as admin:
        admin.create(ID)
        with pytest.raises(MisuseError, match="exists"):
            admin.create(ID)
    assert lake.schema().names == ["id"]
    with lake.sink() as sink:
        sink.put(pa.table({"id": [1]}))
    assert lake.ids() == [1]


def test_a_table_that_was_changed_by_key_is_shown(
    lake: Lake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    keyed = {**lake.config, "producer.key.columns": "id"}
    with streamfactory.open_sink(keyed) as sink:
        for _ in range(2):
            sink.put({"id": [1]}, writer_id="w")
    named(tmp_path, monkeypatch, keyed)
    shown = command_of(capsys)("topics", "show", "orders")
    assert shown.status == 0
    assert "files to compact" in shown.out


def test_a_delta_table_that_is_only_read_has_no_facts(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    lake.create(ID)
    lake.table().alter.add_constraint({"c": "id > 0"})
    assert facts(lake) == {}
    with pytest.raises(Unsupported, match="check constraints"):
        compact(lake)


def test_doctor_counts_the_files_and_warns_of_many_that_can_be_merged(
    lake: Lake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with lake.sink() as sink:
        for number in range(3):
            sink.put({"id": [number]}, writer_id="w")
    named(tmp_path, monkeypatch, lake.config)
    command = command_of(capsys)
    out = command("doctor", "orders").out
    assert f"3 files of {facts(lake)['bytes']:,} bytes, of which 3 can be" in out
    assert "topics compact" not in out
    monkeypatch.setattr(streams, "_MANY", 3)
    assert "run: streamfactory topics compact orders" in command("doctor", "orders").out
    assert command("topics", "compact", "orders").status == 0
    out = command("doctor", "orders").out
    assert "1 file of " in out
    assert "topics compact" not in out
