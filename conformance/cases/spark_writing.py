"""W: whatever Spark's driver does while it writes, one try of each epoch is seen."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from streamfactory.conformance.case import case
from streamfactory.conformance.cases.grounds import WRITING
from streamfactory.conformance.expectations import expect, require
from streamfactory.conformance.harness import WritesRows
from streamfactory.conformance.spark import Hook, crash_at, one_run
from streamfactory.conformance.spark.writing import WRITER, TaskFailed, WriteQuery
from streamfactory.spi import EpochInThePast, StreamTimeout, WriterFenced
from streamfactory.wiring.testing.faults import Faults

if TYPE_CHECKING:
    from streamfactory.conformance.bench import Bench

_NEEDS = (WritesRows,)
_WHOLE = ("epoch_visibility=whole",)
_EXACT = ("idempotent", "epoch_visibility=whole")


# --- tasks ----------------------------------------------------------------------

_REPLACED = "a_driver_that_was_replaced_changes_nothing"


def _fail_everywhere(bench: Bench, *steps: str) -> None:
    """Let the attempt that has come to a step fail, step after step."""
    bench.create(partitions=2)
    quiet = WriteQuery(bench)
    quiet.run(epochs=1)
    quiet.check()
    for number in range(quiet.steps):
        with one_run(bench):
            bench.create(partitions=2)
            query = WriteQuery(bench, _fail_at(number, steps))
            query.run(epochs=2)
            query.check()


def _fail_at(number: int, words: tuple[str, ...]) -> Hook:
    steps = iter(range(10_000))

    def hook(step: str) -> None:
        if next(steps) == number and step.startswith(words):
            raise TaskFailed(step)

    return hook


@case(
    "W1",
    claims=_WHOLE,
    abilities=_NEEDS,
    writing=True,
    hint="rows are kept by task, or by epoch, not by attempt",
    needs=WRITING,
)
def an_attempt_that_failed_anywhere_leaves_no_row(bench: Bench) -> None:
    """A task that fails after some rows, or after its commit, counts once."""
    _fail_everywhere(bench, "write", "task commit")


@case(
    "W1",
    claims=("epoch_visibility=task",),
    abilities=_NEEDS,
    writing=True,
    hint="rows are visible as they are written",
    needs=WRITING,
)
def an_attempt_that_failed_before_its_commit_leaves_no_row(bench: Bench) -> None:
    """Where a task's commit shows its rows, one that fails before shows none."""
    _fail_everywhere(bench, "write")


@case(
    "W1",
    claims=_WHOLE,
    abilities=_NEEDS,
    writing=True,
    hint="the epoch is committed by what is staged, not by its messages",
    needs=WRITING,
)
def of_two_committed_attempts_one_is_visible(bench: Bench) -> None:
    """Speculation: both attempts of a task commit, the message of one is taken."""
    bench.create(partitions=2)
    query = WriteQuery(bench)
    with closing(query.sink()) as sink:
        committer = bench.closing(sink.committer(writer_id=WRITER))
        tasks = query.content(0)
        for task, rows in enumerate(tasks):
            query.finish(query.attempt(0, task, [number + 1000 for number in rows]))
        messages = [query.task(0, task, rows) for task, rows in enumerate(tasks)]
        query.commit(0, committer, messages)
    query.check()


@case(
    "W1",
    claims=_EXACT,
    abilities=_NEEDS,
    writing=True,
    hint="a commit of a task makes rows visible, or joins a later epoch",
    needs=WRITING,
)
def a_zombie_that_commits_after_the_decision_is_not_seen(bench: Bench) -> None:
    """Nothing is seen of an attempt that writes and commits behind its epoch."""
    bench.create(partitions=2)
    query = WriteQuery(bench)
    zombie = query.attempt(0, 0, [1001, 1002, 1003])
    query.run(epochs=1)
    bench.note("the old driver continues")
    zombie.write(bench.use(WritesRows).rows([1004]))
    query.finish(zombie)
    query.check()
    query.run(epochs=2)
    query.check()


@case(
    "W3",
    claims=_EXACT,
    abilities=_NEEDS,
    writing=True,
    hint="an old committer overwrites what a newer one decided",
    needs=WRITING,
)
def a_driver_that_was_replaced_changes_nothing(bench: Bench) -> None:
    """A driver that comes back with an epoch that another has decided has no effect."""
    bench.create(partitions=2)
    query = WriteQuery(bench)
    with closing(query.sink()) as sink:
        old = bench.closing(sink.committer(writer_id=WRITER))
        stale = [query.task(0, 0, [1001, 1002, 1003])]
        query.run(epochs=2)
        bench.note("the old driver commits epoch 0")
        try:
            made = old.commit(0, stale)
        except (EpochInThePast, WriterFenced):
            made = False
        require(not made, "the old driver's commit says that it was made")
    query.check()


# --- drivers --------------------------------------------------------------------


@case(
    "W5",
    claims=_EXACT,
    abilities=_NEEDS,
    writing=True,
    slow=True,
    hint="an epoch is remembered apart from its rows, or by one process",
    needs=WRITING,
)
def a_driver_that_dies_between_any_two_steps_writes_each_epoch_once(
    bench: Bench,
) -> None:
    """Killed at any step, and again, the query leaves one whole try of each epoch."""
    bench.create(partitions=2)
    quiet = WriteQuery(bench)
    quiet.run()
    quiet.check()
    for step in range(quiet.steps):
        with one_run(bench):
            bench.create(partitions=2)
            query = WriteQuery(bench, crash_at(step, step + 3))
            query.run()
            query.check()


@case(
    "W5",
    abilities=_NEEDS,
    writing=True,
    hint="a commit says that it was made before it is",
    needs=(*WRITING, _REPLACED),
)
def no_restart_loses_an_epoch(bench: Bench) -> None:
    """With any claims, after any kill, every epoch is written at least once."""
    bench.create(partitions=2)
    quiet = WriteQuery(bench)
    quiet.run(epochs=2)
    quiet.check(at_least=True)
    for step in range(0, quiet.steps, 3):
        with one_run(bench):
            bench.create(partitions=2)
            query = WriteQuery(bench, crash_at(step))
            query.run(epochs=2)
            query.check(at_least=True)


@case(
    "W3",
    claims=("idempotent",),
    abilities=_NEEDS,
    writing=True,
    hint="epochs are identified by content, or remembered by the process",
    needs=WRITING,
)
def a_replay_with_other_rows_and_tasks_is_drained(bench: Bench) -> None:
    """Input of a committed epoch is drained and discarded; the repeat is reported."""
    bench.create(partitions=2)
    query = WriteQuery(bench)
    query.run(epochs=2)
    for _ in range(2):
        with closing(query.sink()) as sink:
            committer = bench.closing(sink.committer(writer_id=WRITER))
            tasks, messages = query.content(1), []
            for task, rows in enumerate(tasks):
                writer = query.attempt(1, task, rows)
                expect(writer.counters.drained, len(rows), "rows that were drained")
                messages.append(query.finish(writer))
            made = query.commit(1, committer, messages)
            require(not made, "the replay says that it made the commit")
            differs = len(query.tries[1][0]) != len(query.tries[1][-1])
            expect(
                committer.counters.mismatches,
                int(differs),
                "replays reported as different",
            )
    query.check()


@case(
    "W6",
    claims=("idempotent",),
    abilities=_NEEDS,
    writing=True,
    hint="after a lost reply the epoch is written again",
    needs=(*WRITING, _REPLACED),
)
def a_commit_whose_verdict_was_lost_counts_once(bench: Bench) -> None:
    """A commit that was made and not heard of is found by the next try."""
    for again in (False, True):
        bench.create(partitions=2)
        query = WriteQuery(bench)
        query.run(epochs=1)
        faults = Faults(drop=1.0)
        deaf = WriteQuery(bench, faults=faults)
        deaf.tries, deaf.commits = query.tries, query.commits
        with closing(deaf.sink()) as sink:
            committer = bench.closing(sink.committer(writer_id=WRITER))
            messages = [deaf.task(1, t, r) for t, r in enumerate(query.content(1))]
            try:
                deaf.commit(1, committer, messages)
            except StreamTimeout as error:
                bench.note(f"epoch commit(1): {error.what}")
            faults.drop = 0.0
            if again:
                made = deaf.commit(1, committer, messages)
                require(not made, "the second try says that it made the commit")
        query.won[1] = 0
        query.run(epochs=3)
        query.check()


@case(
    "W4",
    claims=_WHOLE,
    abilities=_NEEDS,
    writing=True,
    hint="abort closes the epoch, or takes what a later try staged",
    needs=WRITING,
)
def an_aborted_epoch_is_written_again(bench: Bench) -> None:
    """Aborted with missing messages, late and twice, an epoch is tried again, whole."""
    bench.create(partitions=2)
    query = WriteQuery(bench)
    with closing(query.sink()) as sink:
        committer = bench.closing(sink.committer(writer_id=WRITER))
        tasks = query.content(0)
        first = query.task(0, 0, tasks[0])
        running = query.attempt(0, 1, tasks[1])
        bench.note("abort(epoch=0), while task 1 runs and task 2 has failed")
        committer.abort(0, [first, None, None])
        late = query.finish(running)
    with closing(query.sink()) as sink:
        committer = bench.closing(sink.committer(writer_id=WRITER))
        messages = [query.task(0, t, r) for t, r in enumerate(query.content(0))]
        bench.note("abort(epoch=0) of the first try, once more")
        committer.abort(0, [first, late, None])
        query.commit(0, committer, messages)
        query.commits.add(0)
    query.run(epochs=2)
    query.check()


@case(
    "W5",
    claims=_EXACT,
    abilities=_NEEDS,
    writing=True,
    slow=True,
    hint="see which fault the script shows last",
    needs=WRITING,
)
def any_schedule_of_faults_writes_each_epoch_once(bench: Bench) -> None:
    """Calls that fail and verdicts that are lost, by chance, on every path."""
    for seed in range(bench.seed, bench.seed + 8):
        with one_run(bench):
            bench.note(f"Faults(seed={seed}, fail=0.05, drop=0.3)")
            bench.create(partitions=2)
            faults = Faults(seed=seed, fail=0.05, drop=0.3)
            query = WriteQuery(bench, faults=faults)
            query.run(epochs=4)
            query.check()
