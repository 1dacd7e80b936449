"""The kit passes on a real broker, without waivers; here without its slow cases."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.conformance.parts import chapters, failures, run_part, slow_cases

from streamfactory.backends.kafka.harness import KafkaHarness
from streamfactory.conformance.runner import Outcome, all_cases

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
    cases = [case for case in all_cases() if not case.slow]
    results = run_part(KafkaHarness, cases)
    assert failures(results) == {}
    outcomes = Counter(result.outcome for result in results)
    assert outcomes[Outcome.PASSED] > 70


@pytest.mark.long("slow cases on a broker: minutes")
def test_the_slow_cases_pass() -> None:
    assert failures(run_part(KafkaHarness, slow_cases())) == {}


@pytest.mark.long("large parts of the kit once more")
@pytest.mark.usefixtures("native")
def test_the_compiled_path_reads_and_writes_as_the_python_one() -> None:
    """Compiled code fetches and sends: rows, positions, commits and what a client
    reports of its connection; administration and groups have no such code."""
    reading = ("reading", "holding", "envelopes", "metadata", "lifecycle", "metrics")
    writing = ("connections", "processes", "writing", "commits", "kills")
    assert failures(run_part(Native, chapters(*reading, *writing))) == {}
