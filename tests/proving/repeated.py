"""The tests that repeat what others show: the tier ``repeated``, run once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

from tests.proving.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).parents[2]
WORKERS: Final = ("-n", "4", "--dist", "loadgroup")
"""As ``make test``."""
_HOURS: Final = 4
"""After which the run is ended; each test has a limit of its own."""


def prove(rounds: int, seed: int, place: Path) -> Verdict:
    """Run them; a failure is a finding, and so is a run without tests.

    Args:
        rounds: Not used: each test runs once.
        seed: Not used.
        place: A folder for the report of pytest.
    """
    del rounds, seed
    return run(["--tier", "repeated", *WORKERS], place)


def run(arguments: Sequence[str], place: Path) -> Verdict:
    """Run tests by pytest in this repository, which prints, and count the outcomes."""
    report = place / "repeated.xml"
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}"]
    done = subprocess.run(
        [*command, *arguments], cwd=ROOT, check=False, timeout=_HOURS * 3600
    )
    if not report.exists():
        return Verdict(findings=1, notes=[f"pytest ended with {done.returncode}"])
    suite = next(ET.parse(report).iter("testsuite")).attrib
    bad = int(suite["failures"]) + int(suite["errors"])
    skipped = int(suite["skipped"])
    return Verdict(
        inputs=int(suite["tests"]) - skipped,
        findings=bad or int(done.returncode != 0),
        notes=[f"{skipped} tests skipped"] if skipped else [],
    )
