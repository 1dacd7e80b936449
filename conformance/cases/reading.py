"""R: rows at or after a start, in order, repeatable."""

from __future__ import annotations

import itertools
import random
import threading
import time
from typing import TYPE_CHECKING

from streamfactory.conformance.bench import BYTES, SLICE
from streamfactory.conformance.case import case
from streamfactory.conformance.expectations import expect, expect_error, require
from streamfactory.conformance.harness import Truncates, WritesTombstones
from streamfactory.spi import BatchState, FetchLimits, OffsetOutOfRange

if TYPE_CHECKING:
    from streamfactory.conformance.bench import Bench, Row

MESSAGES = 120
_ARRIVING = 5
"""Messages that arrive one by one."""
_WAITING = 0.1
"""Seconds between them."""
ROWS = ("offsets_rise_and_nothing_is_missing",)
STARTS = (*ROWS, "a_start_is_inclusive")


@case(
    "R1", hint="fetch_messages sorts, merges or interleaves what it reads", first=True
)
def offsets_rise_and_nothing_is_missing(bench: Bench) -> None:
    """Reading from earliest returns every message, in strictly rising offset order."""
    bench.create(partitions=2, messages=MESSAGES)
    for number, wanted in bench.written.items():
        rows = bench.fetch_all(number)
        offsets = [offset for offset, _ in rows]
        expect(offsets, sorted(set(offsets)), f"offsets of partition {number}")
        expect([n for _, n in rows], wanted, f"messages of partition {number}")


@case(
    "R1",
    claims=("replayable",),
    hint="start is taken for the last offset read",
    needs=ROWS,
)
def a_start_is_inclusive(bench: Bench) -> None:
    """Reading from the offset of a message returns that message first."""
    number = bench.create(messages=MESSAGES)
    whole = bench.fetch_all(number)
    for index in (0, 1, MESSAGES // 2, MESSAGES - 1):
        rows = bench.fetch_all(number, whole[index][0])
        expect(rows[:1], [whole[index]], f"first row from offset {whole[index][0]}")


@case(
    "R1",
    claims=("replayable",),
    hint="a consumer ignores `start` once it is open",
    needs=STARTS,
)
def an_open_consumer_seeks_to_any_start(bench: Bench) -> None:
    """One consumer returns for starts in any order what a new one would return."""
    number = bench.create(messages=MESSAGES)
    whole = bench.fetch_all(number)
    consumer = bench.consumer(number)
    picks = random.Random(1).sample(range(MESSAGES), 12)  # noqa: S311 - repeats itself
    for index in picks:
        start = whole[index][0]
        bench.note(f"author.fetch(start={start})")
        rows: list[Row] = []
        for at, fetched in bench.answers(consumer, start, max_rows=10):
            rows = [row for row in bench.rows_of(fetched, at) if row[0] >= start]
            if rows:
                break
        expect(rows[:1], [whole[index]], f"first row from offset {start}")


@case("R1", hint="waiting for messages ignores limits.timeout")
def an_empty_fetch_returns_within_its_time_slice(bench: Bench) -> None:
    """On an empty partition fetch_messages returns within limits.timeout."""
    number = bench.create()
    consumer, start = bench.consumer(number), bench.infos()[number].earliest
    limits = FetchLimits(100, BYTES, SLICE)
    fetched = bench.within(
        SLICE, "an empty fetch", lambda: consumer.fetch_messages(start, None, limits)
    )
    expect(bench.rows_of(fetched, start), [], "rows of an empty stream")
    expect(fetched.next_offset, start, "next offset of an empty stream")


@case(
    "R1",
    claims=("replayable",),
    hint="max_rows=1 splits, or loses, a message",
    needs=STARTS,
)
def small_limits_return_the_same_rows(bench: Bench) -> None:
    """Reading a message at a time equals reading all at once."""
    number = bench.create(messages=30)
    whole = bench.fetch_all(number)
    expect(bench.fetch_all(number, max_rows=1), whole, "rows, one at a time")


@case("R2", claims=("replayable",), hint="what was read is consumed", needs=ROWS)
def a_range_read_twice_is_identical(bench: Bench) -> None:
    """The same range read again, by a new consumer, gives identical rows."""
    number = bench.create(messages=MESSAGES)
    first = bench.fetch_all(number)
    bench.write(number, 10)
    end = first[-1][0] + 1
    expect(bench.fetch_all(number, end=end), first, "the range read again")


@case(
    "R2",
    claims=("replayable",),
    hint="readers share a position through the factory",
    needs=STARTS,
)
def two_consumers_do_not_disturb_each_other(bench: Bench) -> None:
    """Two consumers of one partition, read in turn, both see everything."""
    number = bench.create(messages=MESSAGES)
    factory, earliest = bench.factory(), bench.infos()[number].earliest
    turns = [
        bench.answers(bench.consumer(number, factory), earliest, max_rows=7)
        for _ in range(2)
    ]
    seen: list[list[int]] = [[], []]
    for both in zip(*turns, strict=False):
        for numbers, (at, fetched) in zip(seen, both, strict=True):
            numbers += [n for _, n in bench.rows_of(fetched, at)]
        if min(map(len, seen)) >= MESSAGES:
            break
    expect(seen[0], bench.written[number], "messages of the first consumer")
    expect(seen[1], bench.written[number], "messages of the second consumer")


@case("R3", claims=("replayable",), hint="an end is treated as inclusive", needs=STARTS)
def a_range_split_anywhere_equals_the_whole(bench: Bench) -> None:
    """A range read in parts, put together again, equals the range read whole."""
    number = bench.create(messages=MESSAGES)
    earliest, latest = bench.bounds(number)
    whole = bench.fetch_all(number)
    for at in random.Random(3).sample(range(earliest, latest), 6):  # noqa: S311
        parts = bench.fetch_all(number, earliest, at)
        parts += bench.fetch_all(number, at, latest)
        expect(parts, whole, f"the range split at {at}")


@case(
    "R3",
    claims=("replayable",),
    hint="rows beyond `end` come with a shorter answer",
    needs=STARTS,
)
def a_range_ends_exactly_before_its_end(bench: Bench) -> None:
    """Through Reader, a range has the rows from its start to before its end."""
    number = bench.create(messages=MESSAGES)
    source = bench.source()
    whole = bench.fetch_all(number)
    start, end = whole[20][0], whole[71][0]
    rows = bench.read_all(source, number, start, end)
    expect(rows, whole[20:71], f"the range {start} to {end}")


@case(
    "R5", hint="an empty answer has rows=None and next_offset below start", needs=ROWS
)
def an_empty_result_is_a_batch_with_its_state(bench: Bench) -> None:
    """At latest, Reader returns an empty batch with its state within its timeout."""
    number = bench.create(messages=5)
    reader, at, drained = bench.reader(number), bench.infos()[number].earliest, 0
    for batch in bench.batches(reader, at):
        at, drained = batch.next_offset, drained + batch.num_rows
        if drained >= 5:
            break
    expect(drained, 5, "rows before the latest")
    batch = bench.within(
        0.3, "a fetch at the latest", lambda: reader.fetch(at, timeout=0.3)
    )
    expect(batch.num_rows, 0, "rows at the latest")
    states = (BatchState.CAUGHT_UP, BatchState.IDLE, BatchState.END_OF_PARTITION)
    require(batch.state in states, f"an empty batch is in state {batch.state.value}")


@case(
    "R6",
    claims=("replayable",),
    hint="the consumer keeps its own cursor",
    needs=STARTS,
)
def a_repeated_start_replays_after_rows(bench: Bench) -> None:
    """Repeating a start after a result with rows returns the same rows."""
    number = bench.create(messages=MESSAGES)
    start = bench.infos()[number].earliest
    reader = bench.reader(number)
    first, again = (
        bench.harness.numbers(bench.answer(reader, start, max_rows=10).rows)
        for _ in range(2)
    )
    # An answer may have fewer rows than it was allowed.
    both = min(len(first), len(again))
    require(both > 0, "a start with messages answered no row")
    expect(again[:both], first[:both], "rows of the repeated start")


@case(
    "R7",
    claims=("replayable",),
    abilities=(Truncates,),
    hint="earliest is not moved",
    needs=ROWS,
)
def a_start_before_earliest_is_out_of_range(bench: Bench) -> None:
    """A start before earliest is an error that names the available offsets."""
    number = bench.create(messages=MESSAGES)
    old = bench.infos()[number].earliest
    bench.note("truncate(messages=50)")
    bench.use(Truncates).truncate(number, 50)
    what = "a start before earliest"
    error = expect_error(
        OffsetOutOfRange, what, bench.answer, bench.reader(number), old
    )
    expect(error.earliest, bench.infos()[number].earliest, "earliest in the error")


@case(
    "R7",
    claims=("replayable",),
    abilities=(Truncates,),
    hint="losses are not reported",
    needs=(*STARTS, "a_start_before_earliest_is_out_of_range"),
)
def a_loss_is_recorded_when_the_policy_continues(bench: Bench) -> None:
    """With out.of.range=earliest reading continues, and the loss is in the batch."""
    number = bench.create(messages=MESSAGES)
    old = bench.infos()[number].earliest
    bench.use(Truncates).truncate(number, 50)
    earliest = bench.infos()[number].earliest
    batch = bench.answer(bench.reader(number, out__of__range="earliest"), old)
    expect([(x.start, x.end) for x in batch.losses], [(old, earliest)], "losses")
    expect(
        bench.harness.numbers(batch.rows)[:1],
        bench.written[number][50:51],
        "first message after the loss",
    )


@case(
    "R7",
    claims=("replayable",),
    hint="a start beyond latest waits, or reads nothing",
    needs=STARTS,
)
def a_start_beyond_latest_is_out_of_range(bench: Bench) -> None:
    """A start beyond latest is data loss, never an empty range."""
    number = bench.create(messages=5)
    _, latest = bench.bounds(number)
    reader, what = bench.reader(number), "a start beyond latest"
    error = expect_error(
        OffsetOutOfRange, what, bench.answer, reader, latest + 1000, 0.5
    )
    expect(error.latest, latest, "latest in the error")


@case(
    "R8",
    claims=("replayable",),
    hint="a gap is taken for a loss, or for an end",
    needs=STARTS,
)
def every_offset_between_can_be_a_start(bench: Bench) -> None:
    """A start in a gap between two messages returns the next message."""
    number = bench.create(messages=20)
    whole = bench.fetch_all(number)
    source = bench.source()
    for (one, _), (other, wanted) in list(itertools.pairwise(whole))[:8]:
        rows = bench.read_all(source, number, one + 1, other + 1)
        expect(rows, [(other, wanted)], f"from {one + 1}")


@case("R4", hint="the consumer is called before the range is found to be empty")
def an_empty_range_calls_no_consumer(bench: Bench) -> None:
    """A range that ends where it starts is read without the author's consumer."""
    number = bench.create(messages=3)
    start = bench.infos()[number].earliest
    made: list[str] = []
    source = bench.source()
    create = source.factory.create_partition_level_consumer

    def counted(client_id: str, *rest: object) -> object:
        made.append(client_id)
        return create(client_id, *rest)  # type: ignore[arg-type]  # passed on as given

    source.factory.create_partition_level_consumer = counted  # type: ignore[method-assign,assignment]  # counts
    reader = bench.closing(source.reader(bench.partition(number)))
    batch = reader.fetch(start, end=start)
    expect((batch.num_rows, batch.next_offset), (0, start), "the empty range")
    expect(made, [], "consumers made for it")


@case(
    "R9",
    abilities=(WritesTombstones,),
    hint="messages without a value are filtered out",
    needs=ROWS,
)
def tombstones_are_rows(bench: Bench) -> None:
    """A message without a value is a row whose value is null, in its place."""
    number = bench.create(messages=2)
    bench.note("tombstone()")
    bench.use(WritesTombstones).tombstone(number)
    reader = bench.reader(number)
    column = "value" if "value" in reader.schema.names else reader.schema.names[0]
    nulls: list[bool] = []
    for batch in bench.batches(reader, *bench.bounds(number)):
        nulls += batch.rows.column(column).is_null().to_pylist()
    expect(nulls, [False, False, True], "which rows are null")


@case(
    "R1",
    claims=("replayable",),
    hint="what ends the wait is not read, or the wait lasts for its whole time",
    needs=STARTS,
)
def a_message_that_arrives_during_a_fetch_is_returned(bench: Bench) -> None:
    """Fetches that wait for messages return them, each once, when they arrive."""
    number = bench.create(messages=1)
    reader, at = bench.reader(number), bench.infos()[number].earliest
    found: list[int] = []
    wanted = 1 + _ARRIVING
    errors: list[BaseException] = []

    def read() -> None:
        patience, here = bench.patience(), at
        try:
            while len(found) < wanted and not patience.over(0.5):
                batch = reader.fetch(here, timeout=0.5)
                if batch.num_rows:
                    patience.renew()
                found.extend(bench.harness.numbers(batch.rows))
                here = batch.next_offset
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    thread = threading.Thread(target=read, name="conformance-fetching")
    thread.start()
    try:
        for _ in range(_ARRIVING):
            time.sleep(_WAITING)  # most of it the reader waits
            bench.write(number, 1)
    finally:
        thread.join()
    if errors:
        raise errors[0]
    expect(found, bench.written[number], "messages that arrived meanwhile")
