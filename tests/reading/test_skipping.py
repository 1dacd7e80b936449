"""Skipped ranges: joined, cut, and what of them a backfill has still to read."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.specimens import PARTITION_0, TOPIC, Author, rows

from streamfactory.spi import (
    BatchState,
    Fetched,
    Loss,
    OffsetOutOfRange,
    Partition,
    PartitionInfo,
    PartitionVanished,
    Position,
    Skipped,
)
from streamfactory.wiring.reading.following import read_from
from streamfactory.wiring.reading.skipped_ranges import SkippedRanges
from streamfactory.wiring.reading.skipping import (
    Freshness,
    before,
    held,
    joined,
    remaining,
)

if TYPE_CHECKING:
    from streamfactory.wiring.reading.source import Source

A, B = Partition("clicks", 0), Partition("clicks", 1)


def test_range_that_begins_where_the_last_one_ends_extends_it() -> None:
    ranges = joined(joined([], Skipped(A, 0, 10, "x")), Skipped(B, 0, 5, "x"))
    assert joined(ranges, Skipped(A, 10, 30, "x")) == [
        Skipped(A, 0, 30, "x"),
        Skipped(B, 0, 5, "x"),
    ]
    apart = [Skipped(A, 11, 30, "x"), Skipped(A, 10, 30, "y")]
    assert [len(joined(ranges, one)) for one in apart] == [3, 3]


def test_backfill_reads_what_is_behind_its_position() -> None:
    ranges = [Skipped(A, 0, 10, "x"), Skipped(A, 20, 30, "x"), Skipped(B, 5, 6)]
    assert remaining(ranges, Position()) == tuple(ranges)
    done = Position({A: 23, B: 6}, {A: "x"})
    assert remaining(ranges, done) == (Skipped(A, 23, 30, "x"),)
    assert remaining(ranges, Position({A: 10}, {A: "x"})) == tuple(ranges[1:])
    assert remaining(ranges, Position({A: 30}, {A: "x"})) == (ranges[2],)


def test_backfill_is_done_with_earlier_incarnations_and_not_with_later_ones() -> None:
    old, new = Skipped(A, 100, 200, "x"), Skipped(A, 0, 50, "y")
    assert remaining([old, new], Position({A: 200}, {A: "x"})) == (new,)
    assert remaining([old, new], Position({A: 10}, {A: "y"})) == (
        Skipped(A, 10, 50, "y"),
    )
    # The copy has removed the ranges of "x", which the backfill has read.
    assert remaining([new], Position({A: 200}, {A: "x"})) == (new,)


def test_offsets_that_are_read_again_are_no_longer_skipped() -> None:
    ranges = [Skipped(A, 0, 10, "x"), Skipped(A, 20, 30, "x"), Skipped(B, 20, 30, "x")]
    assert before(ranges, A, "x", 25) == [
        ranges[0],
        Skipped(A, 20, 25, "x"),
        ranges[2],
    ]
    assert before(ranges, A, "x", 20) == [ranges[0], ranges[2]]
    assert before(ranges, A, "y", 0) == ranges


def test_source_keeps_what_a_backfill_has_to_read() -> None:
    position = Position({A: 40, B: 7}, {A: "x"}).skipping(
        [Skipped(A, 5, 10, "x"), Skipped(A, 20, 30, "x")]
    )
    assert held(position) == Position({A: 5, B: 7}, {A: "x"})
    recreated = Position({A: 3}, {A: "y"}).skipping([Skipped(A, 0, 10, "x")])
    assert held(recreated) == Position({A: 3}, {A: "y"})


# --- what is late -----------------------------------------------------------------


def late(
    at: int, options: dict[str, Any], times: tuple[int | None, ...] = ()
) -> dict[Partition, int]:
    """Where a partition continues of which offsets 300 to 1000 are held.

    Args:
        at: Its next offset.
        options: Of the stream.
        times: What the source answers for the two times that it is asked for.
    """
    author = Author(latest=1000)
    author.bounds(300, 1000, "x")
    answers = iter(times)
    with (
        closing(author.source(**options)) as source,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(
            source.metadata,
            "offsets_at",
            lambda _, partitions: dict.fromkeys(partitions, next(answers)),
        )
        position = Position({PARTITION_0: at}, {PARTITION_0: "x"})
        return Freshness(source).late(position)


def test_partition_is_late_behind_a_number_of_messages() -> None:
    few = {"fresh__within__rows": "100"}
    assert late(900, few) == {}
    assert late(899, few) == {PARTITION_0: 950}
    # What was removed is a loss, which the reader reports.
    assert late(299, few) == {}
    assert late(1000, few) == {}


def test_partition_is_late_if_its_next_message_is_too_old() -> None:
    time = {"fresh__within__millis": "10m"}
    assert late(500, time, (500,)) == {}
    assert late(500, time, (501, 700)) == {PARTITION_0: 700}
    assert late(500, time, (501, 500)) == {}
    assert late(500, time, (None, None)) == {PARTITION_0: 1000}
    both = {**time, "fresh__within__rows": "100"}
    assert late(500, both, (501, 970)) == {PARTITION_0: 970}
    assert late(500, both, (501, 700)) == {PARTITION_0: 950}


def test_nothing_is_skipped_that_the_backfill_believes_to_have_read() -> None:
    author = Author(latest=1000)
    source = author.source(fresh__within__rows="100")
    position = Position({PARTITION_0: 50}, {PARTITION_0: "x"})
    with closing(source):
        freshness = Freshness(source)
        for at, incarnation, admitted in ((50, "x", 1), (51, "x", 0), (51, "y", 1)):
            done = Position({PARTITION_0: at}, {PARTITION_0: incarnation})
            found = freshness.admit({PARTITION_0: 950}, position, done)
            assert len(found) == admitted


# --- reading ----------------------------------------------------------------------


def test_batches_that_were_not_handed_out_are_skipped() -> None:
    author = Author()
    both = [Partition(TOPIC, 0), Partition(TOPIC, 1)]
    # Results lack the incarnation: both are fetched, and confirmed by one look-up.
    author.infos = [PartitionInfo(one, 0, 100, incarnation="x") for one in both]
    author.always = lambda start, *_: rows(start, 1, latest=100)
    with closing(author.source()) as source:
        rotation = read_from(source, start="earliest", default="earliest", follow=True)
        with closing(rotation):
            first = rotation.next_batch(5)
            assert first is not None
            [other] = set(both) - {first.partition}
            assert {one for one, *_ in author.calls} == set(both)
            ranges = rotation.skip({other: 90})
            assert ranges == [Skipped(other, 0, 90, "x")]
            assert rotation.position.skipped == tuple(ranges)
            starts = {}
            while other not in starts:
                batch = rotation.next_batch(5)
                assert batch is not None
                starts[batch.partition] = batch.first_offset
            assert starts[other] == 90


def test_offsets_of_a_truncated_topic_that_are_read_again_are_not_skipped() -> None:
    author = Author(latest=1000)
    author.bounds(0, 1000, "x")
    author.always = lambda start, *_: rows(start, 1, latest=author.infos[0].latest)
    start = Position({PARTITION_0: 900}, {PARTITION_0: "x"}).skipping(
        [Skipped(PARTITION_0, 10, 20, "x"), Skipped(PARTITION_0, 30, 90, "x")]
    )
    with closing(author.source(out__of__range="latest")) as source:
        author.bounds(0, 40, "x")
        rotation = read_from(source, start=start, default="earliest", follow=True)
        with closing(rotation):
            batch = rotation.next_batch(5)
            assert batch is not None
            assert [loss.cause for loss in batch.losses] == ["truncated"]
            assert rotation.position.skipped == (
                Skipped(PARTITION_0, 10, 20, "x"),
                Skipped(PARTITION_0, 30, 40, "x"),
            )


def ranges_of(source: Source, *ranges: Skipped) -> SkippedRanges:
    found = iter([ranges, ()])
    return SkippedRanges(source, None, lambda: next(found))


@pytest.mark.parametrize("earliest", [0, 20])
def test_range_ends_where_the_topic_is_recreated_while_it_is_read(
    earliest: int,
) -> None:
    author = Author(latest=1000)
    author.bounds(0, 1000, "x")
    author.always = lambda start, *_: replace(
        rows(start, 5, latest=1000), incarnation=author.infos[0].incarnation
    )
    later = Skipped(PARTITION_0, earliest, earliest + 5, "y")
    ranges = (Skipped(PARTITION_0, 10, 30, "x"), later)
    with closing(author.source(out__of__range="earliest", batch__rows="5")) as source:
        reading = ranges_of(source, *ranges)
        with closing(reading):
            assert first_offset(reading) == 10
            author.bounds(earliest, 1000, "y")
            # A result of a new incarnation has no rows (rule R7).
            author.steps.append(Fetched(None, 15, incarnation="y"))
            lost = reading.next_batch(5)
            assert lost is not None
            assert (lost.num_rows, lost.next_offset) == (0, 30)
            assert [(one.cause, one.end) for one in lost.losses] == [
                ("incarnation", 30)
            ]
            assert reading.position == Position({PARTITION_0: 30}, {PARTITION_0: "x"})
            assert first_offset(reading) == earliest
            assert reading.position == Position(
                {PARTITION_0: later.end}, {PARTITION_0: "y"}
            )
            assert reading.next_batch(0) is None
            assert reading.finished
            assert len(reading.counters.losses) == 1


def test_range_of_a_removed_partition_is_a_loss() -> None:
    author = Author(latest=1000)
    one = Skipped(Partition("topic", 7), 10, 30)
    with closing(author.source(out__of__range="earliest")) as source:
        reading = ranges_of(source, replace(one, partition=Partition(TOPIC, 7)))
        with closing(reading):
            lost = reading.next_batch(5)
            assert lost is not None
            assert [loss.cause for loss in lost.losses] == ["vanished"]
            assert dict(reading.position) == {Partition(TOPIC, 7): 30}
    with closing(author.source()) as source:
        reading = ranges_of(source, replace(one, partition=Partition(TOPIC, 7)))
        with closing(reading), pytest.raises(PartitionVanished):
            reading.next_batch(5)


def test_range_behind_the_end_of_its_partition_is_a_loss() -> None:
    author = Author(latest=1000)
    author.bounds(0, 1000, "x")
    author.always = lambda *_: Fetched(None, 15, state=BatchState.END_OF_PARTITION)
    one = Skipped(PARTITION_0, 10, 30, "x")
    with closing(author.source(out__of__range="earliest")) as source:
        reading = ranges_of(source, one)
        with closing(reading):
            lost = reading.next_batch(5)
            assert lost is not None
            wanted = Loss(PARTITION_0, 15, 30, "truncated")
            assert [*lost.losses] == [*reading.counters.losses] == [wanted]
            assert reading.position == Position({PARTITION_0: 30}, {PARTITION_0: "x"})
    with closing(author.source()) as source:
        reading = ranges_of(source, one)
        with closing(reading), pytest.raises(OffsetOutOfRange) as caught:
            reading.next_batch(5)
    assert (caught.value.stream, caught.value.offset) == (source.config.name, 15)


def first_offset(reading: SkippedRanges) -> int | None:
    batch = reading.next_batch(5)
    assert batch is not None
    return batch.first_offset
