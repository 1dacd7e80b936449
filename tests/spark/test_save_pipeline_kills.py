"""Pipelines that save their batches, and are killed: each row once in each sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.spark.save_proving import Proof

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.long("drivers of Spark are killed")
@pytest.mark.usefixtures("own_spark")
def test_pipelines_killed_while_they_save_continue(tmp_path: Path) -> None:
    proof = Proof(tmp_path, 0)
    assert proof.kill("within-seal", 1)
    assert proof.kill("published", 2)
    proof.kill()
    assert proof.finish() == (0, 0)
    for sink in ("single", "keyed"):
        assert f'"{sink}": "Spark\'s Parquet writer"' in proof.log
