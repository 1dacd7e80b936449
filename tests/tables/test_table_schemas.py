"""Tables whose columns change while a stream reads them: ``schema.contract``."""

from __future__ import annotations

import json
import time
import uuid
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from tests.tables.streams import table_properties

import streamfactory
from streamfactory.backends.hudi.harness import HudiHarness
from streamfactory.spi import ErrorBudgetExceeded, SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streamfactory import Stream

TYPES = ["delta", "hudi", "iceberg"]
DEADLINE = 60.0
Row = dict[str, Any]


class Grown(Protocol):
    """A table with the column ``number``, and one row; `grow` adds ``note``."""

    path: Path

    def grow(self) -> None:
        """Add the column, and two rows: one with a note."""


class Delta:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "t"
        write_deltalake(str(self.path), _rows({"number": 1}))

    def grow(self) -> None:
        write_deltalake(str(self.path), _rows(*NEW), mode="append", schema_mode="merge")


class Iceberg:
    def __init__(self, folder: Path) -> None:
        from pyiceberg.catalog.memory import InMemoryCatalog

        self._catalog = InMemoryCatalog("t", warehouse=f"file://{folder}")
        self._catalog.create_namespace("n")
        rows = _rows({"number": 1})
        self._table = self._catalog.create_table("n.t", rows.schema)
        self._table.append(rows)
        self.path = folder / "n" / "t"
        assert self.path.is_dir()

    def grow(self) -> None:
        rows = _rows(*NEW)
        with self._table.update_schema() as update:
            update.union_by_name(rows.schema)
        self._table.append(rows)
        self._catalog.close()


class Hudi:
    """As Hudi 0.x writes it: the schema is in each commit, the columns in each file."""

    def __init__(self, folder: Path) -> None:
        harness = HudiHarness(folder)
        harness.create(1)
        harness.write(0, [1])
        self._harness = harness
        self.path = next(folder.glob("*/.hoodie")).parent

    def grow(self) -> None:
        self._harness.write(0, [2, 3])
        timeline = self.path / ".hoodie"
        commit = max(timeline.glob("*.commit"))
        content = json.loads(commit.read_text())
        ((stat,),) = content["partitionToWriteStats"].values()
        file = self.path / stat["path"]
        rows = pq.read_table(file).append_column("note", pa.array([None, "x"]))
        pq.write_table(rows, file)
        schema = json.loads(content["extraMetadata"]["schema"])
        schema["fields"].append({"name": "note", "type": ["null", "string"]})
        content["extraMetadata"]["schema"] = json.dumps(schema)
        part = timeline / uuid.uuid4().hex
        part.write_text(json.dumps(content))
        part.rename(commit)


NEW: list[Row] = [{"number": 2, "note": None}, {"number": 3, "note": "x"}]
TABLES: dict[str, Callable[[Path], Grown]] = {
    "delta": Delta,
    "hudi": Hudi,
    "iceberg": Iceberg,
}


def _rows(*rows: Row) -> pa.Table:
    fields = {"number": pa.int64(), "note": pa.string()}
    schema = pa.schema([(name, fields[name]) for name in rows[0]])
    return pa.Table.from_pylist(list(rows), schema)


def read(stream: Stream, last: int) -> list[Row]:
    """Rows up to a commit after which nothing was written."""
    found: list[Row] = []
    deadline = time.monotonic() + DEADLINE
    while not found or max(row["number"] for row in found) < last:
        assert time.monotonic() < deadline, found
        batch = stream.next_batch(1.0)
        found += [] if batch is None else batch.rows.to_pylist()
    return found


def grown(kind: str, table: Grown, last: int, **options: str) -> list[Row]:
    """The rows of a commit with a new column, in a stream that was open before."""
    at = table_properties(kind, table.path, **options)
    with streamfactory.open(at, follow=False) as stream:
        rows = [row for batch in stream for row in batch.rows.to_pylist()]
        assert [row["number"] for row in rows] == [1]
        position = stream.position
    with streamfactory.open(at, start=position, follow=True) as stream:
        assert "note" not in stream.schema.names
        table.grow()
        return read(stream, last)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("contract", [None, "freeze"])
def test_a_column_that_is_added_is_named_in_an_error(
    kind: str, contract: str | None, tmp_path: Path
) -> None:
    options = {} if contract is None else {"schema__contract": contract}
    with pytest.raises(SchemaMismatch, match="'note'") as caught:
        grown(kind, TABLES[kind](tmp_path), 3, **options)
    error = caught.value
    assert error.stream
    assert error.partition is not None
    assert "schema.contract=evolve" in str(error)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("contract", ["evolve", "discard_value"])
def test_a_column_that_is_added_is_left_out_until_the_stream_is_opened_again(
    kind: str, contract: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = TABLES[kind](tmp_path)
    rows = grown(kind, table, 3, schema__contract=contract)
    assert sorted(row["number"] for row in rows) == [2, 3]
    assert all("note" not in row for row in rows)
    warned = [one for one in caplog.messages if "'note'" in one]
    assert len(warned) == 1
    with streamfactory.open(table_properties(kind, table.path), follow=False) as stream:
        again = [row for batch in stream for row in batch.rows.to_pylist()]
    notes = {row["number"]: row["note"] for row in again}
    assert notes == {1: None, 2: None, 3: "x"}


@pytest.mark.parametrize("kind", TYPES)
def test_rows_with_a_value_in_the_added_column_are_dropped_and_counted(
    kind: str, tmp_path: Path
) -> None:
    table = TABLES[kind](tmp_path)
    rows = grown(kind, table, 2, schema__contract="discard_row")
    assert [row["number"] for row in rows] == [2]


@pytest.mark.parametrize("kind", TYPES)
def test_the_rows_that_are_dropped_have_a_budget(kind: str, tmp_path: Path) -> None:
    table = TABLES[kind](tmp_path)
    with pytest.raises(ErrorBudgetExceeded, match="'note'"):
        grown(kind, table, 3, schema__contract="discard_row", max__errors="0")


def test_selected_columns_are_read_whatever_is_added(tmp_path: Path) -> None:
    table = Delta(tmp_path)
    at = table_properties("delta", table.path)
    with streamfactory.open(at, follow=True, columns=["number"]) as stream:
        table.grow()
        assert sorted(row["number"] for row in read(stream, 3)) == [1, 2, 3]


def test_a_value_of_a_widened_column_is_null_where_it_does_not_fit(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t"
    narrow = pa.table({"number": pa.array([1], pa.int32())})
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(str(path), narrow, configuration=feed)
    at = table_properties("delta", path, schema__contract="discard_value")
    with streamfactory.open(at, follow=True) as stream:
        wide = pa.table({"number": pa.array([7, 1 << 40], pa.int64())})
        write_deltalake(str(path), wide, mode="overwrite", schema_mode="overwrite")
        found: list[Row] = []
        deadline = time.monotonic() + DEADLINE
        while len(found) < 4 and time.monotonic() < deadline:
            batch = stream.next_batch(1.0)
            found += [] if batch is None else batch.rows.to_pylist()
    assert [(row["number"], row["_change"]) for row in found] == [
        (1, "insert"),
        (1, "delete"),
        (7, "insert"),
        (None, "insert"),
    ]


def overwritten(path: Path, *kinds: pa.DataType) -> None:
    """A table whose column changes its type with each commit."""
    feed = {"delta.enableChangeDataFeed": "true"}
    for number, kind in enumerate(kinds):
        rows = pa.table({"number": pa.array([number]).cast(kind)})
        how: Any = {"mode": "overwrite", "schema_mode": "overwrite"} if number else {}
        write_deltalake(str(path), rows, configuration=feed, **how)


def test_rows_older_than_a_change_of_type_are_not_read_by_opening_again(
    tmp_path: Path,
) -> None:
    overwritten(tmp_path / "t", pa.string(), pa.int64())
    at = table_properties("delta", tmp_path / "t", stream__delta__start__commit="0")
    with (
        streamfactory.open(at, follow=False) as stream,
        pytest.raises(SchemaMismatch, match="start behind them") as caught,
    ):
        list(stream)
    assert "open the stream again" not in str(caught.value)
    at["schema.contract"] = "discard_value"
    with streamfactory.open(at, follow=False) as stream:
        rows = [row["number"] for batch in stream for row in batch.rows.to_pylist()]
    assert (rows[0], rows[-1]) == (None, 1)


def test_rows_older_than_a_wider_type_are_read(tmp_path: Path) -> None:
    overwritten(tmp_path / "t", pa.int16(), pa.int32(), pa.int64())
    at = table_properties("delta", tmp_path / "t", stream__delta__start__commit="0")
    with streamfactory.open(at, follow=False) as stream:
        rows = [row["number"] for batch in stream for row in batch.rows.to_pylist()]
    assert rows == [0, 0, 1, 1, 2]


def test_nulls_where_the_table_has_none_are_not_mended_by_opening_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t"
    schema = pa.schema([pa.field("number", pa.int64(), nullable=False)])
    write_deltalake(str(path), pa.table([pa.array([1])], schema=schema))
    (file,) = path.glob("*.parquet")
    pq.write_table(pa.table({"number": pa.array([None], pa.int64())}), file)
    with (
        streamfactory.open(table_properties("delta", path), follow=False) as stream,
        pytest.raises(SchemaMismatch, match="repair the rows") as caught,
    ):
        list(stream)
    assert "open the stream again" not in str(caught.value)


# --- fields within columns ------------------------------------------------------------

ONE, TWO = (
    pa.struct([("a", pa.int64())]),
    pa.struct([("a", pa.int64()), ("b", pa.int64())]),
)
NESTED: dict[str, tuple[pa.DataType, pa.DataType, Callable[[Row], Any]]] = {
    "o.b": (ONE, TWO, lambda value: value),
    "o.element.b": (pa.list_(ONE), pa.list_(TWO), lambda value: [value]),
    "o.value.b": (
        pa.map_(pa.string(), ONE),
        pa.map_(pa.string(), TWO),
        lambda value: [("k", value)],
    ),
}
"""By the dotted path of the field that is added: its column before and with it, and the
column's value that has a value within."""


def nested(path: str, folder: Path, **options: str) -> tuple[list[Any], list[Any]]:
    """The rows of a Delta table that a stream follows while a field is added.

    Returns:
        What the stream returned of the new rows, and a stream that is opened again.
    """
    before, behind, make = NESTED[path]
    table, (was, none, some) = (
        str(folder / "t"),
        [make(value) for value in ({"a": 1}, {"a": 2, "b": None}, {"a": 3, "b": 9})],
    )
    one = pa.table({"number": [1], "o": pa.array([was], before)})
    more = pa.table({"number": [2, 3], "o": pa.array([none, some], behind)})
    write_deltalake(table, one)
    at = table_properties("delta", folder / "t", **options)
    with streamfactory.open(at, follow=True) as stream:
        assert [row["o"] for row in read(stream, 1)] == [was]
        write_deltalake(table, more, mode="append", schema_mode="merge")
        last = 2 if options.get("schema__contract") == "discard_row" else 3
        new = [row["o"] for row in read(stream, last)]
    with streamfactory.open(at, follow=False) as stream:
        again = [row["o"] for batch in stream for row in batch.rows.to_pylist()]
    without = [make({"a": 2}), make({"a": 3})]
    assert again[1:] == [none, some]
    return new, without


@pytest.mark.parametrize("path", NESTED)
@pytest.mark.parametrize("contract", [None, "freeze"])
def test_a_field_that_is_added_within_a_column_is_named_by_its_path(
    path: str, contract: str | None, tmp_path: Path
) -> None:
    options = {} if contract is None else {"schema__contract": contract}
    with pytest.raises(SchemaMismatch, match=f"'{path}'") as caught:
        nested(path, tmp_path, **options)
    assert "schema.contract=evolve" in str(caught.value)


@pytest.mark.parametrize("path", NESTED)
@pytest.mark.parametrize("contract", ["evolve", "discard_value"])
def test_a_field_that_is_added_within_a_column_is_left_out_with_a_warning(
    path: str, contract: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found, without = nested(path, tmp_path, schema__contract=contract)
    assert found == without
    assert len([one for one in caplog.messages if f"'{path}'" in one]) == 1


@pytest.mark.parametrize("path", NESTED)
def test_rows_with_a_value_in_a_field_that_is_added_are_dropped(
    path: str, tmp_path: Path
) -> None:
    found, without = nested(path, tmp_path, schema__contract="discard_row")
    assert found == without[:1]
