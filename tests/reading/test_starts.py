"""Where a stream starts and ends: which word wins, and what each of them means."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from tests.specimens import TOPIC, Author, rows

from streamfactory.spi import (
    ConfigError,
    IncarnationChanged,
    MisuseError,
    OffsetOutOfRange,
    Partition,
    PartitionInfo,
    PartitionVanished,
    Position,
    PositionRefused,
)

if TYPE_CHECKING:
    from streamfactory.wiring.streams.stream import Stream

ONE, TWO = Partition(TOPIC, 1), Partition(TOPIC, 2)


def two_partitions() -> Author:
    """Offsets 10 to 20 and 5 to 8; at any time the middle; answers what is asked."""
    author = Author()
    author.infos = [PartitionInfo(ONE, 10, 20), PartitionInfo(TWO, 5, 8)]
    author.times = {ONE: 15, TWO: None}
    ends = {10: 20, 5: 8}

    def answer(start: int, end: int | None, limits: object) -> Any:
        last = ends[10] if start >= 10 else ends[5]
        return rows(start, (last if end is None else min(end, last)) - start)

    author.always = answer
    return author


def offsets(text: Any) -> str:
    return json.dumps({TOPIC: text})


def ranges(stream: Stream) -> dict[int, tuple[int, int]]:
    """First and last offset read, by partition."""
    found: dict[int, tuple[int, int]] = {}
    with stream:
        for batch in stream:
            first = found.get(batch.partition.id, (batch.start_offset, 0))[0]
            found[batch.partition.id] = (first, batch.next_offset)
    return found


def begun(author: Author, **how: Any) -> dict[int, int]:
    """Where a stream begins, by partition."""
    with author.open(**how) as stream:
        return {partition.id: offset for partition, offset in stream.position.items()}


EARLIEST, LATEST = {1: 10, 2: 5}, {1: 20, 2: 8}


@pytest.mark.parametrize("word", ["earliest", "EARLIEST", "smallest"])
def test_earliest_and_smallest_are_one_word(word: str) -> None:
    assert begun(two_partitions(), start=word) == EARLIEST
    assert begun(two_partitions(), options={"startingOffsets": word}) == EARLIEST


@pytest.mark.parametrize("word", ["latest", "Latest", "largest"])
def test_latest_and_largest_are_one_word(word: str) -> None:
    assert begun(two_partitions(), start=word) == LATEST
    assert begun(two_partitions(), options={"startingOffsets": word}) == LATEST


def test_by_default_all_is_read_and_followers_begin_at_latest() -> None:
    assert begun(two_partitions()) == EARLIEST
    assert begun(two_partitions(), follow=True) == LATEST


BY_TIME = {"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "latest"}
BY_TIMES = {"startingOffsetsByTimestamp": offsets({"1": 5, "2": 5})}
BY_OFFSETS = {"startingOffsets": offsets({"1": 12, "2": 6})}
BY_RESET = {"stream.script.consumer.prop.auto.offset.reset": "largest"}


def test_words_win_in_the_order_of_the_vocabulary() -> None:
    ladder = [
        (BY_TIME, {1: 15, 2: 8}),
        (BY_TIMES | {"startingOffsetsByTimestampStrategy": "latest"}, {1: 15, 2: 8}),
        (BY_OFFSETS, {1: 12, 2: 6}),
        (BY_RESET, LATEST),
    ]
    options: dict[str, str] = {}
    for more, expected in reversed(ladder):
        options |= more
        assert begun(two_partitions(), options=options) == expected
    assert begun(two_partitions(), options=options, start="earliest") == EARLIEST


def test_signs_in_offsets_mean_earliest_and_latest() -> None:
    options = {"startingOffsets": offsets({"1": -1, "2": -2})}
    assert begun(two_partitions(), options=options) == {1: 20, 2: 5}


def test_offsets_have_to_name_exactly_the_partitions() -> None:
    options = {"startingOffsets": offsets({"1": 12, "3": 6})}
    with pytest.raises(ConfigError) as caught:
        two_partitions().open(options=options)
    assert caught.value.what == "startingOffsets does not match the partitions"
    assert [str(problem) for problem in caught.value.problems] == [
        "startingOffsets: has script-3, which this stream does not have [argument]",
        "startingOffsets: lacks script-2, which this stream has [argument]",
    ]


def test_time_after_the_last_message_is_refused_or_latest_by_option() -> None:
    with pytest.raises(ConfigError) as caught:
        two_partitions().open(options={"startingTimestamp": "5"})
    assert caught.value.partition == TWO
    assert begun(two_partitions(), options=BY_TIME) == {1: 15, 2: 8}


def test_datetime_is_cut_to_its_millisecond_whatever_its_zone() -> None:
    noon = datetime(2024, 5, 1, 12, 0, 0, 1000, tzinfo=UTC)
    author = two_partitions()
    for start in (
        noon,
        noon.astimezone(timezone(timedelta(hours=5))),
        noon - timedelta(microseconds=1),
        noon + timedelta(microseconds=1),
    ):
        assert begun(author, start=start) == {1: 15, 2: 8}
    millis = 1714564800001
    assert author.times_asked == [millis, millis, millis - 1, millis]


def test_time_without_zone_is_refused() -> None:
    with pytest.raises(MisuseError) as caught:
        two_partitions().open(start=datetime(2024, 5, 1))  # noqa: DTZ001
    assert caught.value.what == "the start 2024-05-01 00:00:00 has no time zone"


def test_other_words_are_refused() -> None:
    with pytest.raises(MisuseError) as caught:
        two_partitions().open(start="beginning")
    assert caught.value.what == "the start 'beginning' is neither earliest nor latest"


# --- ends -----------------------------------------------------------------------------


def test_batch_ends_at_the_current_latest() -> None:
    assert ranges(two_partitions().open()) == {1: (10, 20), 2: (5, 8)}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"endingOffsets": offsets({"1": 12, "2": -1})}, {1: (10, 12), 2: (5, 8)}),
        ({"endingOffsets": "latest"}, {1: (10, 20), 2: (5, 8)}),
        ({"endingTimestamp": "5"}, {1: (10, 15), 2: (5, 8)}),
        (
            {"endingOffsetsByTimestamp": offsets({"1": 5, "2": 5})},
            {1: (10, 15), 2: (5, 8)},
        ),
        (
            {"endingTimestamp": "5", "endingOffsets": offsets({"1": 11, "2": 6})},
            {1: (10, 15), 2: (5, 8)},
        ),
        (
            BY_OFFSETS | {"endingOffsets": offsets({"1": 12, "2": 7})},
            {2: (6, 7)},
        ),
    ],
)
def test_batch_ends_where_it_is_reported(
    options: dict[str, str], expected: dict[int, tuple[int, int]]
) -> None:
    assert ranges(two_partitions().open(options=options)) == expected


def test_end_before_its_start_is_a_mistake() -> None:
    options = BY_OFFSETS | {"endingOffsets": offsets({"1": 11, "2": 7})}
    with (
        two_partitions().open(options=options) as stream,
        pytest.raises(MisuseError) as e,
    ):
        list(stream)
    assert e.value.what == "the range ends at 11, before its start"


def test_start_beyond_latest_is_reported_and_not_taken_for_nothing_to_read() -> None:
    options = {"startingOffsets": offsets({"1": 50, "2": 6})}
    with (
        two_partitions().open(options=options) as stream,
        pytest.raises(OffsetOutOfRange) as caught,
    ):
        list(stream)
    assert (caught.value.partition, caught.value.latest) == (ONE, 20)


# --- positions ------------------------------------------------------------------------


def test_position_continues_and_unknown_partitions_are_new() -> None:
    assert begun(two_partitions(), start=Position({ONE: 17})) == {1: 17, 2: 5}


def test_position_of_a_missing_partition_is_reported() -> None:
    position = Position({Partition(TOPIC, 7): 3, ONE: 17})
    with pytest.raises(PartitionVanished) as caught:
        two_partitions().open(start=position)
    assert (caught.value.partition, caught.value.offset) == (Partition(TOPIC, 7), 3)


def test_position_of_a_missing_partition_is_a_loss_by_the_policy() -> None:
    position = Position({Partition(TOPIC, 7): 3, ONE: 17})
    options = {"out.of.range": "earliest"}
    with two_partitions().open(start=position, options=options) as stream:
        losses = [loss for batch in stream for loss in batch.losses]
        assert [(x.partition.id, x.start, x.cause) for x in losses] == [
            (7, 3, "vanished")
        ]
        assert stream.counters.losses == losses
        assert stream.position == Position({ONE: 20, TWO: 8})


def test_position_of_another_stream_is_refused() -> None:
    with pytest.raises(PositionRefused) as caught:
        two_partitions().open(start=Position({Partition("orders", 0): 3}))
    assert caught.value.what == (
        "the position has partition orders-0, which is not of this stream"
    )


def test_position_of_another_incarnation_is_reported_without_rows_to_read() -> None:
    author = two_partitions()
    author.infos = [PartitionInfo(ONE, 0, 20, incarnation="b")]
    position = Position({ONE: 20}, {ONE: "a"})
    with author.open(start=position) as stream, pytest.raises(IncarnationChanged) as e:
        list(stream)
    assert (e.value.expected, e.value.found) == ("a", "b")
    options = {"out.of.range": "latest"}
    with author.open(start=position, options=options) as stream:
        [batch] = list(stream)
    assert [loss.cause for loss in batch.losses] == ["incarnation"]
