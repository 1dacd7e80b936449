"""``streamfactory-nats`` from its wheel: its own tests, the kit, copies and Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.distributions import journeys
from tests.distributions.journeys import LACKING, RIGHTS_AND_BOUNDS, ROWS
from tests.distributions.proving import prove_one

if TYPE_CHECKING:
    from tests.distributions.installing import Installed

TESTS = Path(__file__).parents[2] / "examples" / "backends" / "streamfactory-nats"


def test_its_own_tests_pass(nats_server: Installed, tmp_path: Path) -> None:
    out = journeys.run_own_tests(nats_server, TESTS, tmp_path, kills=3)
    assert " passed" in out
    assert "skipped" not in out


@pytest.mark.long("both commands, each in a process of its own")
def test_commands_copy_and_publish(nats_server: Installed, tmp_path: Path) -> None:
    found = journeys.publish_and_copy(nats_server, "nats", tmp_path)
    assert found["first"]["rows"] == found["copied"]["rows"] == ROWS
    assert found["again"]["rows"] == 0
    assert sorted(found["values"]) == [*range(ROWS)]
    assert found["copied"]["guarantee"] == "exactly-once"
    assert found["described"]["name"] == "nats"


@pytest.mark.long("the whole kit")
def test_it_passes_the_kit(nats_server: Installed, tmp_path: Path) -> None:
    kit = journeys.run_kit(nats_server, "nats", tmp_path)
    assert kit.failed == []
    assert kit.skipped <= LACKING | RIGHTS_AND_BOUNDS
    assert kit.passed > 3


@pytest.mark.repeated(
    "more kills than those of its own tests",
    shown_by="tests/distributions/test_nats_distribution.py::test_its_own_tests_pass",
)
def test_the_command_for_authors_proves_it(
    nats_server: Installed, tmp_path: Path
) -> None:
    assert prove_one(nats_server, "nats", tmp_path, rounds=10).good


@pytest.mark.long("starts a Spark")
def test_spark_reads_and_writes_it(
    nats_server: Installed, own_spark: None, tmp_path: Path
) -> None:
    numbers = journeys.through_spark(nats_server, "nats", tmp_path)
    assert numbers == [*range(2 * ROWS)]
