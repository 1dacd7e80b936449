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
    from collections.abc import Sequence
    from pathlib import Path

SINKS: Final = {"all": "words", "even": "even", "odd": "odd"}
"""Topics by the step whose rows they take."""
ROWS: Final = 100
"""Of an epoch."""
BATCH: Final = 150
"""Rows of a batch, at most."""
BACKLOG: Final = 300
"""Rows that a run finds."""
_SOURCE: Final = f"""
[[sources]]
stream = "{{name}}.json"
startingOffsets = "earliest"
maxOffsetsPerTrigger = {BATCH}
id = "of_{{name}}"
"""
STEPS: Final = """
[[steps]]
id = "words"
sql = "{query}"
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
        sources: Topics that it reads; of several, some have no new rows in a run.
    """

    def __init__(
        self, folder: Path, seed: int, sources: Sequence[str] = ("in",)
    ) -> None:
        self._folder = folder
        self._chance = random.Random(seed)
        self._rows = 0
        self._sources = sources
        self._topics = {name: self._topic(name) for name in (*sources, *SINKS)}
        queries = [f"select id, hex(id) as word from of_{name}" for name in sources]
        steps = STEPS.format(query=" union all ".join(queries))
        reading = "".join(_SOURCE.format(name=name) for name in sources)
        sinks = "".join(
            f'[[sinks]]\nstream = "{name}.json"\nfrom = "{rows}"\n'
            for name, rows in SINKS.items()
        )
        for name in sources:
            self._put(name)
        text = f'checkpoint = "checkpoint"\n{reading}{steps}{sinks}'
        (folder / "p.toml").write_text(text)

    def kill(self, where: str | None = None, passes: int | None = None) -> bool:
        """Run, and be killed at a point; at any moment where that is None.

        Answers:
            Whether it was killed: it may come to its end first.
        """
        most = BATCH * len(self._sources)
        read = batches_committed(self._folder / "checkpoint" / "1") * most
        growing = self._chance.sample(self._sources, max(1, len(self._sources) - 1))
        while self._rows < read + BACKLOG:
            self._put(self._chance.choice(growing))
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
        for name in self._sources[1:]:
            self._topics[name].grow(4)  # partitions that came while it was stopped
            places = pa.array([index % 4 for index in range(ROWS)], pa.int32())
            self._put(name, _partition=places)
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

    def _put(self, name: str, **more: pa.Array) -> None:
        """One epoch of new rows."""
        ids = pa.arange(self._rows, self._rows + ROWS)
        self._topics[name].put(pa.table({"id": ids, **more}))
        self._rows += ROWS

    def _topic(self, name: str) -> Topic:
        topic = Topic(self._folder, name, **{"stream.file.partitions": "2"})
        body = {"name": name, "properties": topic.options}
        (self._folder / f"{name}.json").write_text(json.dumps(body))
        return topic

    def _start(self, where: str, passes: int) -> Driver:
        line = [where, passes, "p.toml", "--json", "--master", "local[2]"]
        return Driver(self._folder, "tests.pipelines.driver", *line)


def prove(rounds: int, seed: int, place: Path) -> Verdict:
    """Kill so many runs: two of three of a pipeline with one source, then with two."""
    if missing_java() is not None:
        return Verdict(notes=["pipelines: NOT PROVED, they need Java 17"])
    chance, verdict = random.Random(seed), Verdict()
    for sources, until in ((("in",), 2 * rounds // 3), (("in", "more"), rounds)):
        folder = place / "-".join(sources)
        folder.mkdir()
        proof = Proof(folder, seed, sources)
        while verdict.kills < until:
            verdict.kills += proof.kill(chance.choice([*POINTS, None]))
        lost, twice = proof.finish()
        verdict += Verdict(lost=lost, twice=twice)
    return verdict
