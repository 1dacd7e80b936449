"""Ports and folders of a test's own: see `peers` for the other side."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# `tests.sockets.peers` is imported from the root, wherever pytest was started.
sys.path.insert(0, str(Path(__file__).parents[2]))

if TYPE_CHECKING:
    from collections.abc import Iterator

PORTS = 4


@pytest.fixture
def port() -> int:
    """The first of some ports in a row that nobody listens at."""
    from tests.proving.ports import free_ports

    return free_ports(PORTS)


@pytest.fixture
def address(port: int) -> str:
    """The address of the first port."""
    return f"127.0.0.1:{port}"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: paths of Unix sockets are."""
    with tempfile.TemporaryDirectory(prefix="sf-") as name:
        yield Path(name)


@pytest.fixture(autouse=True)
def connections() -> Iterator[None]:
    """What a test has dialled is closed after it."""
    from tests.sockets.peers import DIALLED

    yield
    while DIALLED:
        DIALLED.pop().close()
