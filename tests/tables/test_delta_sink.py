"""Delta tables as sinks: each epoch is one commit, once, whoever commits meanwhile."""

from __future__ import annotations

import contextlib
import json
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.tables import sink_proving
from tests.tables.streams import table_properties

import streamfactory
from streamfactory.backends.delta.appending import DeltaAppender
from streamfactory.spi import (
    ConnectionFailed,
    CorruptData,
    IncarnationChanged,
    Partition,
    Position,
    SchemaMismatch,
    StreamError,
    Unsupported,
    WriterFenced,
)
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from streamfactory.wiring.writing.sink import Sink

ID = pa.schema([("id", pa.int64())])


def sink_of(path: Path, **options: Any) -> Sink:
    return open_sink(
        {"streamType": "delta", "stream.delta.path": str(path)}, options=options
    )


def ids(path: Path) -> list[int]:
    """Read by deltalake."""
    found: list[int] = DeltaTable(str(path)).to_pyarrow_table()["id"].to_pylist()
    return sorted(found)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t"


@pytest.fixture
def sink(path: Path) -> Iterator[Sink]:
    with sink_of(path) as opened:
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


def test_an_epoch_is_a_commit_with_its_writer_epoch_and_position(
    path: Path, sink: Sink
) -> None:
    position = Position({Partition("a", 0): 7})
    sink.put({"id": [1, 2]}, writer_id="w", epoch=3, source_position=position)
    table = DeltaTable(str(path))
    assert ids(path) == [1, 2]
    assert table.transaction_version("w") == 3
    info = table.history(1)[0]["streamfactory"]
    assert info == {"writer": "w", "epoch": 3, "position": position.to_json()}
    assert sink.put({"id": [1, 2]}, writer_id="w", epoch=3) is False
    with contextlib.closing(sink.committer(writer_id="w")) as committer:
        last = committer.last()
    assert last is not None
    assert (last.epoch, last.source_position) == (3, position)


def test_what_is_known_of_a_writer_outlives_the_log_of_its_commit(
    path: Path, sink: Sink
) -> None:
    position = Position({Partition("a", 0): 7})
    sink.put({"id": [1]}, writer_id="w", epoch=5, source_position=position)
    for number in range(3):
        write_deltalake(str(path), pa.table({"id": [number]}), mode="append")
    DeltaTable(str(path)).create_checkpoint()
    commits = sorted((path / "_delta_log").glob("*.json"))
    for commit in commits[:-1]:
        commit.unlink()
    with (
        sink_of(path) as again,
        contextlib.closing(again.committer(writer_id="w")) as committer,
    ):
        last = committer.last()
        assert last is not None
        assert (last.epoch, last.source_position) == (5, position)


def test_a_sink_whose_log_was_cleaned_meanwhile_continues(
    path: Path, sink: Sink
) -> None:
    sink.put({"id": [0]}, writer_id="w")
    for number in range(1, 4):
        write_deltalake(str(path), pa.table({"id": [number]}), mode="append")
    DeltaTable(str(path)).create_checkpoint()
    for commit in sorted((path / "_delta_log").glob("*.json"))[:-1]:
        commit.unlink()
    sink.put({"id": [4]}, writer_id="w")
    assert ids(path) == [0, 1, 2, 3, 4]


def test_a_hundred_commits_make_a_checkpoint(path: Path, sink: Sink) -> None:
    for number in range(100):
        sink.put({"id": [number]})
    names = [one.name for one in (path / "_delta_log").glob("*.checkpoint.parquet")]
    assert names == [f"{100:020}.checkpoint.parquet"]
    sink.put({"id": [100]}, writer_id="w")
    with sink_of(path) as again:
        assert again.put({"id": [0]}, writer_id="w", epoch=0) is False
    assert ids(path) == list(range(101))


def test_only_one_record_of_a_writer_is_kept(path: Path, sink: Sink) -> None:
    for number in range(5):
        sink.put({"id": [number]}, writer_id="w")
    assert len(list((path / "_streamfactory").iterdir())) == 1


# --- others commit meanwhile ----------------------------------------------------------


def first(
    monkeypatch: pytest.MonkeyPatch, action: Callable[[], object], times: int = 1
) -> None:
    """Do something between a committer's look at the table and its commit."""
    append, left = DeltaAppender.append, [None] * times

    def disturbed(self: DeltaAppender, *arguments: Any) -> bool:
        if left:
            left.pop()
            action()
        return append(self, *arguments)

    monkeypatch.setattr(DeltaAppender, "append", disturbed)


def test_a_foreign_commit_between_is_no_obstacle(
    path: Path, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.put({"id": [0]}, writer_id="w")
    foreign = pa.table({"id": [7]})
    first(monkeypatch, lambda: write_deltalake(str(path), foreign, mode="append"), 3)
    assert sink.put({"id": [1]}, writer_id="w")
    assert ids(path) == [0, 1, 7, 7, 7]


def test_an_instance_that_claims_between_fences_the_earlier_one(
    path: Path, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.put({"id": [0]}, writer_id="w", epoch=0)
    message = staged(sink, 1, [1])

    def claim() -> None:
        with (
            sink_of(path) as other,
            contextlib.closing(other.committer(writer_id="w")) as committer,
        ):
            assert committer.last_epoch() == 0

    with contextlib.closing(sink.committer(writer_id="w")) as committer:
        assert committer.last_epoch() == 0
        first(monkeypatch, claim)
        with pytest.raises(WriterFenced):
            committer.commit(1, [message])
    assert ids(path) == [0]


def test_a_column_that_is_added_between_is_null(
    path: Path, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.put({"id": [0]}, writer_id="w")
    wider = pa.table({"id": [7], "more": ["x"]})
    first(
        monkeypatch,
        lambda: write_deltalake(str(path), wider, mode="append", schema_mode="merge"),
    )
    sink.put({"id": [1]}, writer_id="w")
    rows = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["more"]) for row in rows) == [
        (0, None),
        (1, None),
        (7, "x"),
    ]


@pytest.mark.parametrize(
    "other", [pa.table({"id": ["text"]}), pa.table({"another": [1]})]
)
def test_a_column_that_is_changed_between_refuses_the_epoch(
    path: Path, sink: Sink, monkeypatch: pytest.MonkeyPatch, other: pa.Table
) -> None:
    sink.put({"id": [0]}, writer_id="w")
    first(
        monkeypatch,
        lambda: write_deltalake(
            str(path), other, mode="overwrite", schema_mode="overwrite"
        ),
    )
    with pytest.raises(SchemaMismatch, match=r"column 'id' of the table was changed"):
        sink.put({"id": [1]}, writer_id="w")
    assert DeltaTable(str(path)).to_pyarrow_table().equals(other)


def test_a_table_that_was_made_again_is_another_one(
    path: Path, sink: Sink, tmp_path: Path
) -> None:
    sink.put({"id": [0]}, writer_id="w")
    path.rename(tmp_path / "before")
    write_deltalake(str(path), pa.table({"id": [7]}))
    with pytest.raises(IncarnationChanged):
        sink.put({"id": [1]}, writer_id="w")
    assert ids(path) == [7]


# --- repeated, and lost ---------------------------------------------------------------


def test_files_of_a_committed_epoch_are_never_removed(path: Path, sink: Sink) -> None:
    message = staged(sink, 0, [1, 2])
    with contextlib.closing(sink.committer(writer_id="w")) as committer:
        assert committer.commit(0, [message])
        committer.abort(0, [message])
    with (
        sink_of(path) as again,
        contextlib.closing(again.committer(writer_id="w")) as committer,
    ):
        assert not committer.commit(0, [message])
        committer.abort(0, [message])
    assert ids(path) == [1, 2]


@pytest.mark.parametrize(
    "name",
    ["../../etc/passwd", "/etc/passwd", "part-0.parquet", "a/part-0.parquet", ""],
)
def test_a_message_that_names_another_file_is_refused(
    name: str, path: Path, sink: Sink
) -> None:
    message = staged(sink, 0, [1])
    message.payload["files"][0]["path"] = name
    with contextlib.closing(sink.committer(writer_id="w")) as committer:
        for call in (committer.commit, committer.abort):
            with pytest.raises(CorruptData, match=r"no name of a data file"):
                call(0, [message])
    assert ids(path) == []


def test_files_of_a_repeated_attempt_are_removed(path: Path, sink: Sink) -> None:
    with contextlib.closing(sink.committer(writer_id="w")) as committer:
        one, other = staged(sink, 0, [1]), staged(sink, 0, [1])
        assert committer.commit(0, [one])
        assert not committer.commit(0, [other])
    assert ids(path) == [1]
    assert len(list(path.glob("*.parquet"))) == 1


def test_a_commit_whose_answer_is_lost_counts_once(
    path: Path, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.put({"id": [0]}, writer_id="w", epoch=0)
    append = DeltaAppender.append

    def lost(self: DeltaAppender, *arguments: Any) -> bool:
        append(self, *arguments)
        monkeypatch.setattr(DeltaAppender, "append", append)
        what = "the answer is lost"
        raise ConnectionFailed(what)

    message = staged(sink, 1, [1])
    with contextlib.closing(sink.committer(writer_id="w")) as committer:
        assert committer.last_epoch() == 0
        monkeypatch.setattr(DeltaAppender, "append", lost)
        with pytest.raises(ConnectionFailed):
            committer.commit(1, [message])
        committer.abort(1, [message])
        assert not committer.commit(1, [message])
    assert ids(path) == [0, 1]


def test_a_record_that_was_removed_is_no_new_writer(path: Path, sink: Sink) -> None:
    sink.put({"id": [0]}, writer_id="w", epoch=0)
    for file in (path / "_streamfactory").iterdir():
        file.unlink()
    with sink_of(path) as again, pytest.raises(CorruptData, match="last epoch"):
        again.put({"id": [0]}, writer_id="w", epoch=0)
    assert ids(path) == [0]


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
    "day": (pa.date32(), date(1, 1, 1)),
    "at": (pa.timestamp("us", "UTC"), NOON),
    "local": (pa.timestamp("us"), NOON.replace(tzinfo=None)),
    "list": (pa.list_(pa.struct([("a", pa.int64())])), [{"a": 1}, None]),
    "map": (pa.map_(pa.string(), pa.list_(pa.int64())), [("k", [1, None])]),
}


def test_values_of_every_type_are_those_that_deltalake_reads(
    path: Path, sink: Sink
) -> None:
    arrays = {
        name: pa.array([value, None], kind) for name, (kind, value) in VALUES.items()
    }
    rows = pa.table(arrays)
    sink.put(rows)
    assert DeltaTable(str(path)).to_pyarrow_table().to_pylist() == rows.to_pylist()
    at = table_properties("delta", path, stream__delta__change__columns="false")
    with streamfactory.open(at, follow=False) as stream:
        assert stream.to_reader().read_all().to_pylist() == rows.to_pylist()


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        (pa.uint32(), "bigint"),
        (pa.uint64(), r"decimal\(20,0\)"),
        (pa.timestamp("ns", "UTC"), "timestamp"),
        (pa.time64("us"), "bigint"),
        (pa.decimal256(40, 2), "string"),
    ],
)
def test_a_type_that_delta_lacks_is_refused_at_the_start(
    path: Path, sink: Sink, kind: pa.DataType, remedy: str
) -> None:
    schema = pa.schema([("o", pa.struct([("x", kind)]))])
    with pytest.raises(SchemaMismatch, match=r"'o\.x'") as caught:
        sink.writer(schema, writer_id="w", epoch=0)
    assert remedy.replace("\\", "") in str(caught.value)
    assert not path.exists()


def test_a_table_is_created_with_the_declared_schema(path: Path) -> None:
    with sink_of(path, schema="id bigint not null, more map<string, int>") as sink:
        sink.put({"id": [1]})
    found = pa.schema(DeltaTable(str(path)).schema())
    assert not found.field("id").nullable
    assert found.field("more").type.item_type == pa.int32()


def test_rows_go_to_the_partitions_of_a_table_that_has_some(path: Path) -> None:
    schema = pa.schema(
        [("id", pa.int64()), ("city", pa.string()), ("day", pa.date32())]
    )
    DeltaTable.create(str(path), schema, partition_by=["city", "day"])
    rows = [
        {"id": n, "city": city, "day": day}
        for n, (city, day) in enumerate(
            (city, day)
            for city in ("rome", None, "a/b c%é")
            for day in (date(2024, 5, 1), None, date(9999, 12, 31))
        )
    ]
    with sink_of(path) as sink:
        sink.put(rows + rows)
    table = DeltaTable(str(path))
    found = table.to_pyarrow_table().sort_by("id").to_pylist()
    assert found == sorted(rows + rows, key=lambda row: int(str(row["id"])))
    assert len(table.file_uris()) == len(rows)
    one = table.to_pyarrow_table(filters=[("city", "=", "rome")])
    assert sorted(one["id"].to_pylist()) == [0, 0, 1, 1, 2, 2]
    at = table_properties("delta", path, stream__delta__change__columns="false")
    with streamfactory.open(at, follow=False) as stream:
        seen = [row for batch in stream for row in batch.rows.to_pylist()]
    assert sorted(seen, key=lambda row: row["id"]) == found
    with sink_of(path) as sink, pytest.raises(SchemaMismatch, match="empty text"):
        sink.put({"id": [1], "city": [""]})


# --- what is refused ------------------------------------------------------------------


def refused(path: Path, match: str) -> None:
    with sink_of(path) as sink, pytest.raises(Unsupported, match=match):
        sink.put({"id": [1]})


def test_tables_whose_rows_are_checked_by_writers_are_refused(path: Path) -> None:
    write_deltalake(str(path), pa.table({"id": [1]}))
    DeltaTable(str(path)).alter.add_constraint({"positive": "id > 0"})
    refused(path, "check constraints")


@pytest.mark.parametrize("feature", ["rowTracking", "inCommitTimestamp", "unknown"])
def test_features_that_a_writer_does_not_have_are_refused(
    path: Path, feature: str
) -> None:
    write_deltalake(str(path), pa.table({"id": [1]}))
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7}
    action = {"protocol": {**protocol, "writerFeatures": [feature]}}
    commit = path / "_delta_log" / f"{1:020}.json"
    commit.write_text(json.dumps(action))
    refused(path, feature)


def test_changes_are_not_appended_as_rows(path: Path, sink: Sink) -> None:
    with pytest.raises(Unsupported, match=r"'_change'.*not applied"):
        sink.put({"id": [1], "_change": ["delete"]})


def test_a_table_is_not_replaced(path: Path, sink: Sink) -> None:
    message = staged(sink, 0, [1])
    with (
        contextlib.closing(sink.committer(writer_id="w")) as committer,
        pytest.raises(Unsupported, match="replace"),
    ):
        committer.commit(0, [message], replace_all=True)


# --- everything that writes -----------------------------------------------------------


def test_files_are_published_and_streams_copied_and_dead_letters_kept(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = {"streamType": "delta", "stream.delta.path": str(path)}
    source = tmp_path / "rows.csv"
    source.write_text("id\n1\n2\n")
    assert streamfactory.publish(lake, source, writer_id="p").rows == 2
    assert streamfactory.publish(lake, source, writer_id="p").rows == 0
    topic = {
        "streamType": "file",
        "stream.file.path": str(tmp_path / "log"),
        "stream.file.topic.name": "in",
        "stream.file.messages": "true",
    }
    raw = {**topic, "stream.file.decoder.class.name": "raw"}
    with open_sink(raw) as sink:
        sink.put({"value": [b'{"id": 3}', b"oops", b'{"id": 4}']})
    letters = {"streamType": "delta", "stream.delta.path": str(tmp_path / "letters")}
    folder = tmp_path / "streams"
    folder.mkdir()
    monkeypatch.setenv("STREAMFACTORY_STREAMS", str(folder))
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
        streamfactory.copy(decoded, lake, writer_id="c")
    assert ids(path) == [1, 2, 3, 4]
    assert len(DeltaTable(str(tmp_path / "letters")).to_pyarrow_table()) == 1


def test_what_workers_of_spark_stage_is_committed_once(path: Path) -> None:
    """By the data source itself, without a session."""
    from pyspark.sql.types import LongType, StructField, StructType

    from streamfactory.spark.source import StreamFactorySource

    at = {"streamType": "delta", "stream.delta.path": str(path)}
    schema = StructType([StructField("id", LongType())])
    for epoch, numbers in ((0, [1, 2]), (1, [3]), (1, [3])):
        options = {**at, "writer.id": "w", "epoch": str(epoch)}
        writer = StreamFactorySource(options).writer(schema, False)
        rows = pa.record_batch([pa.array(numbers, pa.int64())], schema=ID)
        message = pickle.loads(pickle.dumps(writer.write(iter([rows]))))
        writer.commit([message])
    assert ids(path) == [1, 2, 3]


@pytest.mark.long("four writers, two of which are killed")
def test_a_few_kills_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    verdict = sink_proving.DELTA.prove(2, 0, tmp_path)
    assert (verdict.lost, verdict.twice) == (0, 0)


def test_errors_of_a_sink_are_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with (
        sink_of(tmp_path / "file" / "t") as sink,
        pytest.raises(StreamError, match="file"),
    ):
        sink.put({"id": [1]})


def test_small_decimals_of_partitions_are_written_without_an_exponent(
    path: Path,
) -> None:
    kind = pa.decimal128(20, 10)
    schema = pa.schema([("k", kind), ("id", pa.int64())])
    DeltaTable.create(str(path), schema, partition_by=["k"])
    values = [Decimal("1E-10"), Decimal("0E-10"), None, Decimal("12.5")]
    with sink_of(path) as sink:
        sink.put(pa.record_batch([pa.array(values, kind), [0, 1, 2, 3]], schema=schema))
    found = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    assert {row["id"]: row["k"] for row in found} == dict(enumerate(values))


def test_a_writer_named_like_a_pointer_hides_no_other_writer(sink: Sink) -> None:
    for writer in ("w", "streamfactory:w", "streamfactory:streamfactory:w"):
        assert sink.put({"id": [1]}, writer_id=writer, epoch=5)
    for writer in ("w", "streamfactory:w"):
        assert not sink.put({"id": [1]}, writer_id=writer, epoch=5)
        assert sink.put({"id": [2]}, writer_id=writer, epoch=6)


def test_an_absurd_checkpoint_interval_fails_no_commit(path: Path) -> None:
    DeltaTable.create(str(path), ID)
    log = path / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            options = line["metaData"]["configuration"]
            options["delta.checkpointInterval"] = "1" * 5000
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with sink_of(path) as sink:
        sink.put({"id": [1]})
    assert ids(path) == [1]
