"""``make prove PATHS=plants N=40 SEED=1``: does a test notice a small defect?

So many defects are planted, one at a time, in a copy of the tree. The tests of the
folder that is responsible for the module run on each, as ``make test`` runs them, until
the first one fails. A defect that none notices is a finding: it means nothing, or a
test is missing. The same seed plants the same defects in the same tree.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.proving.verdict import Verdict

from streamfactory.conformance.mutations import mutations_of

if TYPE_CHECKING:
    from streamfactory.conformance.mutations import Mutation

ROOT: Final = Path(__file__).parents[2]
SECONDS: Final = 400
"""Within which the tests of a folder end, on a busy machine too."""
RESPONSIBLE: Final = {
    "arrowlog": "arrowlog disklog",
    "backends/delta": "tables",
    "backends/file": "backends foreign",
    "backends/hudi": "tables",
    "backends/iceberg": "tables",
    "backends/memory": "backends conformance",
    "backends/push": "push",
    "backends/socket": "sockets",
    "backends/zeromq": "zeromq",
    "decoders": "decoders",
    "engines": "engines",
    "live": "sockets zeromq",
    "push": "push",
    "spi": "spi wiring reading",
    "tables": "tables",
    "transfer": "transfer cli",
    "wiring/config": "wiring",
    "wiring/core": "wiring reading",
    "wiring/decoding": "decoding decoders",
    "wiring/metrics": "metrics reading",
    "wiring/microbatch": "microbatch",
    "wiring/options": "wiring",
    "wiring/plugins": "wiring",
    "wiring/reading": "reading groups conformance",
    "wiring/spool": "spool",
    "wiring/streams": "reading wiring writing",
    "wiring/topics": "topics",
    "wiring/writing": "writing",
}
"""Folders below ``tests`` whose tests are about the modules of a folder. Modules that
only a real server or Spark reaches are not among them: their tests take minutes."""
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+?)(?: - .*)?$", re.MULTILINE)


class Planted(NamedTuple):
    """A defect in a module, and the folders of tests that are to notice it."""

    module: str
    plant: Mutation
    tests: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.module}:{self.plant.line} {self.plant}"


def prove(rounds: int, seed: int, place: Path) -> Verdict:
    """Plant so many defects; each that no test notices is a finding."""
    tree = copy_of(ROOT, place / "tree")
    verdict = Verdict()
    for planted in chosen(tree, rounds, seed):
        begun = time.monotonic()
        noticed = tried(tree, planted)
        verdict.inputs += 1
        verdict.findings += noticed is None
        result = "SURVIVED" if noticed is None else f"caught by {noticed}"
        # At once: a run takes long.
        sys.stdout.write(f"{planted}: {result}, {time.monotonic() - begun:.0f} s\n")
        sys.stdout.flush()
    return verdict


def copy_of(root: Path, place: Path) -> Path:
    """A copy of what git knows of a tree, links as links."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True
    )
    for name in listed.stdout.split("\0")[:-1]:
        if not os.path.lexists(root / name):
            continue  # it is removed, and not committed
        target = place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, target, follow_symlinks=False)
    return place


def chosen(tree: Path, count: int, seed: int) -> list[Planted]:
    """So many defects of the tree, each as likely as any other."""
    pool = [
        Planted(module.relative_to(tree).as_posix(), plant, _tests(tests))
        for folder, tests in sorted(RESPONSIBLE.items())
        for module in sorted((tree / folder).rglob("*.py"))
        for plant in mutations_of(module.read_text(encoding="utf-8"))
    ]
    return random.Random(seed).sample(pool, count)


def _tests(names: str) -> tuple[str, ...]:
    return tuple(f"tests/{name}" for name in names.split())


def tried(tree: Path, planted: Planted) -> str | None:
    """The test that notices a defect; None where all pass with it."""
    path = tree / planted.module
    whole = path.read_text(encoding="utf-8")
    path.write_text(planted.plant.apply(whole), encoding="utf-8")
    try:
        return _failing(tree, planted.tests)
    finally:
        path.write_text(whole, encoding="utf-8")


def _failing(tree: Path, tests: tuple[str, ...]) -> str | None:
    """The first test that fails, or how pytest ended without one."""
    folders = [str(tree / "src"), str(tree)]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tier", "test"]
    command += ["-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            # Children import from the copy too, and not from where it is installed.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"no end in {SECONDS} s"
    if not done.returncode:
        return None
    failed = _FAILED.search(done.stdout)
    return failed[1] if failed else f"exit status {done.returncode}"
