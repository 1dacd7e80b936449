"""Tombstones of a decoded topic: a column where asked for, and tombstones again."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.kafka.conftest import stream_of

import streamfactory
from streamfactory.decoders.protobuf.harness import ProtobufHarness
from streamfactory.spi import SchemaMismatch

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.topics import Topics

AVRO = {"type": "record", "name": "r", "fields": [{"name": "number", "type": "long"}]}
ENCODERS = {
    "json": {},
    "avro": {"schema": json.dumps(AVRO)},
    "csv": {"schema": "number bigint not null"},
    "text": {"pattern": "number (?P<number>-?[0-9]+)", "schema": "number bigint"},
    "arrow": {},
}


def decoded(topics: Topics, topic: str, name: str, **options: str) -> dict[str, str]:
    base = stream_of(topics.bootstrap, topic)
    base["stream.kafka.decoder.class.name"] = name
    prefix = "stream.kafka.decoder.prop."
    return base | {f"{prefix}{key}": value for key, value in options.items()}


def source(topics: Topics, values: list[bytes | None]) -> dict[str, str]:
    """A topic of JSON objects with the keys k0, k1, ..."""
    topic = topics.create()
    for at, value in enumerate(values):
        topics.send(topic, [value], key=b"k%d" % at)
    return decoded(topics, topic, "json") | {"schema": "number bigint"}


def messages(
    topics: Topics, topic: str, wanted: int
) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values, read with the client alone."""
    settings = {
        "bootstrap.servers": topics.bootstrap,
        "group.id": uuid.uuid4().hex,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        found = consumer.consume(wanted, 30)
    finally:
        consumer.close()
    assert all(message.error() is None for message in found)
    return [(message.key(), message.value()) for message in found]


ROW = b'{"number":1,"text":"a","twice":[1]}'
some_and_all = pytest.mark.parametrize(
    "given", [[ROW, None, ROW, None], [None, None]], ids=["some", "all"]
)


@pytest.mark.parametrize("encoder", ENCODERS)
@some_and_all
def test_a_decoded_copy_writes_tombstones_as_tombstones(
    given: list[bytes | None], encoder: str, topics: Topics
) -> None:
    target = topics.create()
    sink = decoded(topics, target, encoder, **ENCODERS[encoder])
    check_tombstones_are_copied(topics, source(topics, given), sink, target, given)


@some_and_all
def test_a_copy_to_protobuf_writes_tombstones_as_tombstones(
    given: list[bytes | None], topics: Topics
) -> None:
    target = topics.create()
    harness = ProtobufHarness()  # has the file of the descriptor
    sink = decoded(topics, target, "protobuf", **harness.options())
    read = source(topics, given)
    read["schema"] = "number bigint, text string, twice array<bigint>"
    check_tombstones_are_copied(topics, read, sink, target, given)


def check_tombstones_are_copied(
    topics: Topics,
    read: dict[str, str],
    sink: dict[str, str],
    target: str,
    given: list[bytes | None],
) -> None:
    streamfactory.copy(read, sink, writer_id="w")
    found = messages(topics, target, len(given))
    assert [key for key, _ in found] == [b"k%d" % at for at in range(len(given))]
    assert [value is None for _, value in found] == [value is None for value in given]


def test_a_null_that_was_a_text_is_copied_as_a_value(topics: Topics) -> None:
    target = topics.create()
    given: list[bytes | None] = [b'{"number":null}', b"{}", None]
    sink = decoded(topics, target, "json")
    streamfactory.copy(source(topics, given), sink, writer_id="w")
    assert messages(topics, target, 3) == [
        (b"k0", b'{"number":null}'),
        (b"k1", b'{"number":null}'),
        (b"k2", None),
    ]


def test_a_bad_message_that_becomes_nulls_is_no_tombstone(topics: Topics) -> None:
    target = topics.create()
    given = source(topics, [b"bad", None]) | {"decode.on.error": "null"}
    streamfactory.copy(given, decoded(topics, target, "json"), writer_id="w")
    assert messages(topics, target, 2) == [(b"k0", b'{"number":null}'), (b"k1", None)]


def test_tombstones_are_a_column_where_asked_for(topics: Topics) -> None:
    given = source(topics, [b'{"number":1}', None, b'{"number":null}'])
    shown = {"metadata.columns": "true", "includeTombstones": "true"}
    with streamfactory.open(given | shown) as stream:
        rows = stream.to_reader().read_all()
    assert rows["_tombstone"].to_pylist() == [False, True, False]
    assert rows["number"].to_pylist() == [1, None, None]


def test_rows_with_the_column_are_written_as_tombstones(topics: Topics) -> None:
    target = topics.create()
    rows = pa.table(
        {
            "number": [1, 2, 3],
            "_key": [b"a", b"b", b"c"],
            "_tombstone": [True, None, False],
        }
    )
    with streamfactory.open_sink(decoded(topics, target, "json")) as sink:
        sink.put(rows)
    assert messages(topics, target, 3) == [
        (b"a", None),
        (b"b", b'{"number":2}'),
        (b"c", b'{"number":3}'),
    ]


def test_a_stream_of_rows_refuses_a_tombstone(tmp_path: Path) -> None:
    sink = {
        "streamType": "file",
        "stream.file.path": str(tmp_path),
        "stream.file.topic.name": "t",
    }
    with streamfactory.open_sink(sink) as opened:
        opened.put(pa.table({"a": [1], "_tombstone": [False]}))
        with pytest.raises(SchemaMismatch, match="1 rows are tombstones"):
            opened.put(pa.table({"a": [1], "_tombstone": [True]}))
