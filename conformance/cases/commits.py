"""W2, W3: reading and committing while an epoch is being committed."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final, final

from streamfactory.conformance.case import case
from streamfactory.conformance.cases.reading import STARTS
from streamfactory.conformance.cases.writing import WRITER, seen, stage
from streamfactory.conformance.expectations import expect, require
from streamfactory.conformance.harness import WritesRows
from streamfactory.conformance.moments import Moment, Moments, pick, spread
from streamfactory.spi import (
    EpochInThePast,
    EpochMismatch,
    Summary,
    TransientError,
    WriterFenced,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streamfactory.conformance.bench import Bench
    from streamfactory.spi import CommitMessage
    from streamfactory.wiring.writing.committer import Committer
    from streamfactory.wiring.writing.sink import Sink

_SEEN: Final = (WritesRows,)
_LOOKS: Final = 8
_FETCHES: Final = 16
_HOLD: Final = 0.5
"""Seconds for which a commit is held while its topic is read, at least."""
_BLOCKED: Final = 6
"""So many that had to wait for the commit are enough: it holds a lock."""
_SETTLING: Final = 0.2
"""Seconds within which a server may finish a commit that was decided."""
_SHORTEST: Final = 0.05
_TRIES: Final = 5
_REPEATED: Final = "a_repeated_epoch_has_no_effect"
_LOOKING: Final = "fetching_the_last_commit_fences_no_instance"
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
        """Seconds for which a commit is held; concurrent calls take less."""
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
        for way in spread(count, self.bench.chance()):
            yield pick(way, moments.calls, moments.places)


def _partly(partitions: Mapping[int, Sequence[int]], epochs: int) -> str | None:
    """What is wrong with a look: an epoch of which some rows are there, or twice."""
    found = sorted(number for partition in partitions.values() for number in partition)
    for epoch in range(epochs):
        mine = [number for number in found if number // _ROWS == epoch]
        whole = list(range(_ROWS * epoch, _ROWS * (epoch + 1)))
        if mine and mine != whole:
            return f"of epoch {epoch} the rows {mine} of {whole}"
    return None


def _watch(
    commits: _Commits,
    moments: Moments,
    at: Moment,
    look: Callable[[], str | None],
    hold: float,
) -> bool:
    """Commit an epoch, held at a moment, and look until it is whole or absent.

    ``look`` returns what is wrong with what a reader sees, else None. Returns whether
    the commit was held all the time, which is for ``hold`` seconds at most.
    """
    looks: list[str | None] = []

    def look_on() -> None:
        until = time.monotonic() + _SETTLING
        while not looks or (looks[-1] is not None and time.monotonic() < until):
            looks.append(look())
            moments.stay()

    messages = commits.staged(commits.numbers(commits.epoch))
    commits.bench.note(f"commit({commits.epoch}), held before {at}: look")
    commit = partial(commits.commit, messages)
    _, kept = moments.held_at(at, commit, look_on, hold)
    good = looks[-1] is None or not kept
    require(good, f"a reader during the commit sees {looks[-1]}")
    commits.epoch += 1
    return kept


@case(
    "W2",
    claims=("epoch_visibility=whole",),
    abilities=_SEEN,
    writing=True,
    hint="commit makes rows readable one after the other, without a transaction",
    needs=(_VISIBLE, _LOOKING),
)
def a_reader_during_a_commit_sees_whole_epochs(bench: Bench) -> None:
    """A reader sees during a commit all rows of the epoch, or none."""
    bench.create(partitions=2)
    with Moments() as moments:
        commits = _Commits(bench, bench.sink())
        blocked = 0

        def look() -> str | None:
            return _partly(bench.use(WritesRows).visible(), commits.epoch + 1)

        for at in commits.moments(moments, _LOOKS):
            numbers = commits.numbers(commits.epoch)
            blocked += not _watch(commits, moments, at, look, commits.hold)
            found = [n for n in seen(bench) if n in numbers]
            expect(found, numbers, "rows after a commit")
            if blocked == _BLOCKED:
                return


@final
class _Fetching:
    """The backend's own consumers, which read a topic again and again."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        factory = bench.factory()
        self._provider = bench.provider(factory)
        self._consumers = {n: bench.consumer(n, factory) for n in bench.written}

    def fetch(self) -> dict[int, list[int]]:
        """The numbers that they return, by partition."""
        found: dict[int, list[int]] = {}
        for number, info in self._bench.infos(self._provider).items():
            rows = self._bench.fetch_all(
                number, info.earliest, info.latest, consumer=self._consumers[number]
            )
            found[number] = [message for _, message in rows]
        return found


def _early(bench: Bench, found: Mapping[int, Sequence[int]]) -> str | None:
    """The problem of rows that were fetched and are not visible, if there is one."""
    visible = {*seen(bench)}
    early = [n for partition in found.values() for n in partition if n not in visible]
    return f"the rows {early}, which are not visible" if early else None


@case(
    "W2",
    claims=("epoch_visibility=whole", "replayable"),
    abilities=_SEEN,
    writing=True,
    slow=True,
    hint="consumers or bounds do not end before the rows of an undecided epoch",
    needs=(*STARTS, "a_reader_during_a_commit_sees_whole_epochs"),
)
def consumers_during_a_commit_return_whole_epochs(bench: Bench) -> None:
    """During a commit the backend's consumers return all rows of the epoch, or none."""
    bench.create(partitions=2)
    fetching = _Fetching(bench)
    with Moments() as moments:
        commits = _Commits(bench, bench.sink())
        first = next(commits.moments(moments, 1))
        began = time.monotonic()
        fetching.fetch()
        hold = max(_HOLD, 5 * (time.monotonic() - began))
        calls, places = moments.calls, moments.places
        ways = spread(_FETCHES, bench.chance())
        blocked = 0

        def look() -> str | None:
            found = fetching.fetch()
            return _partly(found, commits.epoch + 1) or _early(bench, found)

        for at in (first, *(pick(way, calls, places) for way in ways)):
            numbers = commits.numbers(commits.epoch)
            blocked += not _watch(commits, moments, at, look, hold)
            found = sorted(
                n for partition in fetching.fetch().values() for n in partition
            )
            what = "rows fetched after a commit"
            expect([n for n in found if n in numbers], numbers, what)
        if blocked > _FETCHES:
            bench.narrow("each fetch had to wait for the end of the commit")


@case(
    "W3",
    claims=("idempotent",),
    abilities=_SEEN,
    writing=True,
    hint="state of all writers is read, changed and written back without a condition",
    needs=(_REPEATED, _LOOKING, "writers_do_not_share_epochs"),
)
def two_writers_that_commit_at_once_lose_nothing(bench: Bench) -> None:
    """Two writers that commit at the same time both keep their epochs."""
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
            made, kept = moments.held_at(
                at,
                partial(one.commit, mine),
                lambda theirs=theirs, outcomes=outcomes: outcomes.append(  # type: ignore[misc]
                    other.commit(theirs)
                ),
                one.hold,
            )
            expect(
                (made, outcomes),
                ("committed", ["committed"]),
                "results of both commits",
            )
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
    """An epoch that two instances commit at the same time is written once."""
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
    """The stored summary is the sum of the tasks' summaries, of rows and content."""
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
            require(last is not None, f"nothing is stored of epoch {epoch}")
            assert last is not None
            what = f"summary of epoch {epoch}, epoch.mismatch={mismatch}"
            found = last.summary
            require(found is not None, f"{what} is None")
            assert found is not None
            expect(
                (found.rows, dict(found.sums)), (wanted.rows, dict(wanted.sums)), what
            )
