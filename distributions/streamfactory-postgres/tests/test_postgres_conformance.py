"""Every rule of the contract that the claims and the harness allow, a test each."""

from __future__ import annotations

from streamfactory.conformance.suite import ConformanceSuite

from streamfactory_postgres.harness import PostgresHarness


class TestPostgres(ConformanceSuite):
    harness = PostgresHarness
