"""One streaming query whose tasks and drivers are killed, whatever it writes into.

Each driver takes up the query where the one before was killed. Once it has committed an
epoch, attempts of tasks die and are tried again; then the driver dies, with all that it
has started: at a step of its own, or at any moment.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from tests.proving.drivers import Commits, Driver, batches_committed, forget_commit
from tests.proving.java import missing_java
from tests.proving.verdict import Verdict
from tests.spark.killing import Faults

from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from streamfactory.arrowlog import Log

EPOCH: Final = 100
"""Rows of an epoch that is written, and of one that the query reads."""
BACKLOG: Final = 4
"""Epochs that a driver finds."""
OF_TASKS: Final = ("before-write", "after-stage")
OF_DRIVERS: Final = ("before-commit", "after-commit", None)
"""None is any moment."""


class QueryProof(ABC):
    """One query that is killed again and again.

    Args:
        folder: Of the checkpoint and the faults; empty.
        seed: Of all that is left to chance.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.chance = random.Random(seed)
        self._epochs = 0
        (folder / "faults").mkdir()
        self._faults = Faults(folder / "faults")

    @abstractmethod
    def source(self) -> Mapping[str, str]:
        """The stream that the query reads."""

    @abstractmethod
    def start(self) -> Driver:
        """Start a driver."""

    @abstractmethod
    def found(self) -> Iterable[int]:
        """The numbers that the query wrote."""

    def disturb(self) -> int:
        """Kill something else while a driver runs; how many were killed."""
        return 0

    def kill(self) -> int:
        """Run a driver to its death; how many processes were killed.

        It may come to its end first, and then counts for nothing itself.
        """
        while self._epochs < batches_committed(self.folder / "checkpoint") + BACKLOG:
            self._write()
        tasks = self.chance.sample(OF_TASKS, self.chance.randint(1, len(OF_TASKS)))
        commits = Commits(self.folder / "checkpoint")
        driver, others = self.start(), 0
        if driver.wait_for(lambda: commits.grown):
            for step in tasks:
                self._faults.order(step)
            others = self.disturb()
            moment = self.chance.choice(OF_DRIVERS)
            if moment is None:
                driver.kill_after(self.chance.random())
            else:
                passes = self.chance.randint(0, 1)
                self._faults.order(moment, passes, group=driver.group)
        else:
            tasks = []
        killed = driver.was_killed()
        died = set(tasks).difference(self._faults.left)
        self._faults.cancel()
        if self.chance.random() < 0.3:
            forget_commit(self.folder / "checkpoint")
        return len(died) + killed + others

    def finish(self, name: str) -> Verdict:
        """Run a driver to its end; compare what was written with what is there."""
        self.start().succeed()
        wanted = Counter(range(self._epochs * EPOCH))
        found = Counter(self.found())
        lost, twice = (wanted - found).total(), (found - wanted).total()
        return Verdict(lost, twice, notes=[f"{name}: {wanted.total()} rows"])

    def hunt(self, rounds: int, name: str) -> Verdict:
        """Kill so many, then finish."""
        kills = 0
        while kills < rounds:
            kills += self.kill()
        verdict = self.finish(name)
        verdict.kills = kills
        return verdict

    def close(self) -> None:  # noqa: B027 - most queries need nothing else
        """End what else was started."""

    def _write(self) -> None:
        start = self._epochs * EPOCH
        rows = pa.table({"id": pa.arange(start, start + EPOCH)})
        with open_sink(self.source()) as sink:
            sink.put(rows, writer_id="prover", epoch=self._epochs)
        self._epochs += 1


def prove_query(
    name: str,
    proof: Callable[[Path, int], QueryProof],
    rounds: int,
    seed: int,
    place: Path,
) -> Verdict:
    """Kill so many processes of one query.

    Args:
        name: Of the proof.
        proof: Starts what the query needs.
        rounds: How many processes are killed.
        seed: Of all that is left to chance.
        place: A folder; empty.
    """
    if missing_java() is not None:
        return Verdict(notes=[f"{name}: NOT PROVED, it needs Java 17"])
    made = proof(place, seed)
    try:
        return made.hunt(rounds, name)
    finally:
        made.close()


def ids_of(log: Log) -> Iterator[int]:
    """The column ``id`` of all rows of a log."""
    for partition in log.bounds():
        at = partition.earliest
        while at < partition.latest:
            rows = log.read(partition.id, at, max_rows=10_000, max_bytes=1 << 24).rows
            assert rows is not None
            yield from rows.column("id").to_pylist()
            at += rows.num_rows
