"""The kit passes on a real broker, without waivers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streamfactory.backends.kafka.harness import KafkaHarness
from streamfactory.conformance.suite import ConformanceSuite

if TYPE_CHECKING:
    from tests.kafka.broker import Addresses


@pytest.fixture(autouse=True)
def bootstrap(kafka: Addresses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", kafka.bootstrap)


class TestKafka(ConformanceSuite):
    harness = KafkaHarness
