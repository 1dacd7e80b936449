"""R, M, P: whatever Spark's driver does while it reads, each row comes out once."""

from __future__ import annotations

import random
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from streamfactory.conformance.case import case, expect, require
from streamfactory.conformance.spark import Crash, crash_at, ship
from streamfactory.conformance.spark.process import elsewhere
from streamfactory.conformance.spark.reading import (
    Query,
    SparkSource,
    Task,
    read,
    ship_configured,
)
from streamfactory.spi import (
    DataLossError,
    OffsetOutOfRange,
    Position,
    PositionRefused,
    StreamError,
)
from streamfactory.wiring.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamfactory.conformance.bench import Bench

_REPLAYABLE = ("replayable",)


@contextmanager
def one_run(bench: Bench) -> Iterator[None]:
    """Keep the script of a run that fails, and of no other."""
    mark = len(bench.script)
    yield
    del bench.script[mark:]


def planned(query: Query, pieces: int = 1) -> list[Task]:
    """The tasks of a batch that takes all there is."""
    with closing(SparkSource(query.configured)) as source:
        start = source.initial_offset()
        return source.partitions(start, source.latest_offset(start), pieces)


# --- restarts -------------------------------------------------------------------


@case("R2", claims=_REPLAYABLE, slow=True, hint="what was read is consumed or moved on")
def a_restart_between_any_two_calls_loses_and_repeats_nothing(bench: Bench) -> None:
    """A driver that dies after any of its calls is followed by one that goes on."""
    bench.create(partitions=2, messages=3)
    quiet = Query(bench)
    quiet.run()
    quiet.check()
    for step in range(quiet.steps):
        with one_run(bench):
            query = Query(bench, crash_at(step, step + 2))
            query.run()
            query.check()


@case("R2", claims=_REPLAYABLE, hint="a range cannot be read once it was read")
def a_batch_whose_commit_was_lost_is_replayed_alike(bench: Bench) -> None:
    """A batch that the sink has and the commit log has not gives the same rows again."""
    bench.create(partitions=2, messages=12)
    query = Query(bench)
    query.run()
    bench.note("the commit log is lost, batch after batch")
    for batch in sorted(query.logs.commits):
        last = max(query.logs.offsets) == batch
        query.logs.commits.discard(batch)
        if last:
            query.run()
    query.check()


@case(
    "R2", claims=_REPLAYABLE, slow=True, hint="see which calls of the script were last"
)
def any_schedule_reads_every_row_once(bench: Bench) -> None:
    """Writes, restarts, replays, speculation, other splits, early and late commits."""
    for seed in range(bench.seed, bench.seed + 5):
        with one_run(bench):
            bench.note(f"schedule {seed}")
            bench.create(partitions=3, messages=2)
            query = _scheduled(bench, random.Random(seed))  # noqa: S311 - repeats itself
            query.run()
            query.check()


def _scheduled(bench: Bench, chance: random.Random) -> Query:
    left = iter(range(60))

    def hook(step: str) -> None:
        query.share = chance.choice((1, 2, 3))
        query.pieces = chance.choice((1, 2, 5))
        query.twice = chance.random() < 0.1
        if step == "fetch" or next(left, None) is None:
            return
        if chance.random() < 0.4:
            bench.write(chance.choice(list(bench.written)), chance.randint(1, 5))
        if chance.random() < 0.2 and query.logs.offsets:
            with closing(SparkSource(query.configured)) as other:
                bench.note("commit, once more and by another driver")
                other.commit(chance.choice(list(query.logs.offsets.values())))
        if chance.random() < 0.3:
            raise Crash(step)

    query = Query(bench, hook)
    return query


# --- planning -------------------------------------------------------------------


@case("P1", claims=_REPLAYABLE, hint="latest or incarnation differ from call to call")
def an_idle_stream_makes_no_batch(bench: Bench) -> None:
    """Where nothing was written, latest is its start to the byte, for every driver."""
    bench.create(partitions=2, messages=5)
    query = Query(bench)
    query.run()
    end = query.logs.offsets[max(query.logs.offsets)]
    for _ in range(3):
        with closing(SparkSource(query.configured)) as source:
            expect(source.latest_offset(end), end, "latest of an idle stream")
            expect(source.partitions(end, end), [], "tasks from an offset to itself")


@case("R2", claims=_REPLAYABLE, hint="an incarnation that is made up at each start")
def a_plan_made_twice_is_the_same(bench: Bench) -> None:
    """A batch planned again, and by another driver after more was written, is the same."""
    bench.create(partitions=2, messages=10)
    query = Query(bench)
    with closing(SparkSource(query.configured)) as source:
        start = source.initial_offset()
        end = source.latest_offset(start, 2)
        first = source.partitions(start, end)
        expect(source.partitions(start, end), first, "the plan made again")
    for number in bench.written:
        bench.write(number, 3)
    with closing(SparkSource(query.configured)) as other:
        later = other.initial_offset()
        expect(other.partitions(later, end), first, "the plan of another driver")
    rows = query.rows(ship(first))
    expect(query.rows(ship(first)), rows, "the rows of the plan, read again")


@case("P1", claims=_REPLAYABLE, hint="latest goes on without a write, or is not exact")
def the_start_of_a_new_query_is_pinned_by_its_first_batch(bench: Bench) -> None:
    """A query from latest, restarted at once, misses nothing of what came meanwhile."""
    for crash in range(8):
        with one_run(bench):
            bench.create(partitions=2, messages=3)
            floor: dict[int, int] = {}
            writes, die = iter(range(10)), crash_at(crash)

            def hook(step: str) -> None:
                if query.logs.offsets and not floor:
                    floor.update({n: len(rows) for n, rows in bench.written.items()})
                if step != "fetch" and next(writes, None) is not None:
                    for number in bench.written:
                        bench.write(number, 1)
                die(step)

            query = Query(bench, hook, startingOffsets="latest")
            query.run()
            for number, wanted in bench.written.items():
                got = query.sink.numbers(number)
                require(
                    len(got) >= len(wanted) - floor[number],
                    f"of partition {number}, {wanted[floor[number] :]} was written "
                    f"after batch 0 was logged, and out came {got}",
                )
                expect(got, wanted[len(wanted) - len(got) :], f"partition {number}")


@case("M3", claims=_REPLAYABLE, hint="latest goes back, or runs ahead of its messages")
def available_now_ends_though_the_stream_goes_on(bench: Bench) -> None:
    """The target is fixed once: all that was there is read, and the query ends."""
    for crash in (None, 1, 4, 9):
        with one_run(bench):
            bench.create(partitions=2, messages=9)
            before = {number: list(rows) for number, rows in bench.written.items()}
            die = crash_at(*(() if crash is None else (crash,)))

            def hook(step: str) -> None:
                if step != "fetch":
                    for number in bench.written:
                        bench.write(number, 1)
                die(step)

            query = Query(bench, hook)
            query.run(available_now=True, triggers=30)
            for number, wanted in before.items():
                got = query.sink.numbers(number)
                expect(got[: len(wanted)], wanted, f"partition {number} at the end")
            rest = Query(bench)
            rest.logs, rest.sink = query.logs, query.sink
            rest.run(available_now=True)
            rest.check()


@case("M4", claims=_REPLAYABLE, abilities=("grow",), hint="partitions are listed once")
def partitions_that_appear_between_any_two_calls_are_read_whole(bench: Bench) -> None:
    """New partitions are read from their earliest, whenever they come."""
    bench.create(partitions=1, messages=2)
    quiet = Query(bench)
    quiet.run()
    for at in range(quiet.steps):
        with one_run(bench):
            bench.create(partitions=1, messages=2)
            steps = iter(range(10_000))

            def hook(step: str) -> None:
                if next(steps) == at:
                    bench.note("grow(3)")
                    bench.harness.grow(3)
                    for number in bench.harness.partitions():
                        bench.written.setdefault(number, [])
                        bench.write(number, 3)
                    raise Crash(step)

            query = Query(bench, hook)
            query.run()
            query.check()


# --- tasks ----------------------------------------------------------------------


@case("R2", claims=_REPLAYABLE, hint="two consumers of one partition share a cursor")
def a_task_that_runs_twice_at_once_answers_the_same(bench: Bench) -> None:
    """Speculation: two attempts of a task, at the same time, give identical rows."""
    bench.create(partitions=2, messages=25)
    query = Query(bench, twice=True)
    query.run()
    query.check()


@case("R3", claims=_REPLAYABLE, hint="a range has to begin where another one ended")
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


@case("R11", claims=_REPLAYABLE, hint="rows or errors hold on to what made them")
def whatever_crosses_a_process_pickles(bench: Bench) -> None:
    """A used factory, a task, its batches and its errors arrive as they were sent."""
    bench.create(messages=10)
    query = Query(bench)
    (task,) = planned(query)
    expect(ship(task), task, "the task that arrived")
    configured = ship_configured(query.configured)
    factory = bench.factory()
    bench.consumer(bench.first(), factory)
    with closing(Source(configured, wrap=lambda _: ship(factory))) as source:
        reader = bench.closing(source.reader(task.partition))
        batch = reader.fetch(task.start, timeout=1.0)
        arrived = ship(batch)
        expect(arrived.next_offset, batch.next_offset, "next offset that arrived")
        require(arrived.rows.equals(batch.rows), "the rows that arrived are others")
        try:
            reader.fetch(task.end + 1000, timeout=1.0)
        except StreamError as error:
            expect(str(ship(error)), str(error), "the error that arrived")


@case(
    "R2",
    claims=("replayable", "shared"),
    hint="the stream lives in the process that made it",
)
def a_task_in_another_process_reads_the_same_rows(bench: Bench) -> None:
    """What a process that was begun anew reads is what this one reads."""
    bench.create(partitions=1, messages=20)
    query = Query(bench)
    (task,) = planned(query)
    bench.note(f"in another process: {task}")
    batches = elsewhere(read, ship_configured(query.configured).portable(), task)
    expect(query.rows_of(batches), query.task(task), "rows of another process")


# --- loss -----------------------------------------------------------------------


def _is_told(bench: Bench, step: str, strike: Callable[[], None]) -> StreamError | None:
    """What a query says when something strikes after a step of its second batch."""
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


@case("R7", claims=_REPLAYABLE, abilities=("truncate",), hint="earliest is not moved")
def what_expires_under_a_batch_is_told(bench: Bench) -> None:
    """Retention that passes a running query, at any step, is an error, never silence."""
    for step in ("commit log 0", "latestOffset", "offset log 1", "partitions"):
        with one_run(bench):
            bench.create(messages=20)

            def strike() -> None:
                bench.note("truncate(messages=15)")
                bench.harness.truncate(bench.first(), 15)

            error = _is_told(bench, step, strike)
            told = isinstance(error, OffsetOutOfRange)
            require(told, f"expired after {step!r}: the query said {error!r}")


@case("R7", claims=_REPLAYABLE, abilities=("truncate",), hint="losses are not recorded")
def a_task_skips_what_expired_and_says_so(bench: Bench) -> None:
    """With out.of.range=earliest a task reads what is left, and records the rest."""
    for gone in (5, 15, 20):
        with one_run(bench):
            bench.create(messages=20)
            query = Query(bench, out__of__range="earliest")
            (task,) = planned(query)
            number = bench.first()
            whole = query.task(task)
            (early, late) = (task.start, whole[9][0] + 1)
            bench.note(f"truncate(messages={gone})")
            bench.harness.truncate(number, gone)
            part = Task(task.partition, early, late, task.incarnation)
            batches = read(ship_configured(query.configured), part)
            expect(query.rows_of(batches), whole[gone:10], "rows of what is left")
            losses = [loss for batch in batches for loss in batch.losses]
            held = bench.infos()[number].earliest
            wanted = [(early, min(held, late))]
            expect([(x.start, x.end) for x in losses], wanted, "losses")


@case("R7", claims=_REPLAYABLE, abilities=("recreate",), hint="no incarnation is told")
def a_stream_begun_again_under_a_batch_is_told(bench: Bench) -> None:
    """Deletion and re-creation at any step is an error, though the offsets agree."""
    steps = ("commit log 0", "latestOffset", "offset log 1", "partitions", "fetch")
    for step in steps:
        with one_run(bench):
            bench.create(messages=40)

            def strike() -> None:
                bench.note("recreate(), and as many messages")
                bench.harness.recreate()
                bench.written[bench.first()] = []
                bench.write(bench.first(), 40)

            error = _is_told(bench, step, strike)
            require(error, f"begun again after {step!r}: the query said nothing")
            if step != "fetch":  # there the connection may break first
                told = isinstance(error, DataLossError)
                require(told, f"begun again after {step!r}: the query said {error!r}")


# --- positions ------------------------------------------------------------------


@case("P1", claims=_REPLAYABLE, hint="an incarnation is no text, or changes")
def positions_of_one_place_are_one_text(bench: Bench) -> None:
    """A position is one line, comes back to the byte, and is the same for everybody."""
    bench.create(partitions=3, messages=4)
    texts = set()
    for order in (1, -1):
        infos = list(bench.infos().values())[::order]
        position = Position(
            {info.partition: info.earliest for info in infos},
            {i.partition: i.incarnation for i in infos if i.incarnation is not None},
        )
        text = position.to_json()
        expect(Position.from_json(text).to_json(), text, "text that was read back")
        expect(Position.from_json(text), position, "position that was read back")
        expect(ship(position), position, "position that crossed a process")
        expect(len(text.splitlines()), 1, "lines")
        texts.add(text)
    expect(len(texts), 1, f"texts of one place, {sorted(texts)}")


@case("P2", claims=_REPLAYABLE, hint="what cannot be read is taken for a new start")
def a_checkpoint_that_is_not_ours_is_refused(bench: Bench) -> None:
    """A foreign, corrupt or newer offset stops the query in words, and stays as it is."""
    bench.create(messages=4)
    quiet = Query(bench)
    quiet.run()
    text = quiet.logs.offsets[max(quiet.logs.offsets)]
    good = Position.from_json(text).to_json()
    other = Position({type(bench.partition(0))("another-stream", 0): 1}).to_json()
    wrong = {
        "torn": good[: len(good) // 2],
        "empty": "",
        "no position": '"earliest"',
        "newer": good.replace('"version":1', '"version":2'),
        "of another stream": other,
        "with an offset as text": good.replace(':4}', ':"4"}'),
    }
    for what, bad in wrong.items():
        query = Query(bench)
        query.logs.offsets[0], query.logs.commits = bad, {0}
        try:
            query.run()
        except PositionRefused as error:
            require(str(error), "the refusal says nothing")
        else:
            require(False, f"an offset log that is {what} was taken: {bad!r}")
        expect(query.logs.offsets, {0: bad}, "the offset log after the refusal")
