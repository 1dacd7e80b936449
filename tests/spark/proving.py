"""Kills a Spark driver, with all that it has started, as often as asked.

Each run of the driver takes up the query where the one before was killed: at a step, or
at any moment; Spark's own record of the last epoch is taken away now and then.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from tests.proving.drivers import Commits, Driver, batches_committed, forget_commit
from tests.proving.java import missing_java
from tests.proving.verdict import Verdict
from tests.spark.killing import STEPS, Faults
from tests.spark.scenario import options

import streamfactory
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from pathlib import Path

ROWS: Final = 100
"""Of an epoch."""
BACKLOG: Final = 4
"""Epochs that a driver finds."""


class Proof:
    """One query that is killed again and again.

    Args:
        folder: Of the topics and the checkpoint; empty.
        seed: Of all that is left to chance.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._chance = random.Random(seed)
        self._epoch = 0
        self._faults = Faults(folder / "faults")
        (folder / "faults").mkdir()

    def kill(self, step: str | None = None) -> bool:
        """Run the driver; kill it at a step, or at any moment where that is None.

        Not before this run of it has committed a batch.

        Answers:
            Whether it was killed: it may come to its end first.
        """
        while self._epoch < batches_committed(self._folder / "checkpoint") + BACKLOG:
            self._write()
        commits = Commits(self._folder / "checkpoint")
        driver = self._start()
        if driver.wait_for(lambda: commits.grown):
            if step is not None:
                passes = self._chance.randint(0, 1)
                self._faults.order(step, passes, group=driver.group)
            else:
                driver.kill_after(self._chance.random() * 2)
        killed = driver.was_killed()
        self._faults.cancel()
        if self._chance.random() < 0.3:
            forget_commit(self._folder / "checkpoint")
        return killed

    def finish(self) -> tuple[int, int]:
        """Run the driver to its end; answers rows lost, and rows that came twice."""
        self._start().succeed()
        wanted = Counter(range(self._epoch * ROWS))
        with streamfactory.open(options(self._folder, "out")) as stream:
            found = Counter(
                n for batch in stream for n in batch.rows.column("id").to_pylist()
            )
        return (wanted - found).total(), (found - wanted).total()

    def _write(self) -> None:
        start = self._epoch * ROWS
        rows = pa.table({"id": pa.arange(start, start + ROWS)})
        with open_sink(options(self._folder, "in")) as sink:
            sink.put(rows, writer_id="prover", epoch=self._epoch)
        self._epoch += 1

    def _start(self) -> Driver:
        return Driver(
            self._folder, "tests.spark.scenario", "local[2]", self._folder, "dying_copy"
        )


def prove(rounds: int, seed: int, place: Path) -> Verdict:
    """Kill so many drivers of one query."""
    if missing_java() is not None:
        return Verdict(notes=["Spark: NOT PROVED, it needs Java 17"])
    proof, chance, verdict = Proof(place, seed), random.Random(seed), Verdict()
    while verdict.kills < rounds:
        verdict.kills += proof.kill(chance.choice([*STEPS, None]))
    verdict.lost, verdict.twice = proof.finish()
    return verdict
