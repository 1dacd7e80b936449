"""Pages of messages: each message once and whole; partitions share the limits."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pytest

from streamfactory.engines.search.browsing import (
    MOST_PARTITIONS,
    Browser,
    Limits,
    Message,
    MessagePage,
)
from streamfactory.spi import BatchState, MessageBatch, MisuseError, Partition
from streamfactory.spi import PartitionInfo as Info

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfactory.wiring.reading.source import Source


@dataclass
class Stream:
    """Partitions of messages: offset to time and number of rows."""

    partitions: Sequence[Mapping[int, tuple[int | None, int]]]
    size: int = 1
    """Bytes of a message."""
    large: set[tuple[int, int]] = field(default_factory=set)
    """Messages of 1,000 bytes, by partition and offset."""
    config: Any = None
    fetches: int = 0

    def infos(self) -> list[Info]:
        return [
            Info(Partition("t", number), 0, max(found, default=-1) + 3)
            for number, found in enumerate(self.partitions)
        ]

    def reader(self, partition: Partition, **_: object) -> Reader:
        return Reader(self, partition)


@dataclass
class Reader:
    stream: Stream
    partition: Partition

    def fetch(
        self, start: int, *, end: int, max_rows: int, max_bytes: int, **_: object
    ) -> MessageBatch:
        self.stream.fetches += 1
        messages = self.stream.partitions[self.partition.id]
        taken: list[int] = []
        size = 0
        following = end
        for at in sorted(messages):
            if not start <= at < end:
                continue
            large = (self.partition.id, at) in self.stream.large
            more = 1000 if large else self.stream.size
            if taken and (len(taken) == max_rows or size + more > max_bytes):
                following = at
                break
            taken.append(at)
            size += more
        offsets = [at for at in taken for _ in range(messages[at][1])]
        rows = pa.record_batch(
            {
                "n": pa.array(offsets, pa.int64()),
                "_timestamp": pa.array(
                    [messages[at][0] for at in offsets], pa.timestamp("us", "UTC")
                ),
            }
        )
        return MessageBatch(
            self.partition,
            rows,
            start,
            following,
            BatchState.DATA if offsets else BatchState.CAUGHT_UP,
            offsets=pa.array(offsets, pa.int64()),
            size=size,
        )

    def close(self) -> None:
        pass


def browser(stream: Stream, limits: Limits, matches: Any = None) -> Browser:
    return Browser(cast("Source", stream), limits, matches)


def keys(messages: tuple[Message, ...]) -> list[tuple[int, int]]:
    return [(one.partition.id, one.offset) for one in messages]


def walk(
    stream: Stream, limits: Limits, *, back: bool, matches: Any = None
) -> list[MessagePage]:
    position: Mapping[Partition, int] = {}
    pages = []
    while True:
        page = browser(stream, limits, matches).page(
            stream.infos(), position, back=back
        )
        pages.append(page)
        if not (page.has_previous if back else page.has_next):
            return pages
        position = page.before if back else page.after
        assert len(pages) < 10_000


def made(chance: random.Random) -> Stream:
    partitions = []
    for _ in range(chance.randrange(1, 5)):
        offsets = sorted(chance.sample(range(60), chance.randrange(0, 30)))
        times = sorted(chance.randrange(100) for _ in offsets)
        rows = [chance.choice((1, 1, 3)) for _ in offsets]
        partitions.append(
            dict(zip(offsets, zip(times, rows, strict=True), strict=True))
        )
    return Stream(cast("Any", partitions))


@pytest.mark.parametrize("seed", range(40))
def test_pages_have_each_message_once_and_whole(seed: int) -> None:
    chance = random.Random(seed)
    stream = made(chance)
    everything = {
        (number, at): rows
        for number, found in enumerate(stream.partitions)
        for at, (_, rows) in found.items()
    }
    limits = Limits(
        messages=chance.randrange(1, 9),
        rows=chance.choice((8, 1000)),
        size=chance.choice((8, 1 << 20)),
        seconds=60,
    )
    wanted = chance.choice((1, 2, 7))

    def matches(rows: pa.RecordBatch) -> np.ndarray:
        found: np.ndarray = np.asarray(rows.column("n")) % wanted == 0
        return found

    for back in (False, True):
        for search in (None, matches):
            pages = walk(stream, limits, back=back, matches=search)
            found = [key for page in pages for key in keys(page.messages)]
            expected = {
                key for key in everything if search is None or key[1] % wanted == 0
            }
            assert len(found) == len(set(found))
            assert set(found) == expected
            for page in pages:
                assert len(page.messages) <= limits.messages
                for one in page.messages:
                    key = (one.partition.id, one.offset)
                    assert one.rows.num_rows == everything[key]


def test_a_page_is_merged_by_time_and_neighbours_meet() -> None:
    stream = Stream(
        [
            {0: (10, 1), 1: (30, 1), 2: (20, 1)},  # a time that falls
            {5: (15, 1), 6: (40, 1)},
        ]
    )
    first, second = walk(stream, Limits(messages=3), back=False)
    assert keys(first.messages) == [(0, 0), (1, 5), (0, 1)]
    assert keys(second.messages) == [(0, 2), (1, 6)]
    assert first.after == second.before
    newest, oldest = walk(stream, Limits(messages=3), back=True)
    assert keys(newest.messages) == [(0, 1), (0, 2), (1, 6)]
    assert keys(oldest.messages) == [(0, 0), (1, 5)]
    assert oldest.after == newest.before


def test_without_times_a_page_is_by_partition_and_offset() -> None:
    stream = Stream([{0: (None, 1), 1: (None, 1)}, {0: (5, 1)}])
    (page,) = walk(stream, Limits(), back=False)
    assert keys(page.messages) == [(0, 0), (0, 1), (1, 0)]


@pytest.mark.parametrize("back", [False, True])
def test_a_partition_of_large_messages_does_not_starve_others(back: bool) -> None:
    large = {at: (at, 1) for at in range(50)}
    small = {at: (at, 1) for at in range(50)}
    stream = Stream([large, small], large={(0, at) for at in range(50)})
    page = browser(stream, Limits(messages=40, size=4000)).page(
        stream.infos(), {}, back=back
    )
    found = keys(page.messages)
    assert sum(one[0] == 1 for one in found) >= 30
    assert 1 <= sum(one[0] == 0 for one in found) <= 5
    cut = {one.partition.id: one.cut for one in page.searched}
    assert cut[0]


def test_a_message_larger_than_its_share_is_shown_and_named() -> None:
    stream = Stream([{3: (1, 1), 4: (2, 1)}], large={(0, 3)})
    page = browser(stream, Limits(size=100)).page(stream.infos(), {}, back=False)
    assert keys(page.messages) == keys(page.too_large) == [(0, 3)]
    assert page.has_next


def test_a_search_says_how_far_it_came() -> None:
    stream = Stream([{at: (at, 1) for at in range(100)}])

    def none(rows: pa.RecordBatch) -> np.ndarray:
        return np.zeros(rows.num_rows, bool)

    page = browser(stream, Limits(rows=30), none).page(stream.infos(), {}, back=False)
    (extent,) = page.searched
    assert (extent.start, extent.end, extent.cut) == (0, 30, True)
    assert page.has_next
    assert dict(page.after.items()) == {Partition("t", 0): 30}


def test_a_position_that_is_not_held_any_more_is_said() -> None:
    stream = Stream([{7: (1, 1)}])
    infos = [Info(Partition("t", 0), 5, 8)]
    page = browser(stream, Limits()).page(infos, {Partition("t", 0): 2}, back=False)
    assert page.searched[0].lost
    assert keys(page.messages) == [(0, 7)]


def test_too_many_partitions_are_refused() -> None:
    stream = Stream([{}] * (MOST_PARTITIONS + 1), config=type("C", (), {"name": "s"}))
    with pytest.raises(MisuseError, match="at most 100 partitions"):
        browser(stream, Limits()).page(stream.infos(), {}, back=False)
