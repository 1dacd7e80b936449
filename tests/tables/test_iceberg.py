"""Iceberg tables as streams, on tables that Spark and ``pyiceberg`` wrote."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.tables.states import Fixture
from tests.tables.streams import table_properties

import streamfactory
from streamfactory.spi import (
    DataLossError,
    FormatRefused,
    IncarnationChanged,
    OffsetOutOfRange,
    TopicNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyiceberg.catalog.memory import InMemoryCatalog

    from streamfactory.spi import Position

Row = dict[str, Any]


def properties(path: Path, **options: str) -> dict[str, str]:
    return table_properties("iceberg", path, **options)


def read(path: Path, start: Position | None = None, **options: str) -> list[Row]:
    with streamfactory.open(properties(path, **options), start=start) as stream:
        return [row for batch in stream for row in batch.rows.to_pylist()]


def content(rows: list[Row]) -> Counter[tuple[Any, ...]]:
    return Counter((row["id"], row["name"], row["ts"]) for row in rows)


@pytest.mark.parametrize("name", ["iceberg-cow", "iceberg-mor"])
def test_a_snapshot_of_each_state_is_what_spark_read(name: str, tmp_path: Path) -> None:
    fixture = Fixture(name, tmp_path)
    for number in range(len(fixture.states)):
        state = fixture.show(number)
        rows = read(fixture.folder)
        assert content(rows) == content(state.rows), state.name
        assert {row["_change"] for row in rows} <= {"insert"}


@pytest.mark.parametrize("name", ["iceberg-cow", "iceberg-mor"])
def test_the_changes_of_all_commits_make_each_state(name: str, tmp_path: Path) -> None:
    fixture = Fixture(name, tmp_path)
    fixture.show(0)
    held: Counter[tuple[Any, ...]] = Counter()
    with streamfactory.open(properties(fixture.folder)) as stream:
        at = stream.position
    for number, _ in enumerate(fixture.states):
        state = fixture.show(number)
        with streamfactory.open(properties(fixture.folder), start=at) as stream:
            rows = [row for batch in stream for row in batch.rows.to_pylist()]
            at = stream.position
        for row in rows:
            change = 1 if row["_change"] == "insert" else -1
            held[row["id"], row["name"], row["ts"]] += change
        assert {key: n for key, n in held.items() if n} == content(state.rows)


def test_marked_rows_are_deleted_once(tmp_path: Path) -> None:
    # Spark's merge repeats, in a new delete file, what earlier ones mark.
    fixture = Fixture("iceberg-mor", tmp_path)
    fixture.show("insert")
    with streamfactory.open(properties(fixture.folder)) as stream:
        at = stream.position
    fixture.show("merge")
    deleted = [r["id"] for r in read(fixture.folder, at) if r["_change"] == "delete"]
    assert sorted(deleted) == [1, 2, 3, 4]


def test_a_compaction_has_no_rows(tmp_path: Path) -> None:
    fixture = Fixture("iceberg-cow", tmp_path)
    fixture.show("merge")
    with streamfactory.open(properties(fixture.folder)) as stream:
        list(stream)
        at = stream.position
    fixture.show("compaction")
    assert read(fixture.folder, at) == []


def test_only_appends_are_read_where_asked_for(tmp_path: Path) -> None:
    fixture = Fixture("iceberg-cow", tmp_path)
    fixture.show("insert")
    first = str(fixture.states[1].facts["snapshot"])
    fixture.show("merge")
    rows = read(
        fixture.folder,
        stream__iceberg__changes="appends",
        stream__iceberg__start__commit=first,
    )
    assert [row["id"] for row in rows] == [1, 2, 3, 4, 5]


def test_expired_snapshots_are_a_loss_with_offset(tmp_path: Path) -> None:
    fixture = Fixture("iceberg-mor", tmp_path)
    fixture.show("insert")
    with streamfactory.open(properties(fixture.folder)) as stream:
        list(stream)
        at = stream.position
    fixture.show("insert after expiry")
    with pytest.raises(OffsetOutOfRange) as caught:
        read(fixture.folder, at)
    assert caught.value.offset == next(iter(at.values()))
    assert caught.value.earliest is not None


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[InMemoryCatalog]:
    # Importing it takes a second, which each worker would spend.
    from pyiceberg.catalog.memory import InMemoryCatalog

    catalog = InMemoryCatalog("test", warehouse=f"file://{tmp_path}/lake")
    catalog.create_namespace("n")
    yield catalog
    catalog.close()


NUMBERS = pa.schema([pa.field("id", pa.int64())])


def create(catalog: InMemoryCatalog, name: str, tmp_path: Path) -> Path:
    path = tmp_path / name
    catalog.create_table(f"n.{name}", NUMBERS, location=f"file://{path}")
    append(catalog, name, 1, 2)
    return path


def append(catalog: InMemoryCatalog, name: str, *numbers: int) -> None:
    rows = pa.table([pa.array(numbers, pa.int64())], schema=NUMBERS)
    catalog.load_table(f"n.{name}").append(rows)


def test_a_missing_table_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(TopicNotFound, match="does not exist"):
        read(tmp_path / "none")
    with pytest.raises(TopicNotFound, match="no metadata folder"):
        read(tmp_path)


def test_a_table_of_another_format_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(FormatRefused, match="streamType=delta"):
        read(tmp_path)


def test_a_checkpoint_of_another_table_is_refused(
    catalog: InMemoryCatalog, tmp_path: Path
) -> None:
    one, other = (create(catalog, name, tmp_path) for name in ("one", "other"))
    with streamfactory.open(properties(one)) as stream:
        list(stream)
        at = stream.position
    with pytest.raises(IncarnationChanged):
        read(other, at)


def test_a_removed_data_file_is_a_loss_that_names_it(
    catalog: InMemoryCatalog, tmp_path: Path
) -> None:
    path = create(catalog, "one", tmp_path)
    removed = next((path / "data").glob("*.parquet"))
    removed.unlink()
    append(catalog, "one", 3)
    with pytest.raises(DataLossError, match=removed.name):
        read(path)
    rows = read(path, out__of__range="earliest")
    assert [row["id"] for row in rows] == [3]


def test_renamed_and_added_columns_are_matched_by_id(
    catalog: InMemoryCatalog, tmp_path: Path
) -> None:
    path = create(catalog, "one", tmp_path)
    with catalog.load_table("n.one").update_schema() as update:
        update.rename_column("id", "number")
    rows = pa.table({"number": pa.array([3], pa.int64())})
    catalog.load_table("n.one").append(rows)
    assert [row["number"] for row in read(path)] == [1, 2, 3]


def test_metadata_that_leads_out_of_the_table_is_refused(
    catalog: InMemoryCatalog, tmp_path: Path
) -> None:
    path = create(catalog, "one", tmp_path)
    newest = max((path / "metadata").glob("*.metadata.json"))
    body = json.loads(newest.read_text())
    for bad in (
        "/etc/passwd",
        f"file://{path}/../x.avro",
        "s3://elsewhere/x.avro",
        f"file://{path}",
    ):
        for snapshot in body["snapshots"]:
            snapshot["manifest-list"] = bad
        newest.write_text(json.dumps(body))
        with pytest.raises(FormatRefused, match="outside"):
            read(path)


def test_damaged_metadata_is_refused(catalog: InMemoryCatalog, tmp_path: Path) -> None:
    path = create(catalog, "one", tmp_path)
    newest = max((path / "metadata").glob("*.metadata.json"))
    for bad in ("", "{}", "[]", "[" * 100_000, '{"format-version": 9}'):
        newest.write_text(bad)
        with pytest.raises(FormatRefused, match="damaged"):
            read(path)


def test_metadata_beyond_the_limit_is_not_read(
    catalog: InMemoryCatalog, tmp_path: Path
) -> None:
    path = create(catalog, "one", tmp_path)
    newest = max((path / "metadata").glob("*.metadata.json"))
    with newest.open("ab") as file:
        file.truncate(1 << 40)
    with pytest.raises(FormatRefused, match="1099511627776 bytes"):
        read(path)
