"""R: Spark's tasks read what was planned, wherever and however often they run."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from streamfactory.conformance.case import case
from streamfactory.conformance.cases.grounds import READING
from streamfactory.conformance.children import elsewhere
from streamfactory.conformance.expectations import expect, require
from streamfactory.conformance.harness import Recreates, Truncates
from streamfactory.conformance.roles import Place
from streamfactory.conformance.spark import one_run, ship
from streamfactory.conformance.spark.reading import Query, read
from streamfactory.conformance.spark.source import SparkSource, ship_configured
from streamfactory.spi import DataLossError, OffsetOutOfRange, StreamError
from streamfactory.wiring.microbatch import Range

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.conformance.bench import Bench
    from streamfactory.spi import MessageBatch

_REPLAYABLE = ("replayable",)


def planned(query: Query, pieces: int = 1) -> list[Range]:
    """The tasks of a batch that takes all there is."""
    with closing(SparkSource(query.configured)) as source:
        start = source.initial_offset()
        return source.partitions(start, source.latest_offset(start), pieces)


# --- tasks ----------------------------------------------------------------------


@case(
    "R2",
    claims=_REPLAYABLE,
    hint="two consumers of one partition share a cursor",
    needs=READING,
)
def a_task_that_runs_twice_at_once_reads_the_same_rows(bench: Bench) -> None:
    """Speculation: two attempts of a task, at the same time, give identical rows."""
    bench.create(partitions=2, messages=25)
    query = Query(bench, twice=True)
    query.run()
    query.check()


@case(
    "R3",
    claims=_REPLAYABLE,
    hint="a range has to begin where another one ended",
    needs=READING,
)
def a_batch_in_more_tasks_is_the_same_batch(bench: Bench) -> None:
    """The same offsets, planned with another number of tasks, give the same rows."""
    bench.create(partitions=2, messages=23)
    query = Query(bench)
    whole = query.rows(planned(query))
    for pieces in (2, 3, 7, 100):
        with one_run(bench):
            bench.note(f"plan in {pieces} pieces")
            rows = query.rows(planned(query, pieces))
            expect(rows, whole, f"the batch in {pieces} tasks a partition")


@case(
    "R11",
    claims=_REPLAYABLE,
    hint="rows or errors hold on to what made them",
    needs=READING,
)
def results_of_tasks_pickle(bench: Bench) -> None:
    """Batches and errors of a task arrive at the driver as they were sent."""
    bench.create(messages=10)
    query = Query(bench)
    (task,) = planned(query)
    configured = ship_configured(query.configured)
    for batch in read(configured, ship(task)):
        arrived = ship(batch)
        expect(arrived.next_offset, batch.next_offset, "next offset that arrived")
        require(arrived.rows.equals(batch.rows), "the rows that arrived differ")
    try:
        read(configured, task._replace(start=task.end + 1000, end=task.end + 2000))
    except StreamError as error:
        expect(str(ship(error)), str(error), "the error that arrived")


@case(
    "R2",
    claims=("replayable", "shared"),
    hint="the stream exists only in the process that made it",
    needs=READING,
)
def a_task_in_another_process_reads_the_same_rows(bench: Bench) -> None:
    """A new process reads the same rows as this one."""
    bench.create(partitions=1, messages=20)
    query = Query(bench)
    (task,) = planned(query)
    bench.note(f"in another process: {task}")
    batches = elsewhere(_read_there, Place.of(query.configured), task)
    expect(bench.rows_of_batches(batches), query.task(task), "rows of another process")


def _read_there(place: Place, task: Range) -> list[MessageBatch]:
    return read(place.configured(), task)


# --- loss -----------------------------------------------------------------------


def _reported_after(
    bench: Bench, step: str, strike: Callable[[], None]
) -> StreamError | None:
    """Return the error of a query that is struck after a step of its second batch."""
    struck: list[str] = []

    def hook(name: str) -> None:
        if 0 in query.logs.commits and name == step and not struck:
            struck.append(name)
            strike()

    query = Query(bench, hook)
    try:
        query.run()
    except StreamError as error:
        return error
    require(struck, f"there was no {step!r} in the second batch")
    return None


@case(
    "R7",
    claims=_REPLAYABLE,
    abilities=(Truncates,),
    hint="earliest is not moved",
    needs=READING,
)
def expiry_under_a_batch_is_reported(bench: Bench) -> None:
    """Retention that overtakes a query, at any step, is an error, never silence."""

    def strike() -> None:
        bench.note("truncate(messages=15)")
        bench.use(Truncates).truncate(bench.first(), 15)

    for step in ("commit log 0", "latestOffset", "offset log 1", "partitions"):
        with one_run(bench):
            bench.create(messages=20)
            error = _reported_after(bench, step, strike)
            expected = isinstance(error, OffsetOutOfRange)
            require(expected, f"expired after {step!r}: the query raised {error!r}")


@case(
    "R7",
    claims=_REPLAYABLE,
    abilities=(Truncates,),
    hint="losses are not recorded",
    needs=READING,
)
def a_task_skips_expired_messages_and_reports_them(bench: Bench) -> None:
    """With out.of.range=earliest a task reads what is left, and records the rest."""
    for deleted in (5, 15, 20):
        with one_run(bench):
            bench.create(messages=20)
            query = Query(bench, out__of__range="earliest")
            (task,) = planned(query)
            number = bench.first()
            whole = query.task(task)
            (early, late) = (task.start, whole[9][0] + 1)
            bench.note(f"truncate(messages={deleted})")
            bench.use(Truncates).truncate(number, deleted)
            part = Range(task.partition, early, late, task.incarnation)
            batches = read(ship_configured(query.configured), part)
            expect(
                bench.rows_of_batches(batches), whole[deleted:10], "rows that are left"
            )
            losses = [(x.start, x.end) for batch in batches for x in batch.losses]
            last = whole[min(deleted, 10) - 1][0]
            held = late if deleted >= 10 else whole[deleted][0]
            require(
                losses in [[(early, end)] for end in range(last + 1, held + 1)],
                f"{deleted} messages before {held} were deleted, and the losses are "
                f"{losses}",
            )


@case(
    "R7",
    claims=_REPLAYABLE,
    abilities=(Recreates,),
    hint="the incarnation is missing from answers",
    needs=READING,
)
def a_topic_recreated_under_a_batch_is_reported(bench: Bench) -> None:
    """Deletion and re-creation at any step is an error, though the offsets agree."""

    def strike() -> None:
        bench.recreate(bench.first(), 40)

    steps = ("commit log 0", "latestOffset", "offset log 1", "partitions", "fetch")
    for step in steps:
        with one_run(bench):
            bench.create(messages=40)
            error = _reported_after(bench, step, strike)
            require(error, f"recreated after {step!r}: the query raised nothing")
            if step != "fetch":  # there the connection may break first
                expected = isinstance(error, DataLossError)
                require(
                    expected, f"recreated after {step!r}: the query raised {error!r}"
                )
