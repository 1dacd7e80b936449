"""Events on a real broker: CloudEvents in headers, change events, columns of keys."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.decoders.debezium_events import event
from tests.kafka.conftest import stream_of
from tests.kafka.proving import committed_messages, read_messages

import streamfactory
from streamfactory.spark.pipelines.overriding import Overrides
from streamfactory.spark.pipelines.together import Pipelines
from streamfactory.wiring.metrics.batches import FinishedBatch, batches

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.kafka.topics import Topics

OWN = "stream.kafka."
EVENT = {
    "ce_specversion": b"1.0",
    "ce_id": b"7",
    "ce_source": b"/shop",
    "ce_type": b"sold",
    "content-type": b"application/json",
}
COLUMNS = "item string, ce_id string, ce_source string, ce_type string"
ROW = {"item": "hat", "ce_id": "7", "ce_source": "/shop", "ce_type": "sold"}


def stream(topics: Topics, topic: str, decoder: str, **own: str) -> dict[str, str]:
    """A stream; dots in option names are written ``__``."""
    found = stream_of(topics.bootstrap, topic) | {"startingOffsets": "earliest"}
    found[f"{OWN}decoder.class.name"] = decoder
    return found | {OWN + key.replace("__", "."): value for key, value in own.items()}


def events(topics: Topics, topic: str) -> dict[str, str]:
    return stream(topics, topic, "cloudevents", decoder__prop__schema=COLUMNS)


def rows_of(properties: Mapping[str, str]) -> list[dict[str, Any]]:
    with streamfactory.open(properties) as opened:
        found: list[dict[str, Any]] = opened.to_reader().read_all().to_pylist()
    return found


def test_events_in_headers_are_read_without_further_options(
    topics: Topics, topic: str, each_path: str
) -> None:
    topics.send(topic, [b'{"item":"hat"}'], headers=[*EVENT.items()])
    properties = events(topics, topic) | {f"{OWN}native.reading": each_path}
    assert rows_of(properties) == [ROW]


def test_events_are_written_into_headers(
    topics: Topics, topic: str, each_way: str
) -> None:
    properties = events(topics, topic) | {f"{OWN}native.writing": each_way}
    own = [[("ce_id", b"old"), ("trace", b"1")]]
    headers = pa.array(own, pa.map_(pa.string(), pa.binary()))
    with streamfactory.open_sink(properties) as sink:
        sink.put(pa.table({name: [value] for name, value in ROW.items()}))
        sink.put(
            pa.table({name: [value] for name, value in ROW.items()}).append_column(
                "_headers", _headers(headers)
            )
        )
    assert rows_of(properties) == [ROW] * 2
    settings = {"bootstrap.servers": topics.bootstrap, "group.id": topic}
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = [
            message for message in consumer.consume(2, 20) if message.error() is None
        ]
    assert [message.value() for message in found] == [b'{"item":"hat"}'] * 2
    assert dict(found[0].headers() or []) == EVENT
    assert dict(found[1].headers() or []) == {**EVENT, "trace": b"1"}


def _headers(maps: pa.MapArray) -> pa.Array:
    from streamfactory.spi import headers_type

    pairs = pa.StructArray.from_arrays(
        [maps.keys, maps.items], fields=list(headers_type().value_type)
    )
    return pa.ListArray.from_arrays(maps.offsets, pairs, type=headers_type())


def test_events_in_headers_are_copied_with_their_own_attributes(
    topics: Topics, topic: str
) -> None:
    """The headers that go along do not replace those of the rows, nor repeat them."""
    topics.send(topic, [b'{"item":"hat"}', None], headers=[*EVENT.items()], key=b"k")
    target = topics.create()
    streamfactory.copy(events(topics, topic), events(topics, target))
    found = events(topics, target) | {"metadata.columns": "true"}
    found["includeTombstones"] = "true"
    rows = rows_of(found)
    assert [row["_tombstone"] for row in rows] == [False, True]
    assert {name: rows[0][name] for name in ROW} == ROW


@pytest.mark.parametrize("decoder", [None, "json"])
def test_contexts_of_traces_are_linked_and_written_out(
    topics: Topics, topic: str, decoder: str | None
) -> None:
    context = f"00-{7:032x}-{9:016x}-01".encode()
    sent = [("traceparent", context), ("tracestate", b"a=1")]
    topics.send(topic, [b'{"item":"hat"}'], headers=sent)
    target = topics.create()
    found: list[FinishedBatch] = []
    batches.subscribe(found.append)
    try:
        ends = [_messages(topics, name, decoder) for name in (topic, target)]
        streamfactory.copy(*ends)
    finally:
        batches.subscribe(None)
    assert [one.parents for one in found] == [[context.decode()]]
    [message] = committed_messages(topics.bootstrap, target, 1)[0]
    assert message.headers() == sent


def _messages(topics: Topics, topic: str, decoder: str | None) -> dict[str, str]:
    if decoder is None:
        return stream_of(topics.bootstrap, topic) | {"startingOffsets": "earliest"}
    return stream(topics, topic, decoder, decoder__prop__schema="item string")


def keyed(topics: Topics, topic: str) -> dict[str, str]:
    return stream(
        topics,
        topic,
        "json",
        decoder__prop__schema="page string",
        key__decoder__class__name="json",
        key__decoder__prop__schema="number bigint",
        key__decoder__columns="true",
    ) | {"producer.key.columns": "number"}


def test_columns_of_keys_are_the_keys_of_messages(topics: Topics, topic: str) -> None:
    rows = [{"number": 1, "page": "/"}, {"number": 2, "page": None}]
    with streamfactory.open_sink(keyed(topics, topic)) as sink:
        sink.put(pa.Table.from_pylist(rows))
    assert read_messages(topics.bootstrap, topic, 1)[0] == [
        (b'{"number":1}', b'{"page":"/"}'),
        (b'{"number":2}', b'{"page":null}'),
    ]
    assert rows_of(keyed(topics, topic)) == rows
    target = topics.create()
    streamfactory.copy(keyed(topics, topic), keyed(topics, target))
    assert rows_of(keyed(topics, target)) == rows


@pytest.mark.long("a session of Spark")
def test_spark_reads_and_writes_events_and_columns_of_keys(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    topics.send(topic, [b'{"item":"hat"}'], headers=[*EVENT.items()])
    load = spark.read.format("streamfactory").options
    frame = load(**events(topics, topic)).load()
    assert [row.asDict() for row in frame.collect()] == [ROW]
    target = topics.create()
    save = frame.write.format("streamfactory").mode("append").options
    save(**events(topics, target)).save()
    assert rows_of(events(topics, target)) == [ROW]
    keys = topics.create()
    numbers = spark.range(0, 4, 1, 2).selectExpr("id as number", "'/' as page")
    writer = numbers.write.format("streamfactory").mode("append")
    writer.options(**keyed(topics, keys)).save()
    back = load(**keyed(topics, keys)).load()
    assert back.columns == ["number", "page"]
    assert sorted(row.number for row in back.collect()) == [0, 1, 2, 3]
    assert [
        row.number for row in back.select("number").where("number=3").collect()
    ] == [3]


CHANGES = [
    (b'{"id":1}', event("c", after={"id": 1, "name": "Ann"})),
    (b'{"id":2}', event("c", after={"id": 2, "name": "Bob"})),
    (
        b'{"id":1}',
        event("u", before={"id": 1, "name": "Ann"}, after={"id": 1, "name": "Anna"}),
    ),
    (b'{"id":2}', event("d", before={"id": 2, "name": "Bob"})),
    (b'{"id":2}', None),
]


@pytest.mark.long("a pipeline on Spark")
def test_change_events_reach_a_sink_through_a_pipeline(
    spark: SparkSession,
    topics: Topics,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows of two kinds of sinks: a log of changes, and messages by key."""
    monkeypatch.chdir(tmp_path)
    for key, value in CHANGES:
        topics.send(topic, [value], key=key)
    customers = topics.create()
    defined = {
        "events": stream(
            topics,
            topic,
            "debezium",
            decoder__prop__schema="id bigint not null, name string",
        ),
        "customers": stream(
            topics,
            customers,
            "json",
            staging__location=str(tmp_path / "staging"),
        )
        | {"producer.key.columns": "id", "producer.change.column": "_change"},
        "log": {
            "streamType": "file",
            "stream.file.path": str(tmp_path / "files"),
            "stream.file.topic.name": "log",
        },
    }
    folder = tmp_path / "configs" / "streams"
    folder.mkdir(parents=True)
    for name, properties in defined.items():
        text = json.dumps({"name": name, "properties": properties})
        (folder / f"{name}.json").write_text(text)
    path = tmp_path / "p.toml"
    path.write_text(
        'checkpoint = "checkpoint"\n[source]\nstream = "events"\n'
        '[[steps]]\nid = "changes"\n'
        'sql = "select id, name, _change from input where _change is not null"\n'
        '[[sinks]]\nstream = "customers"\n[[sinks]]\nstream = "log"\n'
    )
    for _ in range(2):
        [outcome] = Pipelines([path], Overrides()).run(spark)
        assert outcome.failure is None
    assert read_messages(topics.bootstrap, customers, 1)[0] == [
        (b"1", b'{"id":1,"name":"Ann"}'),
        (b"2", b'{"id":2,"name":"Bob"}'),
        (b"1", b'{"id":1,"name":"Anna"}'),
        (b"2", None),
    ]
    assert [(row["_change"], row["name"]) for row in rows_of(defined["log"])] == [
        ("insert", "Ann"),
        ("insert", "Bob"),
        ("update_before", "Ann"),
        ("update_after", "Anna"),
        ("delete", "Bob"),
    ]
