"""R, M, P: whatever Spark's driver does while it reads, each row comes out once."""

from __future__ import annotations

import random
from contextlib import closing
from typing import TYPE_CHECKING

from streamfactory.conformance.case import case
from streamfactory.conformance.cases.grounds import READING
from streamfactory.conformance.expectations import expect, require
from streamfactory.conformance.harness import Grows
from streamfactory.conformance.spark import Crash, Hook, crash_at, one_run, ship
from streamfactory.conformance.spark.reading import Query
from streamfactory.conformance.spark.source import SparkSource
from streamfactory.spi import Partition, Position, PositionRefused
from streamfactory.spi.positions import POSITION_VERSION
from streamfactory.wiring.microbatch import BatchOffset

if TYPE_CHECKING:
    from streamfactory.conformance.bench import Bench

_REPLAYABLE = ("replayable",)


# --- restarts -------------------------------------------------------------------


@case(
    "R2",
    claims=_REPLAYABLE,
    slow=True,
    hint="what was read is consumed or moved on",
    needs=READING,
)
def a_restart_between_any_two_calls_loses_and_repeats_nothing(bench: Bench) -> None:
    """After a driver dies after any of its calls, the next one continues."""
    bench.create(partitions=2, messages=3)
    quiet = Query(bench)
    quiet.run()
    quiet.check()
    for step in range(quiet.steps):
        with one_run(bench):
            query = Query(bench, crash_at(step, step + 2))
            query.run()
            query.check()


@case(
    "R2",
    claims=_REPLAYABLE,
    hint="a range cannot be read once it was read",
    needs=READING,
)
def a_batch_whose_commit_was_lost_is_replayed_identically(bench: Bench) -> None:
    """A batch that is repeated on a longer stream has the same rows."""
    bench.create(partitions=2, messages=12)
    replayed: set[int] = set()

    def hook(step: str) -> None:
        batch = max(query.logs.offsets, default=0)
        if step == "sink" and batch not in replayed:
            replayed.add(batch)
            query.pieces = 1 + batch % 3
            if batch < 3:
                bench.write(bench.first(), 2)
            raise Crash(step)

    query = Query(bench, hook)
    query.run()
    query.check()


@case(
    "R2",
    claims=_REPLAYABLE,
    slow=True,
    hint="see which calls of the script were last",
    needs=READING,
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
    left = iter(range(60))  # steps in which something happens

    def hook(step: str) -> None:
        if step == "fetch" or next(left, None) is None:
            return
        query.share = chance.choice((1, 2, 3))
        query.pieces = chance.choice((1, 2, 5))
        query.twice = chance.random() < 0.1
        if chance.random() < 0.4:
            bench.write(chance.choice(list(bench.written)), chance.randint(1, 5))
        if chance.random() < 0.2 and query.logs.offsets:
            with closing(SparkSource(query.configured)) as other:
                bench.note("commit, once more and by another driver")
                other.commit(chance.choice(list(query.logs.offsets.values())))
        if chance.random() < 0.3:
            raise Crash(step)

    query = Query(bench, hook)  # which the hook changes as it runs
    return query


# --- planning -------------------------------------------------------------------


@case(
    "P1",
    claims=_REPLAYABLE,
    hint="latest or incarnation differ from call to call",
    needs=READING,
)
def an_idle_stream_makes_no_batch(bench: Bench) -> None:
    """If nothing was written, latest equals the start as text, for every driver."""
    bench.create(partitions=2, messages=5)
    query = Query(bench)
    query.run()
    end = query.logs.offsets[max(query.logs.offsets)]
    for _ in range(3):
        with closing(SparkSource(query.configured)) as source:
            expect(source.latest_offset(end), end, "latest of an idle stream")
            expect(source.partitions(end, end), [], "tasks from an offset to itself")


@case(
    "R2",
    claims=_REPLAYABLE,
    hint="an incarnation that is made up at each start",
    needs=READING,
)
def a_plan_made_twice_is_the_same(bench: Bench) -> None:
    """A batch planned again, on a longer stream and by another driver, is the same."""
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


@case(
    "P1",
    claims=_REPLAYABLE,
    hint="latest rises without a write, or is not exact",
    needs=READING,
)
def the_start_of_a_new_query_is_pinned_by_its_first_batch(bench: Bench) -> None:
    """A query from latest, restarted at once, misses no message written meanwhile."""
    for crash in range(8):
        with one_run(bench):
            bench.create(partitions=2, messages=3)
            _read_from_latest(bench, crash_at(crash))


def _read_from_latest(bench: Bench, die: Hook) -> None:
    pinned: dict[int, int] = {}
    writes = iter(range(10))

    def hook(step: str) -> None:
        if query.logs.offsets and not pinned:
            pinned.update({n: len(rows) for n, rows in bench.written.items()})
        if step != "fetch" and next(writes, None) is not None:
            for number in bench.written:
                bench.write(number, 1)
        die(step)

    query = Query(bench, hook, startingOffsets="latest")
    query.run()
    for number, written in bench.written.items():
        got, owed = query.sink.numbers(number), written[pinned[number] :]
        what = f"{owed} came to partition {number} after batch 0 was logged"
        require(len(got) >= len(owed), f"{what}, and {got} came out")
        expect(got, written[len(written) - len(got) :], f"partition {number}")


@case(
    "M3",
    claims=_REPLAYABLE,
    hint="latest goes back, or runs ahead of its messages",
    needs=READING,
)
def available_now_ends_while_the_stream_grows(bench: Bench) -> None:
    """The target is fixed once: everything before it is read, and the query ends."""
    for crashes in ((), (1,), (4,), (9, 11)):
        with one_run(bench):
            bench.create(partitions=2, messages=9)
            _read_available(bench, crash_at(*crashes))


def _read_available(bench: Bench, die: Hook) -> None:
    before = {number: list(rows) for number, rows in bench.written.items()}

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


@case(
    "M4",
    claims=_REPLAYABLE,
    abilities=(Grows,),
    hint="partitions are listed once",
    needs=READING,
)
def partitions_that_appear_between_any_two_calls_are_read_whole(bench: Bench) -> None:
    """New partitions are read from their earliest, whenever they come."""
    bench.create(partitions=1, messages=2)
    quiet = Query(bench)
    quiet.run()
    for step in range(quiet.steps):
        with one_run(bench):
            bench.create(partitions=1, messages=2)
            query = Query(bench, _growth(bench, step))
            query.run(available_now=step % 2 == 0)
            query.run()
            query.check()


def _growth(bench: Bench, at: int) -> Hook:
    steps = iter(range(10_000))

    def hook(step: str) -> None:
        if next(steps) == at:
            bench.note("grow(3)")
            bench.use(Grows).grow(3)
            for number in bench.harness.partitions():
                bench.written.setdefault(number, [])
                bench.write(number, 3)
            if at % 4 < 2:
                raise Crash(step)

    return hook


# --- positions ------------------------------------------------------------------


@case("P1", hint="an incarnation is no text, or changes", needs=READING)
def equal_positions_have_equal_text(bench: Bench) -> None:
    """A position is one line, survives a round trip, and is equal in every process."""
    bench.create(partitions=3, messages=4)
    texts = set()
    # Once: offsets of a live source may count what each opening receives.
    found = list(bench.infos().values())
    for order in (1, -1):
        infos = found[::order]
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


@case(
    "P2",
    claims=_REPLAYABLE,
    hint="an unreadable position is treated as a new start",
    needs=READING,
)
def a_foreign_checkpoint_is_refused(bench: Bench) -> None:
    """A foreign, corrupt or newer offset stops the query with an error, and is kept."""
    bench.create(messages=4)
    quiet = Query(bench)
    quiet.run()
    text = quiet.logs.offsets[max(quiet.logs.offsets)]
    position = BatchOffset.parse(text).at
    assert position is not None
    good, newer = position.to_json(), POSITION_VERSION + 1
    other = Position({Partition("another-stream", 0): 1}).to_json()
    offset = position[bench.partition(bench.first())]
    wrong = {
        "torn": good[: len(good) // 2],
        "empty": "",
        "no position": '"earliest"',
        "newer": good.replace('"version":1', f'"version":{newer}'),
        "of another stream": other,
        "with an offset as text": good.replace(f":{offset}}}", f':"{offset}"}}'),
    }
    for what, bad in wrong.items():
        query = Query(bench)
        query.logs.offsets[0], query.logs.commits = bad, {0}
        try:
            query.run()
        except PositionRefused as error:
            require(str(error), "the error has no message")
        else:
            require(False, f"an offset log that is {what} was accepted: {bad!r}")
        expect(query.logs.offsets, {0: bad}, "the offset log after the refusal")
