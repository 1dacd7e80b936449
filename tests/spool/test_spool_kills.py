"""A few kills of senders, receivers and readers of spools."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.spool import spark_proving
from tests.spool.proving import prove_transports

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow("kills processes")


def test_killed_senders_receivers_and_readers_lose_nothing_unnamed(
    tmp_path: Path,
) -> None:
    verdict = prove_transports(9, 5, tmp_path)
    assert verdict.good, (verdict, verdict.notes)
    assert verdict.kills == 9


@pytest.mark.long("drivers of Spark, killed and started again")
@pytest.mark.usefixtures("own_spark")
def test_killed_tasks_drivers_and_receivers_of_a_spark_query_lose_nothing(
    tmp_path: Path,
) -> None:
    verdict = spark_proving.prove(2, 3, tmp_path)
    assert (verdict.lost, verdict.twice) == (0, 0)
    assert verdict.kills >= 2
