"""Tasks, drivers and the broker are killed; every row is there once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.kafka.proving import STEPS, Proof, hunt

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.broker import Addresses, Cluster


@pytest.mark.long("three kills of a driver")
def test_rows_survive_drivers_that_are_killed_at_any_moment(
    kafka: Addresses, tmp_path: Path
) -> None:
    verdict = hunt(3, 11, tmp_path, kafka, None)
    assert verdict.good, str(verdict)
    assert verdict.kills >= 3


@pytest.mark.long("a kill before each step")
@pytest.mark.usefixtures("each_way")
def test_rows_survive_a_driver_that_dies_before_each_step(
    kafka: Addresses, tmp_path: Path
) -> None:
    proof = Proof(tmp_path, kafka.bootstrap, seed=7)
    died = [step for step in sorted(STEPS) if proof.at_step(step)]
    verdict = proof.finish()
    assert died == sorted(STEPS)
    assert verdict.good, str(verdict)


@pytest.mark.usefixtures("each_way")
def test_a_zombie_that_wakes_writes_nothing(kafka: Addresses, tmp_path: Path) -> None:
    proof = Proof(tmp_path, kafka.bootstrap, seed=3)
    assert proof.zombie()
    verdict = proof.finish()
    assert verdict.good, str(verdict)


@pytest.mark.long("a broker is killed and started")
@pytest.mark.usefixtures("each_way")
def test_rows_survive_a_broker_that_is_killed(mortal: Cluster, tmp_path: Path) -> None:
    proof = Proof(tmp_path, mortal.bootstrap, seed=5, cluster=mortal)
    for _ in range(2):
        assert proof.broker()
    verdict = proof.finish()
    assert verdict.good, str(verdict)
