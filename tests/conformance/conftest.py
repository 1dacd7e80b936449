"""What tests of the kit share."""

from __future__ import annotations

import pytest

from streamfactory.conformance import patience


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cases wait a second for progress that never comes: for backends with a defect."""
    monkeypatch.setattr(patience, "SECONDS", 1.0)
