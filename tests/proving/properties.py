"""The tests of generated cases, with as many cases as are asked for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.proving import generated, repeated

if TYPE_CHECKING:
    from pathlib import Path

    from tests.proving.verdict import Verdict


def prove(rounds: int, seed: int, place: Path) -> Verdict:
    """Run them; a failure is a finding.

    Args:
        rounds: How many times the number of cases that a test states.
        seed: From which Hypothesis generates.
        place: A folder for the report of pytest.
    """
    os.environ[generated.FACTOR] = str(max(rounds, 1))
    try:
        words = ["-m", "hypothesis", f"--hypothesis-seed={seed}", *repeated.WORKERS]
        return repeated.run(words, place)
    finally:
        del os.environ[generated.FACTOR]
