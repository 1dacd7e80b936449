"""What every test can rely on: no setting of the developer's machine reaches it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pathlib import Path

# Shared machines are slow at times, and a failure has to come again when asked for.
settings.register_profile("house", deadline=None, derandomize=True, database=None)
settings.load_profile("house")


@pytest.fixture(autouse=True)
def isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of ours is set, and the default catalogue is empty."""
    for name in [name for name in os.environ if name.startswith("STREAMFACTORY_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
