"""Dead letters of a source's own groups, whose members nobody can name."""

from __future__ import annotations

import logging
from collections import deque
from contextlib import closing
from typing import TYPE_CHECKING, Any

from tests.specimens import PARTITION_0, envelopes

from streamfactory.spi import (
    Backend,
    ConsumerFactory,
    Fetched,
    FetchLimits,
    MetadataProvider,
    Partition,
    PartitionInfo,
    PartitionLevelConsumer,
    Position,
    StreamLevelConsumer,
    Yields,
    envelope_schema,
    hookimpl,
)
from streamfactory.wiring.streams.stream import open_stream

if TYPE_CHECKING:
    import pyarrow as pa
    import pytest
    from tests.decoding.conftest import Streams


class Grouped:
    """A stream type ``grouped`` whose members answer what a test has put there."""

    def __init__(self, *answers: Fetched) -> None:
        self.answers = deque(answers)
        self.commits: list[Position] = []

    @hookimpl
    def streamfactory_backend(self) -> Backend:
        plugin = self

        class Member(StreamLevelConsumer):
            def fetch_messages(
                self, limits: FetchLimits
            ) -> tuple[Partition, Fetched] | None:
                return (
                    (PARTITION_0, plugin.answers.popleft()) if plugin.answers else None
                )

            def assignment(self) -> frozenset[Partition]:
                return frozenset({PARTITION_0})

            def commit(self, position: Position) -> None:
                plugin.commits.append(position)

        class Provider(MetadataProvider):
            def fetch_partitions(self, topics: Any, known: Any) -> list[PartitionInfo]:
                return [PartitionInfo(PARTITION_0, 0, 0)]

            def fetch_schema(self, topic: str) -> pa.Schema:
                return envelope_schema()

        class Factory(ConsumerFactory):
            def create_partition_level_consumer(
                self, client_id: Any, partition: Any, fields_to_read: Any = None
            ) -> PartitionLevelConsumer:
                raise AssertionError

            def create_metadata_provider(self, client_id: str) -> MetadataProvider:
                return Provider()

            def create_stream_level_consumer(
                self, client_id: str, group_id: str
            ) -> StreamLevelConsumer:
                return Member()

        return Backend(
            name="grouped",
            doc="A group.",
            spi_level=1,
            consumer_factory=Factory,
            yields=Yields.ENVELOPE,
        )


def member(streams: Streams, grouped: Grouped) -> Any:
    streams.plugins.register(grouped)
    properties = {
        "streamType": "grouped",
        "stream.grouped.topic.name": PARTITION_0.topic,
        "stream.grouped.consumer.type": "highlevel",
        "stream.grouped.decoder.class.name": "words",
        "group.id": "g",
        "checkpoint.location": str(streams.folder),
        "decode.on.error": "dead-letter",
        "dead.letter.stream": "dead",
    }
    return open_stream(properties, plugins=streams.plugins)


def test_letters_are_committed_before_the_member_is(streams: Streams) -> None:
    streams.define("dead")
    grouped = Grouped(envelopes(b"a", b"b!"), envelopes(b"c!", start=2))
    with closing(member(streams, grouped)) as stream:
        assert stream.next_batch(1).rows.to_pydict() == {"word": ["a"]}
        assert stream.next_batch(1).num_rows == 0
        assert streams.rows("dead") == []
        stream.commit()
    assert [row["value"] for row in streams.rows("dead")] == [b"b!", b"c!"]
    assert [position[PARTITION_0] for position in grouped.commits] == [3]


def test_letters_of_what_was_not_committed_are_left_out(streams: Streams) -> None:
    streams.define("dead")
    with closing(member(streams, Grouped(envelopes(b"b!")))) as stream:
        assert stream.next_batch(1).num_rows == 0
    assert streams.rows("dead") == []


def test_a_reader_without_commits_is_warned_of_dropped_messages(
    streams: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    from streamfactory.wiring.config.configure import configure
    from streamfactory.wiring.config.definition import from_mapping
    from streamfactory.wiring.reading.source import Source

    streams.messages("from", [b"a", b"b!"])
    properties = streams.define(
        "from",
        stream__memory__decoder__class__name="words",
        stream__memory__consumer__type="highlevel",
        group__id="g",
        checkpoint__location=str(streams.folder),
        decode__on__error="dead-letter",
        dead__letter__stream="dead",
    )
    configured = configure(from_mapping(properties), streams.plugins, use="read")
    with (
        closing(Source(configured)) as source,
        closing(source.reader(Partition("from", 0))) as reader,
        caplog.at_level(logging.WARNING),
    ):
        rows = reader.fetch(0).rows
    assert rows.to_pydict() == {"word": ["a"]}
    assert "undecodable messages are dropped here" in caplog.records[-1].getMessage()
