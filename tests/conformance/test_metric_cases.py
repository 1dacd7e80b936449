"""The kit's cases of metrics, in a process that has counted many streams before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streamfactory.conformance.runner import Outcome, all_cases, run
from streamfactory.conformance.subject import find_subject
from streamfactory.spi import Sample
from streamfactory.wiring.metrics.registry import MOST_SERIES, registry
from streamfactory.wiring.metrics.vocabulary import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = next(metric for metric in METRICS if metric.name == "read.rows")


class ManyPartitions:
    """A tally of the kit's stream with as many partitions as have series."""

    def counters(self) -> list[Sample]:
        partitions = map(str, range(MOST_SERIES))
        return [Sample(ROWS, ("conformance", "t", one), 1) for one in partitions]

    def gauges(self) -> list[Sample]:
        return []


@pytest.fixture(autouse=True)
def counted() -> Iterator[None]:
    owner = ManyPartitions()
    registry.track(owner, ManyPartitions())
    registry.samples()
    yield
    registry.clear()


def test_metrics_are_those_of_the_case_alone() -> None:
    subject = find_subject("memory")
    cases = [case for case in all_cases() if "metrics" in case.name]
    assert cases
    results = run(subject, cases=cases)
    assert {one.case.name: one.outcome for one in results} == {
        case.name: Outcome.PASSED for case in cases
    }
