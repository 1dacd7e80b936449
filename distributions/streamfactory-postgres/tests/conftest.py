"""One server for all tests; a table for each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamfactory_postgres.harness import PostgresHarness
from streamfactory_postgres.server import Unavailable


@pytest.fixture(scope="session", autouse=True)
def _server() -> None:
    """Start the server; without one tests are skipped, and under CI=true they fail."""
    try:
        PostgresHarness.prepare()
    except Unavailable as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(str(reason))
        pytest.skip(str(reason))


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[PostgresHarness]:
    made = PostgresHarness(tmp_path)
    made.create(1)
    yield made
    made.close()


@pytest.fixture
def client(harness: PostgresHarness) -> Iterator[Any]:
    with harness._running().connect() as made:
        yield made
