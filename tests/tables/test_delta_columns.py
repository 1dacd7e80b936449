"""Columns of Delta tables that map them, by name and by id, at every depth.

The tables are written here as Delta's protocol has them: no writer for Python maps
columns. The oracle of each change is what it does to a row.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.tables.streams import table_properties

import streamfactory
from streamfactory.spi import FormatRefused, SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Row = dict[str, Any]
TYPES: Final = {
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
}
DEPTHS: Final = ("", "s", "l", "m")
"""Columns that have the columns ``a``, ``b`` and ``f``; empty is the row itself."""
_ids = count(1)


@dataclass(frozen=True)
class Column:
    """A column, as the schema of a table has it."""

    name: str
    kind: Any
    id: int = field(default_factory=lambda: next(_ids))
    physical: str = field(default_factory=lambda: f"col-{uuid.uuid4()}")

    def stated(self) -> Row:
        metadata = {
            "delta.columnMapping.id": self.id,
            "delta.columnMapping.physicalName": self.physical,
        }
        kind = stated(self.kind)
        return {
            "name": self.name,
            "type": kind,
            "nullable": True,
            "metadata": metadata,
        }

    def stored(self, mode: str) -> pa.Field:
        # In the mode of ids, the names of files mean nothing.
        name = self.physical if mode == "name" else f"x{self.id}"
        metadata = {"PARQUET:field_id": str(self.id)} if mode == "id" else None
        return pa.field(name, stored(self.kind, mode), metadata=metadata)


@dataclass(frozen=True)
class Nested:
    """A struct, a list of structs, or a map of them."""

    form: str
    columns: tuple[Column, ...]


def stated(kind: Any) -> Any:
    if isinstance(kind, str):
        return kind
    struct = {"type": "struct", "fields": [one.stated() for one in kind.columns]}
    if kind.form == "struct":
        return struct
    if kind.form == "list":
        return {"type": "array", "elementType": struct, "containsNull": True}
    return {
        "type": "map",
        "keyType": "string",
        "valueType": struct,
        "valueContainsNull": True,
    }


def stored(kind: Any, mode: str) -> pa.DataType:
    if isinstance(kind, str):
        return TYPES[kind]
    struct = pa.struct([one.stored(mode) for one in kind.columns])
    if kind.form == "struct":
        return struct
    return pa.list_(struct) if kind.form == "list" else pa.map_(pa.string(), struct)


def physical(value: Any, kind: Any, mode: str) -> Any:
    """A value with the names of files."""
    if value is None or isinstance(kind, str):
        return value
    if kind.form == "list":
        inner = Nested("struct", kind.columns)
        return [physical(one, inner, mode) for one in value]
    if kind.form == "map":
        inner = Nested("struct", kind.columns)
        return [(key, physical(one, inner, mode)) for key, one in value]
    return {
        one.stored(mode).name: physical(value.get(one.name), one.kind, mode)
        for one in kind.columns
    }


class Table:
    """A table that maps its columns."""

    def __init__(self, path: Path, mode: str) -> None:
        self.path, self.mode, self.version = path, mode, -1
        (path / "_delta_log").mkdir(parents=True)
        leaves = (("a", "integer"), ("b", "integer"), ("f", "float"))

        def inner() -> tuple[Column, ...]:
            return tuple(Column(name, kind) for name, kind in leaves)

        forms = {"s": "struct", "l": "list", "m": "map"}
        nested = [Column(name, Nested(form, inner())) for name, form in forms.items()]
        self.columns = Nested("struct", (*inner(), *nested, Column("p", "string")))
        features = ["columnMapping"]
        protocol: Row = {"minReaderVersion": 3, "minWriterVersion": 7}
        protocol |= {"readerFeatures": features, "writerFeatures": features}
        self.commit({"protocol": protocol}, self.metadata())

    def change(self, changed: Callable[[list[Column]], None], depth: str) -> None:
        """Change the columns at a depth."""
        columns = list(self.columns.columns)
        if depth:
            at = next(i for i, one in enumerate(columns) if one.name == depth)
            inner = list(columns[at].kind.columns)
            changed(inner)
            kind = Nested(columns[at].kind.form, tuple(inner))
            columns[at] = replace(columns[at], kind=kind)
        else:
            changed(columns)
        self.columns = Nested("struct", tuple(columns))
        self.commit(self.metadata())

    def append(self, *rows: Row) -> None:
        fields = [
            one.stored(self.mode) for one in self.columns.columns if one.name != "p"
        ]
        table = pa.Table.from_pylist(
            [physical(row, self.columns, self.mode) for row in rows], pa.schema(fields)
        )
        name = f"{uuid.uuid4()}.parquet"
        pq.write_table(table, self.path / name)
        partition = self.columns.columns[-1].physical
        add = {
            "path": name,
            "size": 1,
            "modificationTime": self.version,
            "partitionValues": {partition: "x"},
            "dataChange": True,
            "stats": json.dumps({"numRecords": len(rows)}),
        }
        self.commit({"add": add})

    def metadata(self) -> Row:
        body = {
            "id": "t",
            "schemaString": json.dumps(stated(self.columns)),
            "partitionColumns": ["p"],
            "configuration": {"delta.columnMapping.mode": self.mode},
            "format": {"provider": "parquet", "options": {}},
        }
        return {"metaData": body}

    def commit(self, *actions: Row) -> None:
        self.version += 1
        log = self.path / "_delta_log" / f"{self.version:020}.json"
        part = log.with_suffix(".part")
        part.write_text("".join(json.dumps(one) + "\n" for one in actions))
        part.rename(log)


def pair(number: int) -> Row:
    return {"a": number, "b": number + 1, "f": number / 2}


ROWS: Final = (
    {
        **pair(1),
        "s": pair(3),
        "l": [pair(5), None],
        "m": [("k", pair(9)), ("j", None)],
        "p": "x",
    },
    {**pair(21), "s": None, "l": None, "m": [], "p": "x"},
)


def at(columns: list[Column], name: str) -> int:
    return next(i for i, one in enumerate(columns) if one.name == name)


def rename(columns: list[Column], **names: str) -> None:
    columns[:] = [replace(one, name=names.get(one.name, one.name)) for one in columns]


def renamed(columns: list[Column]) -> None:
    rename(columns, a="z")


def swapped(columns: list[Column]) -> None:
    rename(columns, a="b", b="a")


def dropped(columns: list[Column]) -> None:
    del columns[at(columns, "a")]


def again(columns: list[Column]) -> None:
    columns[at(columns, "a")] = Column("a", "long")


def rotated(columns: list[Column]) -> None:
    dropped(columns)
    rename(columns, b="a")


def reordered(columns: list[Column]) -> None:
    columns.insert(2, columns.pop(0))


def promoted(columns: list[Column]) -> None:
    for name, kind in (("a", "long"), ("f", "double")):
        columns[at(columns, name)] = replace(columns[at(columns, name)], kind=kind)


def added(columns: list[Column]) -> None:
    columns.insert(1, Column("new", "string"))


EFFECTS: Final[dict[Callable[[list[Column]], None], Callable[[Row], Row]]] = {
    renamed: lambda row: {"z" if key == "a" else key: v for key, v in row.items()},
    swapped: lambda row: {**row, "a": row["b"], "b": row["a"]},
    dropped: lambda row: {key: v for key, v in row.items() if key != "a"},
    again: lambda row: {**row, "a": None},
    rotated: lambda row: {
        "a" if key == "b" else key: v for key, v in row.items() if key != "a"
    },
    reordered: dict,
    promoted: dict,
    added: lambda row: {**row, "new": None},
}


def effect(row: Row, changed: Callable[[Row], Row]) -> Row:
    """A row of which each depth was changed."""
    found = changed(row)
    found["s"] = row["s"] and changed(row["s"])
    found["l"] = row["l"] and [one and changed(one) for one in row["l"]]
    found["m"] = [(key, one and changed(one)) for key, one in row["m"]]
    return found


def properties(table: Table, **options: str) -> dict[str, str]:
    options["stream__delta__change__columns"] = "false"
    return table_properties("delta", table.path, **options)


def read(table: Table, **options: str) -> list[Row]:
    with streamfactory.open(properties(table, **options), follow=False) as stream:
        return [row for batch in stream for row in batch.rows.to_pylist()]


@pytest.fixture(params=["name", "id"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    table = Table(tmp_path / "t", request.param)
    table.append(*ROWS)
    return table


@pytest.mark.parametrize("change", EFFECTS)
@pytest.mark.parametrize("commits", [False, True])
def test_values_are_those_of_the_column(
    table: Table, change: Callable[[list[Column]], None], *, commits: bool
) -> None:
    for depth in DEPTHS:
        table.change(change, depth)
    wanted = [effect(row, EFFECTS[change]) for row in ROWS]
    if commits:
        table.append(*wanted)
        wanted *= 2
    assert read(table) == wanted
    assert read(table, stream__delta__start__commit="0") == wanted


@pytest.mark.parametrize("change", [renamed, swapped, reordered])
def test_an_open_stream_keeps_the_names_it_was_opened_with(
    table: Table, change: Callable[[list[Column]], None]
) -> None:
    with streamfactory.open(properties(table), follow=True) as stream:
        assert rows_of(stream, 2) == [*ROWS]
        for depth in DEPTHS:
            table.change(change, depth)
        table.append(*(effect(row, EFFECTS[change]) for row in ROWS))
        assert rows_of(stream, 2) == [*ROWS]


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_column_added_under_a_taken_name_is_an_added_column(
    table: Table, depth: str
) -> None:
    with streamfactory.open(properties(table), follow=True) as stream:
        rows_of(stream, 2)
        table.change(again, depth)
        table.append(*ROWS)
        with pytest.raises(SchemaMismatch, match=r"a \(col-"):
            rows_of(stream, 2)


def test_files_without_ids_are_refused_where_ids_map(tmp_path: Path) -> None:
    table = Table(tmp_path / "t", "id")
    table.append(*ROWS)
    (file,) = table.path.glob("*.parquet")
    rows = pq.read_table(file)
    plain = pa.schema([pa.field(one.name, one.type) for one in rows.schema])
    pq.write_table(rows.cast(plain), file)
    with pytest.raises(FormatRefused, match="no field id"):
        read(table)


def test_an_unknown_mode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatRefused, match="unsupported"):
        read(Table(tmp_path / "t", "hash"))


def rows_of(stream: streamfactory.Stream, wanted: int) -> list[Row]:
    found: list[Row] = []
    while len(found) < wanted:
        batch = stream.next_batch(30.0)
        assert batch is not None
        found += batch.rows.to_pylist()
    return found
