"""R1, R3, W2: calls of any size, around the numbers at which buffers end."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from streamfactory.conformance.case import case
from streamfactory.conformance.cases.reading import STARTS
from streamfactory.conformance.cases.writing import WRITER
from streamfactory.conformance.expectations import expect, require
from streamfactory.conformance.harness import WritesRows
from streamfactory.spi import FetchLimits

if TYPE_CHECKING:
    from streamfactory.conformance.bench import Bench

SIZES: Final = (1, 511, 512, 513, 1_000, 10_000)
_LIMITS: Final = (511, 512, 513)
_MESSAGES: Final = 20


@case(
    "R3",
    claims=("replayable",),
    hint="what is beyond a page, a buffer or a limit is dropped, or read twice",
    needs=STARTS,
)
def reads_of_any_size_are_whole(bench: Bench) -> None:
    """Limits and ends at every size answer the same rows as one read of all."""
    number = bench.create()
    for size in SIZES[:-1]:
        bench.write(number, size)
    whole = bench.fetch_all(number)
    expect([n for _, n in whole], bench.written[number], "messages read at once")
    for limit in _LIMITS:
        rows = bench.fetch_all(number, max_rows=limit)
        expect(rows, whole, f"messages, {limit} at a time")
    source, places = bench.source(), list(itertools.accumulate(SIZES[:-1]))
    for first, last in itertools.pairwise(places):
        end = whole[last - 1][0] + 1
        rows = bench.read_all(source, number, whole[first - 1][0], end)
        expect(rows, whole[first - 1 : last], f"messages {first} to {last}")
    late = bench.write(number, SIZES[-1])
    rows = bench.fetch_all(number, whole[-1][0] + 1)
    expect([n for _, n in rows], late, f"{SIZES[-1]} messages of one write")


@case(
    "W2",
    abilities=(WritesRows,),
    writing=True,
    hint="rows of a write beyond a fixed number are dropped, or written in two calls",
)
def writes_of_any_size_are_whole(bench: Bench) -> None:
    """Rows of small and of large writes to one partition are all there, in order."""
    number = bench.create()
    numbers = iter(range(sum(SIZES)))
    batches = [
        bench.use(WritesRows).rows(list(itertools.islice(numbers, size)))
        for size in SIZES
    ]
    sink = bench.sink()
    writer = bench.closing(sink.writer(batches[0].schema, writer_id=WRITER, epoch=0))
    for rows in batches:
        bench.note(f"write(rows={rows.num_rows})")
        writer.write(rows)
    bench.closing(sink.committer(writer_id=WRITER)).commit(0, [writer.commit()])
    found = list(bench.use(WritesRows).visible()[number])
    expect(len(found), sum(SIZES), f"rows of writes of {SIZES}")
    expect(found, list(range(sum(SIZES))), "rows of all writes")


@case(
    "R1",
    claims=("replayable",),
    hint="rows beyond max_bytes are dropped, but next_offset is behind them",
    needs=STARTS,
)
def small_byte_limits_return_the_same_rows(bench: Bench) -> None:
    """With max_bytes of a message or less the consumer and Reader miss none."""
    number = bench.create(messages=_MESSAGES)
    whole = bench.fetch_all(number)
    size = max(1, bench.answer(bench.reader(number), whole[0][0]).size // _MESSAGES)
    for most in (1, size, 3 * size):
        rows = bench.fetch_all(number, max_bytes=most)
        expect(rows, whole, f"messages with max_bytes={most}")
    reader, start = bench.reader(number), whole[0][0]
    for batch in bench.batches(reader, start, whole[-1][0] + 1, max_bytes=1):
        require(batch.num_rows <= 1, f"max_bytes=1 returned {batch.num_rows} messages")


@case("R1", hint="max_rows is taken for a hint", needs=STARTS)
def what_the_framework_cuts_is_counted(bench: Bench) -> None:
    """Reader keeps max_rows; how often the consumer exceeds it is reported."""
    number = bench.create(messages=_MESSAGES)
    earliest = bench.infos()[number].earliest
    numbers: list[int] = []
    for batch in bench.batches(bench.reader(number), earliest, max_rows=3):
        require(batch.num_rows <= 3, f"max_rows=3 returned {batch.num_rows} rows")
        numbers += bench.harness.numbers(batch.rows)
        if len(numbers) >= _MESSAGES:
            break
    expect(numbers, bench.written[number], "messages, three at a time")
    if not bench.source().claims.replayable:
        return
    limits = FetchLimits(3, 2**20, 0.25)
    fetched = bench.consumer(number).fetch_messages(earliest, None, limits)
    count = len(bench.rows_of(fetched, earliest))
    if count > 3:
        bench.narrow(
            f"the consumer returned {count} rows, not 3: the framework cut them"
        )
