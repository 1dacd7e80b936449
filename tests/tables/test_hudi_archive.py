"""Hudi tables whose commits are archived while a reader follows them."""

from __future__ import annotations

import io
import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.tables.states import Fixture
from tests.tables.streams import table_properties

import streamfactory
from streamfactory.spi import CorruptData, DataLossError, OffsetOutOfRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from streamfactory import Stream

NAMES = ["hudi-archived", "hudi-archived-6"]
DEADLINE = 60.0
Row = dict[str, Any]


@contextmanager
def following(path: Path, **options: str) -> Iterator[Stream]:
    """A reader that stays open while the table changes."""
    properties = table_properties("hudi", path, **options)
    with streamfactory.open(properties, follow=True) as stream:
        yield stream


def read(stream: Stream, rows: int) -> list[Row]:
    """As many rows, from a stream that is followed."""
    found: list[Row] = []
    deadline = time.monotonic() + DEADLINE
    while len(found) < rows:
        assert time.monotonic() < deadline, found
        batch = stream.next_batch(1.0)
        found += [] if batch is None else batch.rows.to_pylist()
    return found


def hudi_files(fixture: Fixture, folder: str, pattern: str) -> list[Path]:
    return sorted((fixture.folder / ".hoodie" / folder).glob(pattern))


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_that_follows_gets_commits_that_were_archived_meanwhile(
    name: str, tmp_path: Path
) -> None:
    fixture = Fixture(name, tmp_path)
    fixture.show("insert 1")
    with following(fixture.folder) as stream:
        assert [row["id"] for row in read(stream, 1)] == [1]
        state = fixture.show("insert 8")
        rows = read(stream, 7)
    commits = {row["id"]: row["_hoodie_commit_time"] for row in state.rows}
    assert [(row["id"], row["_commit"]) for row in rows] == [
        (number, commits[number]) for number in range(2, 9)
    ]
    active = {
        path.name.partition("_")[0].partition(".")[0]
        for path in (fixture.folder / ".hoodie").rglob("*.commit")
    }
    assert commits[2] not in active
    assert {row["_change"] for row in rows} == {"insert"}


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_gets_archived_commits_one_archival_after_another(
    name: str, tmp_path: Path
) -> None:
    # Each state has another list of archived files; later ones merge earlier ones.
    fixture = Fixture(name, tmp_path)
    fixture.show("insert 1")
    with following(fixture.folder) as stream:
        found = read(stream, 1)
        for number in (4, 5, 6, 7, 8):
            fixture.show(f"insert {number}")
            found += read(stream, number - len(found))
    assert [row["id"] for row in found] == list(range(1, 9))


def test_an_archived_commit_whose_files_were_cleaned_is_a_loss(tmp_path: Path) -> None:
    fixture = Fixture("hudi-cow", tmp_path)
    state = fixture.show("upsert and clean")
    with following(fixture.folder) as stream:
        read(stream, len(state.rows))
        fixture.show("after rollback")
        with pytest.raises(DataLossError) as caught:
            read(stream, 100)
    error = caught.value
    assert "removed from the table's storage" in error.what
    assert error.stream
    assert error.offset is not None
    assert "out.of.range" in str(error)


def test_with_a_policy_an_archived_commit_that_is_cleaned_is_a_recorded_loss(
    tmp_path: Path,
) -> None:
    fixture = Fixture("hudi-cow", tmp_path)
    state = fixture.show("upsert and clean")
    with following(fixture.folder, out__of__range="earliest") as stream:
        read(stream, len(state.rows))
        fixture.show("upsert and archive")
        rows = read(stream, 2)
        assert "was removed from the table's storage" in str(stream.counters.losses)
    assert [row["id"] for row in rows] == [8, 4]


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_whose_commit_is_neither_listed_nor_archived_has_a_loss(
    name: str, tmp_path: Path
) -> None:
    fixture = Fixture(name, tmp_path)
    fixture.show("insert 1")
    with following(fixture.folder) as stream:
        read(stream, 1)
        fixture.show("insert 8")
        folder = "history" if name.endswith("6") else "timeline/history"
        for path in hudi_files(fixture, folder, "*"):
            path.unlink()
        with pytest.raises(DataLossError, match="rolled back, or the archive is cut"):
            read(stream, 7)


@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_archive_is_corrupt_data_and_no_commit_is_left_out(
    name: str, tmp_path: Path
) -> None:
    fixture = Fixture(name, tmp_path)
    fixture.show("insert 1")
    with following(fixture.folder) as stream:
        read(stream, 1)
        fixture.show("insert 8")
        old = name.endswith("6")
        folder = "history" if old else "timeline/history"
        for path in hudi_files(fixture, folder, ".commits*" if old else "*.parquet"):
            path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(CorruptData):
            read(stream, 7)


def test_a_block_of_the_archive_that_counts_headers_without_end_is_refused(
    tmp_path: Path,
) -> None:
    fixture = Fixture("hudi-archived-6", tmp_path)
    fixture.show("insert 1")
    with following(fixture.folder) as stream:
        read(stream, 1)
        fixture.show("insert 8")
        first = hudi_files(fixture, "history", ".commits*")[0]
        content = bytearray(first.read_bytes())
        content[22:26] = b"\xff" * 4  # behind magic, length, version and type
        first.write_bytes(content)
        began = time.monotonic()
        with pytest.raises(CorruptData, match="archived timeline"):
            read(stream, 7)
    assert time.monotonic() - began < DEADLINE


def test_a_block_of_the_archive_that_is_being_written_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixture = Fixture("hudi-archived-6", tmp_path)
    fixture.show("insert 1")
    with following(fixture.folder) as stream:
        read(stream, 1)
        fixture.show("insert 8")
        last = hudi_files(fixture, "history", ".commits*")[-1]
        content = last.read_bytes()
        last.write_bytes(content[:-100])
        waited: list[float] = []

        def wait(seconds: float) -> None:
            waited.append(seconds)
            last.write_bytes(content)

        monkeypatch.setattr("streamfactory.backends.hudi.archive.sleep", wait)
        rows = read(stream, 7)
    assert [row["id"] for row in rows] == list(range(2, 9))
    assert len(waited) == 1


def test_an_archive_without_the_manifest_that_it_names_is_corrupt_data(
    tmp_path: Path,
) -> None:
    fixture = Fixture("hudi-archived", tmp_path)
    fixture.show("insert 1")
    with following(fixture.folder) as stream:
        read(stream, 1)
        fixture.show("insert 8")
        for path in hudi_files(fixture, "timeline/history", "manifest_*"):
            path.unlink()
        with pytest.raises(CorruptData, match="files that do not exist"):
            read(stream, 7)


def test_a_manifest_of_the_archive_does_not_lead_out_of_the_table(
    tmp_path: Path,
) -> None:
    fixture = Fixture("hudi-archived", tmp_path)
    fixture.show("insert 1")
    with following(fixture.folder) as stream:
        read(stream, 1)
        fixture.show("insert 8")
        for path in hudi_files(fixture, "timeline/history", "manifest_*"):
            path.write_text('{"files": [{"fileName": "../../../x.parquet"}]}')
        with pytest.raises(streamfactory.StreamError, match="names a file"):
            read(stream, 7)


def test_a_new_reader_starts_with_the_commits_that_are_not_archived(
    tmp_path: Path,
) -> None:
    fixture = Fixture("hudi-archived", tmp_path)
    fixture.show("insert 1")
    with following(fixture.folder) as stream:
        read(stream, 1)
        position = stream.position
    fixture.show("insert 8")
    properties = table_properties("hudi", fixture.folder)
    with (
        pytest.raises(OffsetOutOfRange),
        streamfactory.open(properties, start=position) as again,
    ):
        list(again)


def test_a_commit_archived_within_the_slot_of_the_next_hides_no_commit(
    tmp_path: Path,
) -> None:
    # Commits that complete within 512 ms have ordinals that depend on each other.
    fixture = Fixture("hudi-archived", tmp_path)
    fixture.show("insert 4")
    third = hudi_files(fixture, "timeline", "*.commit")[0]
    same = third.stem.partition("_")[2]
    fixture.show("insert 2")
    second = hudi_files(fixture, "timeline", "*.commit")[-1]
    requested = second.stem.partition("_")[0]
    second.rename(second.with_stem(f"{requested}_{same}"))
    with following(fixture.folder) as stream:
        assert sorted(row["id"] for row in read(stream, 2)) == [1, 2]
        fixture.show("insert 4")
        (archive,) = hudi_files(fixture, "timeline/history", "*.parquet")
        rows = pq.read_table(archive).to_pylist()
        for row in rows:
            if row["instantTime"] == requested:
                row["completionTime"] = same
        pq.write_table(pa.Table.from_pylist(rows), archive)
        assert [row["id"] for row in read(stream, 2)] == [3, 4]


def test_a_commit_archived_behind_a_savepoint_is_not_skipped(tmp_path: Path) -> None:
    # The archival may leave a commit with a savepoint, and archive those behind it.
    fixture = Fixture("hudi-archived", tmp_path)
    fixture.show("insert 1")
    (first,) = hudi_files(fixture, "timeline", "*.commit")
    content = first.read_bytes()
    with following(fixture.folder) as stream:
        read(stream, 1)
        fixture.show("insert 4")
        first.write_bytes(content)
        later = f"{first.stem.partition('_')[0]}_20300101000000000.savepoint"
        first.with_name(later).touch()
        assert [row["id"] for row in read(stream, 3)] == [2, 3, 4]


# --- blocks that are made to do harm ---------------------------------------------


def block(schema: Any, *records: Any) -> bytes:
    """A block of an archived log file: Avro records."""

    def sized(data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + data

    content = b"".join(sized(record) for record in map(written(schema), records))
    content = len(records).to_bytes(4, "big") + content
    header = (2).to_bytes(4, "big") + sized(json.dumps(schema).encode())
    kinds = b"".join(n.to_bytes(4, "big") for n in (1, 3, 1))
    body = kinds + header + (len(content) + 4).to_bytes(8, "big") + b"\0\0\0\1"
    body += content
    return b"#HUDI#" + len(body).to_bytes(8, "big") + body


def written(schema: Any) -> Callable[[Any], bytes]:
    def encoded(record: Any) -> bytes:
        target = io.BytesIO()
        fastavro.schemaless_writer(target, schema, record)
        return target.getvalue()

    return encoded


def entry(**more: Any) -> dict[str, Any]:
    """The schema of an archived instant."""
    types = dict.fromkeys(("commitTime", "actionType", "actionState"), "string") | more
    fields = [{"name": name, "type": kind} for name, kind in types.items()]
    return {"type": "record", "name": "Entry", "fields": fields}


def with_blocks(tmp_path: Path, schema: Any, **more: Any) -> Fixture:
    """A table whose archive has one block a commit, of another schema."""
    fixture = Fixture("hudi-archived-6", tmp_path)
    fixture.show("insert 1")
    with following(fixture.folder) as stream:
        first = read(stream, 1)[0]["_commit"]
        fixture.show("insert 8")
        commits = {row["_commit"] for row in read(stream, 7)} | {first}
    blocks = b""
    for commit in sorted(commits):
        record: Any = dict.fromkeys(("commitTime", "actionType", "actionState"), "")
        record |= {"commitTime": commit, "actionType": "commit", **more}
        record["actionState"] = "COMPLETED"
        blocks += block(schema, record if isinstance(schema, dict) else 1)
    for path in hudi_files(fixture, "history", ".commits*"):
        path.write_bytes(blocks)
    return fixture


@pytest.mark.parametrize(
    ("schema", "more"),
    [
        ("int", {}),
        (entry(), {}),
        (entry(hoodieCommitMetadata="string"), {"hoodieCommitMetadata": "none"}),
        (
            entry(hoodieCommitMetadata={"type": "array", "items": "int"}),
            {"hoodieCommitMetadata": []},
        ),
    ],
)
def test_archived_records_of_another_schema_are_corrupt_data(
    schema: Any, more: dict[str, Any], tmp_path: Path
) -> None:
    damaged = with_blocks(tmp_path, schema, **more)
    content = [p.read_bytes() for p in hudi_files(damaged, "history", ".commits*")]
    damaged.show("insert 1")
    with following(damaged.folder) as stream:
        read(stream, 1)
        damaged.show("insert 8")
        for path in hudi_files(damaged, "history", ".commits*"):
            path.write_bytes(content[0])
        with pytest.raises(CorruptData, match="archived timeline"):
            read(stream, 7)


def test_archived_rows_without_metadata_are_corrupt_data(tmp_path: Path) -> None:
    fixture = Fixture("hudi-archived", tmp_path)
    fixture.show("insert 1")
    with following(fixture.folder) as stream:
        read(stream, 1)
        fixture.show("insert 8")
        for path in hudi_files(fixture, "timeline/history", "*.parquet"):
            rows = pq.read_table(path)
            pq.write_table(rows.drop_columns("metadata"), path)
        with pytest.raises(CorruptData, match="is not the metadata"):
            read(stream, 7)
