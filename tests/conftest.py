"""What every test can rely on: no setting of the developer's machine reaches it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from tests.proving.java import quick_options
from tests.proving.sessions import catalogue, spark, spark_log

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["catalogue", "spark", "spark_log"]

DEAR = {
    "spark": "spark",
    "one_cluster": "cluster",
    "wheel": "wheel",
    "sdist": "wheel",
    "java": "java",
}
"""Groups by the fixture that they share: seconds to make, so once in a run is enough.

Tests that start a Spark of their own are the group ``runs``: they take turns.
"""

# Shared machines are slow at times, and a failure has to come again when asked for.
settings.register_profile("house", deadline=None, derandomize=True, database=None)
settings.load_profile("house")


@pytest.fixture(autouse=True)
def isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of ours is set, and the default catalogue is empty."""
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", quick_options())
    for name in [name for name in os.environ if name.startswith("STREAMFACTORY_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Keep tests that share what is dear in one process, where groups are heeded."""
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        names = getattr(item, "fixturenames", ())
        for group in {DEAR[name] for name in names if name in DEAR}:
            item.add_marker(pytest.mark.xdist_group(group))
