"""R5, R7, R8: removed rows, gaps, and the end of a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.conformance.bench import BYTES, SLICE
from streamfactory.conformance.case import case
from streamfactory.conformance.cases.reading import MESSAGES, ROWS, STARTS
from streamfactory.conformance.expectations import expect, expect_error, require
from streamfactory.conformance.harness import (
    Finishes,
    HidesPartitions,
    LeavesGaps,
    Truncates,
)
from streamfactory.spi import (
    BatchState,
    DataLossError,
    FetchLimits,
    PartialMetadata,
    PartitionState,
    Position,
    StreamError,
)

if TYPE_CHECKING:
    from streamfactory.conformance.bench import Bench
    from streamfactory.spi import Loss
    from streamfactory.wiring.reading.reader import Reader

_GONE = "a_start_before_earliest_is_out_of_range"


@case(
    "R7",
    claims=("replayable",),
    abilities=(Truncates,),
    hint="held_from is 0, or the start that was asked for, whatever the source has",
    needs=(*STARTS, _GONE, "retention_moves_earliest_alone"),
)
def held_from_claims_no_more_than_is_held(bench: Bench) -> None:
    """After retention an answer to an old start does not claim that nothing is lost."""
    number, limits = bench.create(messages=MESSAGES), FetchLimits(10, BYTES, SLICE)
    old = bench.infos()[number].earliest
    opened = bench.consumer(number)
    at = opened.fetch_messages(old, None, limits).next_offset
    bench.note("truncate(messages=60)")
    bench.use(Truncates).truncate(number, 60)
    earliest = bench.infos()[number].earliest
    for name, consumer in (("open", opened), ("new", bench.consumer(number))):
        for start in (at, old):
            bench.note(f"author.fetch(start={start}) by the {name} consumer")
            try:
                fetched = consumer.fetch_messages(start, None, limits)
            except Exception as error:  # noqa: BLE001 - an error claims nothing
                bench.note(f"raised {type(error).__name__}")
                break  # after an error a consumer is asked nothing more
            rows = bench.rows_of(fetched, start)
            first = rows[0][0] if rows else fetched.next_offset
            # Rows that were fetched before are no claim about what is held now.
            if first < earliest or fetched.held_from is None:
                continue
            require(
                fetched.held_from > start,
                f"held_from={fetched.held_from} says that nothing from {start} to "
                f"{first} was lost, the earliest offset is {earliest}",
            )


def _read_on(
    bench: Bench, reader: Reader, at: int, until: int
) -> tuple[list[int], list[Loss]]:
    """The numbers and losses up to an offset, which may be passed."""
    numbers: list[int] = []
    losses: list[Loss] = []
    if at < until:
        for batch in bench.batches(reader, at, max_rows=10):
            numbers += bench.harness.numbers(batch.rows)
            losses += batch.losses
            if batch.next_offset >= until:
                break
    return numbers, losses


@case(
    "R7",
    claims=("replayable",),
    abilities=(Truncates,),
    hint="an open consumer skips removed rows without an error",
    needs=(*STARTS, _GONE, "held_from_claims_no_more_than_is_held"),
)
def retention_under_an_open_reader_is_reported(bench: Bench) -> None:
    """What retention takes from an open reader is an error, or a loss with the rows."""
    for policy in ("fail", "earliest"):
        number = bench.create(messages=MESSAGES)
        reader = bench.reader(number, out__of__range=policy)
        earliest, latest = bench.bounds(number)
        batch = bench.answer(reader, earliest, max_rows=10)
        read = bench.harness.numbers(batch.rows)
        bench.note(f"out.of.range={policy}: truncate(messages=60)")
        bench.use(Truncates).truncate(number, 60)
        wanted, lost = bench.written[number], False
        try:
            found, losses = _read_on(bench, reader, batch.next_offset, latest)
        except DataLossError:
            require(policy == "fail", "an error, though the policy continues")
            continue
        lost = read + found != wanted
        require(
            not lost or (policy != "fail" and losses),
            f"{len(wanted) - len(read + found)} messages are skipped without an error "
            "or a loss",
        )
        expect(found[-1:], wanted[-1:], "the last message after the loss")


@case(
    "R8",
    claims=("replayable",),
    abilities=(LeavesGaps,),
    hint="held_from is None and earliest moves on over a gap, or a gap is an error",
    needs=(*STARTS, "an_empty_result_moves_over_a_gap"),
)
def gaps_are_not_losses(bench: Bench) -> None:
    """Offsets without a message are passed without an error or a loss."""
    for policy in ("fail", "earliest"):
        number = bench.create(messages=10)
        bench.note("gap(offsets=5)")
        bench.use(LeavesGaps).gap(number, 5)
        bench.write(number, 10)
        reader = bench.reader(number, out__of__range=policy)
        numbers, losses = _read_on(bench, reader, *bench.bounds(number))
        expect(numbers, bench.written[number], "messages around the gap")
        expect(losses, [], "losses")


@case(
    "R5",
    claims=("replayable",),
    abilities=(LeavesGaps,),
    hint="next_offset stays behind the last message, where latest is beyond a gap",
    needs=STARTS,
)
def an_empty_result_moves_over_a_gap(bench: Bench) -> None:
    """Offsets without a message at the end are passed: the lag comes down to 0."""
    number = bench.create(messages=10)
    bench.note("gap(offsets=5)")
    bench.use(LeavesGaps).gap(number, 5)
    source = bench.source()
    reader = bench.closing(source.reader(bench.partition(number)))
    at, latest = bench.bounds(number)
    for batch in bench.batches(reader, at, max_rows=10):
        at = batch.next_offset
        if at >= latest:
            break
    expect(at, latest, "the next offset at the end")
    here = Position({bench.partition(number): at})
    expect(source.metadata.lag(here), {bench.partition(number): 0}, "lag at the end")


@case(
    "R5",
    abilities=(Finishes,),
    hint="the end is said with the last rows, once only, or never",
    needs=ROWS,
)
def an_ended_partition_ends_after_its_rows(bench: Bench) -> None:
    """A partition that has ended answers its rows, then the end, as often as asked."""
    number = bench.create()
    source = bench.source()
    reader = bench.closing(source.reader(bench.partition(number)))
    at = bench.infos()[number].earliest
    bench.write(number, 10)
    bench.note("finish()")
    bench.use(Finishes).finish(number)
    numbers: list[int] = []
    ends = 0
    for batch in bench.batches(reader, at):
        numbers += bench.harness.numbers(batch.rows)
        if batch.state is BatchState.END_OF_PARTITION:
            ends += 1
            require(not batch.num_rows, "the end came with rows")
            require(batch.end is not None, "the kind of the end is not known")
        else:
            require(not ends, f"after the end a batch is in state {batch.state.value}")
        if ends == 2:
            break
    expect(numbers, bench.written[number], "messages before the end")
    expect(ends, 2, "ends that were answered")
    states = {i.state for i in source.metadata.partitions() if i.partition.id == number}
    require(
        states <= {PartitionState.ENDED, PartitionState.ACTIVE},
        f"metadata says that the partition is {states}",
    )


@case(
    "M2",
    abilities=(HidesPartitions,),
    hint="a partition that does not answer is left out of the list",
)
def a_partition_that_does_not_answer_is_an_error(bench: Bench) -> None:
    """Where one partition cannot be asked, fetch_partitions raises PartialMetadata."""
    bench.create(partitions=3, messages=2)
    source = bench.source(retry__max__attempts="1")
    bench.note("unreachable(the second partition)")
    bench.use(HidesPartitions).unreachable(list(bench.written)[1])
    what = "metadata of 3 partitions, one of which does not answer,"
    error = expect_error(StreamError, what, source.metadata.partitions)
    require(isinstance(error, PartialMetadata), f"a partial answer is {error!r}")
