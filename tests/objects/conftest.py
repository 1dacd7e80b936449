"""One server for all tests of a process, with the credentials in the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.objects.proxy import Fault, FaultyProxy
from tests.objects.server import OWNER
from tests.objects.stage import place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.objects.server import ObjectServer


@pytest.fixture(scope="session")
def server(object_server: ObjectServer) -> ObjectServer:
    return object_server


@pytest.fixture
def credentials(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OBJECT_ENDPOINT", server.endpoint)
    monkeypatch.setenv("OBJECT_KEY", OWNER.key)
    monkeypatch.setenv("OBJECT_SECRET", OWNER.secret)


@pytest.fixture
def url() -> str:
    return place()


@pytest.fixture
def proxied(
    server: ObjectServer,
) -> Iterator[Callable[[Callable[[str, str], Fault | None]], FaultyProxy]]:
    """Makes proxies before the server."""
    made: list[FaultyProxy] = []

    def make(plan: Callable[[str, str], Fault | None]) -> FaultyProxy:
        made.append(FaultyProxy(server.port, plan))
        return made[-1]

    yield make
    for proxy in made:
        proxy.stop()
