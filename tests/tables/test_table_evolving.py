"""Columns of tables that are written evolve, or rows are discarded: schema.contract."""

from __future__ import annotations

import contextlib
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.tables.lakes import ID, DeltaLake, IcebergLake

import streamfactory
from streamfactory.spi import SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.tables.lakes import Lake

    from streamfactory.wiring.writing.sink import Sink

EVOLVE = {"schema.contract": "evolve"}


@pytest.fixture(params=[DeltaLake, IcebergLake], ids=lambda kind: kind.kind)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    made: Lake = request.param(tmp_path / "lake")
    return made


@pytest.fixture
def sink(lake: Lake) -> Iterator[Sink]:
    with lake.sink(**EVOLVE) as opened:
        yield opened


def read(lake: Lake) -> list[dict[str, Any]]:
    """All rows, as a stream has them."""
    at = {**lake.config, f"stream.{lake.kind}.change.columns": "false"}
    with streamfactory.open(at, follow=False) as stream:
        rows: list[dict[str, Any]] = stream.to_reader().read_all().to_pylist()
        return rows


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


# --- evolve ---------------------------------------------------------------------------


def test_columns_and_fields_within_columns_are_added(lake: Lake, sink: Sink) -> None:
    one: dict[str, Any] = {
        "id": 1,
        "o": {"x": 1},
        "items": [{"n": 1}],
        "tags": [("k", {"n": 1})],
    }
    first = pa.schema(
        [
            ("id", pa.int64()),
            ("o", pa.struct([("x", pa.int64())])),
            ("items", pa.list_(pa.struct([("n", pa.int64())]))),
            ("tags", pa.map_(pa.string(), pa.struct([("n", pa.int64())]))),
        ]
    )
    more = pa.struct([("x", pa.int64()), ("deep", pa.struct([("y", pa.string())]))])
    item = pa.struct([("n", pa.int64()), ("price", pa.float64())])
    second = pa.schema(
        [
            ("extra", pa.string()),
            ("id", pa.int64()),
            ("items", pa.list_(item)),
            ("o", more),
            ("tags", pa.map_(pa.string(), item)),
        ]
    )
    two: dict[str, Any] = {
        "id": 2,
        "o": {"x": 2, "deep": {"y": "b"}},
        "items": [{"n": 2, "price": 2.5}],
        "tags": [("k", {"n": 2, "price": 0.5})],
        "extra": "e",
    }
    three: dict[str, Any] = {**one, "id": 3}
    for rows, schema in ((one, first), (two, second), (three, first)):
        sink.put(pa.Table.from_pylist([rows], schema))

    def whole(row: dict[str, Any]) -> dict[str, Any]:
        return {
            **row,
            "o": {"x": row["o"]["x"], "deep": None},
            "items": [{"n": 1, "price": None}],
            "tags": [("k", {"n": 1, "price": None})],
            "extra": None,
        }

    expected = [whole(one), two, whole(three)]
    assert by_id(read(lake)) == expected
    assert by_id(lake.rows()) == expected


def test_a_type_is_widened_where_the_format_does(lake: Lake, sink: Sink) -> None:
    narrow = pa.schema(
        [
            ("id", pa.int32()),
            ("amount", pa.float32()),
            ("price", pa.decimal128(5, 2)),
            ("o", pa.struct([("l", pa.list_(pa.int32()))])),
        ]
    )
    wide = pa.schema(
        [
            ("id", pa.int64()),
            ("amount", pa.float64()),
            ("price", pa.decimal128(9, 2)),
            ("o", pa.struct([("l", pa.list_(pa.int64()))])),
        ]
    )
    row = {"id": 1, "amount": 0.5, "price": None, "o": {"l": [1]}}
    big = {"id": 1 << 40, "amount": 0.1, "price": None, "o": {"l": [1 << 40]}}
    sink.put(pa.Table.from_pylist([row], narrow))
    if isinstance(lake, DeltaLake):
        with pytest.raises(SchemaMismatch, match="'id'"):
            sink.put(pa.Table.from_pylist([big], wide))
        sink.put(pa.Table.from_pylist([{**row, "id": 2}], wide))  # its values fit
        allow_widening(lake)
    with lake.sink(**EVOLVE) as again:
        again.put(pa.Table.from_pylist([big], wide))
    found = by_id(read(lake))
    assert found[0] == row
    assert found[-1] == big
    with lake.sink(**EVOLVE) as again:
        schema = again.schema
        assert schema is not None
        assert [str(field.type) for field in schema] == [
            "int64",
            "double",
            "decimal128(9, 2)",
            "struct<l: list<element: int64>>",
        ]


def allow_widening(lake: DeltaLake) -> None:
    """As ``ALTER TABLE ... SET TBLPROPERTIES`` does."""
    log = lake.path / "_delta_log"
    first = map(json.loads, (log / f"{0:020}.json").read_text().splitlines())
    metadata = next(one["metaData"] for one in first if "metaData" in one)
    metadata["configuration"] = {"delta.enableTypeWidening": "true"}
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["typeWidening"],
        "writerFeatures": ["typeWidening", "appendOnly", "invariants"],
    }
    version = len([*log.glob("*.json")])
    with (log / f"{version:020}.json").open("w") as file:
        for action in ({"protocol": protocol}, {"metaData": metadata}):
            file.write(json.dumps(action) + "\n")


def test_a_widened_type_is_recorded_as_the_protocol_has_it(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path / "lake")
    inner = pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.int16())))])
    outer = pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.int32())))])
    with lake.sink(**EVOLVE) as sink:
        sink.put(pa.table({"o": pa.array([None], inner)}))
    allow_widening(lake)
    with lake.sink(**EVOLVE) as sink:
        sink.put(pa.table({"o": pa.array([None], outer)}))
    last = sorted((lake.path / "_delta_log").glob("*.json"))[-2]
    actions = [*map(json.loads, last.read_text().splitlines())]
    (metadata,) = [one["metaData"] for one in actions if "metaData" in one]
    assert metadata["configuration"] == {"delta.enableTypeWidening": "true"}
    (column,) = json.loads(metadata["schemaString"])["fields"]
    (field,) = column["type"]["fields"]
    assert field["metadata"]["delta.typeChanges"] == [
        {"fromType": "short", "toType": "integer", "fieldPath": "value.element"}
    ]


def test_columns_that_a_table_has_already_make_no_commit(
    lake: Lake, sink: Sink
) -> None:
    sink.put({"id": [1], "more": ["a"]})
    before = commits(lake)
    sink.put({"id": [2]})
    sink.put({"more": ["b"], "id": [3]})
    assert commits(lake) == before + 2


def commits(lake: Lake) -> int:
    """Versions of the table's metadata."""
    if isinstance(lake, DeltaLake):
        return len([*(lake.path / "_delta_log").glob("*.json")])
    assert isinstance(lake, IcebergLake)
    with lake.table() as table:
        return len(table.metadata.metadata_log)


@pytest.mark.parametrize("contract", [None, "freeze"])
def test_without_evolve_new_columns_are_refused(
    contract: str | None, lake: Lake
) -> None:
    lake.create(ID)
    with (
        lake.sink(**({"schema.contract": contract} if contract else {})) as sink,
        pytest.raises(SchemaMismatch, match="'more'"),
    ):
        sink.put({"id": [1], "more": [1]})
    assert lake.schema().names == ["id"]


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ({"id": [1], "o": [{"x": 1}]}, None),
        ({"id": ["text"]}, "'id'"),
        ({"id": [1], "ID": [2]}, "the table has 'id'"),
        ({"id": [1], "o": pa.array([None], pa.struct([("u", pa.uint64())]))}, r"o\.u"),
    ],
    ids=["fits", "another type", "another case", "a type that the format lacks"],
)
def test_what_cannot_be_added_is_refused_at_the_start(
    rows: Any, match: str | None, lake: Lake
) -> None:
    lake.create(ID)
    before = commits(lake)
    with lake.sink(**EVOLVE) as sink:
        if match is None:
            sink.check(pa.table(rows).schema)
        else:
            with pytest.raises(SchemaMismatch, match=match):
                sink.writer(pa.table(rows).schema)
    assert commits(lake) == before
    assert lake.schema().names == ["id"]


def test_local_times_are_added_to_a_delta_table_that_has_their_feature(
    tmp_path: Path,
) -> None:
    lake = DeltaLake(tmp_path / "lake")
    lake.create(ID)
    rows = pa.table({"id": [1], "at": pa.array([0], pa.timestamp("us"))})
    with (
        lake.sink(**EVOLVE) as sink,
        pytest.raises(SchemaMismatch, match=r"timestampNtz") as caught,
    ):
        sink.put(rows)
    assert "cast it to timestamp" in str(caught.value)


def test_a_table_that_is_created_has_declared_and_other_columns(lake: Lake) -> None:
    with lake.sink(schema="id bigint not null", **EVOLVE) as sink:
        sink.put({"id": [1], "more": ["a"]})
    assert lake.schema().names == ["id", "more"]
    assert not lake.schema().field("id").nullable


def test_a_process_that_ends_between_columns_and_rows_loses_and_doubles_nothing(
    lake: Lake,
) -> None:
    lake.create(ID)
    rows = pa.table({"id": [1], "more": ["a"]})
    with lake.sink(**EVOLVE) as sink:
        # As a process that is killed: neither committed nor aborted.
        sink.writer(rows.schema, writer_id="w", epoch=0)
    assert lake.schema().names == ["id", "more"]
    for _ in range(2):
        with lake.sink(**EVOLVE) as again:
            again.put(rows, writer_id="w", epoch=0)
    assert lake.rows() == [{"id": 1, "more": "a"}]


def test_commits_of_others_between_are_no_obstacle(
    lake: Lake, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.put({"id": [0]})
    evolve: Callable[..., bool] = lake.committing.evolve
    left = [None]

    def disturbed(*arguments: Any) -> bool:
        if left:
            left.pop()
            lake.widen()  # adds a column of the same name
        return evolve(*arguments)

    monkeypatch.setattr(lake.committing, "evolve", disturbed)
    sink.put({"id": [1], "more": ["a"], "other": [True]})
    assert by_id(lake.rows()) == [
        {"id": 0, "more": None, "other": None},
        {"id": 1, "more": "a", "other": True},
        {"id": 7, "more": "x", "other": None},
    ]


def test_tasks_that_add_the_same_columns_at_once_add_them_once(lake: Lake) -> None:
    lake.create(ID)
    rows = pa.table({"id": [1], "a": [1], "b": [{"c": 1}]}).to_batches()[0]

    def stage(task: int) -> Any:
        with (
            lake.sink(**EVOLVE) as sink,
            contextlib.closing(
                sink.writer(rows.schema, writer_id="w", epoch=0, task=task)
            ) as writer,
        ):
            writer.write(rows)
            return writer.commit()

    with ThreadPoolExecutor(4) as pool:
        messages = [*pool.map(stage, range(4))]
    with (
        lake.sink(**EVOLVE) as sink,
        contextlib.closing(sink.committer(writer_id="w")) as committer,
    ):
        assert committer.commit(0, messages)
    assert lake.rows() == 4 * [{"id": 1, "a": 1, "b": {"c": 1}}]


def test_a_table_that_is_written_by_key_evolves(lake: Lake) -> None:
    with lake.sink(**EVOLVE, **{"producer.key.columns": "id"}) as sink:
        sink.put([{"id": 1, "a": "x"}, {"id": 2, "a": "y"}])
        sink.put([{"id": 1, "b": 5, "_change": "update_after"}])
        sink.put([{"id": 2, "_change": "delete"}])
    assert lake.rows() == [{"id": 1, "a": None, "b": 5}]


def test_files_are_published_and_tables_copied_into_tables_that_evolve(
    lake: Lake, tmp_path: Path
) -> None:
    lake.create(ID)
    source = tmp_path / "rows.csv"
    source.write_text("id,city\n1,rome\n")
    assert streamfactory.publish(lake.config, source, options=EVOLVE).rows == 1
    other = DeltaLake(tmp_path / "other")
    with other.sink() as sink:
        sink.put({"id": [2], "more": [0.5]})
    at = {**other.config, "stream.delta.change.columns": "false"}
    for _ in range(2):
        streamfactory.copy(at, {**lake.config, **EVOLVE}, writer_id="c")
    assert by_id(lake.rows()) == [
        {"id": 1, "city": "rome", "more": None},
        {"id": 2, "city": None, "more": 0.5},
    ]


# --- discard --------------------------------------------------------------------------


def test_columns_and_values_that_do_not_fit_are_discarded(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    lake.create(pa.schema([("id", pa.int64()), ("n", pa.int32())]))
    rows = pa.table({"id": [1, 2], "n": [1, 1 << 40], "more": ["a", None]})
    with (
        caplog.at_level(logging.WARNING),
        lake.sink(**{"schema.contract": "discard_value"}) as sink,
    ):
        sink.put(rows)
    assert by_id(lake.rows()) == [{"id": 1, "n": 1}, {"id": 2, "n": None}]
    text = caplog.text
    assert "column 'more' is not in the schema of the stream: dropped" in text
    assert "column 'n' has values that are not of type int" in text


def test_rows_that_do_not_fit_are_discarded_and_counted(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    lake.create(pa.schema([("id", pa.int64()), ("n", pa.int32())]))
    rows = pa.table(
        {"id": [1, 2, 3], "n": [1, 1 << 40, 3], "more": ["a", None, None]}
    ).to_batches()[0]
    with (
        caplog.at_level(logging.WARNING),
        lake.sink(**{"schema.contract": "discard_row"}) as sink,
        contextlib.closing(sink.writer(rows.schema)) as writer,
        contextlib.closing(sink.committer()) as committer,
    ):
        writer.write(rows)
        committer.commit(0, [writer.commit()])
        assert (writer.counters.rows, writer.counters.discarded) == (1, 2)
    assert lake.rows() == [{"id": 3, "n": 3}]
    assert "column 'more' is not in the declared schema" in caplog.text
