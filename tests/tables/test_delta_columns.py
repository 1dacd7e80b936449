"""Columns of Delta tables that map them, by name and by id, at every depth.

The tables are written here as Delta's protocol has them: no writer for Python maps
columns. The oracle of each change is what it does to a row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.tables.mapped import Column, Row, Table, rename
from tests.tables.streams import table_properties

import streamfactory
from streamfactory.spi import FormatRefused, SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DEPTHS: Final = ("", "s", "l", "m")
"""Columns that have the columns ``a``, ``b`` and ``f``; empty is the row itself."""


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
