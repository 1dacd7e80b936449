"""Drivers that are killed, with their JVM and its workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.spark.proving import Proof

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.long("drivers of Spark are killed")
@pytest.mark.usefixtures("own_spark")
def test_a_driver_that_is_killed_loses_nothing_and_repeats_nothing(
    tmp_path: Path,
) -> None:
    proof = Proof(tmp_path, seed=20261121)
    killed = [proof.kill(step) for step in ("after-stage", "after-commit", None)]
    assert sum(killed) >= 2
    assert proof.finish() == (0, 0)
