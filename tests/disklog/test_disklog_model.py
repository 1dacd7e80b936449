"""The log on disk against the one in memory: the same deeds, the same answers."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from tests.proving.numbers import SCHEMA, HandClock, batch, everything, store_at

from streamfactory.arrowlog import Epoch, MemoryLogStore, Retention
from streamfactory.spi import Partition, Position, StreamError, Summary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamfactory.arrowlog import Log, LogStore, Staged

WRITERS = st.sampled_from(["ann", "bob"])
INSTANCES = st.sampled_from(["old", "new"])
PARTITIONS = st.dictionaries(st.integers(0, 3), st.integers(0, 4), max_size=3)
FILLED = st.dictionaries(st.integers(0, 1), st.integers(1, 4), min_size=1)
TURN = st.integers(0, 1)
"""Which of two processes does it."""


class Logs(RuleBasedStateMachine):
    """Two stores on one folder take turns; a store in memory is the model."""

    staged: Bundle[Any] = Bundle("staged")

    @initialize(partitions=st.integers(1, 2))
    def begin(self, partitions: int) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.clock = HandClock(1_000)
        self.model: LogStore = MemoryLogStore(self.clock)
        self.disks: list[Any] = [
            store_at(self.root, self.clock, merge_files=3),
            store_at(
                self.root, self.clock, merge_files=50, segment_size=48, inline_size=16
            ),
        ]
        self.spent: set[str] = set()
        """Attempts with carried rows that were discarded, perhaps because their epoch
        was repeated, which a log on disk does not remember."""
        self.next = 0
        self.model.create("t", SCHEMA, partitions)
        self.disks[0].create("t", SCHEMA, partitions)

    def teardown(self) -> None:
        if hasattr(self, "root"):
            for disk in self.disks:
                disk.close()
            shutil.rmtree(self.root)

    def same(self, turn: int, deed: Callable[[Log], Any]) -> Any:
        """Do it to both, and compare the answers, or what is raised."""
        answers = []
        for store in (self.model, self.disks[turn]):
            try:
                answers.append(deed(store.open("t")))
            except StreamError as error:
                answers.append((type(error), error.what))
        assert answers[0] == answers[1]
        return answers[0]

    @rule(
        target=staged, turn=TURN, partitions=PARTITIONS, carried=st.sampled_from([0, 1])
    )
    def stage(self, turn: int, partitions: dict[int, int], carried: int) -> Any:
        attempt, first = uuid.uuid4().hex, self.next
        self.next += sum(partitions.values())

        def deed(log: Log) -> Staged:
            stage, at = log.stage(attempt), first
            try:
                for partition, count in partitions.items():
                    stage.append(partition, batch(range(at, at + count)))
                    at += count
                return stage.seal(carried=bool(carried))
            except StreamError:
                stage.discard()
                raise

        try:
            both = [deed(s.open("t")) for s in (self.model, self.disks[turn])]
        except StreamError:
            self.same(turn, lambda log: deed(log).attempt)
            return multiple()
        if not any(partitions.values()):
            return multiple()  # on disk there is nothing to it: it outlives its topic
        return (*both, sum(partitions.values()))

    @rule(
        turn=TURN,
        parts=st.lists(staged, max_size=2),
        writer=st.none() | WRITERS,
        instance=INSTANCES,
        epoch=st.integers(0, 6),
        replace=st.booleans(),
    )
    def commit(
        self,
        turn: int,
        parts: Sequence[Any],
        writer: str | None,
        instance: str,
        epoch: int,
        replace: bool,
    ) -> None:
        if self.spent & {part[0].attempt for part in parts}:
            return
        rows = sum(part[2] for part in parts)
        position = Position({Partition("s", 0): self.next})
        which = iter((0, 1))

        def deed(log: Log) -> Any:
            number = next(which)
            return log.commit(
                Epoch(
                    writer,
                    epoch,
                    [part[number] for part in parts],
                    Summary(rows, {"number": rows}),
                    instance=instance,
                    position=position,
                    replace=replace,
                )
            ).held

        answer = self.same_but_names(turn, deed)
        assert answer is None or answer
        if answer is not None and not isinstance(answer, type):
            self.spend(parts)

    @rule(
        turn=TURN,
        partitions=FILLED,
        carried=st.sampled_from([0, 1]),
        writer=st.none() | WRITERS,
        epoch=st.integers(0, 6),
    )
    def write(
        self,
        turn: int,
        partitions: dict[int, int],
        carried: int,
        writer: str | None,
        epoch: int,
    ) -> None:
        """Stage and commit in one step: by chance they seldom follow each other."""
        part = self.stage(turn, partitions, carried)
        if isinstance(part, tuple):
            self.commit(turn, [part], writer, "new", epoch, replace=False)

    def spend(self, parts: Sequence[Any]) -> None:
        self.spent |= {one.attempt for _, one, _ in parts if one.rows is not None}

    def same_but_names(self, turn: int, deed: Callable[[Log], Any]) -> Any:
        """As `same`; where several attempts are gone, either may be named."""
        answers = []
        for store in (self.model, self.disks[turn]):
            try:
                answers.append(deed(store.open("t")))
            except StreamError as error:
                answers.append(type(error))
        assert answers[0] == answers[1]
        return answers[0]

    @rule(turn=TURN, part=staged)
    def discard(self, turn: int, part: Any) -> None:
        which = iter(part[:2])
        self.same(turn, lambda log: log.discard(next(which)))
        self.spend([part])

    @rule(turn=TURN, writer=WRITERS, instance=INSTANCES)
    def claim(self, turn: int, writer: str, instance: str) -> None:
        self.same(turn, lambda log: log.claim(writer, instance))

    @rule(turn=TURN, partitions=st.integers(1, 4))
    def grow(self, turn: int, partitions: int) -> None:
        self.same(turn, lambda log: log.grow(partitions))

    @rule(turn=TURN, partition=st.integers(0, 1), before=st.integers(0, 30))
    def truncate(self, turn: int, partition: int, before: int) -> None:
        self.same(turn, lambda log: log.truncate({partition: before}))

    @rule(
        turn=TURN,
        rows=st.none() | st.integers(0, 8),
        age=st.none() | st.integers(0, 5),
        size=st.none() | st.integers(0, 200),
        hold=st.dictionaries(st.integers(0, 3), st.integers(0, 9)),
    )
    def retain(
        self,
        turn: int,
        rows: int | None,
        age: int | None,
        size: int | None,
        hold: dict[int, int],
    ) -> None:
        keep = Retention(age=age, rows=rows, size=size)
        self.same(turn, lambda log: log.retain(keep, hold))

    @rule(turn=TURN, idle=st.integers(0, 5), keep=st.none() | WRITERS)
    def forget(self, turn: int, idle: int, keep: str | None) -> None:
        self.same(turn, lambda log: log.forget(idle, keep))

    @rule(turn=TURN)
    def compact(self, turn: int) -> None:
        self.same(turn, lambda log: log.compact())

    @rule(seconds=st.integers(1, 3))
    def pass_time(self, seconds: int) -> None:
        self.clock.ms += 1_000 * seconds

    @rule(turn=TURN, before=st.integers(-1, 8))
    def look_up(self, turn: int, before: int) -> None:
        at = int(self.clock.ms) - 1_000 * before
        self.same(
            turn,
            lambda log: log.offsets_at(
                at, [partition.id for partition in log.bounds()]
            ),
        )

    @rule(turn=TURN, partition=st.integers(0, 4), start=st.integers(0, 12))
    def read_somewhere(self, turn: int, partition: int, start: int) -> None:
        def deed(log: Log) -> Any:
            log.bounds()
            found = log.read(partition, start, max_rows=1, max_bytes=1)
            rows = found.rows
            return (None if rows is None else rows.to_pylist(), found.bounds)

        self.same(turn, deed)

    @rule(turn=TURN)
    def restart(self, turn: int) -> None:
        """One of the processes ends, and another one begins."""
        self.disks[turn].close()
        self.disks[turn] = store_at(self.root, self.clock, merge_files=3)

    @rule(turn=TURN, partitions=st.integers(1, 2))
    def begin_anew(self, turn: int, partitions: int) -> None:
        for store in (self.model, self.disks[turn]):
            store.delete("t")
            store.create("t", SCHEMA, partitions)

    @invariant()
    def all_is_the_same(self) -> None:
        if hasattr(self, "root"):
            for turn in range(2):
                self.same(turn, lambda log: (everything(log), log.bounds()))
                self.same(turn, lambda log: [log.last(w) for w in ("ann", "bob")])
                self.same(turn, lambda log: log.verify())


def test_disk_and_memory_give_the_same_answers() -> None:
    run_state_machine_as_test(
        Logs, settings=settings(max_examples=30, stateful_step_count=25)
    )
