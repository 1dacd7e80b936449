"""What tests that need Java do where there is none."""

from __future__ import annotations

import os

import pytest
from tests.proving.sessions import missing_java


def java_or_skip() -> None:
    """Skip with the reason; under ``CI=true`` that is a failure."""
    reason = missing_java()
    if reason is None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
