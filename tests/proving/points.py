"""Kills before each step that the log takes: another process goes on from there."""

from __future__ import annotations

import random
import shutil
import signal
from pathlib import Path
from typing import Final

from tests.proving.children import Child, KillAt
from tests.proving.numbers import store_at
from tests.proving.program import SETTINGS, expected, leftovers, outcome, run
from tests.proving.stepping import SteppedStorage
from tests.proving.verdict import Verdict, compared

from streamfactory.arrowlog.disk import DiskLogStore

STRIDE: Final = 100
"""Steps that a process may take before it is killed."""


def write(root: str, name: str | None, number: int) -> None:
    """The child: takes steps until it is killed."""
    step = KillAt(name, number)
    storage = SteppedStorage(Path(root), step, fsync="always")
    run(DiskLogStore(storage, SETTINGS))


def kill(root: Path, name: str | None, number: int) -> None:
    """Have a child killed before the n-th step of a name, or before any n-th."""
    if not killed(root, name, number):
        msg = f"no child was killed before step {number} ({name}): there are fewer"
        raise AssertionError(msg)


def killed(root: Path, name: str | None, number: int) -> bool:
    """Whether a child was killed, rather than at its end."""
    status = Child(write, str(root), name, number).join()
    if status not in {0, -signal.SIGKILL}:
        msg = f"a child ended with {status}"
        raise AssertionError(msg)
    return status != 0


def go_on(root: Path) -> Verdict:
    """Another process takes the steps that are left."""
    store = store_at(root, merge_files=SETTINGS.merge_files)
    run(store)
    found = outcome(store)
    store.close()
    left = leftovers(root)
    if left:
        msg = f"nobody needs {left}"
        raise AssertionError(msg)
    return compared(expected(), found)


def prove(rounds: int, seed: int, root: Path) -> Verdict:
    """Kill so many processes, one after another, on their way through the program."""
    chance = random.Random(seed)
    verdict = Verdict()
    while verdict.kills < rounds:
        place = root / f"{verdict.kills}"
        steps: list[int] = []
        while verdict.kills < rounds:
            steps.append(chance.randrange(STRIDE))
            if not killed(place, None, steps[-1]):
                break
            verdict.kills += 1
        done = go_on(place)
        if not done.good:
            verdict.notes.append(f"killed before steps {steps}: {done}")
        verdict += done
        shutil.rmtree(place)
    return verdict
