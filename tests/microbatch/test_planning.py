"""Which offsets a micro-batch reads: the traps of Spark's streaming API, one by one."""

from __future__ import annotations

import json
import re
import threading
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from streamfactory.spi import (
    ConfigError,
    Extent,
    IncarnationChanged,
    OffsetOutOfRange,
    Partition,
    PartitionVanished,
    Position,
    PositionRefused,
    Unsupported,
)
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.microbatch import (
    BatchOffset,
    check_batch,
    check_shared,
    check_stream,
)
from streamfactory.wiring.microbatch.stored import Stored
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.metadata import Metadata
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.microbatch.conftest import Topic

    from streamfactory.wiring.microbatch import Range

EARLIEST = {"startingOffsets": "earliest"}
RESET = "stream.file.consumer.prop.auto.offset.reset"


def spans(ranges: Sequence[Range]) -> list[tuple[int, int, int]]:
    """Partition, start and end of each."""
    return [(one.partition.id, one.start, one.end) for one in ranges]


def shipped(offset: BatchOffset) -> BatchOffset:
    """What comes back from Spark's log."""
    return BatchOffset.parse(offset.to_text())


# --- the pin of a new query -----------------------------------------------------


def test_a_query_that_begins_at_latest_is_pinned_by_an_empty_first_batch(
    topic: Topic,
) -> None:
    topic.create()
    topic.write(5)
    first = topic.planner()
    initial = first.initial()
    end = first.latest(initial)
    assert end != initial
    assert first.ranges(initial, end) == []
    topic.write(3)
    # The driver dies before its commit. The next one resolves "latest" again, later.
    second = topic.planner()
    later = shipped(second.initial())
    assert later != initial
    assert second.ranges(later, shipped(end)) == []
    assert spans(second.ranges(end, second.latest(shipped(end)))) == [(0, 5, 8)]


def test_a_batch_replayed_from_the_log_reads_what_it_read(topic: Topic) -> None:
    topic.create(2)
    topic.write(4)
    topic.write(2, partition=1)
    first = topic.planner(**EARLIEST)
    initial = first.initial()
    end = first.latest(initial)
    wanted = [(0, 0, 4), (1, 0, 2)]
    assert spans(first.ranges(initial, end)) == wanted
    topic.write(10)
    second = topic.planner()  # its own start would be the latest
    assert spans(second.ranges(second.initial(), shipped(end))) == wanted


# --- offsets are text -----------------------------------------------------------


def test_equal_offsets_are_equal_text(topic: Topic) -> None:
    topic.create(12)
    topic.write(1, partition=11)
    one, other = topic.planner(**EARLIEST), topic.planner(**EARLIEST)
    end, again = one.latest(one.initial()), other.latest(other.initial())
    assert end.to_text() == again.to_text()
    assert json.dumps(end.to_plain()) == json.dumps(json.loads(end.to_text()))
    assert "\n" not in end.to_text()


def test_an_idle_stream_makes_no_batch(topic: Topic) -> None:
    topic.create()
    topic.write(5)
    planner = topic.planner(**EARLIEST)
    end = planner.latest(planner.initial())
    after = planner.latest(end)
    assert after == planner.latest(shipped(after))
    assert planner.ranges(after, after) == []


def test_a_query_that_has_caught_up_reads_what_is_written_later(topic: Topic) -> None:
    topic.create(2)
    topic.write(5)
    planner = topic.planner(**EARLIEST)
    start = planner.latest(planner.initial())
    for _ in range(3):
        assert planner.latest(start) is start
    topic.write(2, partition=1)
    end = planner.latest(start)
    assert spans(planner.ranges(start, end)) == [(1, 0, 2)]
    assert planner.latest(end) is end
    assert planner.newest == end.at
    # An earlier start, as of a batch that is repeated, is another one.
    assert planner.latest(start) == end


def test_a_query_that_has_caught_up_reports_that_its_topic_was_recreated(
    topic: Topic,
) -> None:
    topic.create()
    topic.write(5)
    planner = topic.planner(**EARLIEST)
    start = planner.latest(planner.initial())
    assert planner.latest(start) is start
    topic.delete()
    topic.create()
    topic.write(5)
    with pytest.raises(IncarnationChanged):
        planner.latest(start)


@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"offset": 1}', "null", "{", '{"at": 3, "begun": {}}']
)
def test_foreign_offsets_are_refused(text: str) -> None:
    with pytest.raises(PositionRefused):
        BatchOffset.parse(text)


def test_the_offset_of_another_stream_is_refused(topic: Topic) -> None:
    topic.create()
    other = BatchOffset(Position({Partition("other", 0): 3}))
    with pytest.raises(PositionRefused) as caught:
        topic.planner().latest(other)
    assert (
        caught.value.what
        == "the offset has partition other-0, which is not of this stream"
    )


# --- planning is pure -----------------------------------------------------------


def test_ranges_are_planned_without_asking_the_source(topic: Topic) -> None:
    topic.create()
    topic.write(5)
    planner = topic.planner(**EARLIEST)
    initial = planner.initial()
    end = planner.latest(initial)
    topic.delete()  # later calls report that there is no topic
    assert spans(planner.ranges(initial, end)) == [(0, 0, 5)]
    assert planner.ranges(end, end) == []


# --- how much -------------------------------------------------------------------


def test_a_limit_is_shared_by_backlog_and_each_partition_gets_at_least_one(
    topic: Topic,
) -> None:
    topic.create(3)
    topic.write(900)
    topic.write(90, partition=1)
    topic.write(1, partition=2)
    planner = topic.planner(**EARLIEST, maxOffsetsPerTrigger="100")
    assert planner.limited
    initial = planner.initial()
    end = planner.latest(initial)
    assert spans(planner.ranges(initial, end)) == [(0, 0, 90), (1, 0, 9), (2, 0, 1)]
    whole = planner.latest(end, limited=False)
    assert spans(planner.ranges(end, whole)) == [(0, 90, 900), (1, 9, 90)]


def test_too_few_offsets_wait_for_the_delay_and_no_longer(topic: Topic) -> None:
    topic.create()
    topic.write(5)
    options = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "60s"}
    planner = topic.planner(**EARLIEST, **options)
    end = planner.latest(planner.initial())  # the first batch pins, whatever waits
    topic.write(9)
    assert planner.latest(end) == end
    topic.clock.wait(threading.Event(), 59)
    assert planner.latest(end) == end
    topic.clock.wait(threading.Event(), 2)
    assert spans(planner.ranges(end, planner.latest(end))) == [(0, 5, 14)]


def test_enough_offsets_do_not_wait(topic: Topic) -> None:
    topic.create()
    planner = topic.planner(**EARLIEST, minOffsetsPerTrigger="10")
    end = planner.latest(planner.initial())
    topic.write(10)
    assert spans(planner.ranges(end, planner.latest(end))) == [(0, 0, 10)]


def test_a_rate_allows_the_offsets_of_the_time_between_two_triggers(
    topic: Topic,
) -> None:
    topic.create(2)
    topic.write(9000)
    topic.write(1000, partition=1)
    planner = topic.planner(**EARLIEST, **{"max.rows.per.second": "100"})
    at = planner.latest(planner.initial(), limited=False)
    taken = 0
    for trigger in (10, 10, 1, 10):
        topic.clock.wait(threading.Event(), trigger)
        end = planner.latest(at, limited=False)
        ranges = spans(planner.ranges(at, end))
        taken += sum(last - first for _, first, last in ranges)
        at = end
    assert 2900 <= taken <= 3100 + 100
    # Faster triggers than the rate allows wait.
    assert planner.latest(at) == at


def test_a_rate_is_reached_by_triggers_that_are_not_exactly_periodic(
    topic: Topic,
) -> None:
    topic.create()
    topic.write(100_000)
    planner = topic.planner(**EARLIEST, **{"max.rows.per.second": "100"})
    at = begun = planner.latest(planner.initial(), limited=False)
    for trigger in (10.1, 9.9) * 10:
        topic.clock.wait(threading.Event(), trigger)
        at = planner.latest(at, limited=False)
    [(_, first, last)] = spans(planner.ranges(begun, at))
    assert 19_000 <= last - first <= 20_000


def test_a_rate_is_kept_by_batches_up_to_a_target(topic: Topic) -> None:
    topic.create()
    topic.write(100_000)
    planner = topic.planner(**EARLIEST, **{"max.rows.per.second": "100"})
    planner.prepare_for_available_now()
    at = begun = planner.latest(planner.initial())
    for _ in range(100):
        topic.clock.wait(threading.Event(), 0.1)
        at = planner.latest(at)
    [(_, first, last)] = spans(planner.ranges(begun, at))
    assert 900 <= last - first <= 1200


def test_a_rate_saves_nothing_up_while_there_is_nothing_to_read(topic: Topic) -> None:
    topic.create()
    planner = topic.planner(**EARLIEST, **{"max.rows.per.second": "100"})
    at = planner.latest(planner.initial())
    for _ in range(100):
        topic.clock.wait(threading.Event(), 1)
        assert planner.latest(at) == at
    topic.write(1000)
    topic.clock.wait(threading.Event(), 1)
    [(_, first, last)] = spans(planner.ranges(at, planner.latest(at)))
    assert (first, 90 < last < 120) == (0, True)


# --- available now --------------------------------------------------------------


def test_available_now_ends_at_what_was_there_though_the_stream_grows(
    topic: Topic,
) -> None:
    topic.create(1)
    topic.write(250)
    planner = topic.planner(**EARLIEST, maxOffsetsPerTrigger="100")
    planner.prepare_for_available_now()
    at, rounds = planner.initial(), 0
    while (end := planner.latest(at)) != at:
        topic.write(70)  # faster than it reads
        topic.grow(2 + rounds)
        topic.write(5, partition=1 + rounds)
        at, rounds = end, rounds + 1
        assert rounds < 10
    assert at.at == Position({Partition("t", 0): 250}, at.at.incarnations)  # type: ignore[union-attr]
    # The next run takes the partitions that came.
    later = topic.planner()
    later.prepare_for_available_now()
    end = later.latest(shipped(at))
    found = spans(later.ranges(at, end))
    assert (1, 0, 5) in found
    assert found[0][:2] == (0, 250)


def test_a_target_counts_though_the_minimum_is_not_reached(topic: Topic) -> None:
    topic.create()
    topic.write(3)
    planner = topic.planner(**EARLIEST, minOffsetsPerTrigger="100")
    planner.prepare_for_available_now()
    end = planner.latest(planner.initial())
    topic.write(3)
    again = topic.planner(minOffsetsPerTrigger="100")
    again.prepare_for_available_now()
    assert spans(again.ranges(end, again.latest(end))) == [(0, 3, 6)]


# --- draining -------------------------------------------------------------------


def test_a_source_that_drains_takes_nothing_more(topic: Topic) -> None:
    topic.create()
    topic.write(3)
    planner = topic.planner(**EARLIEST)
    end = planner.latest(planner.initial())
    topic.write(3)
    planner.drain()
    assert planner.latest(shipped(end)).at == end.at
    assert planner.ranges(end, planner.latest(end)) == []


# --- new partitions, and losses -------------------------------------------------


def test_a_partition_that_comes_in_mid_query_is_read_from_its_earliest(
    topic: Topic,
) -> None:
    topic.create()
    topic.write(2)
    planner = topic.planner()
    end = planner.latest(planner.initial())
    topic.grow(2)
    topic.write(4, partition=1)
    after = planner.latest(end)
    assert spans(planner.ranges(end, shipped(after))) == [(1, 0, 4)]
    assert spans(topic.planner().ranges(shipped(end), shipped(after))) == [(1, 0, 4)]


def test_an_end_that_was_planned_without_its_start_shows_what_retention_took(
    topic: Topic,
) -> None:
    topic.create()
    topic.write(10)
    planner = topic.planner(**EARLIEST, maxOffsetsPerTrigger="4")
    start = planner.latest(planner.initial())
    topic.truncate(6)
    # Another driver, which is not given the checkpoint until it has planned an end.
    later = topic.planner(**EARLIEST)
    end = shipped(later.first(later.initial()))
    with pytest.raises(OffsetOutOfRange) as caught:
        later.ranges(start, end)
    assert (caught.value.earliest, caught.value.offset) == (6, 4)
    lenient = topic.planner(**{"out.of.range": "earliest"})
    assert spans(lenient.ranges(start, end)) == [(0, 6, 10)]


def test_what_retention_took_is_reported_in_planning(topic: Topic) -> None:
    topic.create()
    topic.write(10)
    planner = topic.planner(**EARLIEST, maxOffsetsPerTrigger="2")
    end = planner.latest(planner.initial())
    topic.truncate(6)
    with pytest.raises(OffsetOutOfRange) as caught:
        planner.latest(end)
    assert (caught.value.earliest, caught.value.offset) == (6, 2)
    lenient = topic.planner(**{"out.of.range": "earliest"})
    after = lenient.latest(shipped(end))
    assert spans(lenient.ranges(end, shipped(after))) == [(0, 6, 10)]


def test_another_incarnation_is_reported_in_planning(topic: Topic) -> None:
    topic.create()
    topic.write(10)
    planner = topic.planner(**EARLIEST)
    end = planner.latest(planner.initial())
    topic.delete()
    topic.create()
    topic.write(12)
    with pytest.raises(IncarnationChanged):
        topic.planner().latest(end)
    lenient = topic.planner(**{"out.of.range": "earliest"})
    after = lenient.latest(end)
    ranges = lenient.ranges(end, shipped(after))
    assert spans(ranges) == [(0, 0, 12)]
    assert ranges[0].incarnation != end.at.incarnations[Partition("t", 0)]  # type: ignore[union-attr]


def test_an_end_of_another_incarnation_is_reported_in_planning(topic: Topic) -> None:
    topic.create()
    topic.write(2)
    planner = topic.planner(**EARLIEST)
    end = planner.latest(planner.initial()).at
    topic.delete()
    topic.create()
    topic.write(3)
    with pytest.raises(IncarnationChanged):
        topic.planner().partition_ranges(None, end)
    lenient = topic.planner(**{"out.of.range": "earliest"})
    assert spans(lenient.partition_ranges(None, end)) == [(0, 0, 2)]


def test_files_of_a_topic_that_was_recreated_are_not_those_of_a_plan(
    topic: Topic,
) -> None:
    topic.create()
    topic.write(2)
    ranges = topic.planner(**EARLIEST).partition_ranges()
    topic.delete()
    topic.create()
    topic.write(3)
    with pytest.raises(IncarnationChanged):
        Stored(topic.source()).files(ranges)


def test_missing_partitions_are_reported(topic: Topic) -> None:
    topic.create(2)
    topic.write(1, partition=1)
    planner = topic.planner(**EARLIEST)
    end = planner.latest(planner.initial())
    topic.delete()
    topic.create(1)
    incarnation = topic.planner().initial().begun.incarnations[Partition("t", 0)]
    known = Position(
        {Partition("t", 0): 0, Partition("t", 1): 1},
        dict.fromkeys((Partition("t", 0), Partition("t", 1)), incarnation),
    )
    assert end.at is not None
    with pytest.raises(PartitionVanished) as caught:
        topic.planner().latest(BatchOffset(known))
    assert str(caught.value.partition) == "t-1"


# --- a batch of its own ---------------------------------------------------------


def test_a_batch_reads_from_the_earliest_to_the_latest_of_its_planning(
    topic: Topic,
) -> None:
    topic.create(2)
    topic.write(5)
    topic.truncate(2)
    assert spans(topic.planner().batch()) == [(0, 2, 5)]


def test_a_batch_has_the_start_and_end_that_options_give(topic: Topic) -> None:
    topic.create(2)
    topic.write(9)
    topic.write(9, partition=1)
    options = {
        "startingOffsets": '{"t": {"0": 3, "1": -2}}',
        "endingOffsets": '{"t": {"0": -1, "1": 4}}',
    }
    assert spans(topic.planner(**options).batch()) == [(0, 3, 9), (1, 0, 4)]
    with pytest.raises(ConfigError) as caught:
        topic.planner(startingOffsets='{"t": {"0": 3}}').batch()
    assert "lacks t-1, which this stream has" in str(caught.value)


def test_a_start_that_is_not_held_is_refused(topic: Topic) -> None:
    topic.create()
    topic.write(9)
    with pytest.raises(OffsetOutOfRange):
        topic.planner(startingOffsets='{"t": {"0": 30}}').batch()


# --- cutting --------------------------------------------------------------------


def test_a_batch_does_not_wait_for_unwritten_rows(
    topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    topic.create()
    topic.write(5)
    beyond = {"endingOffsets": '{"t": {"0": 9}}'}
    with pytest.raises(OffsetOutOfRange) as caught:
        topic.planner(**beyond).batch()
    assert caught.value.what == "the batch ends at 9, beyond the latest offset 5"
    going_on = topic.planner(**beyond, **{"out.of.range": "earliest"})
    assert spans(going_on.batch()) == [(0, 0, 5)]
    assert "ends at latest" in caplog.text


def test_what_means_nothing_to_a_batch_is_reported(
    topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    topic.create()
    check_batch(topic.source(maxTriggerDelay="5s", minOffsetsPerTrigger="3").config)
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        f"stream 'file:t': {key}: has no effect on a batch query: it has no trigger "
        f"[argument]"
        for key in ("minOffsetsPerTrigger", "maxTriggerDelay")
    ]


@pytest.mark.parametrize(
    ("options", "messages"),
    [
        ({"startingOffsets": "latest"}, "a batch that starts at latest has no rows"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "starts at latest has no rows"),
        (
            {"stream.file.consumer.prop.auto.offset.reset": "largest"},
            "starts at latest",
        ),
        ({"endingOffsets": "earliest"}, "a batch that ends at earliest has no rows"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "ends at earliest has no rows"),
    ],
)
def test_a_batch_that_would_be_empty_by_its_options_is_refused(
    topic: Topic, options: dict[str, str], messages: str
) -> None:
    config = topic.source(**options).config
    with pytest.raises(ConfigError) as caught:
        check_batch(config)
    assert messages in str(caught.value)
    assert next(iter(options)) in str(caught.value)
    # A timestamp beats all of these.
    stamps = {"startingTimestamp": "0", "endingTimestamp": "9"}
    check_batch(topic.source(**options, **stamps).config)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("endingOffsets", "latest"),
        ("endingTimestamp", "5"),
        ("endingOffsetsByTimestamp", '{"t": {"0": 5}}'),
    ],
)
def test_a_stream_that_is_given_an_end_is_refused(
    topic: Topic, key: str, value: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_stream(topic.source(**{key: value}).config)
    assert f"{key}: is for batch queries only: a streaming query has no end" in str(
        caught.value
    )


@pytest.mark.parametrize("key", ["fresh.within.millis", "fresh.within.rows"])
def test_a_stream_that_skips_is_refused(topic: Topic, key: str) -> None:
    what = f"{key}: is for `streamfactory copy --follow` only: a query of Spark skips"
    with pytest.raises(ConfigError, match=re.escape(what)):
        check_stream(topic.source(**{key: "100"}).config)
    check_stream(topic.source(**{"fresh.within.millis": "0"}).config)


def test_large_ranges_are_cut_until_there_are_enough_tasks(topic: Topic) -> None:
    topic.create(3)
    topic.write(100)
    topic.write(2, partition=1)
    topic.write(50, partition=2)
    found = topic.planner(minPartitions="7").batch()
    assert len(found) == 7
    assert next(one for one in found if one.partition.id == 1).size == 2
    for number, rows in ((0, 100), (1, 2), (2, 50)):
        mine = [one for one in found if one.partition.id == number]
        assert mine[0].start == 0
        assert mine[-1].end == rows
        assert all(a.end == b.start for a, b in pairwise(mine))


def test_no_range_is_longer_than_the_longest(topic: Topic) -> None:
    topic.create()
    topic.write(100)
    found = topic.planner(maxRecordsPerPartition="30").batch()
    assert spans(found) == [(0, 0, 25), (0, 25, 50), (0, 50, 75), (0, 75, 100)]


# --- who may be read ------------------------------------------------------------


def test_a_stream_that_other_processes_do_not_see_is_refused() -> None:
    properties = {"streamType": "memory", "stream.memory.topic.name": "t"}
    configured = configure(from_mapping(properties), default_manager(), use="spark")
    source = Source(configured)
    try:
        with pytest.raises(Unsupported) as caught:
            check_shared(source)
    finally:
        source.close()
    assert "not shared between processes" in str(caught.value)
    assert "`streamfactory copy`" in str(caught.value)


# --- sparse offsets -------------------------------------------------------------


@pytest.fixture
def written(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> list[Extent]:
    """Offsets that are sparse: only those in this list hold messages."""
    found: list[Extent] = []

    def extents(
        _: Metadata, partition: Partition, start: int, end: int, most: int | None = None
    ) -> list[Extent]:
        return [e for e in found if start <= e.start and e.end <= end]

    topic.create()
    monkeypatch.setattr(type(topic.source().factory), "SPARSE_OFFSETS", True)
    monkeypatch.setattr(Metadata, "extents", extents)
    return found


@pytest.mark.parametrize("limits", [{}, {"maxOffsetsPerTrigger": "100"}])
def test_sparse_offsets_that_move_without_a_message_make_few_batches(
    topic: Topic, written: list[Extent], limits: dict[str, str]
) -> None:
    planner = topic.planner(**EARLIEST, **limits)
    start = planner.latest(planner.initial())
    began, batches = topic.clock.now(), []
    for _ in range(60):  # polls in half a minute
        topic.clock.wait(threading.Event(), 0.5)
        end = planner.latest(start)
        if end is not start:
            batches.append(end)
            start = end
        topic.write(1)  # as an acknowledgement that is stored beside the table
    assert 1 <= len(batches) <= (topic.clock.now() - began) / 10
    # While offsets stand still there is no batch at all.
    topic.clock.wait(threading.Event(), 20)
    start = planner.latest(start)
    topic.write(1)
    for seconds in (1, 60):
        topic.clock.wait(threading.Event(), seconds)
        assert planner.latest(start) is start


def test_a_message_among_sparse_offsets_is_read_soon(
    topic: Topic, written: list[Extent]
) -> None:
    planner = topic.planner(**EARLIEST)
    start = planner.latest(planner.initial())
    topic.write(1)
    assert planner.latest(start) is start
    topic.write(1)
    written.append(Extent(1, 2))
    topic.clock.wait(threading.Event(), 0.3)
    end = planner.latest(start)
    assert spans(planner.ranges(start, end)) == [(0, 0, 2)]


def test_available_now_reads_to_its_target_over_sparse_offsets(
    topic: Topic, written: list[Extent]
) -> None:
    planner = topic.planner(**EARLIEST)
    start = planner.latest(planner.initial())
    topic.write(3)
    again = topic.planner()
    again.prepare_for_available_now()
    end = again.latest(shipped(start))
    assert end.at is not None
    assert [*end.at.values()] == [3]
    assert again.latest(end) is end
