"""Kills ``streamfactory run`` with several sinks, as often as asked.

Each run takes up the pipeline where the one before was killed: between two sinks, or at
any moment; Spark's own record of the last batch is taken away now and then.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from tests.pipelines.driver import POINTS
from tests.proving.drivers import Commits, Driver, batches_committed, forget_commit
from tests.proving.java import missing_java
from tests.proving.sessions import Topic
from tests.proving.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

SINKS: Final = {"all": "words", "even": "even", "odd": "odd"}
"""Topics by the step whose rows they take."""
ROWS: Final = 100
"""Of an epoch."""
BATCH: Final = 150
"""Rows of a batch, at most."""
BACKLOG: Final = 300
"""Rows that a run finds."""
PIPELINE: Final = f"""
checkpoint = "checkpoint"
[source]
stream = "in.json"
startingOffsets = "earliest"
maxOffsetsPerTrigger = {BATCH}
[[steps]]
id = "words"
sql = "select id, hex(id) as word from input"
[[steps]]
id = "even"
sql = "select id from words where id % 2 = 0"
[[steps]]
id = "odd"
sql = "select id, word from words where id % 2 = 1"
"""


class Proof:
    """One pipeline that is killed again and again.

    Args:
        folder: Of the topics and the checkpoint; empty.
        seed: Of all that is left to chance.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._chance = random.Random(seed)
        self._rows = 0
        self._topics = {name: self._topic(name) for name in ("in", *SINKS)}
        sinks = "".join(
            f'[[sinks]]\nstream = "{name}.json"\nfrom = "{rows}"\n'
            for name, rows in SINKS.items()
        )
        (folder / "p.toml").write_text(PIPELINE + sinks)

    def kill(self, where: str | None = None, passes: int | None = None) -> bool:
        """Run, and be killed at a point; at any moment where that is None.

        Answers:
            Whether it was killed: it may come to its end first.
        """
        read = batches_committed(self._folder / "checkpoint" / "1") * BATCH
        while self._rows < read + BACKLOG:
            ids = pa.arange(self._rows, self._rows + ROWS)
            self._topics["in"].put(pa.table({"id": ids}))
            self._rows += ROWS
        if passes is None:
            passes = self._chance.randint(0, 4)
        commits = Commits(self._folder / "checkpoint" / "1")
        run = self._start(where or "never", passes)
        if where is None and run.wait_for(lambda: commits.grown):
            run.kill_after(self._chance.random() * 2)
        killed = run.was_killed()
        if self._chance.random() < 0.3:
            forget_commit(self._folder / "checkpoint" / "1")
        return killed

    def finish(self) -> tuple[int, int]:
        """Run to the end; answers rows lost, and rows that came twice."""
        self._start("never", 0).succeed()
        lost = twice = 0
        for name, ids in (
            ("all", range(self._rows)),
            ("even", range(0, self._rows, 2)),
            ("odd", range(1, self._rows, 2)),
        ):
            wanted = Counter(ids)
            found = Counter(self._topics[name].column("id"))
            lost += (wanted - found).total()
            twice += (found - wanted).total()
        return lost, twice

    def _topic(self, name: str) -> Topic:
        topic = Topic(self._folder, name, **{"stream.file.partitions": "2"})
        body = {"name": name, "properties": topic.options}
        (self._folder / f"{name}.json").write_text(json.dumps(body))
        return topic

    def _start(self, where: str, passes: int) -> Driver:
        line = [where, passes, "p.toml", "--json", "--master", "local[2]"]
        return Driver(self._folder, "tests.pipelines.driver", *line)


def prove(rounds: int, seed: int, place: Path) -> Verdict:
    """Kill so many runs of one pipeline."""
    if missing_java() is not None:
        return Verdict(notes=["pipelines: NOT PROVED, they need Java 17"])
    proof, chance, verdict = Proof(place, seed), random.Random(seed), Verdict()
    while verdict.kills < rounds:
        verdict.kills += proof.kill(chance.choice([*POINTS, None]))
    verdict.lost, verdict.twice = proof.finish()
    return verdict
