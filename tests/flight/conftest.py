"""A Flight server for each test that asks for one; topics of a test are its own."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

import streamfactory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streamfactory.wiring.serving.process import ServerProcess


@pytest.fixture(scope="session")
def flight_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server over a folder, for all tests that do not harm it."""
    folder = tmp_path_factory.mktemp("flight")
    with streamfactory.serve(path=str(folder)) as server:
        yield server


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex}"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "topics")


@pytest.fixture
def clicks(flight_server: ServerProcess, topic: str) -> dict[str, str]:
    """A stream on the shared server."""
    return stream(flight_server, topic)


def stream(server: ServerProcess, topic: str = "clicks", **more: str) -> dict[str, str]:
    """The properties of a stream on a server."""
    options = {f"stream.flight.{key.replace('_', '.')}": v for key, v in more.items()}
    return {
        "streamType": "flight",
        "stream.flight.location": server.location,
        "stream.flight.topic.name": topic,
        **options,
    }
