"""Spark's own Kafka source reads the same: rows, types, ranges of offsets."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from tests.kafka import oracle
from tests.kafka.conftest import stream_of
from tests.kafka.jars import Unavailable, jars
from tests.proving.skipping import skip_or_fail

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from tests.kafka.topics import Topics


@pytest.fixture
def two_sources(spark: SparkSession) -> SparkSession:
    """A session that has both sources."""
    try:
        oracle.add_jars(spark, jars("oracle"))
    except Unavailable as missing:
        skip_or_fail(str(missing))
    return spark


def plain_topics(topics: Topics) -> dict[str, int]:
    """Topics of every kind, with the number of rows that can be read of each."""
    mark = uuid.uuid4().hex[:6]
    plain = topics.create(f"plain-{mark}", 2)
    for number in range(2):
        values = [f"{number}-{at}".encode() for at in range(600)]
        topics.send(plain, values, partition=number, key=b"k")
    mixed = topics.create(f"mixed-{mark}")
    topics.send(mixed, [b"a", None, b""], headers=[("h", b"1"), ("h", None)])
    topics.send(mixed, [b"no key"], key=None, timestamp=1_700_000_000_123)
    skewed = topics.create(f"skewed-{mark}", 3)
    topics.send(skewed, [b"many"] * 1500, partition=2)
    topics.send(skewed, [b"one"], partition=0)
    cut = topics.create(f"cut-{mark}")
    topics.send(cut, [str(number).encode() for number in range(50)])
    topics.truncate(cut, 0, 20)
    compacted = topics.create_compacted(f"compacted-{mark}")
    held = topics.count(compacted)
    return {plain: 1200, mixed: 4, skewed: 1501, cut: 30, compacted: held}


def transactional_topic(topics: Topics) -> dict[str, int]:
    """A topic with an aborted transaction between two that were committed."""
    name = topics.create(f"transaction-{uuid.uuid4().hex[:6]}")
    topics.send_in_transaction(name, [b"kept"] * 300)
    topics.send_in_transaction(name, [b"gone"] * 300, abort=True)
    topics.send_in_transaction(name, [b"kept"] * 10)
    return {name: 310}


@pytest.mark.parametrize(
    ("level", "fill", "most"),
    [
        pytest.param(
            *("read_uncommitted", plain_topics, 1500),
            id="plain",
            marks=pytest.mark.long("waits until the broker compacts a topic"),
        ),
        pytest.param(
            *("read_committed", transactional_topic, 400),
            id="transactional",
            marks=pytest.mark.long("both sources read two topics on Spark"),
        ),
    ],
)
def test_both_sources_read_the_same(
    level: str,
    fill: Callable[[Topics], dict[str, int]],
    most: int,
    two_sources: SparkSession,
    topics: Topics,
    tmp_path: Path,
) -> None:
    wanted = fill(topics)
    names = ",".join(wanted)
    sources = [
        make(topics.bootstrap, names, level) for make in (oracle.theirs, oracle.ours)
    ]
    theirs, ours = (oracle.batch(two_sources, source) for source in sources)
    assert {name: sum(row.topic == name for row in theirs) for name in wanted} == wanted
    assert ours == theirs
    (theirs, their_ends), (ours, our_ends) = (
        oracle.stream(two_sources, source, tmp_path / source[0], most)
        for source in sources
    )
    assert len(theirs) == sum(wanted.values())
    assert ours == theirs
    assert len(their_ends) > 1
    assert our_ends == their_ends


@pytest.mark.parametrize(
    ("runs", "codes"),
    [
        (False, {"incarnation_changed"}),
        # A trigger may come between the end of the old topic and the new one.
        (True, {"incarnation_changed", "partition_vanished", "topic_not_found"}),
    ],
    ids=["stopped", "running"],
)
def test_a_query_of_a_recreated_topic_that_outgrew_its_offsets_stops(
    runs: bool, codes: set[str], spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    topic = topics.create()
    topics.send(topic, [b"old"] * 50)

    def start() -> StreamingQuery:
        source = stream_of(topics.bootstrap, topic) | {"startingOffsets": "earliest"}
        frame = spark.readStream.format("streamfactory").options(**source).load()
        writer = frame.select("value").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.option("path", str(tmp_path / "rows")).start()

    query = start()
    try:
        query.processAllAvailable()
        if not runs:
            query.stop()
        topics.recreate(topic)
        topics.send(topic, [b"new"] * 75)
        if not runs:
            query = start()
        with pytest.raises(StreamingQueryException) as failed:
            query.awaitTermination(400)
    finally:
        query.stop()
    assert any(f"[{code}]" in str(failed.value) for code in codes), str(failed.value)
    rows = spark.read.parquet(str(tmp_path / "rows")).collect()
    assert [bytes(row.value) for row in rows] == [b"old"] * 50
