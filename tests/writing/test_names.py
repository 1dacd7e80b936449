"""Rows that no reader could read are refused before anything is written."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import streamfactory
from streamfactory.arrowlog import message_schema
from streamfactory.spi import SchemaMismatch
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.arrowlog import MemoryLogStore
    from streamfactory.wiring.writing.sink import Sink

TWICE = "the rows have 2 columns named 'a'"
NONE = "the rows have no columns"


def columns(*names: str) -> pa.Table:
    return pa.Table.from_arrays([pa.array(["x"]) for _ in names], names=list(names))


NOTHING = pa.Table.from_batches(
    [pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([])))]
)
UNREADABLE = [
    (columns("a", "a"), TWICE),
    (columns("a", "b", "a"), TWICE),
    (columns("a", "_key", "_key"), "the rows have 2 columns named '_key'"),
    (columns("_key"), NONE),
    (NOTHING, NONE),
]


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize(("rows", "what"), UNREADABLE)
def test_rows_are_refused_by_every_sink_of_rows(
    sink_factory: Callable[..., Sink],
    topics: MemoryLogStore,
    rows: pa.Table,
    what: str,
    exists: bool,
) -> None:
    if exists:
        topics.create("clicks", pa.schema({"a": pa.string(), "b": pa.string()}))
    sink = sink_factory()
    for write in (sink.put, lambda rows: sink.check(rows.schema)):
        with pytest.raises(SchemaMismatch) as caught:
            write(rows)
        assert caught.value.what == what
        assert caught.value.stream == "memory:clicks"
    assert topics.names() == (["clicks"] if exists else [])


@pytest.mark.parametrize("decoder", ["json", "raw"])
def test_rows_are_refused_where_they_become_messages(
    sink_factory: Callable[..., Sink], topics: MemoryLogStore, decoder: str
) -> None:
    topics.create("clicks", message_schema())
    sink = sink_factory({"stream.memory.decoder.class.name": decoder})
    with pytest.raises(SchemaMismatch) as caught:
        sink.put(columns("value", "value"))
    assert caught.value.what == "the rows have 2 columns named 'value'"
    if decoder == "raw":  # a key alone is a tombstone
        assert sink.put(columns("_key"))
        return
    with pytest.raises(SchemaMismatch) as caught:
        sink.put(columns("_key"))
    assert caught.value.what == NONE


def test_batch_that_differs_from_its_writer_is_refused(
    sink_factory: Callable[..., Sink],
) -> None:
    with closing(sink_factory().writer(columns("a", "_key").schema)) as writer:
        for rows, what in UNREADABLE[:3]:
            with pytest.raises(SchemaMismatch) as caught:
                writer.write(rows.to_batches()[0])
            assert caught.value.what == what


@pytest.mark.parametrize(
    "properties",
    [
        {"streamType": "socket", "stream.socket.connect": "127.0.0.1:1"},
        {
            "streamType": "kafka",
            "stream.kafka.broker.list": "127.0.0.1:1",
            "stream.kafka.topic.name": "t",
            "stream.kafka.decoder.class.name": "json",
        },
    ],
    ids=["socket", "kafka"],
)
def test_sinks_of_other_machines_refuse_before_they_connect(
    properties: dict[str, str],
) -> None:
    for rows, what in UNREADABLE:
        with open_sink(properties) as sink, pytest.raises(SchemaMismatch) as caught:
            sink.put(rows)
        assert caught.value.what == what


def test_no_topic_has_a_column_twice(topics: MemoryLogStore) -> None:
    with pytest.raises(SchemaMismatch, match="several columns named 'a'"):
        topics.create("clicks", columns("a", "a").schema)
    assert topics.names() == []


def test_topic_without_columns_is_a_typed_error_on_reading(
    topics: MemoryLogStore, properties: dict[str, str]
) -> None:
    topics.create("clicks", pa.schema([]))
    with pytest.raises(SchemaMismatch) as caught, streamfactory.open(properties) as one:
        one.to_reader()
    assert caught.value.what == NONE
    assert "write the rows again" in str(caught.value)


def test_column_of_the_topic_hides_the_metadata_column_of_its_name(
    topics: MemoryLogStore, properties: dict[str, str]
) -> None:
    topics.create("clicks", pa.schema({"_offset": pa.int64()}))
    with streamfactory.open_sink(properties) as sink:
        sink.put(pa.table({"_offset": [70]}))
    more: Any = {**properties, "metadata.columns": "true"}
    with streamfactory.open(more) as stream:
        (row,) = pa.table(stream).to_pylist()
    assert row == {"_offset": 70, "_topic": "clicks", "_partition": 0}
