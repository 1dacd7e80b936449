"""M3, W6: offsets up to the greatest that a signed 64-bit number allows."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from streamfactory.conformance.case import case
from streamfactory.conformance.cases.reading import STARTS
from streamfactory.conformance.cases.writing import seen, write
from streamfactory.conformance.expectations import expect, expect_error, require
from streamfactory.conformance.harness import (
    ExceedsOffsets,
    SetsOffsets,
    WritesRows,
)
from streamfactory.spi import ErrorClass, StreamError

if TYPE_CHECKING:
    from streamfactory.conformance.bench import Bench
    from streamfactory.wiring.reading.source import Source

GREATEST: Final = 2**63 - 2
"""Of a message: the offset after it is an offset, too."""
_FINAL: Final = (ErrorClass.PERMANENT, ErrorClass.DATA_LOSS)


@case(
    "M3",
    claims=("replayable",),
    abilities=(SetsOffsets,),
    hint="an offset is computed with fewer bits, or as a floating number",
    needs=STARTS,
)
def the_greatest_offsets_are_read(bench: Bench) -> None:
    """Messages up to offset 2**63 - 2 are read, each with its own offset."""
    number = bench.create()
    bench.use(SetsOffsets).advance(number, GREATEST - 2)
    first, *others = bench.write(number, 3)
    wanted = list(enumerate([first, *others], GREATEST - 2))
    expect(bench.bounds(number)[1], GREATEST + 1, "latest of the full partition")
    for limit in (1, 10):
        rows = bench.fetch_all(number, GREATEST - 2, max_rows=limit)
        expect(rows, wanted, f"messages, {limit} at a time")
    expect(bench.fetch_all(number, GREATEST), wanted[-1:], "the last message")
    found = bench.read_all(bench.source(), number, GREATEST - 1, GREATEST + 1)
    expect(found, wanted[1:], "messages, by a reader")


@case(
    "M3",
    abilities=(ExceedsOffsets,),
    hint="an offset that is too large is computed, and overflows later",
    needs=STARTS,
)
def a_message_beyond_all_offsets_is_refused(bench: Bench) -> None:
    """Metadata or reading refuse a message without an offset by a permanent error."""
    number = bench.create(messages=1)
    source, start = bench.source(), bench.infos()[number].earliest
    bench.note(f"exceed({number})")
    bench.use(ExceedsOffsets).exceed(number)
    read = partial(_read, bench, source, number, start)
    error = expect_error(StreamError, "reading a message without an offset", read)
    what = f"a message without an offset is {error!r}"
    require(error.error_class in _FINAL, what)


def _read(bench: Bench, source: Source, number: int, start: int) -> list[int]:
    infos = {info.partition.id: info for info in source.metadata.partitions()}
    latest = infos[number].latest
    rows = bench.read_all(
        source, number, start, start + 2 if latest is None else latest
    )
    return [n for _, n in rows]


@case(
    "W6",
    claims=("epoch_visibility",),
    abilities=(WritesRows, SetsOffsets),
    writing=True,
    hint="a write does not look for the space that is left, or checks each row alone",
    needs=("the_greatest_offsets_are_read",),
)
def a_write_beyond_the_greatest_offset_is_refused(bench: Bench) -> None:
    """An epoch with a row behind offset 2**63 - 2 is refused, and nothing is there."""
    number = bench.create()
    bench.use(SetsOffsets).advance(number, GREATEST - 1)
    for tasks in ([[1, 2, 3]], [[1], [2, 3]]):
        what = "an epoch of three rows for two offsets"
        error = expect_error(StreamError, what, write, bench, bench.sink(), 0, tasks)
        require(error.error_class is ErrorClass.PERMANENT, f"{what} is {error!r}")
        expect(seen(bench), [], "rows of an epoch that was refused")
    write(bench, bench.sink(), 0, [[1], [2]])
    rows = bench.fetch_all(number, GREATEST - 1)
    expect([offset for offset, _ in rows], [GREATEST - 1, GREATEST], "offsets")
    expect(sorted(n for _, n in rows), [1, 2], "rows of an epoch that fits")
    what = "an epoch behind the greatest offset"
    error = expect_error(StreamError, what, write, bench, bench.sink(), 1, [[3]])
    require(error.error_class is ErrorClass.PERMANENT, f"{what} is {error!r}")
    expect(seen(bench), [1, 2], "rows afterwards")
