"""Columns of Iceberg tables are matched by field id, at every depth.

Each change of a schema is made at each depth, with and without a commit behind it, and
read as a snapshot, as changes, and by a stream that was open before. The oracle is the
scan of ``pyiceberg``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    LongType,
    StringType,
)
from tests.tables.streams import table_properties

import streamfactory
from streamfactory.spi import CorruptData, FormatRefused, SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyiceberg.table import Table
    from pyiceberg.table.update.schema import UpdateSchema

    Step = Callable[[UpdateSchema, str], None]

PAIR: Final = pa.struct(
    [
        ("a", pa.int32()),
        ("b", pa.int32()),
        ("f", pa.float32()),
        ("d", pa.decimal128(9, 2)),
    ]
)
SCHEMA: Final = pa.schema(
    [
        *PAIR,
        ("s", PAIR),
        ("l", pa.list_(PAIR)),
        ("m", pa.map_(pa.string(), PAIR)),
        (
            "n",
            pa.struct([("l", pa.list_(pa.struct([("m", pa.map_(pa.int64(), PAIR))])))]),
        ),
    ]
)
PLACES: Final = ("", "s.", "l.element.", "m.value.", "n.l.element.m.value.")


def pair(number: int) -> dict[str, Any]:
    return {"a": number, "b": number + 1, "f": number / 2, "d": None}


ROWS: Final = pa.Table.from_pylist(
    [
        {
            **pair(1),
            "s": pair(3),
            "l": [pair(5), None, pair(7)],
            "m": [("k", pair(9)), ("j", None)],
            "n": {"l": [{"m": [(1, pair(11))]}, None, {"m": []}]},
        },
        {**pair(21), "s": None, "l": None, "m": [], "n": {"l": None}},
    ],
    SCHEMA,
)


def renamed(update: UpdateSchema, place: str) -> None:
    update.rename_column(f"{place}a", "z")


def renaming(old: str, new: str) -> Step:
    def step(update: UpdateSchema, place: str) -> None:
        update.rename_column(f"{place}{old}", new)

    return step


def dropped(update: UpdateSchema, place: str) -> None:
    update.delete_column(f"{place}a")


def added(update: UpdateSchema, place: str) -> None:
    update.add_column(path(place, "new"), StringType())


def added_again(update: UpdateSchema, place: str) -> None:
    update.add_column(path(place, "a"), LongType())


def reordered(update: UpdateSchema, place: str) -> None:
    update.move_after(f"{place}a", f"{place}d")


def promoted(update: UpdateSchema, place: str) -> None:
    update.update_column(f"{place}a", LongType())
    update.update_column(f"{place}f", DoubleType())
    update.update_column(f"{place}d", DecimalType(12, 2))


SWAP: Final = (renaming("a", "t"), renaming("b", "a"), renaming("t", "b"))
AGAIN: Final = (dropped, added_again)
CHANGES: Final[dict[str, tuple[Step, ...]]] = {
    "renamed": (renamed,),
    "swapped": SWAP,
    "dropped": (dropped,),
    "added": (added,),
    "dropped and added": AGAIN,
    "renamed to the name of a dropped one": (dropped, renaming("b", "a")),
    "reordered": (reordered,),
    "promoted": (promoted,),
    "promoted and swapped": (promoted, *SWAP),
}
"""The steps of each change. A step is one commit, whatever the number of places."""


def make(table: Table, steps: tuple[Step, ...], places: tuple[str, ...]) -> None:
    for step in steps:
        with table.update_schema() as update:
            for place in places:
                step(update, place)


def path(place: str, name: str) -> Any:
    parts = (*place.split(".")[:-1], name)
    return parts if len(parts) > 1 else name


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    catalog = InMemoryCatalog("t", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", SCHEMA)
    table.append(ROWS)
    yield table
    catalog.close()


def properties(table: Table, **options: str) -> dict[str, str]:
    folder: Any = table.location().removeprefix("file://")
    options["stream__iceberg__change__columns"] = "false"
    return table_properties("iceberg", folder, **options)


def read(table: Table, **options: str) -> list[dict[str, Any]]:
    with streamfactory.open(properties(table, **options), follow=False) as stream:
        return ordered([row for batch in stream for row in batch.rows.to_pylist()])


def scanned(table: Table) -> list[dict[str, Any]]:
    return ordered(table.refresh().scan().to_arrow().to_pylist())


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=repr)


@pytest.mark.parametrize("change", CHANGES)
def test_rows_are_those_of_the_scan(table: Table, change: str) -> None:
    first = str(table.history()[0].snapshot_id)
    make(table, CHANGES[change], PLACES)
    for count in (2, 4):
        wanted = scanned(table)
        assert len(wanted) == count
        assert read(table) == wanted
        assert read(table, stream__iceberg__start__commit=first) == wanted
        if count == 2:
            table.append(table.scan().to_arrow())


@pytest.mark.parametrize("change", ["renamed", "swapped", "reordered"])
def test_an_open_stream_keeps_the_names_it_was_opened_with(
    table: Table, change: str
) -> None:
    wanted = scanned(table)
    with streamfactory.open(properties(table), follow=True) as stream:
        before = rows_of(stream, 2)
        make(table, CHANGES[change], PLACES)
        table.append(table.scan().to_arrow())
        assert rows_of(stream, 2) == before == wanted


@pytest.mark.parametrize("place", PLACES)
def test_a_column_added_under_a_taken_name_is_an_added_column(
    table: Table, place: str
) -> None:
    with streamfactory.open(properties(table), follow=True) as stream:
        rows_of(stream, 2)
        make(table, AGAIN, (place,))
        table.append(table.scan().to_arrow())
        with pytest.raises(SchemaMismatch, match=r"a \(\d+\)'"):
            rows_of(stream, 2)


def rows_of(stream: streamfactory.Stream, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while len(found) < count:
        batch = stream.next_batch(30.0)
        assert batch is not None
        found += batch.rows.to_pylist()
    return ordered(found)


def test_a_field_with_an_initial_default_has_it_in_files_written_before(
    table: Table, tmp_path: Path
) -> None:
    make(table, (added,), ("", "s."))
    newest = max(tmp_path.rglob("*.metadata.json"))
    text = newest.read_text()
    # `pyiceberg` does not write tables of version 3.
    with_default = text.replace('"name":"new"', '"name":"new","initial-default":"x"')
    assert with_default.count("initial-default") >= 2
    newest.write_text(with_default)
    found = read(table)
    assert [row["new"] for row in found] == ["x", "x"]
    assert [row["s"] and row["s"]["new"] for row in found] == ["x", None]


@pytest.mark.parametrize(
    ("default", "error"),
    [
        ("1e-1000000000", FormatRefused),
        ("1e1000000000", FormatRefused),
        ("1e-70", CorruptData),
        ("1e40", CorruptData),
    ],
)
def test_an_initial_default_that_its_decimal_lacks_is_refused(
    default: str, error: type[Exception], table: Table, tmp_path: Path
) -> None:
    make(table, (added,), ("",))
    newest = max(tmp_path.rglob("*.metadata.json"))
    field = r'"name":"new","type":"\w+"'
    damaged = f'"name":"new","type":"decimal(5, 2)","initial-default":"{default}"'
    newest.write_text(re.sub(field, damaged, newest.read_text()))
    with pytest.raises(error, match=r"default|column 'new'"):
        read(table)
