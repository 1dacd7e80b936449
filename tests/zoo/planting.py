"""``make prove PATHS=mutants``: does the kit notice what an adversary plants?

The defects of `planted_redis` and `planted_nats` are planted, one at a time, in a copy
of the package, and the kit, without slow cases, runs on each in a process of its own
until a case fails.
``N`` of each backend are tried, chosen by ``SEED``; 15 are all. A defect that no case
notices, and that does not say why nothing can be observed, is a finding.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.distributions.installing import ROOT, build
from tests.kafka.jars import Unavailable
from tests.proving.verdict import Verdict
from tests.zoo.matrix import DEFECTS

from streamfactory.conformance.mutating import Mutant, PackageCopy, Plan
from streamfactory.conformance.runner import all_cases
from streamfactory.conformance.subject import find_subject

if TYPE_CHECKING:
    from tests.zoo.planted import Defect


def prove(rounds: int, seed: int, place: Path) -> Verdict:
    """Plant so many defects of each backend."""
    verdict, wheels = Verdict(), build(place / "wheels")
    for kind in DEFECTS:
        try:
            installed = wheels.with_server(kind)
        except Unavailable as reason:
            verdict.notes.append(f"{kind}: NOT PROVED, {reason}")
            continue
        chosen = _chosen(kind, rounds, seed)
        path = os.pathsep.join([str(installed.site), str(ROOT)])
        done = subprocess.run(
            [sys.executable, "-m", __name__, kind, str(rounds), str(seed)],
            env={**os.environ, **installed.environment, "PYTHONPATH": path},
            cwd=place,
            check=False,
        )
        verdict.inputs += len(chosen)
        # Negative where it was killed: nothing is known of any then.
        crashed = not 0 <= done.returncode <= len(chosen)
        verdict.findings += len(chosen) if crashed else done.returncode
    return verdict


def plant(kind: str, rounds: int, seed: int) -> int:
    """Plant defects of a backend, and print what became of each; counts findings."""
    subject, findings = find_subject(kind, None), 0
    chosen = _chosen(kind, rounds, seed)
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        quick = [case for case in all_cases() if not case.slow]
        plan = Plan(subject, quick, time_limit=300.0)
        copy = PackageCopy(plan, Path(folder))
        examined = copy.examine()
        for defect in chosen:
            tried = copy.attempt(Mutant(defect.module, defect.mutation()), examined)
            seen = tried.caught_by is not None
            findings += seen is bool(defect.unseen)
            result = f"caught by {tried.caught_by}" if seen else "MISSED"
            why = f" ({tried.reason.splitlines()[0][:100]})" if seen else ""
            reason = f", {defect.unseen}" if defect.unseen else ""
            line = (
                f"{kind}: {defect.name}: {result}{why}{reason}, {tried.seconds:.0f} s"
            )
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
    return findings


def _chosen(kind: str, rounds: int, seed: int) -> list[Defect]:
    defects = DEFECTS[kind]
    return random.Random(seed).sample(defects, min(rounds, len(defects)))


if __name__ == "__main__":
    sys.exit(plant(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
