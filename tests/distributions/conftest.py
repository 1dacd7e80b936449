"""The wheels of distributions of others, built once, and the servers that they need."""

from __future__ import annotations

import pytest
from tests.distributions.installing import Installed, build
from tests.kafka.jars import Unavailable
from tests.proving.skipping import skip_or_fail


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """All wheels, unpacked as an installer would."""
    return build(tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="session")
def nats_server(wheels: Installed) -> Installed:
    """The wheels, and the program that their harness starts."""
    return _with_server(wheels, "nats")


@pytest.fixture(scope="session")
def redis_server(wheels: Installed) -> Installed:
    """The same of Redis."""
    return _with_server(wheels, "redis")


@pytest.fixture(scope="session")
def postgres_server(wheels: Installed) -> Installed:
    """The same of PostgreSQL."""
    return _with_server(wheels, "postgres")


@pytest.fixture(scope="session")
def mqtt_server(wheels: Installed) -> Installed:
    """The same of MQTT."""
    return _with_server(wheels, "mqtt")


@pytest.fixture(scope="session")
def http_client(wheels: Installed) -> Installed:
    """The wheels, where the client of ``http`` is installed."""
    return _with_server(wheels, "http")


@pytest.fixture(scope="session")
def vault_client(wheels: Installed) -> Installed:
    """The wheels, where the client of ``vault`` is installed."""
    return _with_server(wheels, "vault")


def _with_server(wheels: Installed, kind: str) -> Installed:
    try:
        return wheels.with_server(kind)
    except Unavailable as reason:
        skip_or_fail(str(reason))
