"""Every rule of the contract for the changes of a table, a test each."""

from __future__ import annotations

from streamfactory.conformance.suite import ConformanceSuite

from streamfactory_postgres.changes.harness import PostgresChangesHarness


class TestPostgresChanges(ConformanceSuite):
    harness = PostgresChangesHarness
