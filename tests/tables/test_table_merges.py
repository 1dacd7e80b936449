"""Tables that are written by key: rows are inserted, updated and deleted, and replaced.

What holds for Delta and Iceberg alike.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.tables import merge_proving
from tests.tables.lakes import DeltaLake, IcebergLake, staged

import streamfactory
from streamfactory.spi import MisuseError, SchemaMismatch, Unsupported
from streamfactory.tables import merging

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.tables.lakes import Lake

    from streamfactory.wiring.writing.sink import Sink


@pytest.fixture(params=[DeltaLake, IcebergLake], ids=lambda kind: kind.kind)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    made: Lake = request.param(tmp_path / "lake")
    made.config["producer.key.columns"] = "id"
    return made


@pytest.fixture
def sink(lake: Lake) -> Iterator[Sink]:
    with lake.sink() as opened:
        yield opened


def rows_of(lake: Lake) -> dict[int, Any]:
    """The value of each id; each is there once."""
    rows = lake.rows()
    found = {row["id"]: row["v"] for row in rows}
    assert len(found) == len(rows)
    return found


# --- rows and changes -----------------------------------------------------------------


def test_rows_replace_those_of_their_key(lake: Lake, sink: Sink) -> None:
    sink.put({"id": [1, 2, 3], "v": ["a", "b", "c"]})
    sink.put({"id": [2, 4], "v": ["B", "d"]})
    assert rows_of(lake) == {1: "a", 2: "B", 3: "c", 4: "d"}


def test_changes_are_applied_and_their_columns_left_out(lake: Lake, sink: Sink) -> None:
    kinds = ["insert", "insert", "update_before", "update_after", "delete", None]
    changes = {"id": [1, 2, 2, 2, 1, 3], "v": ["a", "b", "b", "B", None, "c"]}
    sink.put({**changes, "_change": kinds, "_commit": ["7"] * 6})
    assert rows_of(lake) == {2: "B", 3: "c"}
    assert lake.schema().names == ["id", "v"]
    sink.put({"id": [2, 9], "_change": ["delete", "delete"]})
    assert rows_of(lake) == {3: "c"}


def test_the_last_change_of_a_key_counts_across_batches(lake: Lake, sink: Sink) -> None:
    changes = [
        {"id": [1, 2, 3], "v": ["a", "b", "c"], "_change": ["insert"] * 3},
        {"id": [2, 3], "v": ["B", None], "_change": ["update_after", "delete"]},
        {"id": [3, 1], "v": ["C", None], "_change": ["insert", "delete"]},
        {"id": [4], "v": ["d"], "_change": ["insert"]},
    ]
    batches = [pa.RecordBatch.from_pydict(one) for one in changes]
    with contextlib.closing(sink.committer(writer_id="w")) as committer:
        with sink.writer(batches[0].schema, writer_id="w", epoch=0) as writer:
            for batch in batches:
                writer.write(batch)
            message = writer.commit()
        assert committer.commit(0, [message])
    assert rows_of(lake) == {2: "B", 3: "C", 4: "d"}
    # No file is left that the table does not have: of keys, or of rows twice.
    assert len(lake.data_files()) == 1


def test_keys_of_several_columns_and_types(lake: Lake) -> None:
    lake.config["producer.key.columns"] = "a,b"
    rows = {"a": ["x", "x", "y"], "b": pa.array([1, 2, 1], pa.int16()), "v": [1, 2, 3]}
    more = {"a": ["x", "y"], "b": pa.array([2, 1], pa.int16()), "v": [20, 0]}
    with lake.sink() as sink:
        sink.put(pa.table(rows))
        sink.put(pa.table({**more, "_change": ["update_after", "delete"]}))
    found = [(row["a"], row["b"], row["v"]) for row in lake.rows()]
    assert sorted(found) == [("x", 1, 1), ("x", 2, 20)]


def test_a_row_that_is_deleted_may_have_its_key_only(lake: Lake) -> None:
    with lake.sink(schema="id bigint not null, v string not null") as sink:
        sink.put({"id": [1, 2], "v": ["a", "b"]})
    with lake.sink() as sink:
        sink.put({"id": [1], "_change": ["delete"]})
        assert rows_of(lake) == {2: "b"}
        with pytest.raises(SchemaMismatch, match="'v'"):
            sink.put({"id": [3], "_change": ["insert"]})
    assert rows_of(lake) == {2: "b"}


def test_a_table_that_changes_is_copied_by_key(tmp_path: Path) -> None:
    verdict = merge_proving.prove(2, 0, tmp_path)
    assert (verdict.lost, verdict.twice) == (0, 0)


# --- which files are written again ----------------------------------------------------


def test_files_whose_statistics_exclude_the_keys_are_left(
    lake: Lake, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned: list[str] = []
    matching = merging._matching

    def recorded(table: Any, piece: Any, keys: pa.Table) -> Any:
        scanned.append(piece.path)
        return matching(table, piece, keys)

    monkeypatch.setattr(merging, "_matching", recorded)
    for first in (0, 10, 20):
        sink.put({"id": [first, first + 9], "v": ["a", "b"]})
    assert scanned == []
    sink.put({"id": [12], "v": ["c"]})  # within the bounds of one, which lacks it
    assert len(scanned) == 1
    before = set(lake.data_files())
    sink.put({"id": [29], "v": ["B"]})
    assert len(scanned) == 2
    assert rows_of(lake)[29] == "B"
    # Of the row that is left beside it, and of the new one.
    assert len(set(lake.data_files()) - before) == 2


def test_a_file_is_read_in_pieces(
    lake: Lake, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "_SCANNED", 3)
    monkeypatch.setattr(merging, "COPIED", 2)
    sink.put({"id": list(range(20)), "v": ["a"] * 20})
    sink.put({"id": [0, 7, 19], "_change": ["delete"] * 3})
    assert sorted(rows_of(lake)) == [n for n in range(20) if n not in (0, 7, 19)]


# --- others commit meanwhile, and epochs come again -----------------------------------


def test_a_row_that_is_committed_between_is_replaced(
    lake: Lake, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.put({"id": [1, 5], "v": ["a", "e"]}, writer_id="w")
    before = len(lake.data_files())
    lake.disturb(monkeypatch, lambda: lake.append({"id": [2], "v": ["foreign"]}))
    sink.put({"id": [1, 2], "v": ["A", "ours"]}, writer_id="w")
    assert rows_of(lake) == {1: "A", 2: "ours", 5: "e"}
    # Beside those: the foreign one, ours, and what was left of the first one, once.
    assert len(lake.data_files()) == before + 3


def test_an_epoch_by_key_that_is_repeated_has_no_effect(lake: Lake, sink: Sink) -> None:
    change = {"id": [1], "v": ["a"], "_change": ["insert"]}
    assert sink.put(change, writer_id="w", epoch=0)
    assert sink.put({"id": [1], "v": ["b"]}, writer_id="w", epoch=1)
    assert sink.put({"id": [1], "v": ["b"]}, writer_id="w", epoch=1) is False
    with lake.sink() as again:
        assert again.put({"id": [1], "v": ["b"]}, writer_id="w", epoch=1) is False
    assert rows_of(lake) == {1: "b"}


def test_keys_that_two_tasks_change_are_refused(lake: Lake, sink: Sink) -> None:
    with contextlib.closing(sink.committer(writer_id="w")) as committer:
        messages = [task(sink, number, ids) for number, ids in ((0, [1, 2]), (1, [2]))]
        with pytest.raises(MisuseError, match=r"more than one task.*'id': 2.*order"):
            committer.commit(0, messages)
        committer.abort(0, messages)
        apart = [task(sink, number, ids) for number, ids in ((0, [1, 2]), (1, [3]))]
        assert committer.commit(0, apart)
    assert lake.ids() == [1, 2, 3]


def test_keys_that_two_tasks_write_are_refused_where_all_rows_are_replaced(
    lake: Lake, sink: Sink
) -> None:
    with contextlib.closing(sink.committer(writer_id="w")) as committer:
        twice = [task(sink, number, [2]) for number in (0, 1)]
        with pytest.raises(MisuseError, match="more than one task"):
            committer.commit(0, twice, replace_all=True)
        committer.abort(0, twice)
        apart = [task(sink, number, [number]) for number in (0, 1)]
        assert committer.commit(0, apart, replace_all=True)
    assert lake.ids() == [0, 1]


def task(sink: Sink, number: int, ids: list[int]) -> Any:
    """The message of a task of epoch 0 of the writer ``w``."""
    rows = pa.record_batch({"id": ids})
    with sink.writer(rows.schema, writer_id="w", epoch=0, task=number) as writer:
        writer.write(rows)
        return writer.commit()


# --- what is refused ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "error", "match"),
    [
        ({"id": [1], "_change": ["upsert"]}, SchemaMismatch, "no kind of change"),
        ({"id": [1, None]}, SchemaMismatch, "null in column 'id'"),
        ({"v": ["a"]}, SchemaMismatch, "null in column 'id'"),
        ({"id": list(range(200))}, Unsupported, "key.max.bytes"),
    ],
)
def test_rows_without_a_sound_key_are_refused(
    lake: Lake, rows: dict[str, Any], error: type[Exception], match: str
) -> None:
    limit = {f"stream.{lake.kind}.key.max.bytes": "1024"}
    with lake.sink(**limit) as sink:
        sink.put({"id": [7], "v": ["a"]})
        with pytest.raises(error, match=match):
            sink.put(rows)
    assert rows_of(lake) == {7: "a"}
    assert len(lake.data_files()) == 1


def test_a_table_that_has_a_column_of_changes_itself_is_refused(lake: Lake) -> None:
    lake.create(pa.schema([("id", pa.int64()), ("_commit", pa.string())]))
    with lake.sink() as sink, pytest.raises(SchemaMismatch, match="column '_commit'"):
        sink.put({"id": [1], "_commit": ["x"]})
    assert lake.rows() == []


@pytest.mark.parametrize("kind", [pa.float64(), pa.list_(pa.int64())])
def test_a_column_without_sound_equality_is_no_key(
    sink: Sink, kind: pa.DataType
) -> None:
    with pytest.raises(SchemaMismatch, match="cannot be a key"):
        sink.put(pa.table({"id": pa.array([None], kind)}))


@pytest.mark.parametrize("key", ["delta.appendOnly", "delta.enableChangeDataFeed"])
def test_a_delta_table_that_keeps_its_rows_is_not_merged(
    tmp_path: Path, key: str
) -> None:
    lake = DeltaLake(tmp_path)
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    DeltaTable.create(str(lake.path), schema, configuration={key: "true"})
    lake.append({"id": [1], "v": ["a"]})
    lake.config["producer.key.columns"] = "id"
    with lake.sink() as sink, pytest.raises(Unsupported, match=f"{key}=false"):
        sink.put({"id": [1], "v": ["b"]})
    assert rows_of(lake) == {1: "a"}


def test_a_row_moves_to_another_partition_of_a_delta_table(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    DeltaTable.create(str(lake.path), schema, partition_by=["v"])
    lake.config["producer.key.columns"] = "id"
    with lake.sink() as sink:
        sink.put({"id": [1, 2, 3], "v": ["a", "a", "b"]})
        sink.put({"id": [1], "v": ["b"]})
        assert rows_of(lake) == {1: "b", 2: "a", 3: "b"}
        sink.put({"id": [2], "_change": ["delete"]})
    assert rows_of(lake) == {1: "b", 3: "b"}


# --- replaced -------------------------------------------------------------------------


def test_an_epoch_replaces_all_rows(lake: Lake) -> None:
    del lake.config["producer.key.columns"]
    with lake.sink() as sink:
        sink.put({"id": [1, 2]}, writer_id="w", epoch=0)
        lake.append({"id": [3]})
        message = staged(sink, 1, [4])
        with contextlib.closing(sink.committer(writer_id="w")) as committer:
            assert committer.commit(1, [message], replace_all=True)
            assert not committer.commit(1, [message], replace_all=True)
        assert lake.ids() == [4]
        sink.put({"id": [5]}, writer_id="w", epoch=2)
    assert lake.ids() == [4, 5]
    with streamfactory.open(lake.config, follow=False) as stream:
        assert sorted(stream.to_reader().read_all()["id"].to_pylist()) == [4, 5]
