"""One server for all tests of a process, with the credentials in the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.objects.proxy import Fault, FaultyProxy
from tests.objects.server import OWNER, ObjectServer
from tests.objects.stage import place, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    yield from serve(tmp_path_factory.mktemp("objects"))


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
