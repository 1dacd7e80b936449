"""The kit passes on a real broker, without waivers; here without its slow cases."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from streamfactory.backends.kafka.harness import KafkaHarness
from streamfactory.conformance.runner import Outcome, run
from streamfactory.conformance.subject import find_subject
from streamfactory.conformance.suite import ConformanceSuite

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.kafka.broker import Addresses


_WAYS = ("reading", "writing")


@pytest.fixture(autouse=True)
def bootstrap(kafka: Addresses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", kafka.bootstrap)


class Native(KafkaHarness):
    """The harness, with the compiled path."""

    def properties(self) -> Mapping[str, str]:
        native = {f"stream.kafka.native.{way}": "required" for way in _WAYS}
        return {**super().properties(), **native}


def test_the_quick_kit_passes() -> None:
    subject = find_subject("kafka")
    results = list(run(subject, quick=True))
    outcomes = Counter(result.outcome for result in results)
    assert [r for r in results if r.outcome is Outcome.FAILED] == []
    assert outcomes[Outcome.PASSED] > 70


@pytest.mark.long("the whole kit on a broker: minutes")
class TestKafka(ConformanceSuite):
    harness = KafkaHarness


@pytest.mark.long("the whole kit on a broker: minutes")
@pytest.mark.usefixtures("native")
class TestKafkaNatively(ConformanceSuite):
    harness = Native
