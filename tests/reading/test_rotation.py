"""Many partitions: fair turns, growth, partitions that end or are gone."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.specimens import TOPIC, Author, rows

from streamfactory.spi import (
    Abandoned,
    BatchState,
    ClosedError,
    ConnectionFailed,
    Fetched,
    Finished,
    IncarnationChanged,
    Loss,
    Partition,
    PartitionInfo,
    PartitionVanished,
    PermanentError,
    Position,
    StreamError,
    TopicNotFound,
)

if TYPE_CHECKING:
    from streamfactory.wiring.streams.stream import Stream


def partition(number: int) -> Partition:
    return Partition(TOPIC, number)


def partitions(
    count: int, latest: int, *, most: int = 2, silent: bool = False, **info: Any
) -> Author:
    """So many partitions with so many rows each, at most so many an answer.

    Of a partition that is gone their consumers raise, unless they are silent.
    """
    author = Author()
    author.infos = [
        PartitionInfo(partition(n), 0, latest, **info) for n in range(count)
    ]

    def answer(start: int, end: int | None, limits: object) -> Fetched:
        here = author.calls[-1][0]
        known = next((i for i in author.infos if i.partition == here), None)
        if known is None or known.latest is None:
            if silent:
                return Fetched(None, start)
            msg = f"{here} is gone"
            raise TopicNotFound(msg)
        count = min(most, known.latest - start)
        if count <= 0:
            return Fetched(None, start, latest=known.latest)
        return rows(start, count, latest=known.latest)

    author.always = answer
    return author


def drain(stream: Stream) -> Counter[int]:
    """Rows by partition."""
    found: Counter[int] = Counter()
    for batch in stream:
        found[batch.partition.id] += batch.num_rows
    return found


# --- turns ----------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 7, 64])
def test_no_partition_waits_while_another_is_read_twice(count: int) -> None:
    author = partitions(count, 6)
    with author.open() as stream:
        turns = [batch.partition.id for batch in stream]
    assert len(turns) == 3 * count
    for begin in range(0, len(turns), count):
        assert sorted(turns[begin : begin + count]) == list(range(count))


@pytest.mark.parametrize("incarnation", [None, "a"])
def test_a_rate_starves_no_partition(incarnation: str | None) -> None:
    author = partitions(3, 1000, incarnation=incarnation)
    options = {"max.rows.per.second": "40"}
    with author.open(options=options) as stream:
        turns = [
            one.partition.id for one in (stream.next_batch(5) for _ in range(6)) if one
        ]
    assert Counter(turns) == {0: 2, 1: 2, 2: 2}


def test_many_partitions_are_all_read_with_few_open_at_a_time() -> None:
    author = partitions(200, 4)
    most = 0
    with author.open() as stream:
        found: Counter[int] = Counter()
        for batch in stream:
            found[batch.partition.id] += batch.num_rows
            most = max(most, author.open_consumers)
        assert found == dict.fromkeys(range(200), 4)
        assert stream.position == Position({partition(n): 4 for n in range(200)})
        assert stream.counters.rows == 800
    assert most == 64
    assert author.open_consumers == 0
    assert all(consumer.closed == 1 for consumer in author.made)


def test_empty_partitions_are_not_opened() -> None:
    author = partitions(3, 4)
    author.infos[1] = PartitionInfo(partition(1), 9, 9)
    with author.open() as stream:
        assert drain(stream) == {0: 4, 2: 4}
        assert stream.position[partition(1)] == 9
    assert {consumer.partition.id for consumer in author.made} == {0, 2}


def test_partition_that_fails_does_not_starve_other_partitions() -> None:
    author = partitions(2, 4)
    answer = author.always
    assert answer is not None
    failing = True

    def one_is_broken(start: int, end: int | None, limits: Any) -> Fetched:
        if failing and author.calls[-1][0].id == 0:
            msg = "this one only"
            raise PermanentError(msg)
        return answer(start, end, limits)

    author.always = one_is_broken
    with author.open() as stream:
        found: Counter[int] = Counter()
        for _ in range(2):
            with pytest.raises(PermanentError) as caught:
                stream.next_batch(1)
            assert caught.value.partition == partition(0)
            batch = stream.next_batch(1)
            assert batch is not None
            found[batch.partition.id] += batch.num_rows
        assert found == {1: 4}
        failing = False
        assert drain(stream) == {0: 4}


def test_passing_trouble_of_one_partition_waits_its_time() -> None:
    author = partitions(2, 2)
    answer = author.always
    assert answer is not None

    def one_is_away(start: int, end: int | None, limits: Any) -> Fetched:
        if author.calls[-1][0].id == 0:
            msg = "away"
            raise ConnectionFailed(msg)
        return answer(start, end, limits)

    author.always = one_is_away
    slow = {"retry.initial.millis": "3600000", "retry.max.millis": "3600000"}
    with author.open(options=slow) as stream:
        batch = stream.next_batch(1)
        assert batch is not None
        assert batch.partition == partition(1)
        assert stream.next_batch(0.3) is None
        assert stream.counters.retries < 4


# --- growth ---------------------------------------------------------------------------


def test_follower_finds_new_partitions_and_reads_them_from_earliest() -> None:
    author = partitions(1, 4)
    options = {"metadata.refresh.millis": "20"}
    with author.open(follow=True, options=options) as stream:
        assert stream.next_batch(0.1) is None
        author.infos.append(PartitionInfo(partition(5), 3, 7, incarnation="new"))
        first = stream.next_batch(5)
        assert first is not None
        assert (first.partition, first.start_offset) == (partition(5), 3)
        assert stream.position.incarnations == {partition(5): "new"}


def test_follower_closed_is_reported() -> None:
    stream = partitions(1, 4).open(follow=True)
    stream.close()
    with pytest.raises(ClosedError) as caught:
        stream.next_batch(1)
    assert caught.value.what == "the stream is closed"


def test_follower_of_an_empty_stream_waits_for_partitions() -> None:
    author = partitions(0, 0)
    options = {"metadata.refresh.millis": "20"}
    with author.open(follow=True, options=options) as stream:
        assert stream.next_batch(0.05) is None
        author.infos.append(PartitionInfo(partition(0), 0, 2))
        batch = stream.next_batch(5)
        assert batch is not None
        assert batch.num_rows == 2


# --- ends -----------------------------------------------------------------------------


def test_end_of_a_partition_ends_its_turns() -> None:
    author = partitions(2, 2)
    answer = author.always
    assert answer is not None

    def one_ends(start: int, end: int | None, limits: Any) -> Fetched:
        found = answer(start, end, limits)
        if found.rows is None and author.calls[-1][0].id == 0:
            return Fetched(None, start, state=BatchState.END_OF_PARTITION)
        return found

    author.always = one_ends
    with author.open(follow=True, start="earliest") as stream:
        batches = [stream.next_batch(1) for _ in range(3)]
        ends = [(b.partition, b.end) for b in batches if b is not None and b.end]
        assert ends == [(partition(0), Finished())]
        assert stream.ends == {partition(0): Finished()}
        before = len([call for call in author.calls if call[0] == partition(0)])
        assert stream.next_batch(0.1) is None
        after = len([call for call in author.calls if call[0] == partition(0)])
        assert before == after


def test_unknown_latest_is_read_to_the_end_of_the_partition() -> None:
    author = Author(
        rows(0, 3),
        Fetched(None, 3, state=BatchState.END_OF_PARTITION),
        latest=None,
    )
    with author.open() as stream:
        assert drain(stream) == {0: 3}
        assert stream.ends == {partition(0): Finished()}


# --- partitions that are gone ---------------------------------------------------------


@pytest.mark.parametrize(
    ("silent", "refresh", "kind"),
    [(True, "1", PartitionVanished), (False, "3600000", TopicNotFound)],
)
def test_partition_deleted_while_it_is_read_is_an_error(
    silent: bool, refresh: str, kind: type[StreamError]
) -> None:
    author = partitions(2, 4, silent=silent)
    options = {"metadata.refresh.millis": refresh}
    with author.open(follow=True, start="earliest", options=options) as stream:
        for _ in range(4):
            stream.next_batch(1)
        del author.infos[1]
        with pytest.raises(kind) as caught:
            stream.next_batch(5)
        assert (caught.value.partition, caught.value.offset) == (partition(1), 4)


@pytest.mark.parametrize(("silent", "refresh"), [(True, "1"), (False, "3600000")])
def test_deleted_partition_is_a_loss_by_the_policy_and_reading_continues(
    silent: bool, refresh: str
) -> None:
    author = partitions(2, 4, silent=silent)
    options = {"metadata.refresh.millis": refresh, "out.of.range": "earliest"}
    with author.open(follow=True, start="earliest", options=options) as stream:
        for _ in range(4):
            stream.next_batch(1)
        del author.infos[1]
        gone = stream.next_batch(5)
        assert gone is not None
        assert gone.losses == (Loss(partition(1), 4, None, "vanished"),)
        assert (gone.state, gone.end) == (BatchState.END_OF_PARTITION, Abandoned())
        assert stream.counters.losses == list(gone.losses)
        assert stream.position == Position({partition(0): 4})
        author.infos[0] = PartitionInfo(partition(0), 0, 6)
        after = stream.next_batch(5)
        assert after is not None
        assert (after.partition, after.num_rows) == (partition(0), 2)
        assert stream.counters.losses == list(gone.losses)


def test_partition_that_comes_back_is_new() -> None:
    author = partitions(1, 4, silent=True, incarnation="a")
    options = {"metadata.refresh.millis": "1", "out.of.range": "earliest"}
    with author.open(follow=True, options=options) as stream:
        # No partition at all is doubted; another one has to stay.
        author.infos = [PartitionInfo(partition(1), 0, 0)]
        gone = stream.next_batch(5)
        assert gone is not None
        assert gone.losses == (Loss(partition(0), 4, None, "vanished"),)
        author.infos.append(PartitionInfo(partition(0), 0, 2, incarnation="b"))
        back = stream.next_batch(5)
        assert back is not None
        assert (back.partition, back.start_offset, back.num_rows) == (
            partition(0),
            0,
            2,
        )
        assert stream.position.incarnations == {partition(0): "b"}


# --- both lives -----------------------------------------------------------------------


def test_stream_recreated_while_it_is_read_is_reported() -> None:
    author = partitions(1, 4, incarnation="a")
    with author.open() as stream:
        assert stream.next_batch(1) is not None
        author.infos = [PartitionInfo(partition(0), 0, 4, incarnation="b")]
        for _ in range(2):
            with pytest.raises(IncarnationChanged) as caught:
                list(stream)
            assert (caught.value.expected, caught.value.found) == ("a", "b")
        assert stream.position[partition(0)] == 2


def test_position_carries_the_incarnation_of_what_was_not_read_yet() -> None:
    author = partitions(2, 4, incarnation="a")
    with author.open(follow=True) as stream:
        assert stream.position.incarnations == {partition(0): "a", partition(1): "a"}
