"""``make prove PATHS=repeated``: what its run of tests comes to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.proving import repeated

if TYPE_CHECKING:
    from pathlib import Path

TESTS = """
import pytest

def test_good(): pass
def test_bad(): assert 1 == 2
def test_left_out(): pytest.skip("no Java")
"""


@pytest.mark.parametrize(
    ("chosen", "inputs", "findings", "notes"),
    [
        ("good", 1, 0, []),
        ("good or left_out", 1, 0, ["1 tests skipped"]),
        ("bad or good", 2, 1, []),
        ("none of them", 0, 1, []),
    ],
)
def test_failures_and_runs_without_tests_are_findings(
    tmp_path: Path, chosen: str, inputs: int, findings: int, notes: list[str]
) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    arguments = [f"--rootdir={tmp_path}", "-p", "no:xdist", str(tmp_path), "-k", chosen]
    verdict = repeated.run(arguments, tmp_path)
    assert (verdict.inputs, verdict.findings) == (inputs, findings)
    assert verdict.notes == notes
