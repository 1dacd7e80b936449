"""Hudi's schema evolution: columns are matched by name where that is right."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from tests.tables.states import Fixture
from tests.tables.streams import table_properties

import streamfactory
from streamfactory.backends.hudi.evolution import column_ids, ids_before, moved
from streamfactory.backends.hudi.harness import HudiHarness
from streamfactory.spi import FormatRefused

if TYPE_CHECKING:
    from pathlib import Path

Columns = dict[str, int]
"""The id of each column by its name."""
FIRST: Columns = {"number": 5}
HUDI_COLUMNS = (
    "_hoodie_commit_time",
    "_hoodie_record_key",
    "_hoodie_partition_path",
)


class Table:
    """A table as Hudi writes it with ``hoodie.schema.on.read.enable``."""

    def __init__(self, folder: Path) -> None:
        self._harness = HudiHarness(folder)
        self._harness.create(1)
        self.path = next(folder.glob("*/.hoodie")).parent
        self.columns = FIRST

    def write(self, number: int, *, ids: bool = True) -> None:
        """Write a file with the value in each of the columns."""
        self._harness.write(0, [number])
        commit, content = self._last()
        ((stat,),) = content["partitionToWriteStats"].values()
        rows = pq.read_table(self.path / stat["path"])
        values = rows.column("number")
        rows = rows.drop_columns(["number"])
        for name in self.columns:
            rows = rows.append_column(name, values)
        pq.write_table(rows, self.path / stat["path"])
        self._state(commit, content, ids=ids)

    def alter(self, columns: Columns) -> None:
        """Change the columns by a commit without rows."""
        self.columns = columns
        self._harness._complete(self._harness._time(), {"partitionToWriteStats": {}})
        self._state(*self._last(), ids=True)

    def forget(self, time: str = "0") -> None:
        """Keep the first columns in the history alone, as before the first change."""
        folder = self.path / ".hoodie" / ".schema"
        folder.mkdir()
        schemas = [{"version_id": int(time), **schema(FIRST)}]
        text = json.dumps({"schemas": schemas})
        (folder / "20260101000000000.schemacommit").write_text(text)

    def read(self, **options: str) -> list[dict[str, Any]]:
        at = table_properties("hudi", self.path, **options)
        at["stream.hudi.change.columns"] = "false"
        with streamfactory.open(at, follow=False) as stream:
            return [row for batch in stream for row in batch.rows.to_pylist()]

    @property
    def first_commit(self) -> str:
        return min(path.stem for path in (self.path / ".hoodie").glob("*.commit"))

    def _last(self) -> tuple[Path, dict[str, Any]]:
        commit = max((self.path / ".hoodie").glob("*.commit"))
        return commit, json.loads(commit.read_text())

    def _state(self, commit: Path, content: dict[str, Any], *, ids: bool) -> None:
        fields = [{"name": name, "type": ["null", "long"]} for name in self.columns]
        avro = {"type": "record", "name": "t", "fields": fields}
        content["extraMetadata"] = {"schema": json.dumps(avro)}
        if ids:
            text = json.dumps(schema(self.columns))
            content["extraMetadata"]["latest_schema"] = text
        commit.write_text(json.dumps(content))


def schema(columns: Columns) -> dict[str, Any]:
    fields = [
        {"id": number, "name": name, "optional": True, "type": "long"}
        for name, number in columns.items()
    ]
    return {"type": "record", "fields": fields}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


def test_a_table_that_hudi_evolved_is_read_right_or_refused(tmp_path: Path) -> None:
    """Hudi's own writer renamed a column, dropped another and added it again."""
    fixture = Fixture("hudi-evolved", tmp_path)
    properties = table_properties("hudi", fixture.folder)
    refused: dict[str, str] = {}
    for number in range(len(fixture.states)):
        state = fixture.show(number)
        wanted = [{**row} for row in state.rows]
        names = [n for n in wanted[0] if n not in ("at", "price", *HUDI_COLUMNS)]
        try:
            found = _read(properties, names)
        except FormatRefused as error:
            refused[state.name] = error.what
            names = ["city", "id", "ts"]  # columns that were not changed
            found = _read(properties, names)
        rows = [tuple(row[name] for name in names) for row in wanted]
        assert found == sorted(rows, key=str), state.name
    names = ["rename", "renamed", "drop", "dropped", "add", "added again"]
    assert list(refused) == names
    assert all("cannot be matched by name" in what for what in refused.values())


def _read(properties: dict[str, str], names: list[str]) -> list[tuple[Any, ...]]:
    """Values of some columns, sorted as text."""
    with streamfactory.open(properties, follow=False, columns=names) as stream:
        rows = [row for batch in stream for row in batch.rows.to_pylist()]
    return sorted((tuple(row[name] for name in names) for row in rows), key=str)


CHANGES = {
    "renamed": ({"other": 5}, "other"),
    "swapped": ({"number": 6, "other": 5}, "number"),
    "added again": ({"number": 6}, "number"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("ids", [True, False])
def test_a_file_from_before_a_column_was_changed_is_refused_by_its_name(
    table: Table, change: str, ids: bool
) -> None:
    columns, name = CHANGES[change]
    table.write(1, ids=ids)
    if not ids:
        table.forget()
    table.alter(columns)
    for options in ({}, {"stream__hudi__start__commit": table.first_commit}):
        with pytest.raises(FormatRefused, match=f"column '{name}' of .*ids in Hudi"):
            table.read(**options)


def test_a_file_without_any_ids_is_refused_where_the_table_has_them(
    table: Table,
) -> None:
    table.write(1, ids=False)
    table.alter({"number": 6})
    with pytest.raises(FormatRefused, match="cannot be matched by name"):
        table.read()


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_from_behind_a_change_is_read(table: Table, change: str) -> None:
    table.alter(CHANGES[change][0])
    table.write(1)
    assert table.read() == [dict.fromkeys(CHANGES[change][0], 1)]


def test_columns_that_are_added_are_null_in_earlier_files(table: Table) -> None:
    table.write(1)
    table.alter({"number": 5, "other": 6})
    table.write(2)
    rows = sorted(table.read(), key=lambda row: row["number"])
    assert rows == [{"number": 1, "other": None}, {"number": 2, "other": 2}]


def test_columns_that_were_not_changed_are_read_alone(table: Table) -> None:
    table.columns = {"number": 5, "other": 6}
    table.write(1)
    table.alter({"number": 5, "another": 6})
    at = table_properties("hudi", table.path)
    with streamfactory.open(at, follow=False, columns=["number"]) as stream:
        assert [b.rows.to_pylist() for b in stream if b.rows.num_rows] == [
            [{"number": 1}]
        ]


def test_a_column_that_is_renamed_under_an_open_stream_is_no_null(
    table: Table,
) -> None:
    table.write(1)
    at = table_properties("hudi", table.path, schema__contract="evolve")
    with streamfactory.open(at, follow=True) as stream:
        first = stream.next_batch(10.0)
        assert first is not None
        table.alter({"other": 5})
        table.write(2)
        with pytest.raises(FormatRefused, match="column 'number' of"):
            next(batch for batch in stream if batch.rows.num_rows)


def test_ids_are_read_at_every_depth_and_of_the_time_of_a_commit() -> None:
    inner = {"id": 3, "name": "a", "type": "int"}
    record = {"type": "record", "fields": [inner]}
    array = {"type": "array", "element_id": 2, "element": record}
    entries = {"type": "map", "key_id": 5, "key": "string"}
    entries |= {"value_id": 6, "value": "int"}
    fields = [
        {"id": 1, "name": "l", "type": array},
        {"id": 4, "name": "m", "type": entries},
    ]
    found = column_ids(json.dumps({"type": "record", "fields": fields}))
    assert found == {
        "l": 1,
        "l.element": 2,
        "l.element.a": 3,
        "m": 4,
        "m.key": 5,
        "m.value": 6,
    }
    assert moved({**found, "l.element.a": 9}, found) == "l.element.a"
    versions = [{"version_id": at, **schema({"x": at})} for at in (0, 20260101)]
    history = json.dumps({"schemas": versions}).encode()
    assert ids_before(history, "20251231") == {"x": 0}
    assert ids_before(history, "20260102") == {"x": 20260101}
    for text in ("[]", "{", '{"fields": [{"name": "x"}]}', '{"fields": 1}'):
        with pytest.raises(FormatRefused, match="cannot be read"):
            column_ids(text)
