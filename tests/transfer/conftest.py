"""A command line in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.proving.commands import Outcome, command_of

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def streamfactory_command(
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., Outcome]:
    """Runs a command line in this process."""
    return command_of(capsys)
