"""The kit passes for what is claimed, which is nothing but order and true ends."""

from __future__ import annotations

from streamfactory.backends.socket.harness import SocketHarness
from streamfactory.conformance.suite import ConformanceSuite


class TestSocket(ConformanceSuite):
    harness = SocketHarness
