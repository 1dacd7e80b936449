"""The kit passes for ``iceberg``, on tables that ``pyiceberg`` writes."""

from __future__ import annotations

import pytest

from streamfactory.backends.iceberg.harness import IcebergHarness
from streamfactory.conformance.runner import Outcome, all_cases, run
from streamfactory.conformance.subject import find_subject
from streamfactory.conformance.suite import ConformanceSuite


@pytest.mark.long("each write of pyiceberg takes a tenth of a second")
class TestIceberg(ConformanceSuite):
    harness = IcebergHarness
    time_limit = 600.0  # a child that imports pyiceberg takes 30 s on a busy machine


def test_the_quick_kit_passes() -> None:
    subject = find_subject("iceberg")
    names = {
        "offsets_rise_and_nothing_is_missing",
        "a_start_is_inclusive",
        "an_empty_fetch_returns_within_its_time_slice",
        "a_range_split_anywhere_equals_the_whole",
        "a_recreated_topic_has_another_incarnation",
        "bounds_are_true",
        "a_factory_pickles",
        "a_repeated_epoch_has_no_effect",
        "a_later_instance_fences_an_earlier_one",
        "the_last_epoch_and_its_position_are_remembered",
    }
    cases = [case for case in all_cases() if case.name in names]
    assert {case.name for case in cases} == names
    results = list(run(subject, cases=cases))
    wrong = [r.case.name for r in results if r.outcome is not Outcome.PASSED]
    assert not wrong
