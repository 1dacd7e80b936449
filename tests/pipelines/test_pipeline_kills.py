"""Pipelines with several sinks whose process is killed: each row once in each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.pipelines.proving import Proof

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.long("drivers of Spark are killed")
@pytest.mark.usefixtures("own_spark")
def test_a_pipeline_killed_between_sinks_continues(tmp_path: Path) -> None:
    proof = Proof(tmp_path, 0)
    assert proof.kill("after", 0)
    assert proof.kill("before", 4)
    proof.kill()
    assert proof.finish() == (0, 0)


@pytest.mark.long("drivers of Spark are killed")
@pytest.mark.usefixtures("own_spark")
def test_a_pipeline_with_two_sources_that_is_killed_continues(tmp_path: Path) -> None:
    proof = Proof(tmp_path, 0, ("in", "more"))
    assert proof.kill("after", 1)
    assert proof.kill("before", 4)
    assert proof.finish() == (0, 0)
