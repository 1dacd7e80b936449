"""Tasks and drivers of Spark, and the Flight server, are killed under one query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.flight.spark_proving import prove
from tests.proving.java import java_or_skip

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.long("three kills or more, each with a driver of its own")
def test_rows_survive_tasks_drivers_and_servers_that_are_killed(tmp_path: Path) -> None:
    java_or_skip()
    verdict = prove(3, 5, tmp_path)
    assert verdict.good, str(verdict)
    assert verdict.kills >= 3
