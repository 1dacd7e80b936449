"""Sinks of messages: rows through an encoder, or raw, and back through `open`."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import streamfactory
from streamfactory.backends.memory import message_schema
from streamfactory.spi import (
    ConfigError,
    ContractBroken,
    Partition,
    SchemaMismatch,
    Summary,
    envelope_schema,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.arrowlog import MemoryLogStore
    from streamfactory.wiring.plugins.manager import PluginManager
    from streamfactory.wiring.writing.sink import Sink

RAW = {"stream.memory.messages": "true", "stream.memory.decoder.class.name": "raw"}
BERLIN = pa.timestamp("us", "Europe/Berlin")
SHOUTING = {"stream.memory.decoder.class.name": "shouting"}


def write(sink: Sink, rows: pa.RecordBatch) -> Any:
    with closing(sink.writer(rows.schema, writer_id="test")) as writer:
        writer.write(rows)
        message = writer.commit()
    with closing(sink.committer(writer_id="test")) as committer:
        assert committer.commit(0, [message])
    return message


def test_raw_messages_come_back_as_they_went_tombstones_too(
    sink_factory: Callable[..., Sink], properties: dict[str, str]
) -> None:
    stamp = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    headers = [[("a", b"1"), ("a", None)], None, []]
    rows = pa.RecordBatch.from_pydict(
        {
            "value": pa.array([b"one", None, b""], pa.large_binary()),
            "_key": ["k1", "k2", None],
            "_timestamp": pa.array([stamp, None, stamp], BERLIN),
            "_headers": pa.array(
                [
                    None if one is None else [{"key": k, "value": v} for k, v in one]
                    for one in headers
                ],
                pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
            ),
        }
    )
    write(sink_factory(RAW), rows)
    with streamfactory.open({**properties, **RAW}) as stream:
        assert stream.schema.equals(envelope_schema())
        (batch,) = stream
    assert batch.partition == Partition("clicks", 0)
    common = {"topic": "clicks", "partition": 0}
    assert batch.rows.to_pylist() == [
        {
            "key": key,
            "value": value,
            **common,
            "offset": offset,
            "timestamp": time,
            "timestampType": -1 if time is None else 0,
            "headers": None
            if header is None
            else [{"key": k, "value": v} for k, v in header],
        }
        for offset, (key, value, time, header) in enumerate(
            zip(
                [b"k1", b"k2", None],
                [b"one", None, b""],
                [stamp, None, stamp],
                headers,
                strict=True,
            )
        )
    ]


def test_raw_message_without_anything_beside_its_value(
    sink_factory: Callable[..., Sink], properties: dict[str, str]
) -> None:
    write(sink_factory(RAW), pa.RecordBatch.from_pydict({"value": [b"x"]}))
    with streamfactory.open({**properties, **RAW}) as stream:
        (row,) = stream.to_reader().read_all().to_pylist()
    assert {n for n, value in row.items() if value is None} == {
        "key",
        "timestamp",
        "headers",
    }


def test_rows_are_encoded_and_their_own_columns_choose_the_partition(
    sink_factory: Callable[..., Sink],
    encoders: PluginManager,
    contents: Callable[..., dict[int, list[Any]]],
    topics: MemoryLogStore,
) -> None:
    options = {
        **SHOUTING,
        "stream.memory.partitions": "4",
        "producer.key.columns": "name",
    }
    rows = pa.RecordBatch.from_pydict(
        {"n": [1, 2], "name": pa.array(["abc", "21"], pa.large_string())}
    )
    message = write(sink_factory(options, plugins=encoders), rows)
    expected: dict[int, list[bytes]] = {0: [], 1: [], 2: [], 3: []}
    expected[479470107 % 4].append(b"1:abc!")
    expected[(-973932308 & 0x7FFFFFFF) % 4].append(b"2:21!")
    assert contents("value") == expected
    assert topics.open("clicks").schema == message_schema()
    assert message.summary == Summary(2)


def test_encoder_sees_one_schema_whatever_the_batches_have(
    sink_factory: Callable[..., Sink], encoders: PluginManager
) -> None:
    sink = sink_factory(SHOUTING, plugins=encoders)
    with closing(sink.writer(pa.schema({"n": pa.large_string()}))) as writer:
        writer.write(pa.RecordBatch.from_pydict({"n": ["a"]}))
        with pytest.raises(SchemaMismatch) as caught:
            writer.write(pa.RecordBatch.from_pydict({"n": [["b"]]}))
        assert caught.value.what.startswith("column 'n' is array<string>, declared st")
        assert caught.value.stream == "memory:clicks"
        assert writer.commit().summary.rows == 1


def test_encoder_that_loses_a_row_breaks_the_contract(
    sink_factory: Callable[..., Sink], encoders: PluginManager
) -> None:
    sink = sink_factory(SHOUTING, plugins=encoders)
    with (
        closing(sink.writer(pa.schema({"n": pa.int64()}))) as writer,
        pytest.raises(ContractBroken) as caught,
    ):
        writer.write(pa.RecordBatch.from_pydict({"n": [1, -1]}))
    assert caught.value.what == "the encoder returned 1 messages for 2 rows"


def test_encoder_is_closed_also_when_its_writer_cannot_be_made(
    scripted: Callable[..., Sink], script: Any, encoders: PluginManager
) -> None:
    script.schema = envelope_schema()
    options = {"stream.scripted.decoder.class.name": "shouting"}
    sink = scripted(options)
    sink.writer(pa.schema({"n": pa.int64()})).close()
    encoder = encoders.decoder("shouting").encoder
    assert encoder is not None
    assert encoder.closed == 1  # type: ignore[attr-defined]
    script.fails["create writer"] = PermissionError("no")
    with pytest.raises(Exception, match="PermissionError"):
        sink.writer(pa.schema({"n": pa.int64()}))
    assert encoder.closed == 2  # type: ignore[attr-defined]


def test_typed_rows_with_a_decoder_are_refused_as_in_reading(
    sink_factory: Callable[..., Sink], topics: MemoryLogStore
) -> None:
    topics.create("clicks", pa.schema({"value": pa.binary()}))
    with pytest.raises(ConfigError) as caught:
        sink_factory({"stream.memory.decoder.class.name": "raw"}).writer(
            pa.schema({"value": pa.binary()})
        )
    assert str(caught.value) == (
        "this stream has typed rows, so the decoder 'raw' cannot be used "
        "(stream 'memory:clicks'); omit it"
    )


def test_messages_without_a_decoder_are_refused_as_in_reading(
    sink_factory: Callable[..., Sink],
) -> None:
    sink = sink_factory({"stream.memory.messages": "true"})
    with pytest.raises(ConfigError) as caught:
        sink.writer(pa.schema({"n": pa.int64()}))
    assert str(caught.value) == (
        "this stream has undecoded messages, but no decoder is configured "
        "(stream 'memory:clicks'); set stream.memory.decoder.class.name; raw writes "
        "the column `value` unchanged"
    )


def test_raw_rows_of_another_shape_name_the_column(
    sink_factory: Callable[..., Sink],
) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        sink_factory(RAW).writer(pa.schema({"n": pa.int64()}))
    assert caught.value.what == "column 'n' is not in the declared schema"
