"""Pipelines that save their batches, and are killed: each row once in each sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.spark.save_proving import Proof

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.repeated(
    "drivers of Spark are killed, with pipelines that save",
    shown_by="tests/spark/test_save_kills.py::test_a_driver_that_is_killed_loses_nothing_and_repeats_nothing",
)
@pytest.mark.usefixtures("own_spark")
def test_pipelines_killed_while_they_save_continue(tmp_path: Path) -> None:
    proof = Proof(tmp_path, 0)
    assert proof.kill("within-seal", 1)
    assert proof.kill("published", 2)
    proof.kill()
    assert proof.finish() == (0, 0)
    for sink in ("single", "keyed"):
        assert f'"{sink}": "Spark\'s Parquet writer"' in proof.log
