"""What tests of the kit share."""

from __future__ import annotations

import pytest

from streamfactory.conformance import leaks, patience


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cases wait a second for progress that never comes: for backends with a defect."""
    monkeypatch.setattr(patience, "SECONDS", 1.0)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stays open has 8 looks to end, not 2 seconds: for cases with a leak."""
    monkeypatch.setattr(leaks, "_SETTLE", 0.0)
    monkeypatch.setattr(leaks, "_LOOKS", 8)
