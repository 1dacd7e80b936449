"""Spark streams out of ``kafka`` while its drivers are killed and its topic changes.

Drivers follow the topic, or read what is there (``availableNow``), and are killed after
they have committed a batch. Meanwhile rows and partitions are added, and the broker
drops rows that were read. Then the query has to refuse what it cannot read exactly:
rows that retention dropped while it was stopped, and a topic that was recreated.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from tests.kafka.broker import on_a_broker
from tests.kafka.spark_source_driver import EPOCH, target
from tests.kafka.topics import Topics
from tests.proving.drivers import Commits, Driver, forget_commit
from tests.proving.verdict import Verdict

import streamfactory

if TYPE_CHECKING:
    from pathlib import Path

MOST_PARTITIONS: Final = 6


class Proof:
    """One query that is killed again and again.

    Args:
        folder: Of the topic that is written, and of the checkpoint; empty.
        bootstrap: Where the broker is.
        seed: Of all that is left to chance.
    """

    def __init__(self, folder: Path, bootstrap: str, seed: int) -> None:
        self._folder = folder
        self._bootstrap = bootstrap
        self._chance = random.Random(seed)
        self._topics = Topics(bootstrap)
        self.partitions = 2
        self._topic = self._topics.create(partitions=self.partitions)
        self._next = 0
        self._sent: list[int] = []
        """Rows in each partition."""
        self.dropped: Counter[int] = Counter()
        """Numbers that retention dropped before they were read."""

    def kill(self) -> bool:
        """Run a driver, change the topic under it, and kill it after its first commit.

        Answers:
            Whether it was killed: one that reads what is there may end first.
        """
        for partition in range(self.partitions):
            self.send(partition, 2 * EPOCH)
        commits = Commits(self._folder / "checkpoint")
        mode = self._chance.choice(("available", "available", "follow"))
        driver = self.start(mode)
        if driver.wait_for(lambda: commits.grown):
            if self.partitions < MOST_PARTITIONS and self._chance.random() < 0.4:
                self.grow()
            driver.kill_after(self._chance.random())
        killed = driver.was_killed()
        if self._chance.random() < 0.3:
            forget_commit(self._folder / "checkpoint")
        elif self._chance.random() < 0.3:
            self._drop_what_was_read()
        return killed

    def grow(self) -> None:
        """Add a partition, with rows."""
        self.partitions += 1
        self._topics.grow(self._topic, self.partitions)
        self.send(self.partitions - 1, EPOCH)

    def follow_growth(self) -> None:
        """A partition that is added under a running query is read from its start."""
        driver = self.start("follow")
        try:
            self._await_rows(driver)
            self.grow()
            self._await_rows(driver)
        finally:
            driver.kill()

    def pass_retention(self) -> None:
        """Drop rows that a stopped query has not read: it fails until then."""
        self.drain()
        first, read = self._next, self._sent[0]
        self.send(0, 20)
        self._topics.truncate(self._topic, 0, read + 10)
        said = self.start("available").failure()
        assert "[offset_out_of_range]" in said, said
        self.dropped.update(range(first, first + 10))
        self.start("available", "out.of.range=earliest").succeed()

    def recreate(self) -> None:
        """Recreate the topic under a running query: it fails, and reads nothing new."""
        self.drain()
        driver = self.start("follow")
        try:
            self.send(0, 5)
            self._await_rows(driver)
            self._topics.recreate(self._topic, self.partitions)
            for partition in range(self.partitions):
                # As many rows as before, so that no offset is out of range.
                numbers = range(-1, -1 - self._sent[partition], -1)
                self._topics.send(
                    self._topic, [b"%d" % n for n in numbers], partition=partition
                )
            said = driver.failure()
        finally:
            driver.kill()
        changed = ("[incarnation_changed]", "[offset_out_of_range]")
        assert any(code in said for code in (*changed, "[topic_not_found]")), said
        # A new driver meets the new topic only.
        said = self.start("available").failure()
        assert any(code in said for code in changed), said

    def drain(self) -> None:
        """Run a driver until all is read."""
        self.start("available").succeed()

    def send(self, partition: int, count: int) -> None:
        """Append the next numbers to a partition."""
        numbers = range(self._next, self._next + count)
        self._topics.send(
            self._topic, [b"%d" % number for number in numbers], partition=partition
        )
        self._next += count
        self._sent += [0] * (partition + 1 - len(self._sent))
        self._sent[partition] += count

    def start(self, mode: str, *more: str) -> Driver:
        """A driver of the query."""
        line = (self._folder, self._bootstrap, self._topic, mode, *more)
        return Driver(self._folder, "tests.kafka.spark_source_driver", *line)

    def verdict(self) -> Verdict:
        """Compare what was sent with what was written."""
        wanted = Counter(range(self._next)) - self.dropped
        found = self._found()
        lost, twice = (wanted - found).total(), (found - wanted).total()
        notes = [
            f"Spark from kafka: {wanted.total()} rows, {self.partitions} partitions"
        ]
        return Verdict(lost, twice, notes=notes)

    def _found(self) -> Counter[int]:
        with streamfactory.open(target(self._folder)) as stream:
            return Counter(
                n for batch in stream for n in batch.rows.column("id").to_pylist()
            )

    def _await_rows(self, driver: Driver) -> None:
        wanted = self._next - self.dropped.total()
        if not driver.wait_for(lambda: self._written() >= wanted):
            raise RuntimeError(driver.failure())

    def _written(self) -> int:
        return self._found().total() if (self._folder / "topics").exists() else 0

    def _drop_what_was_read(self) -> None:
        """Let the broker drop what every restart is beyond."""
        self.drain()
        for partition in range(self.partitions):
            self._topics.truncate(self._topic, partition, self._sent[partition])


def prove(rounds: int, seed: int, place: Path) -> Verdict:
    """Kill so many drivers of one query, then take away what it reads."""
    return on_a_broker("Spark from kafka", place, partial(hunt, rounds, seed, place))


def hunt(rounds: int, seed: int, place: Path, bootstrap: str) -> Verdict:
    """As `prove`, on a broker that is there."""
    proof, kills = Proof(place, bootstrap, seed), 0
    while kills < rounds:
        kills += proof.kill()
    proof.drain()
    proof.follow_growth()
    proof.pass_retention()
    proof.recreate()
    verdict = proof.verdict()
    verdict.kills = kills
    return verdict
