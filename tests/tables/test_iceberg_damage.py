"""Metadata of Iceberg tables that is ambiguous, mistyped or made to do harm."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import tracemalloc
from collections import Counter
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.tables.states import Fixture
from tests.tables.test_iceberg import (
    append,
    catalog,
    create,
    properties,
    read,
)

import streamfactory
from streamfactory.spi import (
    ConfigError,
    CorruptData,
    DataLossError,
    FormatRefused,
    StreamError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyiceberg.catalog.memory import InMemoryCatalog
    from tests.tables.test_iceberg import Row

__all__ = ["catalog"]  # a fixture


def changed(file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the entries of a manifest."""
    reader = fastavro.reader(io.BytesIO(file.read_bytes()))
    records = list(reader)
    for record in records:
        assert isinstance(record, dict)
        change(record)
    kept = {k: v for k, v in reader.metadata.items() if not k.startswith("avro.")}
    written = io.BytesIO()
    fastavro.writer(written, reader.writer_schema, records, metadata=kept)
    file.write_bytes(written.getvalue())


def manifests(path: Path) -> list[Path]:
    return [
        file for file in (path / "metadata").glob("*.avro") if "snap-" not in file.name
    ]


# --- which metadata -------------------------------------------------------------


def test_two_metadata_files_of_one_number_are_ambiguous(
    catalog: InMemoryCatalog, tmp_path: Path
) -> None:
    path = create(catalog, "one", tmp_path)
    newest = max((path / "metadata").glob("*.metadata.json"))
    number = newest.name.partition("-")[0]
    shutil.copy(newest, newest.with_name(f"{number}-of-a-failed-commit.metadata.json"))
    with pytest.raises(FormatRefused, match="ambiguous") as caught:
        read(path)
    assert newest.name in str(caught.value)
    assert "catalog" in str(caught.value)
    # The next commit settles it.
    append(catalog, "one", 3)
    assert sorted(row["id"] for row in read(path)) == [1, 2, 3]


def test_a_compressed_copy_of_the_newest_metadata_is_ambiguous(tmp_path: Path) -> None:
    fixture = Fixture("iceberg-cow", tmp_path)
    fixture.show("insert")
    newest = max((fixture.folder / "metadata").glob("v*.metadata.json"))
    other = newest.with_name(newest.name.replace(".metadata", ".gz.metadata"))
    other.write_bytes(b"")
    with pytest.raises(FormatRefused, match="ambiguous"):
        read(fixture.folder)


def test_a_list_of_manifests_that_lists_itself_is_corrupt_data(tmp_path: Path) -> None:
    fixture = Fixture("iceberg-mor", tmp_path)
    fixture.show("insert")
    for file in (fixture.folder / "metadata").glob("snap-*.avro"):
        name = file.name

        def itself(entry: dict[str, Any], name: str = name) -> None:
            folder = entry["manifest_path"].rpartition("/")[0]
            entry["manifest_path"] = f"{folder}/{name}"

        changed(file, itself)
    with pytest.raises(CorruptData, match="metadata is damaged"):
        read(fixture.folder)


def test_damaged_manifests_are_corrupt_data_and_end_no_process(tmp_path: Path) -> None:
    fixture = Fixture("iceberg-mor", tmp_path)
    fixture.show("insert")
    (manifest,) = manifests(fixture.folder)
    damaged = []
    for file in (manifest, *(fixture.folder / "metadata").glob("snap-*.avro")):
        whole = file.read_bytes()
        at = whole.index(b"avro.codec")
        damaged += [
            (str(file), bad.hex(), whole.hex())
            for bad in (
                b"",
                whole[:40],
                whole[: len(whole) - 30],
                whole[:at] + b"\xff" * 20 + whole[at + 20 :],
                whole[: at - 1] + b"\xfe\xff\xff\xff\x0f" + whole[at:],
            )
        ]
    options = properties(fixture.folder)
    done = subprocess.run(
        [sys.executable, "-c", READ],
        input=json.dumps([options, damaged]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout.split() == ["corrupt_data"] * 10


READ = """
import json, pathlib, sys
import streamfactory

options, damaged = json.load(sys.stdin)
for name, bad, whole in damaged:
    pathlib.Path(name).write_bytes(bytes.fromhex(bad))
    try:
        with streamfactory.open(options) as stream:
            print(sum(batch.rows.num_rows for batch in stream))
    except streamfactory.StreamError as error:
        print(error.code)
    pathlib.Path(name).write_bytes(bytes.fromhex(whole))
"""


# --- the first commit -----------------------------------------------------------


@pytest.mark.parametrize("wrong", ["1", "0", "-1", "main", "9" * 19])
def test_a_start_at_a_snapshot_that_the_table_does_not_have_is_refused(
    wrong: str, catalog: InMemoryCatalog, tmp_path: Path
) -> None:
    path = create(catalog, "one", tmp_path)
    append(catalog, "one", 3)
    held = [s.snapshot_id for s in catalog.load_table("n.one").snapshots()]
    with pytest.raises(ConfigError, match=f"from {held[0]} to {held[1]}") as caught:
        streamfactory.open(properties(path, stream__iceberg__start__commit=wrong))
    assert repr(wrong) in str(caught.value)


def test_a_start_in_a_table_without_snapshots_is_refused(
    catalog: InMemoryCatalog, tmp_path: Path
) -> None:
    schema = pa.schema([pa.field("id", pa.int64())])
    catalog.create_table("n.none", schema, location=f"file://{tmp_path}/none")
    with pytest.raises(ConfigError, match="none yet"):
        read(tmp_path / "none", stream__iceberg__start__commit="12")


def test_a_checkpoint_applies_before_a_start_that_was_expired(
    catalog: InMemoryCatalog, tmp_path: Path
) -> None:
    path = create(catalog, "one", tmp_path)
    with streamfactory.open(properties(path)) as stream:
        list(stream)
        at = stream.position
    append(catalog, "one", 3)
    rows = read(path, at, stream__iceberg__start__commit="12")
    assert [row["id"] for row in rows] == [3]


# --- delete files ---------------------------------------------------------------


def merge_commit(tmp_path: Path) -> tuple[Fixture, Callable[..., list[Row]], set[Path]]:
    """A table at a merge, a reader of its changes, and the delete files it replaced."""
    fixture = Fixture("iceberg-mor", tmp_path)
    fixture.show("delete")
    before = set((fixture.folder / "data").rglob("*-deletes.parquet"))
    with streamfactory.open(properties(fixture.folder)) as stream:
        at = stream.position
    fixture.show("merge")

    def changes(**options: str) -> list[Row]:
        start = str(fixture.states[5].facts["snapshot"])
        more = {"stream__iceberg__start__commit": start, **options}
        return read(fixture.folder, None, **more)

    assert at
    return fixture, changes, before


def test_delete_files_that_were_removed_earlier_are_not_read(tmp_path: Path) -> None:
    fixture, changes, before = merge_commit(tmp_path)
    expected = Counter((row["id"], row["_change"]) for row in changes())
    assert expected[3, "delete"] == 0
    earlier = fixture.states[4].facts["snapshot"]
    removed = next(
        file
        for file in before
        for manifest in manifests(fixture.folder)
        if file.name.encode() in manifest.read_bytes() and "oslo" in str(file)
    )

    def change(entry: dict[str, Any]) -> None:
        found = entry["data_file"]["file_path"].endswith(removed.name)
        if entry["status"] == 2 and found:
            entry["snapshot_id"] = earlier

    for manifest in manifests(fixture.folder):
        changed(manifest, change)
    removed.unlink()
    found = Counter((row["id"], row["_change"]) for row in changes())
    # Nothing marks row 3 before the merge now, which marks it once more.
    assert found == expected + Counter({(3, "delete"): 1})


def test_a_removed_delete_file_is_a_loss_of_its_commit(tmp_path: Path) -> None:
    fixture, changes, before = merge_commit(tmp_path)
    new = set((fixture.folder / "data").rglob("*-deletes.parquet")) - before
    removed = min(new)
    removed.unlink()
    with pytest.raises(DataLossError, match=removed.name):
        changes()
    fixture.show("insert with the new column")
    removed.unlink(missing_ok=True)
    with pytest.raises(DataLossError, match=removed.name):
        changes()
    rows = changes(out__of__range="earliest")
    assert [row["id"] for row in rows] == [7]


@pytest.mark.parametrize(
    "rows",
    [
        {"file_path": ["a", None], "pos": pa.array([0, 1])},
        {"file_path": [None], "pos": pa.array([0])},
        {"file_path": ["a"], "pos": pa.array([None], pa.int64())},
        {"file_path": ["a"], "pos": ["first"]},
        {"file_path": pa.array([1]), "pos": pa.array([0])},
        {"file_path": ["a"]},
        {"pos": pa.array([0])},
    ],
)
def test_a_delete_file_with_nulls_or_other_columns_is_corrupt_data(
    rows: dict[str, Any], tmp_path: Path
) -> None:
    fixture = Fixture("iceberg-mor", tmp_path)
    fixture.show("delete")
    files = list((fixture.folder / "data").rglob("*-deletes.parquet"))
    marked = pq.read_table(files[0]).column("file_path")[0].as_py()
    if rows.get("file_path") and isinstance(rows["file_path"], list):
        rows = rows | {"file_path": [name and marked for name in rows["file_path"]]}
    for file in files:
        pq.write_table(pa.table(rows), file)
    start = str(fixture.states[4].facts["snapshot"])
    for options in ({}, {"stream__iceberg__start__commit": start}):
        with pytest.raises(CorruptData, match="no file of position deletes"):
            read(fixture.folder, None, **options)


def test_a_record_count_of_the_metadata_is_not_allocated(tmp_path: Path) -> None:
    fixture = Fixture("iceberg-mor", tmp_path)
    fixture.show("delete")

    def change(entry: dict[str, Any]) -> None:
        if entry["data_file"]["content"] == 0:
            entry["data_file"]["record_count"] = (1 << 31) - 1

    for manifest in manifests(fixture.folder):
        changed(manifest, change)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptData, match=r"has \d rows, not the 2147483647 that"):
            read(fixture.folder)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 28


def with_record_count(tmp_path: Path, count: int) -> tuple[Path, list[Row]]:
    fixture = Fixture("iceberg-mor", tmp_path)
    state = fixture.show("insert")

    def change(entry: dict[str, Any]) -> None:
        entry["data_file"]["record_count"] = count

    for manifest in manifests(fixture.folder):
        changed(manifest, change)
    return fixture.folder, state.rows


@pytest.mark.parametrize("count", [1, 1 << 62])
def test_a_record_count_that_is_wrong_is_a_typed_error(
    count: int, tmp_path: Path
) -> None:
    path, _ = with_record_count(tmp_path, count)
    with pytest.raises(StreamError) as caught:
        read(path)
    assert caught.value.code in ("corrupt_data", "unsupported")


@pytest.mark.parametrize("count", [-1, 0])
def test_rows_of_a_file_that_is_said_to_have_none_are_read(
    count: int, tmp_path: Path
) -> None:
    path, expected = with_record_count(tmp_path, count)
    assert sorted(r["id"] for r in read(path)) == [r["id"] for r in expected]


# --- data files without their partition columns ---------------------------------


def without_cities(path: Path) -> None:
    """Have the data files lack the partition column, as files from Hive do."""
    for file in (path / "data").rglob("*.parquet"):
        if not file.name.endswith("-deletes.parquet"):
            pq.write_table(pq.ParquetFile(file).read().drop_columns("city"), file)


def rename_city(path: Path) -> None:
    newest = max((path / "metadata").glob("v*.metadata.json"))
    body = json.loads(newest.read_text())
    later = json.loads(json.dumps(body["schemas"][-1]))
    later["schema-id"] += 1
    (field,) = (one for one in later["fields"] if one["name"] == "city")
    field["name"] = "town"
    body["schemas"].append(later)
    body["current-schema-id"] = later["schema-id"]
    newest.write_text(json.dumps(body))


def test_deleted_rows_have_the_partition_that_their_files_do_not_repeat(
    tmp_path: Path,
) -> None:
    fixture = Fixture("iceberg-mor", tmp_path)
    fixture.show("delete")
    start = str(fixture.states[4].facts["snapshot"])
    expected = read(fixture.folder, None, stream__iceberg__start__commit=start)
    without_cities(fixture.folder)
    rows = read(fixture.folder, None, stream__iceberg__start__commit=start)
    assert [(row["city"], row["_change"]) for row in rows] == [("oslo", "delete")]
    assert rows == expected


def test_partitions_have_their_names_as_of_the_commit(tmp_path: Path) -> None:
    fixture = Fixture("iceberg-mor", tmp_path)
    fixture.show("insert")
    start = str(fixture.states[1].facts["snapshot"])
    without_cities(fixture.folder)
    options = {"stream__iceberg__start__commit": start}
    with streamfactory.open(properties(fixture.folder, **options)) as stream:
        rename_city(fixture.folder)
        rows = [row for batch in stream for row in batch.rows.to_pylist()]
    cities = {1: "rome", 2: "rome", 3: "oslo", 4: "oslo"}
    assert {row["id"]: row["city"] for row in rows} == cities
