"""Logs of Delta tables that are damaged, mistyped or made to do harm."""

from __future__ import annotations

import json
import os
import struct
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyroaring import BitMap
from tests.tables.test_delta import (
    append,
    delete_by_vector,
    properties,
    read,
    rows_of,
    vector_of,
    z85,
)

import streamfactory
from streamfactory.backends.delta.actions import vector_of as parsed
from streamfactory.backends.delta.vectors import marked_rows
from streamfactory.spi import (
    ConfigError,
    CorruptData,
    FormatRefused,
    SchemaMismatch,
    StreamError,
)
from streamfactory.tables import TableFiles
from streamfactory.tables.storage import LocalFolder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streamfactory.backends.delta.actions import Vector

FIRST = {"stream__delta__start__commit": "1"}


def commit(path: Path, *actions: dict[str, Any], version: int = 1) -> Path:
    log = path / "_delta_log" / f"{version:020}.json"
    log.write_text("\n".join(json.dumps(action) for action in actions))
    return log


def reads_then(path: Path, change: Callable[[], object]) -> None:
    """Read the table, change it, and read the next commit."""
    with streamfactory.open(properties(path), follow=True) as stream:
        rows = iter(stream)
        next(rows)
        change()
        next(rows)


def an_add(table: Path, **changed: Any) -> dict[str, Any]:
    lines = (table / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    add = next(json.loads(line)["add"] for line in lines if '"add"' in line)
    return {"add": add | changed}


# --- the first commit -----------------------------------------------------------


@pytest.mark.parametrize("wrong", ["7", "2", "20", "-1", "1.0", "one", "9" * 30])
def test_a_start_at_a_version_that_the_table_does_not_have_is_refused(
    tmp_path: Path, wrong: str
) -> None:
    path = tmp_path / "table"
    write_deltalake(str(path), rows_of(1))
    append(path, 2)
    with pytest.raises(ConfigError, match="versions 0 to 1") as caught:
        streamfactory.open(
            properties(path, stream__delta__start__commit=wrong), follow=True
        )
    assert repr(wrong) in str(caught.value)
    assert "startingOffsets=latest" in str(caught.value)


def test_a_checkpoint_applies_before_a_start_that_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "table"
    write_deltalake(str(path), rows_of(1))
    with streamfactory.open(properties(path), follow=False) as stream:
        list(stream)
        at = stream.position
    append(path, 2)
    found = read(path, at, stream__delta__start__commit="12")
    assert [number for number, *_ in found] == [2]


# --- times ----------------------------------------------------------------------


def without_times(path: Path, *times: int) -> None:
    """Leave out when each commit was made; its file was written at the given time."""
    for version, time in enumerate(times):
        log = path / "_delta_log" / f"{version:020}.json"
        actions = map(json.loads, log.read_text().splitlines())
        kept = [json.dumps(one) for one in actions if "commitInfo" not in one]
        log.write_text("\n".join(kept))
        os.utime(log, (time, time))


def test_a_commit_without_a_time_has_that_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "table"
    write_deltalake(str(path), rows_of(1))
    append(path, 2)
    append(path, 3)
    first = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
    without_times(path, first, first + 60, first + 120)
    found = read(path, startingTimestamp=str((first + 30) * 1000))
    assert [number for number, *_ in found] == [2, 3]
    with streamfactory.open(
        properties(path, stream__delta__start__commit="1"), follow=False
    ) as stream:
        times = [row["_commit_time"] for b in stream for row in b.rows.to_pylist()]
    assert times[0] == datetime(2026, 1, 1, 0, 1, tzinfo=UTC)


@pytest.mark.parametrize("time", [10**18, -5, True, "now", None])
def test_a_time_that_is_none_is_that_of_the_file(tmp_path: Path, time: Any) -> None:
    path = tmp_path / "table"
    write_deltalake(str(path), rows_of(1))
    commit(path, {"commitInfo": {"timestamp": time}}, an_add(path))
    assert read(path, **FIRST) == [(1, "insert", 1)]


# --- partition values -----------------------------------------------------------


TYPED = {
    "ts": ("timestamp", pa.timestamp("us", tz="UTC"), "2024-01-02 03:04:05.000006"),
    "z": ("timestamp", pa.timestamp("us", tz="UTC"), "2024-01-02T03:04:05.000006Z"),
    "ntz": ("timestamp_ntz", pa.timestamp("us"), "2024-01-02 03:04:05"),
    "day": ("date", pa.date32(), "2024-01-02"),
    "price": ("decimal(10,2)", pa.decimal128(10, 2), "-1.25"),
    "flag": ("boolean", pa.bool_(), "true"),
    "ratio": ("double", pa.float64(), "0.5"),
    "count": ("integer", pa.int32(), "-7"),
    "name": ("string", pa.string(), "ü %2F"),
}


def partitioned(path: Path, kind: pa.DataType) -> None:
    values = pa.array([None], kind)
    rows = pa.table({"id": pa.array([1], pa.int64()), "part": values})
    write_deltalake(str(path), rows, partition_by=["part"])


@pytest.mark.parametrize("name", TYPED)
def test_partition_values_of_changes_are_those_of_the_snapshot(
    name: str, tmp_path: Path
) -> None:
    _, kind, text = TYPED[name]
    path = tmp_path / "table"
    partitioned(path, kind)
    commit(path, an_add(path, path="two.parquet", partitionValues={"part": text}))
    first = next(path.glob("part*/*.parquet"))
    (path / "two.parquet").write_bytes(first.read_bytes())

    def values(**options: str) -> set[Any]:
        with streamfactory.open(properties(path, **options), follow=False) as stream:
            return {row["part"] for b in stream for row in b.rows.to_pylist()}

    (value,) = values(**FIRST)
    assert value is not None
    assert values() == {value, None}
    if name in ("ts", "z"):
        assert value == datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC)


@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), pa.timestamp("us", "UTC")])
def test_an_empty_partition_value_is_null(kind: pa.DataType, tmp_path: Path) -> None:
    path = tmp_path / "table"
    partitioned(path, kind)
    commit(path, an_add(path, partitionValues={"part": ""}))
    with streamfactory.open(properties(path, **FIRST), follow=False) as stream:
        found = [row["part"] for b in stream for row in b.rows.to_pylist()]
    assert found == [None]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), "many"),
        (pa.int32(), "3000000000"),
        (pa.date32(), "2024-13-01"),
        (pa.timestamp("us", "UTC"), "yesterday"),
        (pa.bool_(), "perhaps"),
        (pa.decimal128(10, 2), "1.2.3"),
        (pa.decimal128(10, 2), "1e-1000000000"),
        (pa.decimal128(10, 2), "1e40"),
        (pa.int64(), {"a": 1}),
        (pa.string(), ["a"]),
        (pa.string(), 1),
    ],
)
def test_a_damaged_partition_value_is_corrupt_data(
    kind: pa.DataType, value: Any, tmp_path: Path
) -> None:
    path = tmp_path / "table"
    partitioned(path, kind)
    add = an_add(path, partitionValues={"part": value})
    with pytest.raises(CorruptData, match=r"commit 1 .* 'part'"):
        reads_then(path, lambda: commit(path, add))


# --- metadata -------------------------------------------------------------------


def struct_of(*names: str) -> str:
    field = {"type": "long", "nullable": True, "metadata": {}}
    fields = [{"name": name, **field} for name in names]
    return json.dumps({"type": "struct", "fields": fields})


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"schemaString": None},
        {"schemaString": "{"},
        {"schemaString": "[" * 10_000},
        {"schemaString": 7},
        {"schemaString": '{"type": "struct", "fields": [{"name": "id"}]}'},
        {"schemaString": struct_of("id"), "partitionColumns": ["day"]},
        {"schemaString": struct_of("id"), "partitionColumns": [{}]},
        {"schemaString": struct_of("id"), "partitionColumns": "id"},
        {"schemaString": struct_of("id"), "configuration": ["a"]},
        {"schemaString": struct_of("id"), "format": 7},
    ],
)
def test_damaged_metadata_is_corrupt_data(
    metadata: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "table"
    write_deltalake(str(path), rows_of(1))
    actions = {"metaData": {"id": _identity(path)} | metadata}, an_add(path)
    with pytest.raises(CorruptData, match="commit 1 of the table is damaged"):
        reads_then(path, lambda: commit(path, *actions))


def _identity(path: Path) -> str:
    lines = (path / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    found: str = next(
        json.loads(line)["metaData"]["id"] for line in lines if '"metaData"' in line
    )
    return found


@pytest.mark.parametrize(
    "add",
    [
        {},
        {"path": None},
        {"path": 3},
        {"path": "a", "partitionValues": "x"},
        {"path": "a", "stats": '{"numRecords": 4611686018427387904}'},
        {"path": "a", "stats": '{"numRecords": 3}', "deletionVector": "x"},
        {"path": "a", "stats": '{"numRecords": 3}', "deletionVector": {}},
    ],
)
def test_hostile_actions_are_typed_errors(add: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "table"
    write_deltalake(str(path), rows_of(1))
    action = {"add": {"dataChange": True} | add}
    with pytest.raises(StreamError) as caught:
        reads_then(path, lambda: commit(path, action))
    assert caught.value.code != "untranslated"


@pytest.mark.parametrize("text", ["\ud800", "x\udfff.parquet", "\ud800\ud800"])
def test_half_of_a_character_in_a_path_is_no_action(text: str, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"n": [1]}))
    commit(tmp_path, an_add(tmp_path, path=text))
    with pytest.raises(FormatRefused, match="line 1 is no action"):
        read(tmp_path)


@pytest.mark.parametrize("stats", ['{"numRecords": 0}', "{}", "[", None])
def test_rows_of_a_file_whose_count_is_not_known_are_read(
    stats: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "table"
    write_deltalake(str(path), rows_of(1, 2))
    commit(path, an_add(path, stats=stats))
    assert read(path, **FIRST) == [(1, "insert", 1), (2, "insert", 1)]


def test_a_feature_that_a_later_commit_requires_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table"
    write_deltalake(str(path), rows_of(1))
    features = ["futureFeature"]
    protocol = {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": features,
            "writerFeatures": features,
        }
    }
    with pytest.raises(FormatRefused, match="futureFeature"):
        reads_then(path, lambda: commit(path, protocol, an_add(path)))


# --- deletion vectors -----------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        {"cardinality": 3},
        {"cardinality": 1},
        {"cardinality": -1},
        {"cardinality": None},
        {"sizeInBytes": 4},
        {"sizeInBytes": True},
        {"pathOrInlineDv": "0"},
        {"pathOrInlineDv": "~" * 20},
        {"pathOrInlineDv": 12},
        {"pathOrInlineDv": z85(bytes(40))},
        {"storageType": "x"},
        {"storageType": None},
        {"storageType": "u", "pathOrInlineDv": "short"},
    ],
)
def test_a_damaged_deletion_vector_is_corrupt_data(
    changed: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "table"
    write_deltalake(str(path), rows_of(*range(10)))
    with pytest.raises(CorruptData, match="deletion vector"):
        # An upgrade of the protocol has `deltalake` parse the commit as well.
        reads_then(
            path, lambda: delete_by_vector(path, [1, 4], upgrade=False, **changed)
        )


def test_a_deletion_vector_that_marks_rows_beyond_the_file_is_corrupt_data(
    tmp_path: Path,
) -> None:
    path = tmp_path / "table"
    write_deltalake(str(path), rows_of(*range(10)))
    delete_by_vector(path, [1, 10])
    with pytest.raises(CorruptData, match=r"marks row 10 .* has 10 rows"):
        read(path, **FIRST)


def test_a_deletion_vector_in_another_folder_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table"
    write_deltalake(str(path), rows_of(*range(10)))
    for kind, text in (
        ("p", "/etc/passwd"),
        ("p", f"{tmp_path}/elsewhere"),
        ("u", "../" + z85(bytes(16))),
    ):
        delete_by_vector(path, [1], storageType=kind, pathOrInlineDv=text)
        with pytest.raises(FormatRefused, match="outside"):
            read(path, **FIRST)


def test_a_removed_file_of_deletion_vectors_is_a_loss(tmp_path: Path) -> None:
    path = tmp_path / "table"
    write_deltalake(str(path), rows_of(*range(10)))
    name: dict[str, Any] = {
        "storageType": "u",
        "pathOrInlineDv": z85(bytes(16)),
        "offset": 1,
    }
    delete_by_vector(path, [1], **name)
    with pytest.raises(StreamError, match="removed from the table's storage") as caught:
        read(path, **FIRST)
    assert caught.value.code == "data_loss"
    assert "deletion_vector_00000000" in str(caught.value)


def test_a_vector_states_its_size_before_it_is_expanded(tmp_path: Path) -> None:
    # Run containers: 2^32 rows in half a megabyte.
    containers = 1 << 16
    flags = b"\xff" * (containers // 8)
    header = b"".join(struct.pack("<HH", key, 0xFFFF) for key in range(containers))
    body = struct.pack("<IQI", 1681511377, 1, 0)
    body += struct.pack("<I", 12347 | (containers - 1) << 16) + flags + header
    body += bytes(4 * containers) + struct.pack("<HHH", 1, 0, 0xFFFF) * containers
    vector: dict[str, Any] = {
        "storageType": "i",
        "pathOrInlineDv": z85(body + bytes(-len(body) % 4)),
    }
    vector |= {"sizeInBytes": len(body), "cardinality": 5}
    files = TableFiles(LocalFolder(str(tmp_path), links=False), "t")
    with pytest.raises(CorruptData, match="more rows than the log states"):
        marked_rows(files, described(vector), str(tmp_path), 1 << 28)
    many = described(vector | {"cardinality": 1 << 32})
    with pytest.raises(FormatRefused, match="marks 4294967296 rows"):
        marked_rows(files, many, str(tmp_path), 1 << 28)


def described(vector: dict[str, Any]) -> Vector:
    found = parsed(vector)
    assert found is not None
    return found


@pytest.mark.parametrize("optimized", [False, True])
def test_vectors_are_read_as_roaring_bitmaps_are_written(
    optimized: bool, tmp_path: Path
) -> None:
    # Arrays, bits and runs, with one bitmap beyond 32 bits.
    low = (
        BitMap(range(100_000, 180_000)) | BitMap(range(0, 60_000, 3)) | BitMap([2**31])
    )
    low |= BitMap(range(400_000, 400_010)) | BitMap(range(1_000_000, 1_050_000, 2))
    high = BitMap([5, 7])
    parts = []
    for bitmap in (low, high):
        if optimized:
            bitmap.run_optimize()
        parts.append(bitmap.serialize())
    body = struct.pack("<IQ", 1681511377, 2)
    body += b"".join(struct.pack("<I", key) + p for key, p in enumerate(parts))
    vector = vector_of([1]) | {
        "pathOrInlineDv": z85(body + bytes(-len(body) % 4)),
        "sizeInBytes": len(body),
        "cardinality": len(low) + len(high),
    }
    files = TableFiles(LocalFolder(str(tmp_path), links=False), "t")
    found = marked_rows(files, described(vector), str(tmp_path), 1 << 28)
    assert found.tolist() == [*low, *(number + 2**32 for number in high)]


# --- data files that are not those of the log ---------------------------------------


TWO: Final = pa.table({"id": [1, 2]})


def _replaced(path: Path, file: pa.Table, table: pa.Table = TWO) -> None:
    """A table of one commit, whose data file another program has replaced."""
    write_deltalake(str(path), table)
    (one,) = path.glob("*.parquet")
    pq.write_table(file, one)


@pytest.mark.parametrize(
    ("file", "what"),
    [
        (pa.table({"ID": [1, 2]}), "column 'id' of the table is 'ID' in"),
        (pa.table([[1, 2], [3, 4]], names=["id", "id"]), "several columns 'id'"),
        (pa.table({"id": [True, False]}), "is boolean, and bigint in the table"),
        (
            pa.table({"id": pa.array([1, 2], pa.timestamp("us"))}),
            "is timestamp_ntz, and bigint in the table",
        ),
    ],
)
def test_columns_of_a_file_that_are_not_those_of_the_table_are_refused(
    file: pa.Table, what: str, tmp_path: Path
) -> None:
    _replaced(tmp_path / "table", file)
    with pytest.raises(SchemaMismatch, match=what):
        read(tmp_path / "table")


def in_struct(value: Any) -> Any:
    return {"s": value}


def in_list(value: Any) -> Any:
    return [value]


def in_map(value: Any) -> Any:
    return [("k", value)]


@pytest.mark.parametrize(
    ("kind", "within", "at"),
    [
        (lambda one: one, lambda one: one, "id.b"),
        (lambda one: pa.struct({"s": one}), in_struct, "id.s.b"),
        (pa.list_, in_list, "id.element.b"),
        (lambda one: pa.map_(pa.string(), one), in_map, "id.value.b"),
    ],
    ids=["struct", "struct in a struct", "list", "map"],
)
def test_fields_of_a_file_that_its_table_lacks_are_not_left_out(
    kind: Callable[[pa.DataType], pa.DataType],
    within: Callable[[Any], Any],
    at: str,
    tmp_path: Path,
) -> None:
    have, value = pa.struct({"a": pa.int64()}), {"a": 1}
    more = pa.struct({"a": pa.int64(), "b": pa.int64()})
    stated = pa.table({"id": pa.array([within(value)], kind(have))})
    file = pa.table({"id": pa.array([within({**value, "b": 2})], kind(more))})
    _replaced(tmp_path / "table", file, stated)
    with pytest.raises(SchemaMismatch, match=f"a field '{at}', which the table does"):
        read(tmp_path / "table")


def test_a_file_that_lacks_rows_is_corrupt_data(tmp_path: Path) -> None:
    _replaced(tmp_path / "table", pa.table({"id": [1]}))
    with pytest.raises(CorruptData, match="has 1 rows, not the 2 that its commit"):
        read(tmp_path / "table")
