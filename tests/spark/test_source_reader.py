"""The reader as Spark's driver calls it, in the orders seen, without Spark."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.datasource import InputPartition

from streamfactory.spark.failures import StreamFactoryError
from streamfactory.spark.source import MicroBatchReader, StreamFactorySource
from streamfactory.spark.versions import ADMISSION

if ADMISSION:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

if TYPE_CHECKING:
    from tests.proving.sessions import Topic

pytestmark = pytest.mark.skipif(not ADMISSION, reason="PySpark 4.2 brought read limits")

EARLIEST = {"startingOffsets": "earliest"}


class Stopping:
    """Gives readers, and stops them."""

    def __init__(self, topic: Topic, **options: str) -> None:
        source = StreamFactorySource({**topic.options, **options})
        reader = source.streamReader(source.schema())
        assert isinstance(reader, MicroBatchReader)
        self.reader = reader

    def close(self) -> None:
        self.reader.stop()
        self.reader.stop()  # Spark may stop twice


def logged(offset: dict[str, Any]) -> dict[str, Any]:
    """Through the checkpoint."""
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found


def shipped(thing: Any) -> Any:
    """As Spark sends it to another process."""
    pickler = CloudPickleSerializer()  # type: ignore[no-untyped-call]
    return pickler.loads(pickler.dumps(thing))  # type: ignore[no-untyped-call]


def spans(reader: MicroBatchReader, *offsets: dict[str, Any]) -> list[tuple[int, ...]]:
    return [
        (one.value.partition.id, one.value.start, one.value.end)
        for one in reader.partitions(*offsets)
    ]


def test_a_restarted_driver_plans_before_it_asks_for_anything(topic: Topic) -> None:
    topic.write(id=[1, 2, 3], _partition=[0, 0, 1])
    with closing(Stopping(topic, **EARLIEST)) as first:
        start = first.reader.initialOffset()
        assert first.reader.initialOffset() == start  # it is asked twice
        end = first.reader.latestOffset(start, ReadAllAvailable())
        wanted = spans(first.reader, start, end)
        assert wanted == [(0, 0, 2), (1, 0, 1)]
        assert spans(first.reader, start, end) == wanted
        assert spans(first.reader, end, end) == []
        first.reader.commit(end)
    topic.write(id=[4], _partition=[2])
    with closing(Stopping(topic)) as second:  # its own start would be the latest
        assert spans(second.reader, logged(start), logged(end)) == wanted
        assert second.reader.reportLatestOffset() is None
        after = second.reader.latestOffset(logged(end), ReadAllAvailable())
        assert spans(second.reader, end, after) == [(2, 0, 1)]
        assert second.reader.reportLatestOffset() == logged(after)
        again = second.reader.latestOffset(logged(after), ReadAllAvailable())
    assert json.dumps(again) == json.dumps(after)  # Spark compares text


def test_limits_are_computed_here_and_a_token_passes_them_on(topic: Topic) -> None:
    topic.write(id=[*range(10)], _partition=[0] * 10)
    with closing(Stopping(topic, **EARLIEST)) as free:
        assert free.reader.getDefaultReadLimit() == ReadAllAvailable()
    with closing(Stopping(topic, **EARLIEST, MAXOFFSETSPERTRIGGER="4")) as limited:
        reader = limited.reader
        token = reader.getDefaultReadLimit()
        assert isinstance(token, ReadMaxRows)
        start = reader.initialOffset()
        assert spans(reader, start, reader.latestOffset(start, token)) == [(0, 0, 4)]
        whole = reader.latestOffset(start, ReadAllAvailable())
        assert spans(reader, start, whole) == [(0, 0, 10)]


def test_a_schema_that_changes_under_a_query_stops_it(topic: Topic) -> None:
    topic.write(id=[1])
    going_on = {"out.of.range": "earliest"}
    with closing(Stopping(topic, **EARLIEST, **going_on)) as running:
        start = running.reader.initialOffset()
        end = running.reader.latestOffset(start, ReadAllAvailable())
        topic.delete()
        topic.write(id=["one"])
        with pytest.raises(StreamFactoryError) as caught:
            running.reader.latestOffset(end, ReadAllAvailable())
    message = "column 'id' has the type string in the stream and bigint in the query"
    assert str(caught.value).startswith(f"[schema_mismatch] {message}")
    assert caught.value.__cause__ is None


def test_a_stream_has_no_end_and_says_so(topic: Topic) -> None:
    topic.write(id=[1])
    with pytest.raises(StreamFactoryError) as caught:
        Stopping(topic, endingTimestamp="5")
    assert (
        "endingTimestamp: is for batch queries only: a streaming query has no end"
        in str(caught.value)
    )


def test_what_crosses_processes_holds_nothing_open(topic: Topic) -> None:
    topic.write(id=[1], _partition=[0])
    with closing(Stopping(topic, **EARLIEST)) as here:
        start = here.reader.initialOffset()
        end = here.reader.latestOffset(start, ReadAllAvailable())
        there = shipped(here.reader)
        (partition,) = here.reader.partitions(start, end)
        (rows,) = there.read(shipped(partition))
        assert rows.to_pylist() == [{"id": 1}]
        assert list(there.read(InputPartition(None))) == []  # a batch without ranges
        there.stop()


def test_a_poll_without_rows_returns_the_start_that_spark_passed(topic: Topic) -> None:
    topic.write(id=[1, 2])
    with closing(Stopping(topic, **EARLIEST)) as running:
        start = running.reader.initialOffset()
        end = logged(running.reader.latestOffset(start, ReadAllAvailable()))
        for _ in range(2):
            assert running.reader.latestOffset(end, ReadAllAvailable()) is end
        topic.write(id=[7, 8, 9])
        after = running.reader.latestOffset(end, ReadAllAvailable())
        assert after != end
        assert running.reader.latestOffset(logged(after), ReadAllAvailable()) == after
