"""Parts of the kit, for a second harness of a type: what can differ there.

One run of a type has the whole kit. Where the same type is run again, over TLS, by
another format or transport, or by compiled code, the docstring of the test states what
the repetition is for, and it runs the chapters that this can influence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamfactory.conformance.runner import Outcome, all_cases, run
from streamfactory.conformance.subject import subject_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamfactory.conformance.bench import Bench
    from streamfactory.conformance.case import Case
    from streamfactory.conformance.runner import Result
    from streamfactory.conformance.subject import Subject


def chapters(*names: str) -> list[Case[Bench]]:
    """The cases of modules of `streamfactory.conformance.cases`, and all they need."""
    modules = {f"streamfactory.conformance.cases.{name}" for name in names}
    cases = all_cases()
    missing = modules - {case.body.__module__ for case in cases}
    assert not missing, f"no such chapters: {missing}"
    return with_needs(case for case in cases if case.body.__module__ in modules)


def slow_cases() -> list[Case[Bench]]:
    """The cases that ``--quick`` leaves out, for a type whose quick kit another test
    runs: what they need passes there."""
    return [case for case in all_cases() if case.slow]


def with_needs(cases: Iterable[Case[Bench]]) -> list[Case[Bench]]:
    """Cases and those that they build on, in the order of the kit."""
    chosen = {case.name for case in cases}
    ordered = all_cases()
    for case in reversed(ordered):  # what a case needs precedes it
        if case.name in chosen:
            chosen.update(case.needs)
    return [case for case in ordered if case.name in chosen]


def run_part(harness: type[Any], cases: Iterable[Case[Bench]]) -> list[Result]:
    """The results of cases on a harness, most of which are not skipped."""
    results = list(run(subject_of(harness), cases=cases))
    passed = [r for r in results if r.outcome in {Outcome.PASSED, Outcome.NARROWED}]
    ended = len(passed) + len(failures(results))
    assert ended > len(results) / 4, "most cases were skipped"
    return results


def check_live_writing(subject: Subject) -> None:
    """Of the cases of writing, a type that only sends passes a few; others skip."""
    writing = [case for case in all_cases() if case.writing]
    results = list(run(subject, cases=writing))
    passed = {r.case.name for r in results if r.outcome is Outcome.PASSED}
    assert passed == {
        "a_pickled_factory_writes_the_same",
        "an_empty_epoch_commits",
        "abort_tolerates_missing_messages_and_repetition",
        "rows_go_to_the_partition_they_name",
        "no_restart_loses_an_epoch",
        "writes_of_any_size_are_whole",
    }
    others = [r for r in results if r.case.name not in passed]
    assert {r.outcome for r in others} == {Outcome.SKIPPED}
    assert {r.reason.partition("=")[0] for r in others} == {
        "not claimed: durable",
        "not claimed: epoch_visibility",
        "not claimed: idempotent",
        "readers and writers use the two ends of a wire",
    }


def failures(results: Iterable[Result]) -> dict[str, str]:
    """The reason of each case that failed."""
    return {r.case.name: r.reason for r in results if r.outcome is Outcome.FAILED}
