"""Delta tables as streams: snapshot, changes, positions, and what is refused."""

from __future__ import annotations

import json
import os
import string
import struct
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.tables.streams import table_properties

import streamfactory
from streamfactory.backends.delta.log import DeltaLog
from streamfactory.spi import (
    CorruptData,
    DataLossError,
    FormatRefused,
    IncarnationChanged,
    OffsetOutOfRange,
    StreamError,
    TopicNotFound,
    Unsupported,
)
from streamfactory.tables.places import TableFiles
from streamfactory.tables.storage import LocalFolder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FEED = {"delta.enableChangeDataFeed": "true"}
Row = tuple[Any, ...]


def rows_of(*numbers: int, **more: list[Any]) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64()), **more})


def append(path: Path, *numbers: int, **options: Any) -> None:
    write_deltalake(str(path), rows_of(*numbers), mode="append", **options)


def properties(path: Path, **options: str) -> dict[str, str]:
    return table_properties("delta", path, **options)


def read(path: Path, start: Any = None, **options: str) -> list[Row]:
    """Id, kind and commit of all rows up to the latest."""
    with streamfactory.open(
        properties(path, **options), start=start, follow=False
    ) as stream:
        return [
            (row["id"], row["_change"], int(row["_commit"]))
            for batch in stream
            for row in batch.rows.to_pylist()
        ]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Inserts (0, 1), an update of 2 (2), a delete of 1 (3), a compaction (4)."""
    path = tmp_path / "table"
    write_deltalake(str(path), rows_of(1, 2, 3), configuration=FEED)
    append(path, 4, 5)
    DeltaTable(str(path)).update(updates={"id": "id + 100"}, predicate="id = 2")
    DeltaTable(str(path)).delete("id = 1")
    DeltaTable(str(path)).optimize.compact()
    return path


def test_a_new_reader_gets_the_table_as_it_is_and_then_its_changes(
    table: Path,
) -> None:
    with streamfactory.open(properties(table), follow=True) as stream:
        found: list[Row] = []
        rows = _following(stream)
        while len(found) < 4:
            found.append(next(rows))
        assert sorted(found) == [(i, "insert", 4) for i in (3, 4, 5, 102)]
        DeltaTable(str(table)).delete("id = 3")
        append(table, 6)
        assert [next(rows), next(rows)] == [(3, "delete", 5), (6, "insert", 6)]


def _following(stream: Any) -> Iterator[Row]:
    for batch in stream:
        for row in batch.rows.to_pylist():
            yield row["id"], row["_change"], int(row["_commit"])


CHANGES = [
    *((i, "insert", 0) for i in (1, 2, 3)),
    *((i, "insert", 1) for i in (4, 5)),
    (2, "update_before", 2),
    (102, "update_after", 2),
    (1, "delete", 3),
]


def test_changes_are_read_from_a_commit(table: Path) -> None:
    found = read(table, stream__delta__start__commit="0")
    # Rows of one commit come as the files of the feed have them.
    assert [commit for _, _, commit in found] == [commit for *_, commit in CHANGES]
    assert sorted(found) == sorted(CHANGES)
    assert read(table, stream__delta__start__commit="2") == found[5:]


def test_the_same_offsets_are_the_same_rows_after_a_compaction_and_a_vacuum(
    tmp_path: Path,
) -> None:
    path = tmp_path / "table"
    write_deltalake(str(path), rows_of(1, 2))
    append(path, 3, 4)
    before = read(path)
    with streamfactory.open(properties(path), follow=False) as stream:
        start = stream.position
    DeltaTable(str(path)).optimize.compact()
    assert read(path, start) == before
    DeltaTable(str(path)).vacuum(
        retention_hours=0, dry_run=False, enforce_retention_duration=False
    )
    with pytest.raises(DataLossError, match="was removed from the table's storage"):
        read(path, start)
    # A new reader needs none of what was removed.
    assert sorted(i for i, _, _ in read(path)) == [1, 2, 3, 4]


def test_partition_columns_keep_type_and_value(tmp_path: Path) -> None:
    path = tmp_path / "table"
    names = ["a b", "ü/%2", None]
    days = pa.array([1, 2, None], pa.date32())
    data = pa.table({"id": [1, 2, 3], "name": names, "day": days})
    write_deltalake(str(path), data, partition_by=["name", "day"])
    with streamfactory.open(properties(path), follow=False) as stream:
        found = pa.Table.from_batches([batch.rows for batch in stream])
    wanted = data.select(["id", "name", "day"]).sort_by("id")
    assert found.select(["id", "name", "day"]).sort_by("id").equals(wanted)


def test_a_rewrite_without_the_feed_is_refused_and_reports_how_to_turn_it_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "table"
    write_deltalake(str(path), rows_of(1, 2))
    DeltaTable(str(path)).delete("id = 1")
    append(path, 3)
    with pytest.raises(Unsupported, match="commit 1 rewrites") as caught:
        read(path, stream__delta__start__commit="0")
    assert "delta.enableChangeDataFeed" in str(caught.value)
    # Appends are still possible.
    options = {"stream__delta__start__commit": "0", "stream__delta__changes": "appends"}
    assert [i for i, _, _ in read(path, **options)] == [1, 2, 3]


def test_a_missing_table_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(TopicNotFound, match="does not exist"):
        read(tmp_path / "none")


def test_a_folder_that_is_no_table_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(TopicNotFound, match="_delta_log"):
        read(tmp_path)


def test_a_table_of_another_format_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / ".hoodie").mkdir()
    with pytest.raises(FormatRefused, match="streamType=hudi"):
        read(tmp_path)


def test_a_checkpoint_of_another_table_is_refused(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for path in (one, other):
        write_deltalake(str(path), rows_of(1))
    with streamfactory.open(properties(one), follow=False) as stream:
        list(stream)
        position = stream.position
    with pytest.raises(IncarnationChanged):
        read(other, position)


def test_a_cleaned_commit_is_a_loss_with_its_offset(table: Path) -> None:
    DeltaTable(str(table)).create_checkpoint()
    append(table, 7)
    for version in range(4):
        (table / "_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises(OffsetOutOfRange) as caught:
        read(table, stream__delta__start__commit="1")
    assert caught.value.earliest is not None
    assert caught.value.offset is not None
    assert caught.value.offset < caught.value.earliest


@pytest.mark.parametrize("missed", [{1}, {1, 2}, {0, 1}])
def test_a_listing_that_missed_new_commits_loses_none(
    missed: set[int], table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder is listed in no order: it may have a later name, and no earlier one."""
    append(table, 5)
    append(table, 6)
    listed = TableFiles.sizes

    def sizes(files: TableFiles, folder: str) -> dict[str, int]:
        found = listed(files, folder)
        return {
            n: found[n] for n in found if n[:20] not in {f"{m:020}" for m in missed}
        }

    whole = read(table, "earliest")
    monkeypatch.setattr(TableFiles, "sizes", sizes)
    log = DeltaLog(TableFiles(LocalFolder(str(table), links=False), "t"), 1 << 20)
    assert log.oldest() == (0, True, True)
    assert read(table, "earliest") == whole


def test_paths_of_the_log_do_not_leave_the_table(tmp_path: Path) -> None:
    path = tmp_path / "table"
    write_deltalake(str(path), rows_of(1))
    (tmp_path / "secret.parquet").write_bytes(b"")
    log = path / "_delta_log" / f"{1:020}.json"
    for bad in ("../secret.parquet", "%2e%2e/secret.parquet", "/etc/passwd", "a//b"):
        add: dict[str, Any] = {"path": bad, "size": 1, "modificationTime": 1}
        add |= {"partitionValues": {}, "dataChange": True}
        log.write_text(json.dumps({"add": add}))
        with pytest.raises(FormatRefused, match="outside"):
            read(path, stream__delta__start__commit="1")


def test_a_log_file_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "table"
    write_deltalake(str(path), rows_of(1))
    log = path / "_delta_log" / f"{1:020}.json"
    with log.open("wb") as file:
        os.truncate(file.fileno(), 1 << 40)
    with pytest.raises(FormatRefused, match="1099511627776 bytes"):
        read(path, stream__delta__start__commit="1")


def test_a_damaged_data_file_is_corrupt_data(tmp_path: Path) -> None:
    path = tmp_path / "table"
    write_deltalake(str(path), rows_of(1))
    data = next(path.glob("*.parquet"))
    content = data.read_bytes()
    footer = len(content) - 8
    for bad in (
        b"",
        b"PAR1",
        content[:footer] + b"\xff\xff\xff\x7f" + b"PAR1",
        content[: len(content) // 2],
    ):
        data.write_bytes(bad)
        with pytest.raises(CorruptData, match="cannot be read"):
            read(path)


def test_limits_and_lag_count_rows_not_offsets(table: Path) -> None:
    from streamfactory.wiring.config.loading import load
    from streamfactory.wiring.microbatch import Planner
    from streamfactory.wiring.reading.source import Source

    options = {"stream__delta__start__commit": "0", "maxOffsetsPerTrigger": "3"}
    with closing(Source(load(properties(table, **options), "spark"))) as source:
        planner = Planner(source)
        at = planner.initial()
        counts = []
        while (end := planner.latest(at)) != at:
            (part,) = planner.ranges(at, end)
            counts.append(source.metadata.count(part.partition, part.start, part.end))
            at = end
        assert counts == [3, 3, 2]
        (lag,) = source.metadata.lag(streamfactory.Position()).values()
        assert lag == len(CHANGES)


def test_a_snapshot_is_cut_into_tasks_that_are_the_whole(tmp_path: Path) -> None:
    from streamfactory.wiring.config.loading import load
    from streamfactory.wiring.microbatch import Planner, read_range
    from streamfactory.wiring.reading.source import Source

    path = tmp_path / "table"
    for first in range(0, 90, 30):
        append(path, *range(first, first + 30))
    with closing(Source(load(properties(path, minPartitions="7"), "spark"))) as source:
        ranges = Planner(source).batch()
        assert len(ranges) == 7
        found: list[int] = []
        for one in ranges:
            with closing(source.reader(one.partition)) as reader:
                for batch in read_range(reader, one, timeout=30, clock=source.clock):
                    found += batch.rows.column("id").to_pylist()
    assert found == list(range(90))


def test_rows_of_deletion_vectors_are_left_out_of_a_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "table"
    write_deltalake(str(path), rows_of(*range(10)))
    delete_by_vector(path, [1, 4])
    assert [i for i, _, _ in read(path)] == [0, 2, 3, 5, 6, 7, 8, 9]
    with streamfactory.open(
        properties(path, **{"batch.rows": "3"}), follow=False
    ) as stream:
        found = [row for b in stream for row in b.rows.column("id").to_pylist()]
    assert found == [0, 2, 3, 5, 6, 7, 8, 9]


def test_rows_that_a_deletion_vector_marks_are_deleted(tmp_path: Path) -> None:
    path = tmp_path / "table"
    write_deltalake(str(path), rows_of(*range(10)))
    delete_by_vector(path, [1, 4])
    delete_by_vector(path, [4, 7, 8], before=[1, 4], version=2)
    found = read(path, stream__delta__start__commit="1")
    assert sorted(found) == [
        *[(1, "delete", 1), (1, "insert", 2), (4, "delete", 1)],
        *[(7, "delete", 2), (8, "delete", 2)],
    ]


def delete_by_vector(
    path: Path,
    rows: list[int],
    *,
    before: list[int] | None = None,
    version: int = 1,
    upgrade: bool = True,
    **changed: Any,
) -> None:
    """Commit a deletion vector for the only file, as Delta's protocol defines it."""
    log = path / "_delta_log"
    lines = (log / f"{0:020}.json").read_text().splitlines()
    add = next(json.loads(line)["add"] for line in lines if '"add"' in line)
    features = ["deletionVectors"]
    protocol: dict[str, Any] = {"minReaderVersion": 3, "minWriterVersion": 7}
    protocol |= {"readerFeatures": features, "writerFeatures": features}
    remove = {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}
    if before is not None:
        remove["deletionVector"] = vector_of(before)
    metadata = next(json.loads(line) for line in lines if '"metaData"' in line)
    metadata["metaData"]["configuration"] = FEED
    actions = [
        {"protocol": protocol},
        metadata,
        {"remove": remove},
        {"add": {**add, "deletionVector": vector_of(rows) | changed}},
    ]
    text = "\n".join(json.dumps(action) for action in actions[not upgrade :])
    (log / f"{version:020}.json").write_text(text)


def vector_of(rows: list[int]) -> dict[str, Any]:
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16)
    bitmap += struct.pack(f"<{len(rows)}H", *rows)
    body = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    padded = body + bytes(-len(body) % 4)
    return {
        "storageType": "i",
        "pathOrInlineDv": z85(padded),
        "sizeInBytes": len(body),
        "cardinality": len(rows),
    }


def z85(data: bytes) -> str:
    digits = string.digits + string.ascii_lowercase + string.ascii_uppercase
    digits += ".-:+=^!/*?&<>()[]{}@%$#"
    groups = (int.from_bytes(data[at : at + 4]) for at in range(0, len(data), 4))
    return "".join(
        "".join(digits[group // 85**power % 85] for power in (4, 3, 2, 1, 0))
        for group in groups
    )


def test_errors_of_a_stream_name_it(tmp_path: Path) -> None:
    with pytest.raises(StreamError) as caught:
        read(tmp_path / "none")
    assert caught.value.stream is not None


def test_96_bit_timestamps_have_years_after_2262(tmp_path: Path) -> None:
    """As Spark writes timestamps by default."""
    path = tmp_path / "t"
    time = datetime(9999, 12, 31, tzinfo=UTC)
    rows = pa.table({"at": pa.array([time], pa.timestamp("us", "UTC"))})
    write_deltalake(str(path), rows)
    [file] = path.glob("*.parquet")
    pq.write_table(rows, file, use_deprecated_int96_timestamps=True)
    with streamfactory.open(properties(path)) as stream:
        assert stream.to_reader().read_all().column("at").to_pylist() == [time]
