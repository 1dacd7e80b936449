"""``streamfactory-redis`` from its wheel: its own tests, the kit, copies and Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.distributions import journeys
from tests.distributions.journeys import LACKING, ROWS
from tests.distributions.proving import prove_one

if TYPE_CHECKING:
    from tests.distributions.installing import Installed

TESTS = Path(__file__).parents[2] / "examples" / "backends" / "streamfactory-redis"


def test_its_own_tests_pass(redis_server: Installed, tmp_path: Path) -> None:
    out = journeys.run_own_tests(redis_server, TESTS, tmp_path, kills=3)
    assert " passed" in out
    assert "skipped" not in out


@pytest.mark.repeated(
    "the commands on Redis as on NATS",
    shown_by="tests/distributions/test_nats_distribution.py::test_commands_copy_and_publish",
)
def test_commands_copy_and_publish(redis_server: Installed, tmp_path: Path) -> None:
    found = journeys.publish_and_copy(redis_server, "redis", tmp_path)
    assert found["first"]["rows"] == found["copied"]["rows"] == ROWS
    assert found["again"]["rows"] == 0
    assert sorted(found["values"]) == [*range(ROWS)]
    assert found["copied"]["guarantee"] == "exactly-once"
    assert found["described"]["name"] == "redis"


@pytest.mark.repeated(
    "the kit, which the older wheel for Redis passes, too",
    shown_by="tests/distributions/test_older_distribution.py::test_a_backend_of_22_november_passes_the_kit_without_another_warning",
)
def test_it_passes_the_kit(redis_server: Installed, tmp_path: Path) -> None:
    kit = journeys.run_kit(redis_server, "redis", tmp_path)
    assert kit.failed == []
    assert kit.skipped <= LACKING
    assert kit.passed > 3


@pytest.mark.repeated(
    "more kills than those of its own tests",
    shown_by="tests/distributions/test_redis_distribution.py::test_its_own_tests_pass",
)
def test_the_command_for_authors_proves_it(
    redis_server: Installed, tmp_path: Path
) -> None:
    assert prove_one(redis_server, "redis", tmp_path, rounds=10).good


@pytest.mark.repeated(
    "Spark on Redis as on NATS",
    shown_by="tests/distributions/test_nats_distribution.py::test_spark_reads_and_writes_it",
)
def test_spark_reads_and_writes_it(
    redis_server: Installed, own_spark: None, tmp_path: Path
) -> None:
    numbers = journeys.through_spark(redis_server, "redis", tmp_path)
    assert numbers == [*range(2 * ROWS)]
