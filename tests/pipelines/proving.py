"""Kills ``streamfactory run`` with several sinks, as often as asked.

Each run takes up the pipeline where the one before was killed: between two sinks, or at
any moment; Spark's own record of the last batch is taken away now and then.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

import pyarrow as pa
from tests.pipelines.driver import POINTS
from tests.proving.sessions import Topic, missing_java
from tests.proving.verdict import Verdict

REPOSITORY: Final = Path(__file__).parents[2]
SINKS: Final = {"all": "words", "even": "even", "odd": "odd"}
"""Topics by the step whose rows they take."""
ROWS: Final = 100
"""Of an epoch."""
DEADLINE: Final = 180.0
"""Seconds in which a run comes to where it is killed, or to its end."""
PIPELINE: Final = """
checkpoint = "checkpoint"
[source]
stream = "in.json"
startingOffsets = "earliest"
maxOffsetsPerTrigger = 150
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
        for _ in range(3):
            ids = pa.arange(self._rows, self._rows + ROWS)
            self._topics["in"].put(pa.table({"id": ids}))
            self._rows += ROWS
        if passes is None:
            passes = self._chance.randint(0, 4)
        run = self._start(where or "never", passes)
        if where is None:
            self._await_output(run)
            deadline = time.monotonic() + self._chance.random() * 3
            while run.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
        status = self._ended(run)
        if status not in (0, -signal.SIGKILL):
            raise RuntimeError(self._log())
        if self._chance.random() < 0.3:
            self._forget_commit()
        return status != 0

    def finish(self) -> tuple[int, int]:
        """Run to the end; answers rows lost, and rows that came twice."""
        if self._ended(self._start("never", 0)):
            raise RuntimeError(self._log())
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

    def _start(self, where: str, passes: int) -> subprocess.Popen[bytes]:
        paths = [str(REPOSITORY), str(REPOSITORY / "src")]
        line = [where, str(passes), "p.toml", "--json", "--master", "local[2]"]
        # Short runs: what a better compiler gains, it has cost before.
        line += ["--spark", "driver.extraJavaOptions=-XX:TieredStopAtLevel=1"]
        with (self._folder / "run.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.pipelines.driver", *line],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                cwd=self._folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _await_output(self, run: subprocess.Popen[bytes]) -> None:
        """Wait until a task of this run has begun a file."""
        before, deadline = self._staged(), time.monotonic() + DEADLINE
        while run.poll() is None and self._staged() == before:
            if time.monotonic() > deadline:
                os.killpg(run.pid, signal.SIGKILL)
                raise TimeoutError(self._log())
            time.sleep(0.01)

    def _staged(self) -> set[Path]:
        topics = self._folder / "topics"
        return {path for n in SINKS for path in (topics / f"{n}.topic").rglob("data/*")}

    def _forget_commit(self) -> None:
        commits = [*(self._folder / "checkpoint" / "1" / "commits").glob("[0-9]*")]
        if commits:
            newest = max(commits, key=lambda path: int(path.name))
            newest.unlink()
            newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)

    def _log(self) -> str:
        return (self._folder / "run.log").read_text()[-4000:]

    def _ended(self, run: subprocess.Popen[bytes]) -> int:
        """Its exit status; one that does not end is killed, with all it started."""
        try:
            return run.wait(DEADLINE)
        except BaseException:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
            raise


def prove(rounds: int, seed: int, place: Path) -> Verdict:
    """Kill so many runs of one pipeline."""
    if missing_java() is not None:
        return Verdict(notes=["pipelines: NOT PROVED, they need Java 17"])
    proof, chance, verdict = Proof(place, seed), random.Random(seed), Verdict()
    while verdict.kills < rounds:
        verdict.kills += proof.kill(chance.choice([*POINTS, None]))
    verdict.lost, verdict.twice = proof.finish()
    return verdict
