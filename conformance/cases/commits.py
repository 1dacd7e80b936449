"""W2, W3: what others see, and do, while an epoch is being committed."""

from __future__ import annotations

import random
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from streamfactory.conformance.case import case, expect, require
from streamfactory.conformance.cases.writing import WRITER, seen, stage
from streamfactory.conformance.moments import Moment, Moments, pick, spread
from streamfactory.spi import (
    EpochInThePast,
    EpochMismatch,
    Summary,
    TransientError,
    WriterFenced,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streamfactory.conformance.bench import Bench
    from streamfactory.spi import CommitMessage
    from streamfactory.wiring.writing.committer import Committer
    from streamfactory.wiring.writing.sink import Sink

_SEEN: Final = ("rows", "visible")
_LOOKS: Final = 8
_BLOCKED: Final = 6
"""So many that had to wait for the commit are enough: it holds a lock."""
_SETTLING: Final = 0.2
"""Seconds within which a server may finish a commit that was decided."""
_SHORTEST: Final = 0.05
_TRIES: Final = 5
_REPEATED: Final = "an_epoch_that_comes_again_has_no_effect"
_LOOKING: Final = "looking_from_outside_fences_nobody"
_VISIBLE: Final = "nothing_is_visible_before_the_decision"
_TASKS: Final = 2
_ROWS: Final = 6
"""Of an epoch: three by each task, to both partitions."""


class _Commits:
    """Commits epochs of one writer, held at chosen moments."""

    def __init__(self, bench: Bench, sink: Sink, writer: str = WRITER) -> None:
        self.bench, self.sink, self.writer = bench, sink, writer
        self.epoch = 0
        self.hold = 0.0
        """Seconds for which a commit is held: others do their work in less."""
        self.committer: Committer = bench.closing(sink.committer(writer_id=writer))

    def numbers(self, epoch: int) -> list[int]:
        """The rows of an epoch."""
        return list(range(_ROWS * epoch, _ROWS * (epoch + 1)))

    def staged(self, numbers: Sequence[int]) -> list[CommitMessage]:
        half = len(numbers) // 2
        parts = [numbers[:half], numbers[half:]]
        return stage(self.bench, self.sink, self.epoch, parts, self.writer)

    def commit(self, messages: Sequence[CommitMessage]) -> str:
        """Commit, again after passing trouble; answers what became of it."""
        for left in reversed(range(_TRIES)):
            try:
                made = self.committer.commit(self.epoch, messages)
            except WriterFenced:
                return "fenced"
            except (EpochInThePast, EpochMismatch) as error:
                return type(error).__name__
            except TransientError:
                if not left:
                    raise
            else:
                return "committed" if made else "was there"
        raise AssertionError

    def moments(self, moments: Moments, count: int) -> Iterator[Moment]:
        """Commit two epochs, then choose moments, each by the last commit."""
        for _ in range(2):
            began = time.monotonic()
            messages = self.staged(self.numbers(self.epoch))
            moments.run(partial(self.commit, messages))
            seen(self.bench)
            self.hold = max(_SHORTEST, 5 * (time.monotonic() - began))
            self.epoch += 1
        chance = random.Random(self.bench.seed)  # noqa: S311 - repeats itself
        for way in spread(count, chance):
            yield pick(way, moments.calls, moments.outside)


def _partly(lanes: Mapping[int, Sequence[int]], epochs: int) -> str | None:
    """What is wrong with a look: an epoch of which some rows are there, or twice."""
    found = sorted(number for lane in lanes.values() for number in lane)
    for epoch in range(epochs):
        mine = [number for number in found if number // _ROWS == epoch]
        whole = list(range(_ROWS * epoch, _ROWS * (epoch + 1)))
        if mine and mine != whole:
            return f"of epoch {epoch} the rows {mine} of {whole}"
    return None


def _look(bench: Bench, moments: Moments, epoch: int, looks: list[str | None]) -> None:
    """Look until an epoch is whole or absent, for a while."""
    until = time.monotonic() + _SETTLING
    while not looks or (looks[-1] is not None and time.monotonic() < until):
        looks.append(_partly(bench.harness.visible(), epoch + 1))
        moments.stay()


@case(
    "W2",
    claims=("epoch_visibility=whole",),
    abilities=_SEEN,
    writing=True,
    hint="commit makes rows readable one after the other, without a transaction",
    needs=(_VISIBLE, _LOOKING),
)
def a_reader_during_a_commit_sees_whole_epochs(bench: Bench) -> None:
    """A reader that looks during a commit sees all rows of the epoch, or none."""
    bench.create(partitions=2)
    with Moments() as moments:
        commits = _Commits(bench, bench.sink())
        blocked = 0
        for at in commits.moments(moments, _LOOKS):
            epoch, numbers = commits.epoch, commits.numbers(commits.epoch)
            messages = commits.staged(numbers)
            looks: list[str | None] = []
            bench.note(f"commit({epoch}), held before {at}: look")
            _, kept = moments.held_at(
                at,
                partial(commits.commit, messages),
                partial(_look, bench, moments, epoch, looks),
                commits.hold,
            )
            require(
                looks[-1] is None or not kept,
                f"a reader during the commit sees {looks[-1]}",
            )
            commits.epoch += 1
            expect(
                [n for n in seen(bench) if n in numbers], numbers, "rows after a commit"
            )
            blocked += not kept
            if blocked == _BLOCKED:
                return


@case(
    "W3",
    claims=("idempotent",),
    abilities=_SEEN,
    writing=True,
    hint="state of all writers is read, changed and written back without a condition",
    needs=(_REPEATED, _LOOKING, "writers_do_not_share_epochs"),
)
def two_writers_that_commit_at_once_lose_nothing(bench: Bench) -> None:
    """An epoch of another writer, committed within a commit, is kept, as is its own."""
    bench.create(partitions=2)
    with Moments() as moments:
        one = _Commits(bench, bench.sink(), "one")
        other = _Commits(bench, bench.sink(), "other")
        other.committer.last()
        wanted, blocked, number = _ROWS * 2, 0, 1000
        for at in one.moments(moments, _LOOKS):
            mine = one.staged(one.numbers(one.epoch))
            numbers = list(range(number, number + _ROWS))
            number += _ROWS
            theirs = other.staged(numbers)
            bench.note(f"one commits, held before {at}: other commits")
            outcomes: list[str] = []

            def overtake(
                theirs: Sequence[CommitMessage] = theirs, outcomes: list[str] = outcomes
            ) -> None:
                outcomes.append(other.commit(theirs))

            made, kept = moments.held_at(
                at, partial(one.commit, mine), overtake, one.hold
            )
            expect((made, outcomes), ("committed", ["committed"]), "one's and other's")
            one.epoch, other.epoch = one.epoch + 1, other.epoch + 1
            wanted += 2 * _ROWS
            found = seen(bench)
            expect(len(found), wanted, "rows visible of two writers")
            expect(len(set(found)), wanted, "different rows visible of two writers")
            for commits in (one, other):
                last = commits.sink.factory.fetch_last_commit(commits.writer)
                held = None if last is None else last.epoch
                what = f"the last epoch remembered of {commits.writer}"
                expect(held, commits.epoch - 1, what)
            blocked += not kept
            if blocked == _BLOCKED:
                return


@case(
    "W3",
    claims=("idempotent", "epoch_visibility=whole"),
    abilities=_SEEN,
    writing=True,
    hint="rows are placed without a condition: the instance is not checked with them",
    needs=(_REPEATED, "a_later_instance_fences_an_earlier_one"),
)
def of_two_instances_that_commit_at_once_one_writes(bench: Bench) -> None:
    """An epoch that a later instance commits within a commit of it is there once."""
    bench.create(partitions=2)
    with Moments() as moments:
        early, blocked, number = _Commits(bench, bench.sink()), 0, 1000
        for at in early.moments(moments, _LOOKS):
            early.committer.last()
            mine = early.numbers(early.epoch)
            theirs = list(range(number, number + _ROWS))
            number += _ROWS
            first = early.staged(mine)
            later = _Commits(bench, bench.sink())
            later.epoch = early.epoch
            outcomes: list[str] = []

            def supersede(
                later: _Commits = later,
                theirs: list[int] = theirs,
                outcomes: list[str] = outcomes,
            ) -> None:
                later.committer.last()
                outcomes.append(later.commit(later.staged(theirs)))

            bench.note(
                f"an instance commits epoch {early.epoch}, held before {at}: "
                "a later one commits it with other rows"
            )
            made, kept = moments.held_at(
                at, partial(early.commit, first), supersede, early.hold
            )
            found = [n for n in seen(bench) if n in mine or n in theirs]
            require(
                found in (mine, theirs),
                f"the first instance {made}, the later one {outcomes[-1]}: visible are "
                f"{found}, wanted {mine} or {theirs}",
            )
            later.hold, later.epoch = early.hold, later.epoch + 1
            early = later
            blocked += not kept
            if blocked == _BLOCKED:
                return


@case(
    "W3",
    claims=("idempotent",),
    abilities=_SEEN,
    writing=True,
    hint="the summary of one task is stored, or sums are not added modulo 2^128",
    needs=("the_last_epoch_and_its_position_are_remembered",),
)
def the_summary_of_an_epoch_is_that_of_all_tasks(bench: Bench) -> None:
    """What is remembered is the sum of the tasks' summaries, rows and content."""
    bench.create(partitions=2)
    for mismatch in ("warn", "fail"):
        sink = bench.sink(epoch__mismatch=mismatch)
        writer = f"{WRITER}-{mismatch}"
        epochs: tuple[list[list[int]], ...] = (
            [[1, 2, 3], [4], [5, 6]],
            [[7], []],
            [[]],
        )
        for epoch, tasks in enumerate(epochs):
            messages = stage(bench, sink, epoch, tasks, writer)
            committer = bench.closing(sink.committer(writer_id=writer))
            committer.commit(epoch, messages)
            wanted = sum((message.summary for message in messages), Summary())
            last = sink.factory.fetch_last_commit(writer)
            require(last is not None, f"nothing is remembered of epoch {epoch}")
            assert last is not None
            what = f"summary of epoch {epoch}, epoch.mismatch={mismatch}"
            found = last.summary
            require(found is not None, f"{what} is None")
            assert found is not None
            expect(
                (found.rows, dict(found.sums)), (wanted.rows, dict(wanted.sums)), what
            )
