"""The broker and the server that other tests share, for examples that need one."""

from __future__ import annotations

from tests.flight.conftest import flight_server
from tests.kafka.conftest import kafka

__all__ = ["flight_server", "kafka"]
