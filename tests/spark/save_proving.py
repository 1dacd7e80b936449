"""Kills ``streamfactory run`` as Spark's Parquet writer writes its batches.

Each run takes up two pipelines where the one before was killed: at a step of a save, or
at any moment; Spark's own record of the last batch is taken away now and then. One
pipeline has a single sink, whose rows go by their task. The other has two: one routes
by key, and the other one is not saved, for its segments are of Arrow.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from tests.proving.drivers import (
    Commits,
    Driver,
    MachineBusy,
    batches_committed,
    forget_commit,
)
from tests.proving.java import missing_java
from tests.proving.sessions import Topic
from tests.proving.verdict import Verdict
from tests.spark.killing import Faults
from tests.spark.saving_driver import STEPS

from streamfactory.wiring.writing.murmur import partition_of

if TYPE_CHECKING:
    from pathlib import Path

ROWS: Final = 100
"""Of an epoch."""
BATCH: Final = 150
"""Rows of a batch, at most."""
BACKLOG: Final = 300
"""Rows that a run finds."""
KEYS: Final = 17
_TRIES: Final = 5
"""Runs to the end, where the machine is busy."""
FORM: Final = {"stream.file.segment.format": "parquet"}
SINKS: Final = {
    "single": FORM,
    "keyed": {**FORM, "producer.key.columns": "word"},
    "arrow": {},
}
PIPELINE: Final = f"""
[source]
stream = "in.json"
startingOffsets = "earliest"
maxOffsetsPerTrigger = {BATCH}
[[steps]]
id = "words"
sql = "select id, concat('word ', id % {KEYS}) as word from input"
"""
PIPELINES: Final = {"one": ("single",), "two": ("keyed", "arrow")}


class Proof:
    """Two pipelines that are killed again and again.

    Args:
        folder: Of the topics and the checkpoints; empty.
        seed: Of all that is left to chance.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._chance = random.Random(seed)
        self._rows = 0
        self._faults = Faults(folder / "faults")
        (folder / "faults").mkdir()
        self._topics = {"in": self._topic("in", {})}
        self._topics |= {name: self._topic(name, more) for name, more in SINKS.items()}
        for name, sinks in PIPELINES.items():
            text = f'checkpoint = "checkpoints/{name}"\n{PIPELINE}'
            text += "".join(f'[[sinks]]\nstream = "{one}.json"\n' for one in sinks)
            (folder / f"{name}.toml").write_text(text)

    @property
    def log(self) -> str:
        """What the last run said."""
        return (self._folder / "driver.log").read_text()

    def kill(self, step: str | None = None, passes: int | None = None) -> bool:
        """Run, and be killed at a step; at any moment where that is None.

        Answers:
            Whether it was killed: it may come to its end first.
        """
        read = BATCH * max(batches_committed(place) for place in self._checkpoints)
        while self._rows < read + BACKLOG:
            ids = pa.arange(self._rows, self._rows + ROWS)
            self._topics["in"].put(pa.table({"id": ids}))
            self._rows += ROWS
        if passes is None:
            passes = self._chance.randint(0, 4)
        commits = [Commits(place) for place in self._checkpoints]
        run = self._start()
        if step is not None:
            self._faults.order(step, passes, group=run.group)
        elif run.wait_for(lambda: any(one.grown for one in commits)):
            run.kill_after(self._chance.random() * 2)
        try:
            killed = run.was_killed()
        except MachineBusy:
            killed = False
        self._faults.cancel()
        for place in self._checkpoints:
            if self._chance.random() < 0.3:
                forget_commit(place)
        return killed

    def finish(self) -> tuple[int, int]:
        """Run to the end; answers rows lost, and rows that came twice.

        A row in another partition than that of its key counts as both.
        """
        for left in reversed(range(_TRIES)):
            try:
                self._start().succeed()
                break
            except MachineBusy:
                if not left:
                    raise
        lost = twice = 0
        for name in SINKS:
            rows = self._topics[name].rows()
            found = Counter(row["id"] for row in rows)
            wanted = Counter(range(self._rows))
            lost += (wanted - found).total()
            twice += (found - wanted).total()
        moved = self._misplaced()
        return lost + moved, twice + moved

    def _misplaced(self) -> int:
        options = {**self._topics["keyed"].options, "metadata.columns": "true"}
        rows = Topic(self._folder, "keyed", **options).rows()
        keys = pa.array([row["word"].encode() for row in rows], pa.binary())
        wanted = partition_of(keys, 3).tolist()
        return sum(a != row["_partition"] for a, row in zip(wanted, rows, strict=True))

    @property
    def _checkpoints(self) -> list[Path]:
        return [self._folder / "checkpoints" / name / "1" for name in PIPELINES]

    def _topic(self, name: str, options: dict[str, str]) -> Topic:
        topic = Topic(self._folder, name, **{"stream.file.partitions": "3", **options})
        body = {"name": name, "properties": topic.options}
        (self._folder / f"{name}.json").write_text(json.dumps(body))
        return topic

    def _start(self) -> Driver:
        files = [f"{name}.toml" for name in PIPELINES]
        line = [self._folder / "faults", *files, "--json", "--master", "local[2]"]
        return Driver(self._folder, "tests.pipelines.saving_driver", *line)


def prove(rounds: int, seed: int, place: Path) -> Verdict:
    """Kill so many runs of the pipelines."""
    if missing_java() is not None:
        return Verdict(notes=["save: NOT PROVED, it needs Java 17"])
    proof, chance, verdict = Proof(place, seed), random.Random(seed), Verdict()
    while verdict.kills < rounds:
        verdict.kills += proof.kill(chance.choice([*STEPS, None]))
    verdict.lost, verdict.twice = proof.finish()
    return verdict
