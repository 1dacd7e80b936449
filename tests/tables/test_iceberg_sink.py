"""Iceberg tables as sinks: each epoch is a snapshot, once, whoever commits between."""

from __future__ import annotations

import contextlib
import pickle
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.types import StringType
from tests.tables import sink_proving

import streamfactory
from streamfactory.backends.iceberg.appending import IcebergAppender
from streamfactory.spi import (
    ConfigError,
    ConnectionFailed,
    CorruptData,
    IncarnationChanged,
    Partition,
    Position,
    SchemaMismatch,
    TopicNotFound,
    Unsupported,
    WriterFenced,
)
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyiceberg.table import Table

    from streamfactory.wiring.writing.sink import Sink

ID = pa.schema([("id", pa.int64())])
NAME = "shop.orders"


class Lake:
    """A table of a catalog in a folder, as pyiceberg has it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = {
            "streamType": "iceberg",
            "stream.iceberg.table": NAME,
            "stream.iceberg.warehouse": str(folder),
        }

    def sink(self, **options: Any) -> Sink:
        return open_sink(self.config, options=options)

    @contextlib.contextmanager
    def catalog(self) -> Iterator[SqlCatalog]:
        self.folder.mkdir(exist_ok=True)
        catalog = SqlCatalog(
            "default",
            uri=f"sqlite:///{self.folder}/catalog.db",
            warehouse=f"file://{self.folder}",
        )
        with contextlib.closing(catalog):
            yield catalog

    @contextlib.contextmanager
    def table(self) -> Iterator[Table]:
        with self.catalog() as catalog:
            yield catalog.load_table(NAME)

    def create(self, schema: pa.Schema, **arguments: Any) -> None:
        with self.catalog() as catalog:
            catalog.create_namespace_if_not_exists("shop")
            catalog.create_table(NAME, schema, **arguments)

    def append(self, rows: dict[str, list[Any]]) -> None:
        """A foreign commit."""
        with self.table() as table:
            table.append(pa.table(rows))

    def rows(self) -> list[dict[str, Any]]:
        with self.table() as table:
            found: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
            return found

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.rows())

    def last(self, writer: str = "w") -> tuple[int | None, Position | None]:
        """What another instance finds of a writer, which it claims."""
        with (
            self.sink() as sink,
            contextlib.closing(sink.committer(writer_id=writer)) as committer,
        ):
            last = committer.last()
            return (None, None) if last is None else (last.epoch, last.source_position)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture
def sink(lake: Lake) -> Iterator[Sink]:
    with lake.sink() as opened:
        yield opened


def staged(sink: Sink, epoch: int, numbers: list[int]) -> Any:
    """The message of a task."""
    rows = pa.record_batch([pa.array(numbers, pa.int64())], schema=ID)
    with contextlib.closing(
        sink.writer(rows.schema, writer_id="w", epoch=epoch)
    ) as writer:
        writer.write(rows)
        return writer.commit()


# --- what is committed ----------------------------------------------------------------


def test_an_epoch_is_a_snapshot_with_its_writer_epoch_and_position(
    lake: Lake, sink: Sink
) -> None:
    position = Position({Partition("a", 0): 7})
    assert sink.put({"id": [1, 2]}, writer_id="w", epoch=3, source_position=position)
    with lake.table() as table:
        snapshot = table.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        found = snapshot.summary.additional_properties
        assert "commit.retry.num-retries" not in table.properties
    assert found["added-records"] == "2"
    assert found["streamfactory.writer"] == "w"
    assert found["streamfactory.epoch"] == "3"
    assert found["streamfactory.position"] == position.to_json()
    assert lake.ids() == [1, 2]
    assert sink.put({"id": [1, 2]}, writer_id="w", epoch=3) is False
    with lake.sink() as again:
        assert again.put({"id": [1, 2]}, writer_id="w", epoch=3) is False
    assert lake.last() == (3, position)
    assert lake.ids() == [1, 2]


def test_a_committed_epoch_is_read_through_the_catalog_at_once(
    lake: Lake, sink: Sink
) -> None:
    sink.put({"id": [0]}, writer_id="w")
    options = {"stream.iceberg.poll.interval.millis": "5"}
    with streamfactory.open({**lake.config, **options}, follow=True) as stream:
        assert next(iter(stream)).rows["id"].to_pylist() == [0]
        # By number it would be the newest metadata.
        orphan = next(
            (lake.folder / "shop" / "orders" / "metadata").glob("00002*.json")
        )
        (orphan.parent / "00009-x.metadata.json").write_text(orphan.read_text())
        sink.put({"id": [1]}, writer_id="w")
        assert next(iter(stream)).rows["id"].to_pylist() == [1]


def test_what_is_known_of_a_writer_outlives_its_snapshot(
    lake: Lake, sink: Sink
) -> None:
    position = Position({Partition("a", 0): 7})
    sink.put({"id": [1]}, writer_id="w", epoch=5, source_position=position)
    for number in range(3):
        lake.append({"id": [number]})
    with lake.table() as table:
        later = datetime.now() + timedelta(days=1)  # noqa: DTZ005 - as pyiceberg's
        table.maintenance.expire_snapshots().older_than(later).commit()
        assert len(table.refresh().metadata.snapshots) == 1
    assert sink.put({"id": [1]}, writer_id="w", epoch=5) is False
    assert lake.last() == (5, position)
    assert lake.ids() == [0, 1, 1, 2]


def test_a_position_that_was_rolled_back_does_not_drop_later_epochs(
    lake: Lake, sink: Sink
) -> None:
    """Rows that a rollback removed are not written again: docs/tables.md says so."""
    sink.put({"id": [0]}, writer_id="w", epoch=0)
    with lake.table() as table:
        first = table.metadata.current_snapshot_id
        assert first is not None
    sink.put({"id": [1]}, writer_id="w", epoch=1)
    with lake.table() as table:
        table.manage_snapshots().rollback_to_snapshot(first).commit()
    assert lake.ids() == [0]
    assert sink.put({"id": [1]}, writer_id="w", epoch=1) is False
    assert sink.put({"id": [2]}, writer_id="w", epoch=2)
    # Another writer id is another generation.
    assert sink.put({"id": [1]}, writer_id="w2", epoch=0)
    assert lake.ids() == [0, 1, 2]


def test_queries_skip_files_by_the_bounds_of_their_columns(
    lake: Lake, sink: Sink
) -> None:
    sink.put({"id": [1, 2], "o": [{"x": "a"}, None]})
    sink.put({"id": [7, 9], "o": [{"x": "b"}, None]})
    with lake.table() as table:
        assert len(list(table.scan(row_filter="id > 2").plan_files())) == 1
        assert table.scan(row_filter="id > 2").to_arrow()["id"].to_pylist() == [7, 9]
        assert not list(table.scan(row_filter="id > 9").plan_files())


# --- others commit meanwhile ----------------------------------------------------------


def first(
    monkeypatch: pytest.MonkeyPatch, action: Callable[[], object], times: int = 1
) -> None:
    """Do something between a committer's look at the table and its commit."""
    append, left = IcebergAppender.append, [None] * times

    def disturbed(self: IcebergAppender, *arguments: Any) -> bool:
        if left:
            left.pop()
            action()
        return append(self, *arguments)

    monkeypatch.setattr(IcebergAppender, "append", disturbed)


def test_a_foreign_commit_between_is_no_obstacle(
    lake: Lake, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.put({"id": [0]}, writer_id="w")
    first(monkeypatch, lambda: lake.append({"id": [7]}), 2)
    assert sink.put({"id": [1]}, writer_id="w")
    assert lake.ids() == [0, 1, 7, 7]
    metadata = lake.folder / "shop" / "orders" / "metadata"
    with lake.table() as table:
        snapshots = {one.snapshot_id for one in table.metadata.snapshots}
    lists = {int(one.name.split("-")[1]) for one in metadata.glob("snap-*.avro")}
    assert lists == snapshots, "what a failed commit wrote was left"


def test_an_instance_that_claims_between_fences_the_earlier_one(
    lake: Lake, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.put({"id": [0]}, writer_id="w", epoch=0)
    message = staged(sink, 1, [1])
    with contextlib.closing(sink.committer(writer_id="w")) as committer:
        assert committer.last_epoch() == 0
        first(monkeypatch, lake.last)
        with pytest.raises(WriterFenced):
            committer.commit(1, [message])
    assert lake.ids() == [0]


def widen(lake: Lake) -> None:
    with lake.table() as table, table.update_schema() as update:
        update.add_column("more", StringType())


def test_a_column_that_is_added_between_is_null(
    lake: Lake, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.put({"id": [0]}, writer_id="w")
    first(monkeypatch, lambda: widen(lake))
    sink.put({"id": [1]}, writer_id="w")
    assert sorted(map(str, lake.rows())) == [
        "{'id': 0, 'more': None}",
        "{'id': 1, 'more': None}",
    ]


def replace(lake: Lake) -> None:
    """Another column of the same name and type."""
    with lake.table() as table:
        with table.update_schema(allow_incompatible_changes=True) as update:
            update.add_column("other", StringType())
            update.delete_column("id")
        with table.update_schema(allow_incompatible_changes=True) as update:
            update.add_column("id", table.schema().find_type("other"))


def test_a_column_that_is_changed_between_refuses_the_epoch(
    lake: Lake, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = {"id": ["a"]}
    sink.put(text, writer_id="w")
    first(monkeypatch, lambda: replace(lake))
    with pytest.raises(SchemaMismatch, match=r"column 'id' of the table was changed"):
        sink.put({"id": ["b"]}, writer_id="w")
    assert [row["id"] for row in lake.rows()] == [None]


def test_a_table_that_was_made_again_is_another_one(lake: Lake, sink: Sink) -> None:
    sink.put({"id": [0]}, writer_id="w")
    with lake.catalog() as catalog:
        catalog.drop_table(NAME)
    lake.create(ID)
    with pytest.raises(IncarnationChanged):
        sink.put({"id": [1]}, writer_id="w")
    assert lake.ids() == []


# --- repeated, and lost ---------------------------------------------------------------


def test_a_commit_whose_answer_is_lost_counts_once(
    lake: Lake, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.put({"id": [0]}, writer_id="w", epoch=0)
    commit = SqlCatalog.commit_table

    def lost(self: SqlCatalog, *arguments: Any) -> Any:
        commit(self, *arguments)
        monkeypatch.setattr(SqlCatalog, "commit_table", commit)
        what = "the answer is lost"
        raise CommitStateUnknownException(what)

    message = staged(sink, 1, [1])
    with contextlib.closing(sink.committer(writer_id="w")) as committer:
        assert committer.last_epoch() == 0
        monkeypatch.setattr(SqlCatalog, "commit_table", lost)
        with pytest.raises(ConnectionFailed):
            committer.commit(1, [message])
        committer.abort(1, [message])
        assert not committer.commit(1, [message])
    assert lake.ids() == [0, 1]


def test_files_of_a_repeated_attempt_are_removed(lake: Lake, sink: Sink) -> None:
    with contextlib.closing(sink.committer(writer_id="w")) as committer:
        one, other = staged(sink, 0, [1]), staged(sink, 0, [1])
        assert committer.commit(0, [one])
        assert not committer.commit(0, [other])
        committer.abort(0, [one])
    assert lake.ids() == [1]
    assert len(list((lake.folder / "shop/orders/data").iterdir())) == 1


def test_a_damaged_record_of_a_writer_is_no_new_writer(lake: Lake, sink: Sink) -> None:
    sink.put({"id": [0]}, writer_id="w", epoch=0)
    with lake.table() as table, table.transaction() as transaction:
        transaction.set_properties({"streamfactory.writer.w": "{}"})
    with lake.sink() as again, pytest.raises(CorruptData, match="of a writer"):
        again.put({"id": [0]}, writer_id="w", epoch=0)
    assert lake.ids() == [0]


# --- values and columns ---------------------------------------------------------------

NOON = datetime(2024, 5, 1, 12, 0, 0, 1, tzinfo=UTC)
VALUES: dict[str, tuple[pa.DataType, Any]] = {
    "flag": (pa.bool_(), True),
    "byte": (pa.int8(), -128),
    "short": (pa.int16(), 300),
    "int": (pa.int32(), 2**31 - 1),
    "long": (pa.int64(), -(2**63)),
    "real": (pa.float32(), 1.5),
    "double": (pa.float64(), 0.1),
    "price": (pa.decimal128(38, 2), Decimal("1.10")),
    "text": (pa.string(), "ü"),
    "bytes": (pa.binary(), b"\xff"),
    "four": (pa.binary(4), b"abcd"),
    "day": (pa.date32(), date(1, 1, 1)),
    "clock": (pa.time64("us"), time(1, 2, 3, 4)),
    "at": (pa.timestamp("us", "UTC"), NOON),
    "local": (pa.timestamp("us"), NOON.replace(tzinfo=None)),
    "list": (pa.list_(pa.struct([("a", pa.int64())])), [{"a": 1}, None]),
    "map": (pa.map_(pa.string(), pa.list_(pa.int64())), [("k", [1, None])]),
}


def test_values_of_every_type_are_those_that_pyiceberg_reads(
    lake: Lake, sink: Sink
) -> None:
    arrays = {
        name: pa.array([value, None], kind) for name, (kind, value) in VALUES.items()
    }
    rows = pa.table(arrays)
    sink.put(rows)
    sink.put(rows)
    read = 2 * rows.to_pylist()
    # pyiceberg 0.12 reads a null list of structs as an empty one.
    assert lake.rows() == [{**row, "list": row["list"] or []} for row in read]
    at = {**lake.config, "stream.iceberg.change.columns": "false"}
    with streamfactory.open(at, follow=False) as stream:
        assert stream.to_reader().read_all().to_pylist() == read


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        (pa.uint16(), "int"),
        (pa.uint32(), "bigint"),
        (pa.uint64(), "decimal(20,0)"),
        (pa.timestamp("ns", "UTC"), "timestamp"),
        (pa.duration("us"), "bigint"),
        (pa.decimal256(40, 2), "string"),
    ],
)
def test_a_type_that_iceberg_lacks_is_refused_at_the_start(
    lake: Lake, sink: Sink, kind: pa.DataType, remedy: str
) -> None:
    schema = pa.schema([("o", pa.struct([("x", kind)]))])
    with pytest.raises(SchemaMismatch, match=r"'o\.x'") as caught:
        sink.writer(schema, writer_id="w", epoch=0)
    assert remedy in str(caught.value)
    assert not lake.folder.exists()


def test_a_table_is_created_with_the_declared_schema(lake: Lake) -> None:
    with lake.sink(schema="id bigint not null, more map<string, int>") as sink:
        sink.put({"id": [1]})
    with lake.table() as table:
        schema = table.schema()
        assert schema.find_field("id").required
        assert str(schema.find_type("more")) == "map<string, int>"


# --- everything that writes -----------------------------------------------------------


def test_files_are_published_and_streams_copied_and_dead_letters_kept(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id\n1\n2\n")
    assert streamfactory.publish(lake.config, source, writer_id="p").rows == 2
    assert streamfactory.publish(lake.config, source, writer_id="p").rows == 0
    topic = {
        "streamType": "file",
        "stream.file.path": str(tmp_path / "log"),
        "stream.file.topic.name": "in",
        "stream.file.messages": "true",
    }
    with open_sink({**topic, "stream.file.decoder.class.name": "raw"}) as sink:
        sink.put({"value": [b'{"id": 3}', b"oops", b'{"id": 4}']})
    folder = tmp_path / "streams"
    folder.mkdir()
    monkeypatch.setenv("STREAMFACTORY_STREAMS", str(folder))
    letters = {**lake.config, "stream.iceberg.table": "shop.letters"}
    text = "\n".join(f'"{key}" = "{value}"' for key, value in letters.items())
    (folder / "letters.toml").write_text(f"[properties]\n{text}\n")
    decoded = {
        **topic,
        "stream.file.decoder.class.name": "json",
        "schema": "id bigint",
        "decode.on.error": "dead-letter",
        "dead.letter.stream": "letters",
    }
    for _ in range(2):
        streamfactory.copy(decoded, lake.config, writer_id="c")
    assert lake.ids() == [1, 2, 3, 4]
    with streamfactory.open("letters", follow=False) as kept:
        assert len(kept.to_reader().read_all()) == 1


def test_what_workers_of_spark_stage_is_committed_once(lake: Lake) -> None:
    """By the data source itself, without a session."""
    from pyspark.sql.types import LongType, StructField, StructType

    from streamfactory.spark.source import StreamFactorySource

    schema = StructType([StructField("id", LongType())])
    for epoch, numbers in ((0, [1, 2]), (1, [3]), (1, [3])):
        options = {**lake.config, "writer.id": "w", "epoch": str(epoch)}
        writer = StreamFactorySource(options).writer(schema, False)
        rows = pa.record_batch([pa.array(numbers, pa.int64())], schema=ID)
        message = pickle.loads(pickle.dumps(writer.write(iter([rows]))))
        writer.commit([message])
    assert lake.ids() == [1, 2, 3]


# --- what is refused ------------------------------------------------------------------


def test_changes_and_partitions_are_refused(lake: Lake, sink: Sink) -> None:
    with pytest.raises(Unsupported, match=r"'_change'.*not applied"):
        sink.put({"id": [1], "_change": ["delete"]})
    lake.create(ID)
    with lake.table() as table, table.update_spec() as update:
        update.add_identity("id")
    with pytest.raises(Unsupported, match=r"partitions \(id\)"):
        sink.put({"id": [1]})
    assert lake.ids() == []


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"path": "t"}, "a table is written through a catalog"),
        ({"table": "shop.orders"}, r"requires warehouse, catalog or catalog\.prop"),
        ({"table": "orders", "warehouse": "w"}, "with its namespace"),
        ({"table": "a.b", "warehouse": "w", "path": "t"}, "excludes table"),
        ({"table": "a.b", "warehouse": "s3://b/w"}, "no catalog of its own"),
        ({"table": "a.b", "catalog.prop.type": "other"}, "cannot be opened"),
    ],
)
def test_what_names_no_table_to_write_is_refused(
    given: dict[str, str], match: str
) -> None:
    config = {f"stream.iceberg.{key}": value for key, value in given.items()}
    with (
        pytest.raises(ConfigError, match=match),
        open_sink({"streamType": "iceberg", **config}) as sink,
    ):
        sink.put({"id": [1]})


def test_a_stream_of_no_table_creates_nothing(lake: Lake) -> None:
    with pytest.raises(TopicNotFound, match=NAME):
        streamfactory.open(lake.config, follow=False).to_reader().read_all()
    assert not lake.folder.exists()


def test_secrets_of_a_catalog_stay_out_of_the_table(lake: Lake) -> None:
    lake.folder.mkdir()
    properties = {
        "uri": f"sqlite:///{lake.folder}/catalog.db",
        "s3.secret-access-key": "planted-secret",
    }
    given = {f"stream.iceberg.catalog.prop.{k}": v for k, v in properties.items()}
    with open_sink({**lake.config, **given}) as sink:
        sink.put({"id": [1]}, writer_id="w")
        assert "planted-secret" not in repr(sink)
    written = [one for one in lake.folder.rglob("*") if one.is_file()]
    assert len(written) > 4
    assert not [one for one in written if b"planted-secret" in one.read_bytes()]
    assert lake.ids() == [1]


@pytest.mark.long("four writers, two of which are killed")
def test_a_few_kills_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    verdict = sink_proving.ICEBERG.prove(2, 0, tmp_path)
    assert (verdict.lost, verdict.twice) == (0, 0)
