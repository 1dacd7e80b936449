"""The reader as the driver of a PySpark without admission control calls it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from streamfactory.spark.failures import StreamFactoryError
from streamfactory.spark.source import MicroBatchReader, StreamFactorySource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.proving.sessions import Topic


@contextmanager
def reader(topic: Topic, **options: str) -> Iterator[MicroBatchReader]:
    source = StreamFactorySource({**topic.options, **options})
    found = source.streamReader(source.schema())
    assert isinstance(found, MicroBatchReader)
    try:
        yield found
    finally:
        found.stop()


def spans(reader: MicroBatchReader, *offsets: dict[str, Any]) -> list[range]:
    return [
        range(one.value.start, one.value.end) for one in reader.partitions(*offsets)
    ]


def test_a_new_query_continues_where_its_last_batch_ended(topic: Topic) -> None:
    topic.write(id=[1, 2, 3], _partition=[0, 0, 0])
    with reader(topic, startingOffsets="earliest") as new:
        start = new.initialOffset()
        end = new.latestOffset()
        assert spans(new, start, end) == [range(3)]
        topic.write(id=[4], _partition=[0])
        assert spans(new, end, new.latestOffset()) == [range(3, 4)]


def test_a_restarted_query_continues_where_spark_says_it_is(topic: Topic) -> None:
    topic.write(id=[1, 2, 3], _partition=[0, 0, 0])
    with reader(topic, startingOffsets="earliest") as before:
        start = before.initialOffset()
        end = before.latestOffset()
    topic.write(id=[4, 5], _partition=[0, 0])
    with reader(topic, startingOffsets="earliest") as after:
        assert spans(after, end, end) == []  # Spark says how far the query is
        assert spans(after, start, end) == [range(3)]  # the batch is done again
        assert spans(after, end, after.latestOffset()) == [range(3, 5)]


def test_limits_hold_from_batch_to_batch(topic: Topic) -> None:
    topic.write(id=[1, 2, 3, 4, 5], _partition=[0] * 5)
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "2"}
    with reader(topic, **limits) as new:
        at, found = new.initialOffset(), []
        for _ in range(3):
            end = new.latestOffset()
            found += spans(new, at, end)
            at = end
        assert found == [range(2), range(2, 4), range(4, 5)]


def test_a_new_query_pins_its_start_although_it_is_asked_for_its_end_first(
    topic: Topic,
) -> None:
    topic.write(id=[1, 2, 3], _partition=[0, 0, 1])
    with reader(topic, startingOffsets="latest") as new:
        end = new.latestOffset()
        start = new.initialOffset()
    topic.write(id=[4, 5], _partition=[0, 1])
    with reader(topic, startingOffsets="latest") as again:
        assert spans(again, end, end) == []
        later = again.initialOffset()  # Spark keeps no initial offset, and asks again
        assert later != start
        assert spans(again, later, end) == spans(again, start, end) == []
        assert spans(again, end, again.latestOffset()) == [range(2, 3), range(1, 2)]


def test_a_query_that_spark_places_after_it_asked_for_the_end_continues(
    topic: Topic,
) -> None:
    # So does Trigger.AvailableNow, before Spark reads the checkpoint.
    topic.write(id=[1, 2, 3], _partition=[0, 0, 1])
    with reader(topic, startingOffsets="earliest") as before:
        before.initialOffset()
        done = before.latestOffset()
    topic.grow(4)
    topic.write(id=[4, 5], _partition=[0, 3])
    with reader(topic, startingOffsets="latest") as after:
        end = after.latestOffset()
        assert spans(after, done, done) == []
        assert spans(after, done, end) == [range(2, 3), range(1)]
        assert after.latestOffset() == end
    with reader(topic, startingOffsets="latest") as replay:
        assert spans(replay, end, end) == []
        assert spans(replay, done, end) == [range(2, 3), range(1)]


def test_rows_removed_before_such_a_query_continues_are_a_loss(topic: Topic) -> None:
    topic.write(id=[1, 2, 3, 4], _partition=[0] * 4)
    with reader(topic, startingOffsets="earliest") as before:
        before.initialOffset()
        done = before.latestOffset()
    topic.write(id=[5, 6], _partition=[0, 0])
    topic.truncate({0: 5})
    with reader(topic, startingOffsets="earliest") as after:
        end = after.latestOffset()
        with pytest.raises(StreamFactoryError, match="out_of_range"):
            after.partitions(done, end)
    with reader(
        topic, startingOffsets="earliest", **{"out.of.range": "earliest"}
    ) as after:
        assert spans(after, done, end) == [range(5, 6)]


def test_an_end_that_is_before_the_position_of_the_query_is_refused(
    topic: Topic,
) -> None:
    # Spark's wrapper of Trigger.AvailableNow asks for the end of a resumed query first,
    # and a limit was applied from the start of a new one.
    topic.write(id=[*range(6)], _partition=[0] * 6)
    with reader(topic, startingOffsets="earliest") as before:
        before.initialOffset()
        done = before.latestOffset()
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "2"}
    with reader(topic, **limits) as after:
        end = after.latestOffset()
        with pytest.raises(StreamFactoryError, match="AvailableNowWrapper"):
            after.partitions(done, end)
