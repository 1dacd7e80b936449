"""Iceberg tables as sinks: what differs from other tables, see `test_table_sinks`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.types import StringType
from tests.tables.lakes import ID, IcebergLake

import streamfactory
from streamfactory.backends.iceberg import expiring
from streamfactory.backends.iceberg.metadata import IcebergMetadata
from streamfactory.spi import (
    ConfigError,
    CorruptData,
    OffsetOutOfRange,
    Partition,
    Position,
    SchemaMismatch,
    TopicNotFound,
    Unsupported,
)
from streamfactory.wiring.config.configure import inspect
from streamfactory.wiring.config.definition import StreamDefinition
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.streams.opening import open_sink
from streamfactory.wiring.topics.admin import open_admin

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streamfactory.wiring.writing.sink import Sink


@pytest.fixture
def lake(tmp_path: Path) -> IcebergLake:
    return IcebergLake(tmp_path / "lake")


@pytest.fixture
def sink(lake: IcebergLake) -> Iterator[Sink]:
    with lake.sink() as opened:
        yield opened


# --- what is committed ----------------------------------------------------------------


def test_an_epoch_is_a_snapshot_with_its_writer_epoch_and_position(
    lake: IcebergLake, sink: Sink
) -> None:
    position = Position({Partition("a", 0): 7})
    sink.put({"id": [1, 2]}, writer_id="w", epoch=3, source_position=position)
    with lake.table() as table:
        snapshot = table.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        found = snapshot.summary.additional_properties
        assert "commit.retry.num-retries" not in table.properties
    assert found["added-records"] == "2"
    assert found["streamfactory.writer"] == "w"
    assert found["streamfactory.epoch"] == "3"
    assert found["streamfactory.position"] == position.to_json()


def test_a_committed_epoch_is_read_through_the_catalog_at_once(
    lake: IcebergLake, sink: Sink
) -> None:
    sink.put({"id": [0]}, writer_id="w")
    options = {"stream.iceberg.poll.interval.millis": "5"}
    with streamfactory.open({**lake.config, **options}, follow=True) as stream:
        assert next(iter(stream)).rows["id"].to_pylist() == [0]
        # By number it would be the newest metadata.
        orphan = next(
            (lake.folder / "shop" / "orders" / "metadata").glob("00002*.json")
        )
        (orphan.parent / "00009-x.metadata.json").write_text(orphan.read_text())
        sink.put({"id": [1]}, writer_id="w")
        assert next(iter(stream)).rows["id"].to_pylist() == [1]


def test_what_is_known_of_a_writer_outlives_its_snapshot(
    lake: IcebergLake, sink: Sink
) -> None:
    position = Position({Partition("a", 0): 7})
    sink.put({"id": [1]}, writer_id="w", epoch=5, source_position=position)
    for number in range(3):
        lake.append({"id": [number]})
    with lake.table() as table:
        later = datetime.now() + timedelta(days=1)  # noqa: DTZ005 - as pyiceberg's
        table.maintenance.expire_snapshots().older_than(later).commit()
        assert len(table.refresh().metadata.snapshots) == 1
    assert sink.put({"id": [1]}, writer_id="w", epoch=5) is False
    assert lake.last() == (5, position)
    assert lake.ids() == [0, 1, 1, 2]


def test_a_position_that_was_rolled_back_does_not_drop_later_epochs(
    lake: IcebergLake, sink: Sink
) -> None:
    """Rows that a rollback removed are not written again: docs/tables.md says so."""
    sink.put({"id": [0]}, writer_id="w", epoch=0)
    with lake.table() as table:
        first = table.metadata.current_snapshot_id
        assert first is not None
    sink.put({"id": [1]}, writer_id="w", epoch=1)
    with lake.table() as table:
        table.manage_snapshots().rollback_to_snapshot(first).commit()
    assert lake.ids() == [0]
    assert sink.put({"id": [1]}, writer_id="w", epoch=1) is False
    assert sink.put({"id": [2]}, writer_id="w", epoch=2)
    # Another writer id is another generation.
    assert sink.put({"id": [1]}, writer_id="w2", epoch=0)
    assert lake.ids() == [0, 1, 2]


def test_days_and_times_outside_of_the_years_of_python_are_written(
    lake: IcebergLake, sink: Sink
) -> None:
    ends = pa.array([2**63 - 1, -(2**63) + 1, 0])
    columns = {
        "id": pa.array([1, 2, 3]),
        "t": ends.view(pa.timestamp("us")),
        "z": ends.view(pa.timestamp("us", tz="UTC")),
        "d": pa.array([2**31 - 1, -(2**31), 0], pa.int32()).view(pa.date32()),
    }
    sink.put(pa.table(columns))
    with streamfactory.open(lake.config) as stream:
        found = stream.to_reader().read_all()
    for name, column in columns.items():
        assert found[name].combine_chunks().equals(column)
    with lake.table() as table:  # other columns have bounds
        assert len(list(table.scan(row_filter="id > 2").plan_files())) == 1
        assert not list(table.scan(row_filter="id > 3").plan_files())


def test_queries_skip_files_by_the_bounds_of_their_columns(
    lake: IcebergLake, sink: Sink
) -> None:
    sink.put({"id": [1, 2], "o": [{"x": "a"}, None]})
    sink.put({"id": [7, 9], "o": [{"x": "b"}, None]})
    with lake.table() as table:
        assert len(list(table.scan(row_filter="id > 2").plan_files())) == 1
        assert table.scan(row_filter="id > 2").to_arrow()["id"].to_pylist() == [7, 9]
        assert not list(table.scan(row_filter="id > 9").plan_files())


@pytest.mark.parametrize(
    "more", [{"a": {"b": 1}, "a.b": 2}, {"a.b": 2}], ids=["created", "evolved"]
)
def test_columns_whose_paths_are_the_same_are_refused(
    more: dict[str, Any], lake: IcebergLake
) -> None:
    with lake.sink(**{"schema.contract": "evolve"}) as sink:
        if "a" not in more:
            sink.put([{"a": {"b": 1}}])
        with pytest.raises(SchemaMismatch, match=r"a\.b") as caught:
            sink.put([more])
    assert "rename" in str(caught.value)


# --- others commit meanwhile ----------------------------------------------------------


def test_what_a_failed_commit_wrote_is_removed(
    lake: IcebergLake, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.put({"id": [0]}, writer_id="w")
    lake.disturb(monkeypatch, lambda: lake.append({"id": [7]}), 2)
    assert sink.put({"id": [1]}, writer_id="w")
    metadata = lake.folder / "shop" / "orders" / "metadata"
    with lake.table() as table:
        snapshots = {one.snapshot_id for one in table.metadata.snapshots}
    lists = {int(one.name.split("-")[1]) for one in metadata.glob("snap-*.avro")}
    assert lists == snapshots


def replace(lake: IcebergLake) -> None:
    """Another column of the same name and type."""
    with lake.table() as table:
        with table.update_schema(allow_incompatible_changes=True) as update:
            update.add_column("other", StringType())
            update.delete_column("id")
        with table.update_schema(allow_incompatible_changes=True) as update:
            update.add_column("id", table.schema().find_type("other"))


def test_a_column_that_is_changed_between_refuses_the_epoch(
    lake: IcebergLake, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = {"id": ["a"]}
    sink.put(text, writer_id="w")
    lake.disturb(monkeypatch, lambda: replace(lake))
    with pytest.raises(SchemaMismatch, match=r"column 'id' of the table was changed"):
        sink.put({"id": ["b"]}, writer_id="w")
    assert [row["id"] for row in lake.rows()] == [None]


# --- repeated, and lost ---------------------------------------------------------------


def test_a_damaged_record_of_a_writer_is_no_new_writer(
    lake: IcebergLake, sink: Sink
) -> None:
    sink.put({"id": [0]}, writer_id="w", epoch=0)
    with lake.table() as table, table.transaction() as transaction:
        transaction.set_properties({"streamfactory.writer.w": "{}"})
    with lake.sink() as again, pytest.raises(CorruptData, match="of a writer"):
        again.put({"id": [0]}, writer_id="w", epoch=0)
    assert lake.ids() == [0]


# --- what is refused ------------------------------------------------------------------


def test_partitions_of_nested_columns_are_refused(
    lake: IcebergLake, sink: Sink
) -> None:
    lake.create(pa.schema([("o", pa.struct([("x", pa.int64())]))]))
    with lake.table() as table, table.update_spec() as update:
        update.add_identity("o.x")
    with pytest.raises(Unsupported, match=r"of 'o\.x', which is within"):
        sink.put({"o": [{"x": 1}]})
    assert lake.rows() == []


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"path": "t"}, "a table is written through a catalog"),
        ({"table": "shop.orders"}, r"requires warehouse, catalog or catalog\.prop"),
        ({"table": "orders", "warehouse": "w"}, "with its namespace"),
        ({"table": "a.b", "warehouse": "w", "path": "t"}, "excludes table"),
        ({"table": "a.b", "warehouse": "s3://b/w"}, "no catalog of its own"),
        ({"table": "a.b", "catalog.prop.type": "other"}, "cannot be opened"),
    ],
)
def test_what_names_no_table_to_write_is_refused(
    given: dict[str, str], match: str
) -> None:
    config = {f"stream.iceberg.{key}": value for key, value in given.items()}
    with (
        pytest.raises(ConfigError, match=match),
        open_sink({"streamType": "iceberg", **config}) as sink,
    ):
        sink.put({"id": [1]})


@pytest.mark.parametrize("key", ["producer.key.columns", "stream.iceberg.partition.by"])
def test_options_of_a_sink_have_no_effect_on_a_path(key: str) -> None:
    path = {"streamType": "iceberg", "stream.iceberg.path": "t"}
    definition = StreamDefinition.of("orders", {**path, key: "id"})
    problems = inspect(definition, default_manager()).problems
    found = [(one.key, one.level, one.what) for one in problems]
    assert (key, "warning", "has no effect without table: a path is read only") in found


def test_a_stream_of_no_table_creates_nothing(lake: IcebergLake) -> None:
    with pytest.raises(TopicNotFound, match=lake.identifier):
        streamfactory.open(lake.config, follow=False).to_reader().read_all()
    assert not lake.folder.exists()


def test_secrets_of_a_catalog_stay_out_of_the_table(lake: IcebergLake) -> None:
    lake.folder.mkdir()
    properties = {
        "uri": f"sqlite:///{lake.folder}/catalog.db",
        "s3.secret-access-key": "planted-secret",
    }
    given = {f"stream.iceberg.catalog.prop.{k}": v for k, v in properties.items()}
    with open_sink({**lake.config, **given}) as sink:
        sink.put({"id": [1]}, writer_id="w")
        assert "planted-secret" not in repr(sink)
    written = [one for one in lake.folder.rglob("*") if one.is_file()]
    assert len(written) > 4
    assert not [one for one in written if b"planted-secret" in one.read_bytes()]
    assert lake.ids() == [1]


# --- old snapshots --------------------------------------------------------------------


def test_snapshots_that_another_program_expired_are_a_loss(lake: IcebergLake) -> None:
    """Of the first one that is left, pyiceberg removes the id of its parent."""
    lake.create(ID)
    lake.append({"id": [1]})
    at = lake.position_behind()
    for number in (2, 3, 4):
        lake.append({"id": [number]})
    assert lake.changes_since(at) == [2, 3, 4]
    with lake.table() as table:
        old = [one.snapshot_id for one in table.snapshots()[:2]]
        table.maintenance.expire_snapshots().by_ids(old).commit()
    with pytest.raises(OffsetOutOfRange):
        lake.changes_since(at)


def test_snapshots_before_a_reader_are_expired_with_their_files(
    lake: IcebergLake, sink: Sink
) -> None:
    for number in range(4):
        sink.put({"id": [number]}, writer_id="w")
    with open_admin(lake.config) as admin:
        admin.compact()
        behind = lake.position_behind()
        sink.put({"id": [4]}, writer_id="w")
        assert len(lake.data_files()) == 6
        admin.truncate({0: next(iter(behind.values()))})
    assert len(lake.data_files()) == 2
    assert lake.changes_since(behind) == [4]
    assert lake.ids() == [0, 1, 2, 3, 4]
    assert sink.put({"id": [0]}, writer_id="w", epoch=2) is False
    sink.put({"id": [5]}, writer_id="w")
    assert lake.changes_since(behind) == [4, 5]
    with lake.table() as table:
        assert all((one.sequence_number or 0) >= 6 for one in table.snapshots())
    for path in (lake.folder / "shop" / "orders" / "metadata").glob("*.avro"):
        assert str(path) in used_metadata(lake)


def test_an_expiry_reads_each_manifest_once(
    lake: IcebergLake, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        sink.put({"id": [number]})
    behind, read = lake.position_behind(), []
    real = IcebergMetadata.entries

    def counted(files: IcebergMetadata, manifest: Any, location: str) -> Any:
        read.append(manifest.manifest_path)
        return real(files, manifest, location)

    monkeypatch.setattr(IcebergMetadata, "entries", counted)
    with open_admin(lake.config) as admin:
        admin.truncate({0: next(iter(behind.values()))})
    assert len({*read}) == 4
    assert len(read) == 4


def used_metadata(lake: IcebergLake) -> str:
    """Names of lists of manifests, and of manifests, of all snapshots."""
    with lake.table() as table:
        lists = [one.manifest_list for one in table.snapshots()]
        manifests = [
            manifest.manifest_path
            for one in table.snapshots()
            for manifest in one.manifests(table.io)
        ]
    return " ".join([*lists, *manifests])


def test_an_expiry_behind_which_another_commit_came_is_computed_again(
    lake: IcebergLake, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        sink.put({"id": [number]})
    behind = lake.position_behind()
    real, left = expiring.files_of_expired, [None]

    def disturbed(*arguments: Any) -> Any:
        found = real(*arguments)
        if left:
            left.pop()
            lake.append({"id": [7]})
        return found

    place = "streamfactory.backends.iceberg.committing.files_of_expired"
    monkeypatch.setattr(place, disturbed)
    with open_admin(lake.config) as admin:
        admin.truncate({0: next(iter(behind.values()))})
    assert lake.ids() == [0, 1, 2, 7]
    assert lake.changes_since(behind) == [7]
