"""R: rows at or after a start, in order, repeatable."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

from streamfactory.conformance.case import case
from streamfactory.conformance.expectations import expect, require
from streamfactory.conformance.patience import Patience
from streamfactory.spi import BatchState, FetchLimits, OffsetOutOfRange

if TYPE_CHECKING:
    from streamfactory.conformance.bench import Bench, Row

MESSAGES = 120
ROWS = ("offsets_rise_and_nothing_is_missing",)
STARTS = (*ROWS, "a_start_is_inclusive")


@case(
    "R1", hint="fetch_messages sorts, merges or interleaves what it reads", first=True
)
def offsets_rise_and_nothing_is_missing(bench: Bench) -> None:
    """Reading from earliest returns every message, in strictly rising offset order."""
    bench.create(partitions=2, messages=MESSAGES)
    for number, wanted in bench.written.items():
        rows = bench.fetch_all(number, bench.infos()[number].earliest)
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
    bench.create(messages=MESSAGES)
    number = bench.first()
    whole = bench.fetch_all(number, bench.infos()[number].earliest)
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
    bench.create(messages=MESSAGES)
    number = bench.first()
    whole = bench.fetch_all(number, bench.infos()[number].earliest)
    consumer = bench.consumer(number)
    limits = FetchLimits(10, 8 * 1024**2, 0.25)
    picks = random.Random(1).sample(range(MESSAGES), 12)  # noqa: S311 - repeats itself
    for index in picks:
        start = whole[index][0]
        bench.note(f"author.fetch(start={start})")
        rows: list[Row] = []
        patience = Patience()
        while not rows and not patience.over(limits.timeout):
            fetched = consumer.fetch_messages(start, None, limits)
            rows = [row for row in bench.rows_of(fetched, start) if row[0] >= start]
        expect(rows[:1], [whole[index]], f"first row from offset {start}")


@case("R1", hint="waiting for messages ignores limits.timeout")
def an_empty_fetch_returns_within_its_time_slice(bench: Bench) -> None:
    """On an empty partition fetch_messages returns within limits.timeout."""
    bench.create()
    number = bench.first()
    consumer, start = bench.consumer(number), bench.infos()[number].earliest
    limits = FetchLimits(100, 8 * 1024**2, 0.25)
    fetched = bench.within(
        0.25, "an empty fetch", lambda: consumer.fetch_messages(start, None, limits)
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
    bench.create(messages=30)
    number = bench.first()
    earliest = bench.infos()[number].earliest
    whole = bench.fetch_all(number, earliest)
    expect(bench.fetch_all(number, earliest, max_rows=1), whole, "rows, one at a time")


@case("R2", claims=("replayable",), hint="what was read is consumed", needs=ROWS)
def a_range_read_twice_is_identical(bench: Bench) -> None:
    """The same range read again, by a new consumer, gives identical rows."""
    bench.create(messages=MESSAGES)
    number = bench.first()
    earliest = bench.infos()[number].earliest
    first = bench.fetch_all(number, earliest)
    bench.write(number, 10)
    end = first[-1][0] + 1
    expect(bench.fetch_all(number, earliest, end), first, "the range read again")


@case(
    "R2",
    claims=("replayable",),
    hint="readers share a position through the factory",
    needs=STARTS,
)
def two_consumers_do_not_disturb_each_other(bench: Bench) -> None:
    """Two consumers of one partition, read in turn, both see everything."""
    bench.create(messages=MESSAGES)
    number = bench.first()
    factory, earliest = bench.factory(), bench.infos()[number].earliest
    one, other = bench.consumer(number, factory), bench.consumer(number, factory)
    limits = FetchLimits(7, 8 * 1024**2, 0.25)
    seen: list[list[int]] = [[], []]
    at = [earliest, earliest]
    patience, before = Patience(), -1
    while min(map(len, seen)) < MESSAGES:
        held = sum(map(len, seen))
        if patience.over(2 * limits.timeout, progress=held > before):
            break
        before = held
        for index, consumer in enumerate((one, other)):
            fetched = consumer.fetch_messages(at[index], None, limits)
            seen[index] += [n for _, n in bench.rows_of(fetched, at[index])]
            at[index] = fetched.next_offset
    expect(seen[0], bench.written[number], "messages of the first consumer")
    expect(seen[1], bench.written[number], "messages of the second consumer")


@case("R3", claims=("replayable",), hint="an end is treated as inclusive", needs=STARTS)
def a_range_split_anywhere_equals_the_whole(bench: Bench) -> None:
    """A range read in parts, put together again, equals the range read whole."""
    bench.create(messages=MESSAGES)
    number = bench.first()
    info = bench.infos()[number]
    latest = info.latest
    assert latest is not None
    whole = bench.fetch_all(number, info.earliest)
    for at in random.Random(3).sample(range(info.earliest, latest), 6):  # noqa: S311
        parts = bench.fetch_all(number, info.earliest, at)
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
    bench.create(messages=MESSAGES)
    number = bench.first()
    source = bench.source()
    whole = bench.fetch_all(number, bench.infos()[number].earliest)
    start, end = whole[20][0], whole[71][0]
    rows = bench.read_all(source, number, start, end)
    expect(rows, whole[20:71], f"the range {start} to {end}")


@case(
    "R5", hint="an empty answer has rows=None and next_offset below start", needs=ROWS
)
def an_empty_result_is_a_batch_with_its_state(bench: Bench) -> None:
    """At latest, Reader returns an empty batch with its state within its timeout."""
    bench.create(messages=5)
    number = bench.first()
    source, info = bench.source(), bench.infos()[number]
    reader = bench.closing(source.reader(bench.partition(number)))
    at, drained, patience = info.earliest, 0, Patience()
    while drained < 5 and not patience.over(1.0):
        batch = reader.fetch(at, timeout=1.0)
        at, drained = batch.next_offset, drained + batch.num_rows
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
    bench.create(messages=MESSAGES)
    number = bench.first()
    start = bench.infos()[number].earliest
    reader = bench.closing(bench.source().reader(bench.partition(number)))
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
    abilities=("truncate",),
    hint="earliest is not moved",
    needs=ROWS,
)
def a_start_before_earliest_is_out_of_range(bench: Bench) -> None:
    """A start before earliest is an error that names the available offsets."""
    bench.create(messages=MESSAGES)
    number = bench.first()
    old = bench.infos()[number].earliest
    bench.note("truncate(messages=50)")
    bench.harness.truncate(number, 50)
    reader = bench.closing(bench.source().reader(bench.partition(number)))
    try:
        batch = bench.answer(reader, old)
    except OffsetOutOfRange as error:
        expect(error.earliest, bench.infos()[number].earliest, "earliest in the error")
        return
    require(False, f"a start before earliest returned {batch.num_rows} rows")


@case(
    "R7",
    claims=("replayable",),
    abilities=("truncate",),
    hint="losses are not reported",
    needs=(*STARTS, "a_start_before_earliest_is_out_of_range"),
)
def a_loss_is_recorded_when_the_policy_continues(bench: Bench) -> None:
    """With out.of.range=earliest reading continues, and the loss is in the batch."""
    bench.create(messages=MESSAGES)
    number = bench.first()
    old = bench.infos()[number].earliest
    bench.harness.truncate(number, 50)
    earliest = bench.infos()[number].earliest
    source = bench.source(out__of__range="earliest")
    reader = bench.closing(source.reader(bench.partition(number)))
    batch = bench.answer(reader, old)
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
    bench.create(messages=5)
    number = bench.first()
    latest = bench.infos()[number].latest
    assert latest is not None
    reader = bench.closing(bench.source().reader(bench.partition(number)))
    try:
        batch = bench.answer(reader, latest + 1000, timeout=0.5)
    except OffsetOutOfRange as error:
        expect(error.latest, latest, "latest in the error")
        return
    require(False, f"a start beyond latest returned state {batch.state.value}")


@case(
    "R8",
    claims=("replayable",),
    hint="a gap is taken for a loss, or for an end",
    needs=STARTS,
)
def every_offset_between_can_be_a_start(bench: Bench) -> None:
    """A start in a gap between two messages returns the next message."""
    bench.create(messages=20)
    number = bench.first()
    whole = bench.fetch_all(number, bench.infos()[number].earliest)
    source = bench.source()
    for (one, _), (other, wanted) in list(itertools.pairwise(whole))[:8]:
        rows = bench.read_all(source, number, one + 1, other + 1)
        expect(rows, [(other, wanted)], f"from {one + 1}")


@case("R4", hint="the consumer is called before the range is found to be empty")
def an_empty_range_calls_no_consumer(bench: Bench) -> None:
    """A range that ends where it starts is read without the author's consumer."""
    bench.create(messages=3)
    number = bench.first()
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
    abilities=("tombstone",),
    hint="messages without a value are filtered out",
    needs=ROWS,
)
def tombstones_are_rows(bench: Bench) -> None:
    """A message without a value is a row whose value is null, in its place."""
    bench.create(messages=2)
    number = bench.first()
    bench.note("tombstone()")
    bench.harness.tombstone(number)
    source = bench.source()
    info = bench.infos()[number]
    assert info.latest is not None
    reader = bench.closing(source.reader(bench.partition(number)))
    nulls: list[bool] = []
    column = "value" if "value" in reader.schema.names else reader.schema.names[0]
    at, patience = info.earliest, Patience()
    while at < info.latest and not patience.over(1.0):
        batch = reader.fetch(at, end=info.latest, timeout=1.0)
        nulls += batch.rows.column(column).is_null().to_pylist()
        at = batch.next_offset
    expect(nulls, [False, False, True], "which rows are null")
