"""The conformance kit on ``flight``, over a server in another process."""

from __future__ import annotations

from streamfactory.backends.flight.harness import FlightHarness
from streamfactory.conformance.suite import ConformanceSuite


class TestFlight(ConformanceSuite):
    """Every case."""

    harness = FlightHarness
