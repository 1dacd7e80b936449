"""What happened to readers of others, on every backend. Numbers are Apache Pinot's."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from streamfactory.spi import (
    BatchState,
    IncarnationChanged,
    Loss,
    OffsetOutOfRange,
    Partition,
    PartitionVanished,
    Position,
    TopicNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.scenarios.conftest import Environment

    from streamfactory.spi import MessageBatch

PARTITION_0 = Partition("clicks", 0)


def ids(*batches: MessageBatch) -> list[int]:
    return [n for batch in batches for n in batch.rows.column("id").to_pylist()]


def every(batches: Iterable[MessageBatch]) -> list[int]:
    return ids(*batches)


# --- where a fetch begins -------------------------------------------------------------


def test_caller_who_did_not_process_a_batch_gets_it_again(stream: Environment) -> None:
    """apache/pinot #9896, #18337, #18663, #18669: a repeated start after rows."""
    stream.create()
    stream.write(1, 2, 3)
    reader = stream.reader()
    assert ids(reader.fetch(0)) == ids(reader.fetch(0)) == [1, 2, 3]


def test_reader_at_the_end_polls_and_returns_new_rows(stream: Environment) -> None:
    """apache/pinot #9896, #18337: a repeated start after an empty answer."""
    stream.create()
    stream.write(1)
    reader = stream.reader()
    for _ in range(3):
        assert reader.fetch(1, timeout=0).num_rows == 0
    stream.write(2)
    assert ids(reader.fetch(1)) == [2]


def test_first_message_of_a_partition_is_read(stream: Environment) -> None:
    """apache/pinot #18220: the first record of a shard was lost."""
    stream.create()
    stream.write(1, 2)
    assert every(stream.open()) == [1, 2]
    assert stream.reader().fetch(0, max_rows=1).first_offset == 0


def test_end_within_an_answer_skips_nothing(stream: Environment) -> None:
    """apache/pinot #9091, #9093: an end criterion in mid-batch skipped messages."""
    stream.create()
    stream.write(*range(10))
    reader = stream.reader()
    first = reader.fetch(0, end=4)
    then = reader.fetch(first.next_offset, max_rows=3)
    last = reader.fetch(then.next_offset)
    assert [batch.next_offset for batch in (first, then, last)] == [4, 7, 10]
    assert ids(first, then, last) == list(range(10))


def test_reader_that_pauses_and_resumes_loses_nothing(stream: Environment) -> None:
    """apache/pinot #6302, #8171, #8986: pause and resume."""
    stream.create(partitions=2)
    stream.write(1, 2, 3)
    stream.write(4, 5, partition=1)
    opened = stream.open(options={"batch__rows": "1"})
    before = [next(iter(opened)) for _ in range(3)]
    paused = opened.position.to_json()
    opened.close()
    stream.write(6)
    after = every(stream.open(start=Position.from_json(paused)))
    assert sorted([*ids(*before), *after]) == [1, 2, 3, 4, 5, 6]


# --- what is gone ---------------------------------------------------------------------


def test_offsets_that_expired_are_never_skipped_silently(stream: Environment) -> None:
    """apache/pinot #725, #8219, #8717, #12608, #19359: loss seen only in the logs."""
    stream.create()
    stream.write(*range(10))
    stream.truncate(before=6)
    with pytest.raises(OffsetOutOfRange) as caught:
        stream.reader().fetch(2)
    assert (caught.value.earliest, caught.value.latest) == (6, 10)
    fetched = stream.reader(out__of__range="earliest").fetch(2)
    assert fetched.losses == (Loss(PARTITION_0, 2, 6, "retention"),)
    assert ids(fetched) == [6, 7, 8, 9]
    skipped = stream.reader(out__of__range="latest").fetch(2, timeout=0)
    assert skipped.losses == (Loss(PARTITION_0, 2, 10, "retention"),)
    assert skipped.next_offset == 10


def test_offsets_that_expire_under_a_reader_are_reported_too(
    stream: Environment,
) -> None:
    """apache/pinot #8219, #19359: retention overtakes a slow reader."""
    stream.create()
    stream.write(*range(4))
    reader = stream.reader(out__of__range="earliest")
    reader.fetch(0, max_rows=2)
    stream.write(*range(4, 10))
    stream.truncate(before=7)
    found: list[int] = []
    losses: list[Loss] = []
    where = 4
    while where < 10:
        batch = reader.fetch(where)
        found += ids(batch)
        losses += batch.losses
        where = batch.next_offset
    assert (found, losses) == ([7, 8, 9], [Loss(PARTITION_0, 4, 7, "retention")])


def test_where_a_new_reader_starts_does_not_decide_over_loss(
    stream: Environment,
) -> None:
    """apache/pinot #8309, #12608: two settings with nearly the same name."""
    stream.create()
    stream.write(*range(10))
    stream.truncate(before=6)
    reset = f"stream__{stream.broker.kind}__consumer__prop__auto__offset__reset"
    for word in ("largest", "smallest"):
        options: dict[str, Any] = {reset: word}
        with pytest.raises(OffsetOutOfRange):
            stream.reader(**options).fetch(2)


def test_recreated_topic_with_lower_offsets_is_reported(stream: Environment) -> None:
    """apache/pinot #7039, #7100: offsets went backwards unnoticed."""
    stream.create()
    stream.write(*range(10))
    with stream.open() as opened:
        assert len(every(opened)) == 10
        position = opened.position
    stream.recreate()
    stream.write(100, 101)
    with pytest.raises(IncarnationChanged) as caught:
        every(stream.open(start=position))
    assert caught.value.offset == 10
    opened = stream.open(start=position, options={"out__of__range": "earliest"})
    batches = list(opened)
    assert ids(*batches) == [100, 101]
    assert [loss.cause for b in batches for loss in b.losses] == ["incarnation"]


@pytest.mark.parametrize("again", [10, 30])
def test_recreated_topic_with_no_lower_offsets_is_reported_too(
    stream: Environment, again: int
) -> None:
    """apache/pinot #7100: a topic filled again passes for the old one."""
    stream.create()
    stream.write(*range(10))
    opened = stream.open()
    every(opened)
    stream.recreate()
    stream.write(*range(again))
    with pytest.raises(IncarnationChanged):
        every(stream.open(start=opened.position))


def test_topic_recreated_under_an_open_reader_is_reported(stream: Environment) -> None:
    """apache/pinot #7039, #7100: the same, while it is being read."""
    stream.create()
    stream.write(*range(10))
    reader = stream.reader()
    reader.fetch(0, max_rows=10)
    stream.recreate()
    stream.write(*range(30))
    with pytest.raises((IncarnationChanged, TopicNotFound)):
        reader.fetch(10)
    with pytest.raises(IncarnationChanged):
        reader.fetch(10)


# --- partitions and topics ------------------------------------------------------------


def test_new_partition_is_found_and_read_from_its_beginning(
    stream: Environment,
) -> None:
    """apache/pinot #2831, #7741, #7756, #8053: found late, and begun at the end."""
    stream.create()
    stream.write(1)
    opened = stream.open(follow=True)
    assert opened.next_batch(0.05) is None
    stream.grow(2)
    stream.write(7, 8, partition=1)
    found = opened.next_batch(5)
    assert found is not None
    assert ids(found) == [7, 8]
    assert found.start_offset == 0


def test_new_partition_begins_at_earliest_after_a_restart_too(
    stream: Environment,
) -> None:
    """apache/pinot #8053: rows between growth and restart were skipped."""
    stream.create()
    stream.write(1)
    opened = stream.open()
    every(opened)
    stream.grow(2)
    stream.write(7, partition=1)
    restarted = stream.open(follow=True, start=opened.position)
    found = restarted.next_batch(5)
    assert found is not None
    assert ids(found) == [7]


def test_partition_missing_after_a_restart_is_reported(
    stream: Environment,
) -> None:
    """apache/pinot #6539: a decrease of partitions."""
    stream.create(partitions=2)
    stream.write(1)
    opened = stream.open()
    every(opened)
    stream.recreate(partitions=1)
    with pytest.raises(PartitionVanished) as caught:
        stream.open(start=opened.position)
    assert caught.value.partition == Partition("clicks", 1)


def test_one_deleted_topic_does_not_stop_other_topics(stream: Environment) -> None:
    """apache/pinot #18560: one deleted topic of several halted all."""
    stream.create()
    stream.create(topic="orders")
    options = {"subscribe": "clicks,orders", "out__of__range": "earliest"}
    opened = stream.open(follow=True, options=options)
    stream.delete("orders")
    gone = opened.next_batch(5)
    assert gone is not None
    assert gone.losses == (Loss(Partition("orders", 0), 0, None, "vanished"),)
    stream.write(1, 2)
    found = opened.next_batch(5)
    assert found is not None
    assert ids(found) == [1, 2]


def test_deleted_topic_is_named_where_loss_is_an_error(stream: Environment) -> None:
    """apache/pinot #18560: and by default it is not passed over either."""
    stream.create()
    stream.create(topic="orders")
    opened = stream.open(follow=True, options={"subscribe": "clicks,orders"})
    stream.delete("orders")
    with pytest.raises((PartitionVanished, TopicNotFound)) as caught:
        opened.next_batch(5)
    assert caught.value.partition == Partition("orders", 0)


def test_partitions_of_several_topics_are_not_mixed_up(stream: Environment) -> None:
    """apache/pinot #13780, #13790, #17217: ids folded into one number."""
    stream.create(partitions=2)
    stream.create(partitions=2, topic="orders")
    stream.write(1, partition=1)
    stream.write(2, partition=1, topic="orders")
    options = {"subscribePattern": "clicks|orders", "metadata__columns": "true"}
    rows = [row for b in stream.open(options=options) for row in b.rows.to_pylist()]
    found = {(row["_topic"], row["_partition"], row["id"]) for row in rows}
    assert found == {("clicks", 1, 1), ("orders", 1, 2)}


# --- where to start -------------------------------------------------------------------


@pytest.mark.parametrize("word", ["earliest", "smallest", "latest", "largest"])
def test_either_spelling_of_both_ends_is_understood(
    stream: Environment, word: str
) -> None:
    """apache/pinot #5955: earliest and latest were rejected, or failed late."""
    stream.create()
    stream.write(1, 2)
    first = 0 if word in ("earliest", "smallest") else 2
    reset = f"stream__{stream.broker.kind}__consumer__prop__auto__offset__reset"
    for how in (
        {"start": word},
        {"options": {"startingOffsets": word}},
        {"options": {reset: word}},
    ):
        assert stream.open(**how).position == Position(
            {PARTITION_0: first}, stream.open().position.incarnations
        )


def test_reader_is_reset_to_a_time(stream: Environment) -> None:
    """apache/pinot #6236, #6637, #7039: reset by time."""
    stream.create(partitions=2)
    stream.write(1, 2)
    time.sleep(0.01)
    begun = datetime.now(UTC)
    stream.write(3)
    assert every(stream.open(start=begun)) == [3]
    millis = str(int(begun.timestamp() * 1000))
    options = {
        "startingTimestamp": millis,
        "startingOffsetsByTimestampStrategy": "latest",
    }
    assert every(stream.open(options=options)) == [3]


def test_reader_is_reset_by_partition_and_skips_a_bad_range(
    stream: Environment,
) -> None:
    """apache/pinot #6555, #6637, #8663: offsets for each partition."""
    stream.create(partitions=2)
    stream.write(1, 2, 3)
    stream.write(4, 5, 6, partition=1)
    options = {"startingOffsets": stream.offsets({"0": 2, "1": -2})}
    assert sorted(every(stream.open(options=options))) == [3, 4, 5, 6]


# --- lag ------------------------------------------------------------------------------


def test_reader_that_has_all_has_no_lag(stream: Environment) -> None:
    """apache/pinot #10210, #12318: caught up showed a lag of one."""
    stream.create()
    stream.write(1, 2)
    opened = stream.open()
    every(opened)
    assert opened.lag() == {PARTITION_0: 0}
    empty = stream.reader().fetch(2, timeout=0)
    assert (empty.lag, empty.state) == (0, BatchState.CAUGHT_UP)


def test_lag_moves_while_the_reader_stands_still(stream: Environment) -> None:
    """apache/pinot #9994, #14142: a stalled reader showed no lag."""
    stream.create()
    stream.write(1, 2)
    opened = stream.open()
    every(opened)
    stream.write(3, 4, 5)
    assert opened.lag() == {PARTITION_0: 3}


def test_batches_behind_report_how_far(stream: Environment) -> None:
    """apache/pinot #10418: each batch knows its lag, no second client is asked."""
    stream.create()
    stream.write(*range(10))
    batch = stream.reader().fetch(0, max_rows=4)
    assert (batch.latest, batch.lag) == (10, 6)


def test_metadata_calls_consume_nothing(stream: Environment) -> None:
    """apache/pinot #7298: test the connection before anything is made of it."""
    stream.create()
    stream.write(1, 2)
    opened = stream.open()
    assert opened.schema.names == ["id"]
    assert opened.lag() == {PARTITION_0: 2}
    assert opened.counters.fetches == 0
    assert every(opened) == [1, 2]
