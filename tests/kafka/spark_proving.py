"""Spark streams into ``kafka``, and its tasks and drivers are killed as often as asked.

Each driver takes up the query where the one before was killed. Once it has committed an
epoch, attempts of tasks die and are tried again; then the driver dies, with all that it
has started: at a step of its own, or at any moment.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from tests.kafka.broker import Cluster
from tests.kafka.jars import Unavailable
from tests.kafka.proving import read_committed
from tests.kafka.spark_driver import EPOCH, source
from tests.kafka.topics import Topics
from tests.proving.drivers import Commits, Driver, forget_commit
from tests.proving.java import missing_java
from tests.proving.verdict import Verdict
from tests.spark.killing import Faults

from streamfactory.wiring.opening import open_sink

if TYPE_CHECKING:
    from pathlib import Path

LANES: Final = 2
OF_TASKS: Final = ("before-write", "after-stage")
OF_DRIVERS: Final = ("before-commit", "after-commit", None)
"""None is any moment."""


class Proof:
    """One query that is killed again and again.

    Args:
        folder: Of the topic that is read, and of the checkpoint; empty.
        bootstrap: Where the broker is.
        seed: Of all that is left to chance.
    """

    def __init__(self, folder: Path, bootstrap: str, seed: int) -> None:
        self._folder = folder
        self._bootstrap = bootstrap
        self._chance = random.Random(seed)
        self._topic = Topics(bootstrap).create(partitions=LANES)
        self._epochs = 0
        (folder / "faults").mkdir()
        self._faults = Faults(folder / "faults")

    def kill(self) -> int:
        """Run a driver to its death; how many processes were killed.

        It may come to its end first, and then counts for nothing itself.
        """
        for _ in range(4):
            self._write()
        tasks = self._chance.sample(OF_TASKS, self._chance.randint(1, len(OF_TASKS)))
        commits = Commits(self._folder / "checkpoint")
        driver = self._start()
        if driver.wait_for(lambda: commits.grown):
            for step in tasks:
                self._faults.order(step)
            moment = self._chance.choice(OF_DRIVERS)
            if moment is None:
                driver.kill_after(self._chance.random())
            else:
                passes = self._chance.randint(0, 1)
                self._faults.order(moment, passes, group=driver.group)
        else:
            tasks = []
        killed = driver.was_killed()
        died = set(tasks).difference(self._faults.left)
        self._faults.cancel()
        if self._chance.random() < 0.3:
            forget_commit(self._folder / "checkpoint")
        return len(died) + killed

    def finish(self) -> Verdict:
        """Run a driver to its end; compare what was written with what is there."""
        self._start().succeed()
        wanted = Counter(range(self._epochs * EPOCH))
        found = Counter(self._found())
        left = [*(self._folder / "staging").glob("*/*")]
        notes = [f"kafka from Spark: {wanted.total()} rows, {len(left)} files left"]
        lost, twice = (wanted - found).total(), (found - wanted).total()
        return Verdict(lost, twice, notes=notes)

    def _write(self) -> None:
        start = self._epochs * EPOCH
        rows = pa.table({"id": pa.arange(start, start + EPOCH)})
        with open_sink(source(self._folder)) as sink:
            sink.put(rows, writer_id="prover", epoch=self._epochs)
        self._epochs += 1

    def _start(self) -> Driver:
        line = (self._folder, self._bootstrap, self._topic)
        return Driver(self._folder, "tests.kafka.spark_driver", *line)

    def _found(self) -> list[int]:
        lanes = read_committed(self._bootstrap, self._topic, LANES).values()
        return [number for numbers in lanes for number in numbers]


def prove(rounds: int, seed: int, place: Path) -> Verdict:
    """Kill so many tasks and drivers of one query."""
    if missing_java() is not None:
        return Verdict(notes=["Spark into kafka: NOT PROVED, it needs Java 17"])
    try:
        with Cluster(place / "broker") as cluster:
            return hunt(rounds, seed, place, cluster.bootstrap)
    except Unavailable as reason:
        return Verdict(notes=[f"Spark into kafka: NOT PROVED, {reason}"])


def hunt(rounds: int, seed: int, place: Path, bootstrap: str) -> Verdict:
    """As `prove`, on a broker that is there."""
    proof, kills = Proof(place, bootstrap, seed), 0
    while kills < rounds:
        kills += proof.kill()
    verdict = proof.finish()
    verdict.kills = kills
    return verdict
