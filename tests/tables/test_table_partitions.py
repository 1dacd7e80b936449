"""Partitioned tables: created by the option, written, updated by key, read again."""

from __future__ import annotations

import contextlib
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError
from pyiceberg.transforms import BucketTransform
from tests.tables.lakes import DeltaLake, IcebergLake

import streamfactory
from streamfactory.spi import ConfigError, SchemaMismatch, Unsupported
from streamfactory.spi.arrowjson import parse_schema

if TYPE_CHECKING:
    from pathlib import Path

    from tests.tables.lakes import Lake

AT = [datetime(2024, 5, day, 23, tzinfo=UTC) for day in (1, 1, 2, 2)]
ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4]),
        "city": ["rome", "oslo", "rome", None],
        "at": pa.array(AT, pa.timestamp("us", "UTC")),
        "o": [{"x": n} for n in range(4)],
    }
)


def partitioned(kind: type[Lake], folder: Path, by: str) -> Lake:
    lake = kind(folder)
    lake.config[f"stream.{lake.kind}.partition.by"] = by
    return lake


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.parametrize(
    ("kind", "by", "files"),
    [
        (DeltaLake, "city", 3),
        (DeltaLake, "at,city", 4),
        (IcebergLake, "city", 3),
        (IcebergLake, "day(at)", 2),
        (IcebergLake, "month(at),bucket[2](id)", 2),
        (IcebergLake, "truncate[1](city),hour(at)", 4),
    ],
)
def test_rows_are_divided_and_read_again(
    tmp_path: Path, kind: type[Lake], by: str, files: int
) -> None:
    lake = partitioned(kind, tmp_path, by)
    with lake.sink() as sink:
        sink.put(ROWS)
        assert len(lake.data_files()) == files
        assert by_id(lake.rows()) == ROWS.to_pylist()
        sink.put(ROWS)
    assert len(lake.rows()) == 8
    config = {**lake.config, f"stream.{lake.kind}.change.columns": "false"}
    with streamfactory.open(config, follow=False) as stream:
        read = stream.to_reader().read_all().select(ROWS.column_names)
    assert by_id(read.to_pylist()) == by_id(2 * ROWS.to_pylist())


@pytest.mark.parametrize("kind", [DeltaLake, IcebergLake])
def test_rows_move_between_partitions_by_key(tmp_path: Path, kind: type[Lake]) -> None:
    lake = partitioned(kind, tmp_path, "city")
    lake.config["producer.key.columns"] = "id"
    with lake.sink() as sink:
        sink.put(ROWS)
        sink.put({"id": [1, 4], "city": ["oslo", "rome"]})
        sink.put({"id": [3], "_change": ["delete"]})
    found = [(row["id"], row["city"]) for row in by_id(lake.rows())]
    assert found == [(1, "oslo"), (2, "oslo"), (4, "rome")]


def test_queries_of_iceberg_skip_partitions(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path)
    lake.config["stream.iceberg.partition.by"] = "day(at),bucket[64](id)"
    with lake.sink() as sink:
        sink.put(ROWS)
    with lake.table() as table:
        names = [field.name for field in table.spec().fields]
        assert names == ["at_day", "id_bucket"]
        plan = table.scan(row_filter="at >= '2024-05-02T00:00:00+00:00'").plan_files()
        assert len(list(plan)) == 2
        assert len(list(table.scan(row_filter="id = 3").plan_files())) == 1
        assert len(table.scan(row_filter="id = 3").to_arrow()) == 1


def test_partitions_that_change_meanwhile_refuse_the_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = IcebergLake(tmp_path)
    lake.config["stream.iceberg.partition.by"] = "city"

    def divide() -> None:
        with lake.table() as table, table.update_spec() as update:
            update.add_field("id", BucketTransform(4), "id_bucket")

    with lake.sink() as sink:
        sink.put(ROWS, writer_id="w")
        lake.disturb(monkeypatch, divide)
        with pytest.raises(SchemaMismatch, match="partitions of the table were chang"):
            sink.put(ROWS, writer_id="w", epoch=1)
        assert len(lake.rows()) == 4
        sink.put(ROWS, writer_id="w", epoch=1)
    assert len(lake.rows()) == 8
    # Files of the spec before are replaced, too.
    lake.config["producer.key.columns"] = "id"
    with lake.sink() as sink:
        sink.put(ROWS)
    assert by_id(lake.rows()) == ROWS.to_pylist()


@pytest.mark.parametrize(
    ("kind", "by", "error", "match"),
    [
        (DeltaLake, "town", SchemaMismatch, "'town', which is no column"),
        (DeltaLake, "city,city", SchemaMismatch, "cannot be partitioned"),
        (DeltaLake, "o", SchemaMismatch, "not written as text"),
        (IcebergLake, "town", ConfigError, "'town', which is no column"),
        (IcebergLake, "week(at)", ConfigError, "no transform"),
        (IcebergLake, "bucket[0](id)", ConfigError, "no transform"),
        (IcebergLake, "day(id)", Unsupported, "not written"),
        (IcebergLake, "o", Unsupported, "not written"),
    ],
)
def test_partitions_that_a_table_cannot_have_are_refused(
    tmp_path: Path, kind: type[Lake], by: str, error: type[Exception], match: str
) -> None:
    lake = partitioned(kind, tmp_path / "lake", by)
    with lake.sink() as sink, pytest.raises(error, match=match):
        sink.put(ROWS)
    assert not lake.folder.exists()


# --- an epoch that replaces the rows of its partitions --------------------------------


def replace_rows(lake: Lake, rows: pa.Table, scope: str = "partitions") -> None:
    options = {f"stream.{lake.kind}.overwrite": scope}
    batches = rows.combine_chunks().to_batches()
    with (
        lake.sink(**options) as sink,
        contextlib.closing(sink.committer(writer_id="r")) as committer,
    ):
        last = committer.last()
        epoch = 0 if last is None else last.epoch + 1
        with sink.writer(rows.schema, writer_id="r", epoch=epoch) as writer:
            for batch in batches:
                writer.write(batch)
            message = writer.commit()
        assert committer.commit(epoch, [message], replace_all=True)
        assert not committer.commit(epoch, [message], replace_all=True)


KINDS: dict[str, list[Any]] = {
    "bigint": [1, -2, None],
    "boolean": [True, False, None],
    "string": ["a", "%20 =/", None],
    "date": [date(2024, 2, 29), date(1969, 12, 31), None],
    "decimal(9, 2)": [Decimal("1.50"), Decimal("20.01"), None],
    "timestamp": [AT[0], datetime(1969, 1, 1, 0, 0, 0, 1, UTC), None],
}


def of_kind(kind: str, numbers: list[int], values: list[Any]) -> pa.Table:
    schema = parse_schema(f"id bigint, k {kind}")
    return pa.table([numbers, values], schema=schema)


@pytest.mark.parametrize("of", [*KINDS])
@pytest.mark.parametrize("kind", [DeltaLake, IcebergLake])
def test_rows_of_the_partitions_of_an_epoch_are_replaced(
    tmp_path: Path, kind: type[Lake], of: str
) -> None:
    lake, (one, two, none) = partitioned(kind, tmp_path, "k"), KINDS[of]
    with lake.sink() as sink:
        sink.put(of_kind(of, [1, 2, 3, 4], [one, two, none, one]))
        sink.put(of_kind(of, [5, 6], [two, none]))
    for number, value in ((7, one), (8, none)):
        replace_rows(lake, of_kind(of, [number], [value]))
    assert {row["id"]: row["k"] for row in by_id(lake.rows())} == {
        2: two,
        5: two,
        7: one,
        8: none,
    }
    replace_rows(lake, of_kind(of, [], []))
    assert lake.ids() == [2, 5, 7, 8]
    replace_rows(lake, of_kind(of, [9], [one]), "table")
    assert lake.ids() == [9]


@pytest.mark.parametrize(
    ("kind", "by", "left"),
    [
        (IcebergLake, "day(at)", [1, 2, 9]),
        (IcebergLake, "month(at)", [9]),
        (IcebergLake, "bucket[2](id),truncate[1](city)", [1, 2, 4, 9]),
        (DeltaLake, "city,at", [1, 2, 4, 9]),
    ],
)
def test_partitions_of_several_columns_and_transforms_are_replaced(
    tmp_path: Path, kind: type[Lake], by: str, left: list[int]
) -> None:
    """The row 9 is in the bucket of 3."""
    lake = partitioned(kind, tmp_path, by)
    with lake.sink() as sink:
        sink.put(ROWS)
    row = ROWS.slice(2, 1).set_column(0, "id", pa.array([9]))
    replace_rows(lake, row)
    assert lake.ids() == left


def test_a_value_that_another_program_spells_otherwise_is_the_same(
    tmp_path: Path,
) -> None:
    lake = partitioned(DeltaLake, tmp_path, "k")
    with lake.sink() as sink:
        sink.put(of_kind("decimal(9, 2)", [1, 2], [Decimal("1.50"), Decimal("2.50")]))
    assert isinstance(lake, DeltaLake)
    log = lake.path / "_delta_log" / f"{1:020}.json"
    assert '"1.50"' in log.read_text()
    log.write_text(log.read_text().replace('"k":"1.50"', '"k":"1.5"'))
    replace_rows(lake, of_kind("decimal(9, 2)", [3], [Decimal("1.50")]))
    try:
        found = lake.ids()
    except DeltaError:
        pytest.skip("deltalake 1.6.0 does not read the value, also of a removed file")
    assert found == [2, 3]


def test_without_partitions_all_rows_are_replaced(tmp_path: Path) -> None:
    for kind in (DeltaLake, IcebergLake):
        lake = kind(tmp_path / kind.kind)
        with lake.sink() as sink:
            sink.put({"id": [1, 2]})
        replace_rows(lake, pa.table({"id": [3]}))
        assert lake.ids() == [3]


def test_files_of_an_earlier_partition_spec_are_not_replaced(tmp_path: Path) -> None:
    lake = partitioned(IcebergLake, tmp_path, "city")
    assert isinstance(lake, IcebergLake)
    with lake.sink() as sink:
        sink.put(ROWS)
    with lake.table() as table, table.update_spec() as update:
        update.add_field("id", BucketTransform(2))
    with pytest.raises(Unsupported, match="an earlier partition spec"):
        replace_rows(lake, ROWS)
    assert lake.ids() == [1, 2, 3, 4]
