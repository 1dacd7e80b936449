"""Endpoints of a test's own; sockets and contexts are closed after it."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# `tests.zeromq.peers` is imported from the root, wherever pytest was started.
sys.path.insert(0, str(Path(__file__).parents[2]))

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.zeromq.peers import Peers


@pytest.fixture
def place() -> Iterator[str]:
    """An ipc endpoint; paths of Unix sockets have to be short."""
    with tempfile.TemporaryDirectory(prefix="sf-") as name:
        yield f"ipc://{name}/s"


@pytest.fixture
def peers() -> Iterator[Peers]:
    """Sockets of plain pyzmq."""
    from tests.zeromq.peers import Peers

    made = Peers()
    yield made
    made.close()
