"""Hudi tables as streams: snapshot, changes, positions, and what is refused.

On tables that Hudi's own Spark bundle wrote, stepped from state to state.
"""

from __future__ import annotations

import itertools
import json
import os
import random
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import pytest
from tests.tables.states import Fixture
from tests.tables.streams import table_properties
from tests.tables.writers.capture import plain

import streamfactory
from streamfactory.backends.hudi import merging
from streamfactory.backends.hudi.harness import HudiHarness
from streamfactory.backends.hudi.slices import Slice
from streamfactory.backends.hudi.timeline import Timeline
from streamfactory.spi import (
    ConfigError,
    CorruptData,
    DataLossError,
    FormatRefused,
    IncarnationChanged,
    OffsetOutOfRange,
    StreamError,
    TopicNotFound,
    Unsupported,
)
from streamfactory.tables import TableFiles
from streamfactory.tables.storage import LocalFolder

if TYPE_CHECKING:
    from pathlib import Path

    from streamfactory import Position

NAMES = ["hudi-buckets", "hudi-cow", "hudi-mor", "hudi-mor-6", "hudi-defaults"]
UNCHANGED = {"clustering", "compaction", "late"}
Row = tuple[Any, ...]


def properties(path: Path, **options: str) -> dict[str, str]:
    return table_properties("hudi", path, **options)


def read(
    path: Path, start: Any = None, **options: str
) -> tuple[list[dict[str, Any]], Position]:
    """The rows up to the latest, and the position behind them."""
    with streamfactory.open(
        properties(path, **options), start=start, follow=False
    ) as stream:
        rows = [row for batch in stream for row in batch.rows.to_pylist()]
        return rows, stream.position


@pytest.mark.parametrize("name", ["hudi-cow", "hudi-mor-6"])
def test_a_look_that_lacks_a_commit_loses_none(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder is listed in no order: it may have a later commit, and lack one."""
    fixture = Fixture(name, tmp_path)
    for state in fixture.states:
        fixture.show(state.name)
    files = TableFiles(LocalFolder(str(fixture.folder), links=False), "t")
    before = Timeline(files, 1 << 24)
    options = before.properties()
    instants = before.listing(options).instants
    assert len(instants) > 2
    entries, looks = TableFiles.entries, itertools.count()

    def racing(files: TableFiles, folder: str) -> tuple[list[str], list[str]]:
        names, folders = entries(files, folder)
        if next(looks) == 0:
            names.remove(PurePath(instants[1].name).name)
        return names, folders

    monkeypatch.setattr(TableFiles, "entries", racing)
    timeline = Timeline(files, 1 << 24)
    first = timeline.listing(options).instants
    assert first == instants[: len(first)]
    assert timeline.listing(options).instants == instants


def values(rows: list[dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    """Rows in the form and order of a fixture."""
    found = [{name: _plain(row[name]) for name in names} for row in rows]
    return sorted(found, key=lambda row: (row["id"], row["city"]))


def own(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of a fixture without Hudi's columns."""
    return [
        {name: value for name, value in row.items() if not name.startswith("_hoodie")}
        for row in rows
    ]


def _plain(value: object) -> object:
    found = plain(value)
    return found.removesuffix("+00:00") if isinstance(found, str) else found


def changed(
    before: list[dict[str, Any]], after: list[dict[str, Any]], commit: str
) -> list[Row]:
    """The changes between two states, by key: rows that the commit wrote, and deletes.

    What is written anew is known by the writer's own column, because an update may
    leave a row as it was.
    """
    old = {(row["id"], row["_hoodie_partition_path"]): row for row in before}
    new = {(row["id"], row["_hoodie_partition_path"]): row for row in after}
    found = [
        ("update_after" if key in old else "insert", row["id"], row["name"])
        for key, row in new.items()
        if row["_hoodie_commit_time"] == commit
    ]
    gone = old.keys() - new.keys()
    found += [("delete", old[key]["id"], old[key]["name"]) for key in gone]
    return sorted(found)


@pytest.mark.parametrize("name", NAMES)
def test_a_new_reader_gets_the_rows_that_hudi_reads(name: str, tmp_path: Path) -> None:
    fixture = Fixture(name, tmp_path)
    for number in range(len(fixture.states)):
        state = fixture.show(number)
        rows, _ = read(fixture.folder)
        wanted = own(state.rows)
        assert values(rows, list(wanted[0])) == wanted, state.name
        assert {row["_change"] for row in rows} == {"insert"}
        assert not [column for column in rows[0] if column.startswith("_hoodie")]


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_gets_the_changes_of_each_commit(name: str, tmp_path: Path) -> None:
    fixture = Fixture(name, tmp_path)
    before = fixture.show(0)
    _, position = read(fixture.folder)
    for number in range(1, len(fixture.states)):
        after = fixture.show(number)
        if after.name == "rollback":
            break
        rows, position = read(fixture.folder, position)
        commits = {row["_commit"] for row in rows}
        if after.name in UNCHANGED:
            assert rows == [], after.name
        else:
            (commit,) = commits
            found = sorted((row["_change"], row["id"], row["name"]) for row in rows)
            wanted = changed(before.rows, after.rows, commit)
            # A replaced row is deleted and inserted, as an overwrite does.
            if after.name == "insert overwrite":
                replaced = {row["id"] for row in before.rows if row["city"] == "rome"}
                assert {i for kind, i, _ in found if kind == "delete"} == replaced
                found = [one for one in found if one[0] == "insert"]
                wanted = [("insert", *one[1:]) for one in wanted if one[0] != "delete"]
            assert found == sorted(wanted), after.name
        before = after


@pytest.mark.parametrize("name", ["hudi-mor", "hudi-mor-6"])
def test_the_same_offsets_are_the_same_rows_after_a_compaction(
    name: str, tmp_path: Path
) -> None:
    fixture = Fixture(name, tmp_path)
    fixture.show("update and insert")
    with streamfactory.open(properties(fixture.folder), follow=False) as stream:
        start = stream.position
        before = [row for batch in stream for row in batch.rows.to_pylist()]
    fixture.show("compaction")
    assert read(fixture.folder, start)[0] == before
    fixture.show("update after compaction")
    again, _ = read(fixture.folder, start)
    assert again[: len(before)] == before


def test_changes_start_at_a_commit_and_at_a_time(tmp_path: Path) -> None:
    fixture = Fixture("hudi-defaults", tmp_path)
    state = fixture.show("delete")
    commits = sorted({row["_hoodie_commit_time"] for row in state.rows})
    rows, _ = read(fixture.folder, stream__hudi__start__commit=commits[-1])
    kinds = [(row["_change"], row["id"]) for row in rows]
    assert kinds == [("update_after", 2), ("insert", 3), ("delete", 1)]
    time = rows[0]["_commit_time"]
    assert read(fixture.folder, time)[0] == rows
    wanted = r"start\.commit.* it has \d+, from \d+ to \d+"
    with pytest.raises(ConfigError, match=wanted) as caught:
        read(fixture.folder, stream__hudi__start__commit="20200101000000000")
    assert "startingOffsets=latest" in str(caught.value.remedy)


def test_reading_starts_at_a_first_commit_without_rows(tmp_path: Path) -> None:
    harness = HudiHarness(tmp_path)
    harness.create(1)
    harness.write(0, [1, 2])
    (timeline,) = tmp_path.glob("*/.hoodie")
    first = min(timeline.glob("*.commit")).name.partition(".")[0]
    rows, _ = read(timeline.parent, stream__hudi__start__commit=first)
    assert [row["number"] for row in rows] == [1, 2]


def test_the_columns_of_hudi_are_kept_on_request(tmp_path: Path) -> None:
    fixture = Fixture("hudi-mor", tmp_path)
    state = fixture.show("update and insert")
    rows, _ = read(fixture.folder, stream__hudi__meta__columns="true")
    names = list(state.rows[0])
    assert "_hoodie_record_key" in names
    assert values(rows, names) == state.rows


def test_a_new_column_is_null_in_older_rows(tmp_path: Path) -> None:
    fixture = Fixture("hudi-cow", tmp_path)
    fixture.show("clustering")
    _, position = read(fixture.folder)
    fixture.show("new column")
    rows, _ = read(fixture.folder, position)
    assert sorted((row["id"], row["note"]) for row in rows) == [(2, "new"), (6, None)]


def test_a_cleaned_snapshot_is_a_loss(tmp_path: Path) -> None:
    fixture = Fixture("hudi-cow", tmp_path)
    fixture.show("insert")
    with streamfactory.open(properties(fixture.folder), follow=False) as stream:
        start = stream.position
    fixture.show("upsert and clean")
    with pytest.raises(DataLossError, match="were cleaned"):
        read(fixture.folder, start)


def test_changes_whose_files_were_cleaned_are_a_loss(tmp_path: Path) -> None:
    fixture = Fixture("hudi-cow", tmp_path)
    fixture.show("insert")
    _, position = read(fixture.folder)
    fixture.show("upsert and clean")
    with pytest.raises(DataLossError, match="removed from the table's storage"):
        read(fixture.folder, position)
    # The losses are recorded, and what is left is read.
    rows, _ = read(fixture.folder, position, out__of__range="earliest")
    assert ("update_after", 4) in {(row["_change"], row["id"]) for row in rows}


def test_a_position_before_archived_commits_is_a_loss(tmp_path: Path) -> None:
    fixture = Fixture("hudi-cow", tmp_path)
    fixture.show("insert")
    _, position = read(fixture.folder)
    fixture.show("upsert and archive")
    with pytest.raises(OffsetOutOfRange):
        read(fixture.folder, position)


def test_a_commit_that_was_read_and_rolled_back_is_a_loss(tmp_path: Path) -> None:
    fixture = Fixture("hudi-cow", tmp_path)
    fixture.show("to roll back")
    _, position = read(fixture.folder)
    fixture.show("rollback")
    with pytest.raises(DataLossError):
        read(fixture.folder, position)
    fixture.show("after rollback")
    with pytest.raises(DataLossError, match="rolled back"):
        read(fixture.folder, position)


def test_before_version_8_a_pending_commit_holds_back_what_is_behind_it(
    tmp_path: Path,
) -> None:
    fixture = Fixture("hudi-mor-6", tmp_path)
    fixture.show("update and insert")
    timeline = fixture.folder / ".hoodie"
    second = sorted(timeline.glob("*.deltacommit"))[1]
    content = second.read_bytes()
    second.unlink()
    rows, position = read(fixture.folder)
    assert sorted(row["name"] for row in rows) == ["a", "b", "c", "d"]
    second.write_bytes(content)
    rows, _ = read(fixture.folder, position)
    kinds = [(row["_change"], row["id"], row["name"]) for row in rows]
    assert kinds[:2] == [("update_after", 1, "a2"), ("delete", 3, "c")]


def test_a_missing_table_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(TopicNotFound, match="does not exist"):
        read(tmp_path / "none")


def test_a_table_of_another_format_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(FormatRefused, match="streamType=delta"):
        read(tmp_path)


def test_a_position_of_another_table_is_refused(tmp_path: Path) -> None:
    one, other = Fixture("hudi-cow", tmp_path), Fixture("hudi-mor", tmp_path)
    one.show("insert")
    other.show("insert")
    _, position = read(one.folder)
    with pytest.raises(IncarnationChanged):
        read(other.folder, position)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("hoodie.populate.meta.fields", "false"),
        ("hoodie.table.base.file.format", "ORC"),
        ("hoodie.timeline.path", "../../other"),
        ("hoodie.timeline.layout.version", "3"),
        ("hoodie.table.type", "OTHER"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_at_once(
    key: str, text: str, tmp_path: Path
) -> None:
    fixture = Fixture("hudi-defaults", tmp_path)
    fixture.show("insert")
    file = fixture.folder / ".hoodie" / "hoodie.properties"
    lines = [line for line in file.read_text().splitlines() if key not in line]
    file.write_text("\n".join([*lines, f"{key}={text}"]))
    with pytest.raises(FormatRefused):
        read(fixture.folder)


@pytest.mark.parametrize("version", ["", "5", "7", "9", "eight"])
@pytest.mark.parametrize("name", ["hudi-defaults", "hudi-mor-6"])
def test_another_table_version_is_refused_with_those_that_are_read(
    name: str, version: str, tmp_path: Path
) -> None:
    fixture = Fixture(name, tmp_path)
    fixture.show("insert")
    file = fixture.folder / ".hoodie" / "hoodie.properties"
    key = "hoodie.table.version"
    lines = [line for line in file.read_text().splitlines() if key not in line]
    file.write_text("\n".join([*lines, *([f"{key}={version}"] if version else [])]))
    with pytest.raises(FormatRefused, match="6 and 8 are supported") as caught:
        read(fixture.folder)
    assert f"{key}={version}" in caught.value.what or not version


@pytest.mark.parametrize("error", [MemoryError, GeneratorExit, KeyboardInterrupt])
def test_what_is_no_error_of_a_file_is_not_called_damage(
    error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixture = Fixture("hudi-mor", tmp_path)
    fixture.show("update in logs")
    (log,) = (fixture.folder / "city=rome").glob(".*.log.*")
    files = TableFiles(LocalFolder(str(fixture.folder), links=False), "t")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("streamfactory.backends.hudi.merging.hudi.HudiTable", fail)
    found = Slice(None, (f"city=rome/{log.name}",))
    with pytest.raises(error):
        merging.Merger(str(fixture.folder), {}).read(files, found, None)


@pytest.mark.parametrize(
    ("folder", "path"),
    [
        ("..", "../secret-0_0-1-1_20260101000000000.parquet"),
        ("", "../secret-0_0-1-1_20260101000000000.parquet"),
        ("/etc", "/etc/passwd"),
        ("a/../..", "a/../../x.parquet"),
    ],
)
def test_paths_of_the_timeline_do_not_leave_the_table(
    folder: str, path: str, tmp_path: Path
) -> None:
    harness = HudiHarness(tmp_path)
    harness.create(1)
    harness.write(0, [1])
    table = next(tmp_path.glob("*/.hoodie")).parent
    file = max((table / ".hoodie").glob("*.commit"))
    commit = json.loads(file.read_text())
    ((_, (stat,)),) = commit["partitionToWriteStats"].items()
    commit["partitionToWriteStats"] = {folder: [{**stat, "path": path}]}
    file.write_text(json.dumps(commit))
    with pytest.raises(FormatRefused, match="damaged"):
        read(table, stream__hudi__start__commit=file.name.partition(".")[0])


@pytest.mark.parametrize("name", ["hudi-cow", "hudi-mor-6"])
def test_a_damaged_timeline_is_an_error_of_a_type(name: str, tmp_path: Path) -> None:
    fixture = Fixture(name, tmp_path)
    state = fixture.show(3)
    files = [
        path
        for path in (fixture.folder / ".hoodie").rglob("*commit")
        if path.stat().st_size
    ]
    wanted = own(state.rows)
    first = min(file.name for file in files).split("_")[0].split(".")[0]
    for seed in range(25):
        dice = random.Random(seed)
        file = dice.choice(sorted(files))
        content = file.read_bytes()
        damaged = bytearray(content)
        for _ in range(dice.randint(1, 20)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        file.write_bytes(damaged[: dice.choice([len(damaged), len(damaged) // 2])])
        try:
            rows, _ = read(fixture.folder)
            read(fixture.folder, stream__hudi__start__commit=first)
        except StreamError:
            pass
        else:
            # Damage in what is not read, such as statistics, changes nothing.
            assert len(rows) <= len(wanted)
        file.write_bytes(content)


def test_a_damaged_log_file_is_not_passed_over(tmp_path: Path) -> None:
    fixture = Fixture("hudi-mor", tmp_path)
    fixture.show("update in logs")
    (log,) = (fixture.folder / "city=rome").glob(".*.log.*")
    content = log.read_bytes()
    for damaged in (content[:-20], b"x" + content[1:], content + b"#HUDI#"):
        log.write_bytes(damaged)
        with pytest.raises(CorruptData, match="damaged at byte"):
            read(fixture.folder)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_log_files_are_refused_after_a_fork_and_not_waited_for(tmp_path: Path) -> None:
    fixture = Fixture("hudi-mor", tmp_path)
    fixture.show("update in logs")
    read(fixture.folder)
    child = os.fork()
    if child == 0:
        try:
            read(fixture.folder)
        except Unsupported as error:
            os._exit(0 if "after a fork" in str(error) else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_file_groups_without_a_base_file_are_read(tmp_path: Path) -> None:
    fixture = Fixture("hudi-buckets", tmp_path)
    for number in range(len(fixture.states)):
        state = fixture.show(number)
        rows, _ = read(fixture.folder)
        wanted = own(state.rows)
        assert values(rows, list(wanted[0])) == wanted, state.name


def test_a_row_that_is_older_than_the_table_changes_nothing(tmp_path: Path) -> None:
    fixture = Fixture("hudi-buckets", tmp_path)
    fixture.show("delete")
    _, position = read(fixture.folder)
    fixture.show("late")
    assert read(fixture.folder, position)[0] == []
