"""Kills a Spark driver, with all that it has started, as often as asked.

Each run of the driver takes up the query where the one before was killed: at a step, or
at any moment; Spark's own record of the last epoch is taken away now and then.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

import pyarrow as pa
from tests.proving.verdict import Verdict
from tests.spark.killing import STEPS, Faults
from tests.spark.scenario import options

import streamfactory
from streamfactory.wiring.opening import open_sink

REPOSITORY: Final = Path(__file__).parents[2]
ROWS: Final = 100
"""Of an epoch."""
DEADLINE: Final = 180.0
"""Seconds in which a driver comes to where it is killed, or to its end."""


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
        """Run the driver, and kill it at a step; at any moment where that is None.

        Answers:
            Whether it was killed: it may come to its end first.
        """
        for _ in range(3):
            self._write()
        driver = self._start()
        if step is not None:
            passes = self._chance.randint(0, 2)
            self._faults.order(step, passes, group=driver.pid)
        else:
            self._await_output(driver)
            with_luck = time.monotonic() + self._chance.random() * 3
            while driver.poll() is None and time.monotonic() < with_luck:
                time.sleep(0.01)
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGKILL)
        status = _ended(driver)
        self._faults.cancel()
        if status not in (0, -signal.SIGKILL):
            msg = (self._folder / "driver.log").read_text()[-4000:]
            raise RuntimeError(msg)
        if self._chance.random() < 0.3:
            self._forget_commit()
        return status != 0

    def finish(self) -> tuple[int, int]:
        """Run the driver to its end; answers rows lost, and rows that came twice."""
        driver = self._start()
        if _ended(driver):
            raise RuntimeError((self._folder / "driver.log").read_text()[-4000:])
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

    def _start(self) -> subprocess.Popen[bytes]:
        paths = [str(REPOSITORY), str(REPOSITORY / "src")]
        with (self._folder / "driver.log").open("wb") as log:
            return subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.spark.scenario",
                    "local[2]",
                    self._folder,
                    "dying_copy",
                ],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                cwd=self._folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _await_output(self, driver: subprocess.Popen[bytes]) -> None:
        """Wait until a task of this driver has begun a file."""
        before, deadline = self._staged(), time.monotonic() + DEADLINE
        while driver.poll() is None and self._staged() == before:
            if time.monotonic() > deadline:
                os.killpg(driver.pid, signal.SIGKILL)
                raise TimeoutError((self._folder / "driver.log").read_text()[-4000:])
            time.sleep(0.01)

    def _staged(self) -> set[Path]:
        return {*(self._folder / "topics" / "out.topic").rglob("data/*")}

    def _forget_commit(self) -> None:
        commits = [*(self._folder / "checkpoint" / "commits").glob("[0-9]*")]
        if commits:
            newest = max(commits, key=lambda path: int(path.name))
            newest.unlink()
            newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)


def _ended(driver: subprocess.Popen[bytes]) -> int:
    """Its exit status; one that does not end is killed, with all that it started."""
    try:
        return driver.wait(DEADLINE)
    except BaseException:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        raise


def prove(rounds: int, seed: int, place: Path) -> Verdict:
    """Kill so many drivers of one query."""
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        return Verdict(notes=["Spark: NOT PROVED, it needs Java 17"])
    proof, chance, verdict = Proof(place, seed), random.Random(seed), Verdict()
    while verdict.kills < rounds:
        verdict.kills += proof.kill(chance.choice([*STEPS, None]))
    verdict.lost, verdict.twice = proof.finish()
    return verdict
