"""R1, R3 to R6, R8: what one fetch answers, and what the next one goes on with."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.proving.timing import fastest
from tests.specimens import PARTITION_0, SCHEMA, Author, envelopes, ids, rows, sparse

from streamfactory.spi import (
    BatchState,
    ContractBroken,
    Failed,
    Fetched,
    Finished,
    Loss,
    MisuseError,
    OffsetOutOfRange,
)
from streamfactory.wiring.testing.faults import SimulatedClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.spi import MessageBatch
    from streamfactory.wiring.reading.reader import Reader

    Readers = Callable[..., Reader]


def numbers(batch: MessageBatch) -> list[int]:
    return list(batch.rows.column("id").to_pylist())


def log_of(length: int, most: int = 7) -> Callable[..., Fetched]:
    """An author over rows 0 to ``length``, at most so many an answer."""

    def answer(start: int, end: int | None, limits: object) -> Fetched:
        count = min(most, length - start)
        return rows(start, count) if count > 0 else Fetched(None, start)

    return answer


# --- R1: limits -----------------------------------------------------------------------


def test_rows_beyond_max_rows_wait_for_the_next_fetch(reader_of: Readers) -> None:
    author = Author(rows(0, 5))
    reader = reader_of(author)
    first = reader.fetch(0, max_rows=2)
    rest = reader.fetch(2)
    assert (numbers(first), first.next_offset) == ([0, 1], 2)
    assert (numbers(rest), rest.next_offset) == ([2, 3, 4], 5)
    assert author.starts == [0]


def test_rows_at_and_after_the_end_are_cut(reader_of: Readers) -> None:
    reader = reader_of(Author(rows(0, 5)))
    batch = reader.fetch(0, end=3)
    assert numbers(batch) == [0, 1, 2]
    assert batch.next_offset == 3


def test_end_within_a_gap_is_where_the_range_ends(reader_of: Readers) -> None:
    reader = reader_of(Author(sparse(0, 1, 5, held_from=0)))
    batch = reader.fetch(0, end=3)
    assert (numbers(batch), batch.next_offset) == ([0, 1], 3)
    assert reader.fetch(3, end=3).state is BatchState.CAUGHT_UP


def test_answer_wholly_beyond_the_end_is_an_empty_batch_at_the_end(
    reader_of: Readers,
) -> None:
    batch = reader_of(Author(sparse(7, 8, held_from=0))).fetch(0, end=3)
    assert (numbers(batch), batch.next_offset) == ([], 3)
    assert batch.state is BatchState.CAUGHT_UP
    assert batch.unfiltered_count == 0


@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_message_of_several_rows_is_never_split(reader_of: Readers, most: int) -> None:
    reader = reader_of(Author(sparse(0, 1, 1, 1, 2)))
    found, where = [], 0
    while where < 3:
        batch = reader.fetch(where, max_rows=most)
        assert batch.offsets is not None
        found.append(batch.offsets.to_pylist())
        where = batch.next_offset
    assert [o for part in found for o in part] == [0, 1, 1, 1, 2]
    assert [1, 1, 1] in [[o for o in part if o == 1] for part in found]


def test_long_message_is_returned_alone_and_short_ones_together(
    reader_of: Readers,
) -> None:
    values = [b"s" * 10, b"s" * 10, b"L" * 5000, b"s" * 10, b"s" * 10]
    author = Author(envelopes(*values), schema=envelopes().rows.schema)  # type: ignore[union-attr]
    reader = reader_of(author, stream__script__decoder__class__name="raw")
    sizes, where = [], 0
    while where < 5:
        batch = reader.fetch(where, max_bytes=1000)
        sizes.append(batch.num_rows)
        where = batch.next_offset
    assert sizes == [2, 1, 2]
    assert author.starts == [0]


def test_oversized_answer_is_cut_into_even_batches(reader_of: Readers) -> None:
    reader = reader_of(Author(rows(0, 1000, size=8000)))
    counts, size, where = [], 0, 0
    while where < 1000:
        batch = reader.fetch(where, max_bytes=2000)
        counts.append(batch.num_rows)
        size += batch.size
        where = batch.next_offset
    assert counts == [250, 250, 250, 250]
    assert size == reader.counters.bytes == 8000


def test_messages_behind_an_answer_are_counted_once(reader_of: Readers) -> None:
    reader = reader_of(Author(sparse(0, 4, 9, unfiltered_count=10, held_from=0)))
    first = reader.fetch(0, max_rows=2)
    second = reader.fetch(first.next_offset)
    assert first.unfiltered_count + second.unfiltered_count == 10
    assert reader.counters.messages == 10
    assert reader.counters.rows == 3


def test_losses_that_the_source_reports_are_reported_once(reader_of: Readers) -> None:
    loss = Loss(PARTITION_0, 0, 2, "sequence gap")
    reader = reader_of(Author(rows(2, 4, losses=[loss], held_from=0)))
    first = reader.fetch(0, max_rows=2)
    second = reader.fetch(first.next_offset)
    assert (first.losses, second.losses) == ((loss,), ())
    assert reader.counters.losses == [loss]


def test_loss_without_rows_is_reported_at_once(reader_of: Readers) -> None:
    loss = Loss(PARTITION_0, 0, None, "nobody listened")
    reader = reader_of(Author(Fetched(None, 0, losses=[loss])))
    assert reader.fetch(0).losses == (loss,)


def test_rows_before_the_start_are_dropped(reader_of: Readers) -> None:
    reader = reader_of(Author(sparse(0, 1, 2, 3)))
    batch = reader.fetch(2)
    assert (numbers(batch), batch.first_offset) == ([2, 3], 2)


def test_redelivery_alone_is_no_answer(reader_of: Readers) -> None:
    author = Author(rows(0, 3), sparse(0, 1, 2, next_offset=3), rows(3, 1))
    reader = reader_of(author)
    assert numbers(reader.fetch(0)) == [0, 1, 2]
    assert numbers(reader.fetch(3)) == [3]


@pytest.mark.parametrize(
    "limits", [{"max_rows": 0}, {"max_bytes": 0}, {"max_rows": -1}]
)
def test_limits_that_allow_nothing_are_refused(
    reader_of: Readers, limits: dict[str, Any]
) -> None:
    author = Author(rows(0, 3))
    with pytest.raises(MisuseError):
        reader_of(author).fetch(0, **limits)
    assert author.calls == []


def test_negative_start_is_refused(reader_of: Readers) -> None:
    with pytest.raises(MisuseError) as caught:
        reader_of(Author()).fetch(-1)
    assert caught.value.what.startswith("start -1, ")


# --- R1: time -------------------------------------------------------------------------


def test_author_without_wake_gets_slices_of_250_ms(reader_of: Readers) -> None:
    author = Author()
    reader_of(author).fetch(0, timeout=0.6)
    slices = [limits.timeout for _, _, _, limits in author.calls]
    assert slices[:2] == [0.25, 0.25]
    assert 0 < slices[2] < 0.15


def test_author_with_wake_gets_the_whole_time_once_it_is_known(
    reader_of: Readers,
) -> None:
    author = Author(rows(0, 1), wakes=True)
    reader = reader_of(author)
    reader.fetch(0)
    reader.fetch(1, timeout=0.4)
    assert [round(limits.timeout, 1) for _, _, _, limits in author.calls[1:]] == [0.4]


@pytest.mark.parametrize("wakes", [True, False])
@pytest.mark.parametrize("timeout", [0.0, 0.1, 0.7])
def test_timeout_is_honoured(reader_of: Readers, timeout: float, wakes: bool) -> None:
    reader = reader_of(Author(wakes=wakes))
    reader.fetch(0, timeout=0)

    def fetch() -> None:
        assert reader.fetch(0, timeout=timeout).state is BatchState.IDLE

    limit = timeout * 1.2 + 0.1
    assert timeout - 0.01 <= fastest(fetch, limit) <= limit


def test_timeout_is_honoured_while_the_source_fails(reader_of: Readers) -> None:
    def slow(start: int, end: int | None, limits: object) -> Fetched:
        time.sleep(0.2)
        raise ConnectionError

    options = {"retry__initial__millis": "60000", "retry__max__millis": "60000"}

    def fetch() -> None:
        reader = reader_of(Author(*[slow] * 10), **options)
        assert reader.fetch(0, timeout=0.3).state is BatchState.IDLE

    limit = 0.3 * 1.2 + 0.1
    assert fastest(fetch, limit) <= limit


def test_author_that_comes_back_early_is_not_spun(reader_of: Readers) -> None:
    hasty = lambda start, end, limits: Fetched(None, start)  # noqa: E731
    author = Author(*[hasty] * 1000)
    reader_of(author).fetch(0, timeout=0.3)
    assert len(author.calls) < 20


# --- R4, R5: nothing ------------------------------------------------------------------


def test_empty_range_touches_nothing(reader_of: Readers) -> None:
    author = Author(rows(0, 3))
    batch = reader_of(author).fetch(5, end=5)
    assert (batch.num_rows, batch.next_offset) == (0, 5)
    assert batch.state is BatchState.CAUGHT_UP
    assert batch.rows.schema == SCHEMA
    assert (author.calls, author.made, author.looked_up) == ([], [], 0)


def test_range_that_ends_before_its_start_is_a_mistake(reader_of: Readers) -> None:
    with pytest.raises(MisuseError) as caught:
        reader_of(Author()).fetch(5, end=3)
    assert caught.value.what == "the range ends at 3, before its start"


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (Fetched(None, 5, latest=5), BatchState.CAUGHT_UP),
        (Fetched(None, 5, state=BatchState.CAUGHT_UP), BatchState.CAUGHT_UP),
        (Fetched(None, 5, latest=9), BatchState.IDLE),
        (
            Fetched(None, 5, latest=9, state=BatchState.CAUGHT_UP),
            BatchState.IDLE,
        ),
        (Fetched(None, 5, state=BatchState.THROTTLED, latest=5), BatchState.THROTTLED),
        (Fetched(None, 5), BatchState.IDLE),
        (Fetched(ids(), 5, latest=5), BatchState.CAUGHT_UP),
    ],
)
def test_empty_batch_gives_the_reason(
    reader_of: Readers, answer: Fetched, state: BatchState
) -> None:
    batch = reader_of(Author(answer)).fetch(5, timeout=0)
    assert batch.state is state
    assert batch.rows.schema == SCHEMA


def test_offset_that_moves_on_without_rows_is_an_answer(reader_of: Readers) -> None:
    batch = reader_of(Author(Fetched(None, 8, held_from=0))).fetch(5, timeout=10)
    assert (batch.num_rows, batch.next_offset) == (0, 8)


def test_end_of_partition_is_reported_once_its_rows_are_out(reader_of: Readers) -> None:
    last = rows(0, 2, state=BatchState.END_OF_PARTITION)
    over = Fetched(None, 2, state=BatchState.END_OF_PARTITION)
    reader = reader_of(Author(last, over))
    first, second = reader.fetch(0), reader.fetch(2)
    assert (first.state, first.end) == (BatchState.DATA, None)
    assert (second.state, second.end) == (BatchState.END_OF_PARTITION, Finished())


def test_end_keeps_its_kind(reader_of: Readers) -> None:
    torn = Failed("torn")
    answer = Fetched(None, 0, state=BatchState.END_OF_PARTITION, end=torn)
    assert reader_of(Author(answer)).fetch(0).end == torn


# --- R6: the same start again ---------------------------------------------------------


def test_start_repeated_after_rows_replays_them(reader_of: Readers) -> None:
    author = Author(rows(0, 3), rows(0, 3))
    reader = reader_of(author)
    assert numbers(reader.fetch(0)) == numbers(reader.fetch(0)) == [0, 1, 2]
    assert author.starts == [0, 0]


def test_start_repeated_after_an_empty_result_continues(reader_of: Readers) -> None:
    moved = Fetched(None, 8, held_from=0)
    author = Author(moved, Fetched(None, 9, held_from=0), rows(9, 2))
    reader = reader_of(author)
    assert [reader.fetch(0).next_offset for _ in range(3)] == [8, 9, 11]
    assert author.starts == [0, 8, 9]


def test_replay_of_a_cut_answer_begins_where_it_is_asked(reader_of: Readers) -> None:
    author = Author(rows(0, 5), rows(0, 5))
    reader = reader_of(author)
    reader.fetch(0, max_rows=2)
    assert numbers(reader.fetch(0, max_rows=3)) == [0, 1, 2]
    assert numbers(reader.fetch(3)) == [3, 4]


def test_jump_elsewhere_forgets_what_waited(reader_of: Readers) -> None:
    author = Author(rows(0, 5), rows(100, 2))
    reader = reader_of(author)
    reader.fetch(0, max_rows=2)
    assert numbers(reader.fetch(100)) == [100, 101]


# --- what breaks the contract ---------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (sparse(0, 1, next_offset=1), "rule R1: rows from 0 to 1, but 1 is next"),
        (sparse(3, 1, next_offset=9), "rule R1: rows from 3 to 1, but 9 is next"),
        (
            Fetched(ids(1, 2), 2, offsets=pa.array([0], pa.int64())),
            "rule R1: 2 rows with 1 offsets",
        ),
        (None, "rule R5: fetch_messages returned a NoneType"),
        (
            Fetched(pa.table({"id": [1]}), 1),
            "the consumer returned a Table, expected a RecordBatch",
        ),
    ],
)
def test_author_that_breaks_a_rule_is_named(
    reader_of: Readers, answer: Fetched | None, text: str
) -> None:
    reader = reader_of(Author(lambda *_: answer))  # type: ignore[arg-type]
    with pytest.raises(ContractBroken) as caught:
        reader.fetch(0)
    assert caught.value.what == text
    assert caught.value.partition == PARTITION_0


# --- R3: split anywhere = whole -------------------------------------------------------


@given(
    length=st.integers(0, 60),
    most=st.integers(1, 20),
    limits=st.lists(st.integers(1, 30), min_size=1),
    cuts=st.lists(st.integers(0, 60)),
)
def test_range_split_anywhere_equals_the_whole(
    length: int, most: int, limits: list[int], cuts: list[int]
) -> None:
    author = Author(latest=length)
    author.always = log_of(length, most)
    source = author.source()
    reader = source.reader(PARTITION_0)
    found, turn = [], 0
    edges = sorted({0, length, *(cut for cut in cuts if cut < length)})
    for start, end in itertools.pairwise(edges):
        where = start
        while where < end:
            batch = reader.fetch(where, end=end, max_rows=limits[turn % len(limits)])
            found += numbers(batch)
            where, turn = batch.next_offset, turn + 1
    assert found == list(range(length))
    reader.close()
    source.close()


@given(
    offsets=st.lists(st.integers(0, 40), min_size=1, max_size=40).map(sorted),
    most=st.integers(1, 10),
    max_bytes=st.integers(1, 200),
    end=st.integers(0, 45),
)
def test_messages_cut_by_any_limits_come_whole_and_once(
    offsets: list[int], most: int, max_bytes: int, end: int
) -> None:
    author = Author(sparse(*offsets, held_from=0))
    source = author.source()
    reader = source.reader(PARTITION_0)
    found: list[int] = []
    where = 0
    while where < min(end, offsets[-1] + 1):
        batch = reader.fetch(where, end=end, max_rows=most, max_bytes=max_bytes)
        part = [] if batch.offsets is None else batch.offsets.to_pylist()
        assert not set(part) & set(found)
        assert len(part) <= most or len(set(part)) == 1
        assert all(where <= offset < batch.next_offset for offset in part)
        found += part
        where = batch.next_offset
    assert found == [offset for offset in offsets if offset < end]
    reader.close()
    source.close()


# --- idleness -------------------------------------------------------------------------


def test_idle_consumer_is_recreated_and_its_offset_checked() -> None:
    author = Author(rows(0, 2), wakes=True)
    clock = SimulatedClock()
    source = author.source(clock=clock, stream__script__idle__timeout__millis="60000")
    reader = source.reader(PARTITION_0)
    reader.fetch(0)
    assert reader.fetch(2, timeout=0).state is BatchState.IDLE
    clock._ahead += 61
    reader.fetch(2, timeout=0)
    author.bounds(0, 1)
    with pytest.raises(OffsetOutOfRange) as caught:
        reader.fetch(2, timeout=0)
    assert (caught.value.earliest, caught.value.latest) == (0, 1)
    assert author.open_consumers == 0
    assert reader.counters.recreated == 1
    reader.close()
    source.close()


def test_filtered_messages_are_no_idleness() -> None:
    author = Author(*[Fetched(None, n, unfiltered_count=5) for n in (5, 10)])
    clock = SimulatedClock()
    source = author.source(clock=clock, stream__script__idle__timeout__millis="60000")
    reader = source.reader(PARTITION_0)
    for start in (0, 5):
        clock._ahead += 50
        reader.fetch(start)
    clock._ahead += 50
    reader.fetch(10, timeout=0)
    assert reader.counters.recreated == 0
    assert reader.counters.messages == 10
    reader.close()
    source.close()
