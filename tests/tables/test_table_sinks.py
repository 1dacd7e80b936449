"""Tables as sinks: each epoch is one commit, once, whoever commits meanwhile.

What holds for Delta and Iceberg alike; the modules of each have the rest.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.tables.lakes import ID, DeltaLake, IcebergLake, staged

import streamfactory
from streamfactory.spi import (
    ConnectionFailed,
    EpochInThePast,
    IncarnationChanged,
    Partition,
    Position,
    SchemaMismatch,
    Unsupported,
    WriterFenced,
)
from streamfactory.transfer.copies import open_copy
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.tables.lakes import Lake

    from streamfactory.wiring.writing.sink import Sink


@pytest.fixture(params=[DeltaLake, IcebergLake], ids=lambda kind: kind.kind)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    made: Lake = request.param(tmp_path / "lake")
    return made


@pytest.fixture
def sink(lake: Lake) -> Iterator[Sink]:
    with lake.sink() as opened:
        yield opened


# --- committed, whoever commits meanwhile ---------------------------------------------


def test_an_epoch_is_committed_once_with_its_position(lake: Lake, sink: Sink) -> None:
    position = Position({Partition("a", 0): 7})
    assert sink.put({"id": [1, 2]}, writer_id="w", epoch=3, source_position=position)
    assert sink.put({"id": [1, 2]}, writer_id="w", epoch=3) is False
    with lake.sink() as again:
        assert again.put({"id": [1, 2]}, writer_id="w", epoch=3) is False
    assert lake.last() == (3, position)
    assert lake.ids() == [1, 2]


def test_a_foreign_commit_between_is_no_obstacle(
    lake: Lake, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.put({"id": [0]}, writer_id="w")
    lake.disturb(monkeypatch, lambda: lake.append({"id": [7]}), 3)
    assert sink.put({"id": [1]}, writer_id="w")
    assert lake.ids() == [0, 1, 7, 7, 7]


def test_an_instance_that_claims_between_fences_the_earlier_one(
    lake: Lake, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.put({"id": [0]}, writer_id="w", epoch=0)
    message = staged(sink, 1, [1])
    with contextlib.closing(sink.committer(writer_id="w")) as committer:
        assert committer.last_epoch() == 0
        lake.disturb(monkeypatch, lake.last)
        with pytest.raises(WriterFenced):
            committer.commit(1, [message])
    assert lake.ids() == [0]


def test_a_column_that_is_added_between_is_null(
    lake: Lake, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.put({"id": [0]}, writer_id="w")
    lake.disturb(monkeypatch, lake.widen)
    sink.put({"id": [1]}, writer_id="w")
    assert sorted(map(str, lake.rows())) == [
        "{'id': 0, 'more': None}",
        "{'id': 1, 'more': None}",
        "{'id': 7, 'more': 'x'}",
    ]


def test_a_table_that_was_made_again_is_another_one(lake: Lake, sink: Sink) -> None:
    sink.put({"id": [0]}, writer_id="w")
    lake.remove()
    lake.create(ID)
    lake.append({"id": [7]})
    with pytest.raises(IncarnationChanged):
        sink.put({"id": [1]}, writer_id="w")
    assert lake.ids() == [7]


# --- repeated, and lost ---------------------------------------------------------------


def test_a_commit_whose_answer_is_lost_counts_once(
    lake: Lake, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.put({"id": [0]}, writer_id="w", epoch=0)
    message = staged(sink, 1, [1])
    with contextlib.closing(sink.committer(writer_id="w")) as committer:
        assert committer.last_epoch() == 0
        lake.lose_an_answer(monkeypatch)
        with pytest.raises(ConnectionFailed):
            committer.commit(1, [message])
        committer.abort(1, [message])
        assert not committer.commit(1, [message])
    assert lake.ids() == [0, 1]


def test_files_of_a_committed_epoch_are_never_removed(lake: Lake, sink: Sink) -> None:
    message = staged(sink, 0, [1, 2])
    with contextlib.closing(sink.committer(writer_id="w")) as committer:
        assert committer.commit(0, [message])
        committer.abort(0, [message])
    with (
        lake.sink() as again,
        contextlib.closing(again.committer(writer_id="w")) as committer,
    ):
        assert not committer.commit(0, [message])
        committer.abort(0, [message])
    assert lake.ids() == [1, 2]


def test_files_of_a_repeated_attempt_are_removed(lake: Lake, sink: Sink) -> None:
    with contextlib.closing(sink.committer(writer_id="w")) as committer:
        one, other = staged(sink, 0, [1]), staged(sink, 0, [1])
        assert committer.commit(0, [one])
        assert not committer.commit(0, [other])
        committer.abort(0, [one])
    assert lake.ids() == [1]
    assert len(lake.data_files()) == 1


@pytest.mark.long("four writers, two of which are killed")
def test_a_few_kills_lose_nothing_and_double_nothing(
    lake: Lake, tmp_path: Path
) -> None:
    verdict = lake.proof.prove(2, 0, tmp_path)
    assert (verdict.lost, verdict.twice) == (0, 0)


def test_two_instances_that_commit_an_epoch_at_once_commit_it_once(lake: Lake) -> None:
    """Blind appends never conflict: of two, a library commits both (delta-rs#2580)."""
    lake.create(ID)
    ready = threading.Barrier(2)

    def write() -> list[bool | None]:
        done: list[bool | None] = []
        with lake.sink() as sink:
            for epoch in range(5):
                ready.wait(60)
                try:
                    done.append(sink.put({"id": [epoch]}, writer_id="w", epoch=epoch))
                except WriterFenced:
                    done.append(None)
        return done

    with ThreadPoolExecutor(2) as pool:
        one, other = [pool.submit(write) for _ in range(2)]
        tried = list(zip(one.result(60), other.result(60), strict=True))
    made = [epoch for epoch, done in enumerate(tried) if True in done]
    assert lake.ids() == made
    assert all(done.count(True) <= 1 for done in tried)
    assert made


def test_an_older_epoch_has_no_effect_whatever_others_committed(
    lake: Lake, sink: Sink
) -> None:
    sink.put({"id": [5]}, writer_id="w", epoch=5)
    lake.append({"id": [7]})
    with lake.sink() as again:
        assert again.put({"id": [4]}, writer_id="w", epoch=4) is False
        with contextlib.closing(again.committer(writer_id="w")) as committer:
            assert committer.last_epoch() == 5
            with pytest.raises(EpochInThePast):
                committer.commit(4, [])
    assert lake.ids() == [5, 7]


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
MORE: dict[str, dict[str, tuple[pa.DataType, Any]]] = {
    "delta": {},
    "iceberg": {
        "four": (pa.binary(4), b"abcd"),
        "clock": (pa.time64("us"), time(1, 2, 3, 4)),
    },
}
"""Types that one format has."""


def test_values_of_every_type_are_those_that_its_library_reads(
    lake: Lake, sink: Sink
) -> None:
    rows = pa.table(
        {
            name: pa.array([value, None], kind)
            for name, (kind, value) in {**VALUES, **MORE[lake.kind]}.items()
        }
    )
    sink.put(rows)
    sink.put(rows)
    read = 2 * rows.to_pylist()
    expected = read
    if lake.kind == "iceberg":
        # pyiceberg 0.12 reads a null list of structs as an empty one.
        expected = [{**row, "list": row["list"] or []} for row in read]
    assert lake.rows() == expected
    at = {**lake.config, f"stream.{lake.kind}.change.columns": "false"}
    with streamfactory.open(at, follow=False) as stream:
        assert stream.to_reader().read_all().to_pylist() == read


@pytest.mark.parametrize(
    ("lake", "kind", "remedy"),
    [
        (DeltaLake, pa.uint32(), "bigint"),
        (DeltaLake, pa.uint64(), "decimal(20,0)"),
        (DeltaLake, pa.timestamp("ns", "UTC"), "timestamp"),
        (DeltaLake, pa.time64("us"), "bigint"),
        (DeltaLake, pa.decimal256(40, 2), "string"),
        (IcebergLake, pa.uint16(), "int"),
        (IcebergLake, pa.uint32(), "bigint"),
        (IcebergLake, pa.uint64(), "decimal(20,0)"),
        (IcebergLake, pa.timestamp("ns", "UTC"), "timestamp"),
        (IcebergLake, pa.duration("us"), "bigint"),
        (IcebergLake, pa.decimal256(40, 2), "string"),
    ],
    indirect=["lake"],
)
def test_a_type_that_the_format_lacks_is_refused_at_the_start(
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
    found = lake.schema()
    assert not found.field("id").nullable
    more = found.field("more").type
    assert str(more.key_type).endswith("string")
    assert more.item_type == pa.int32()


def test_changes_are_not_appended_as_rows(sink: Sink) -> None:
    with pytest.raises(Unsupported, match=r"'_change'.*not applied"):
        sink.put({"id": [1], "_change": ["delete"]})


def test_a_column_whose_name_has_a_dot_is_read(lake: Lake, sink: Sink) -> None:
    row = {"id": 1, "a.b": 5, "c.d": {"e": 6}}
    sink.put([row])
    with streamfactory.open(lake.config, follow=False) as stream:
        rows = stream.to_reader().read_all().select([*row])
    assert rows.to_pylist() == lake.rows() == [row]


def test_required_fields_may_be_null_where_their_struct_is(
    lake: Lake, sink: Sink
) -> None:
    inner = pa.struct([pa.field("y", pa.int64(), nullable=False)])
    outer = pa.struct([pa.field("x", inner, nullable=False), ("z", pa.string())])
    sink.put(pa.table({"id": [1], "o": pa.array([{"x": {"y": 1}}], outer)}))
    sink.put({"id": [2]})
    null = pa.nulls(2, outer).slice(1)
    rows = pa.table({"id": pa.array([3]), "o": null})
    sink.put(rows)
    assert sorted(lake.rows(), key=lambda row: row["id"]) == [
        {"id": 1, "o": {"x": {"y": 1}, "z": None}},
        {"id": 2, "o": None},
        {"id": 3, "o": None},
    ]


def test_required_fields_may_be_null_where_a_struct_in_a_list_or_map_is(
    lake: Lake, sink: Sink
) -> None:
    inner = pa.struct([pa.field("y", pa.int64(), nullable=False)])
    values = pa.concat_arrays([pa.nulls(1, inner), pa.array([{"y": 1}], inner)])
    columns = {
        "l": pa.ListArray.from_arrays([0, 2], values),
        "m": pa.MapArray.from_arrays([0, 2], ["a", "b"], values),
    }
    sink.put(pa.table({"id": [1], **columns}))
    with streamfactory.open(lake.config, follow=False) as stream:
        found = stream.to_reader().read_all()
    for name, column in columns.items():
        assert found[name].to_pylist() == column.to_pylist()


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
    letters = type(lake)(lake.folder, "letters")
    text = "\n".join(f'"{key}" = "{value}"' for key, value in letters.config.items())
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
    assert len(letters.rows()) == 1
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


def test_a_copy_of_several_partitions_makes_the_table(
    lake: Lake, tmp_path: Path
) -> None:
    source = {
        "streamType": "file",
        "stream.file.path": str(tmp_path / "topics"),
        "stream.file.topic.name": "clicks",
        "stream.file.partitions": "3",
    }
    with open_sink(source) as sink:
        sink.put({"id": [1, 2, 3], "_partition": [0, 1, 2]})
    with open_copy(source, lake.config) as copy:
        assert copy.created
        copy.run(threading.Event(), follow=False)
    assert lake.ids() == [1, 2, 3]
