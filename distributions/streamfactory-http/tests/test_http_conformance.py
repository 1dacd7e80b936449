"""Every rule of the contract that the claims and the harness allow, a test each."""

from __future__ import annotations

from streamfactory.conformance.suite import ConformanceSuite

from streamfactory_http.harness import HttpHarness


class TestHttp(ConformanceSuite):
    harness = HttpHarness
