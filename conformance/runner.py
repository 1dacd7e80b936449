"""Runs cases: each with a separate harness, followed by a check for leaks."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import tempfile
import time
import traceback
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from streamfactory.conformance import cases as chapters
from streamfactory.conformance import leaks
from streamfactory.conformance.case import (
    CASES,
    DECODER_CASES,
    SCHEME_CASES,
    B,
    Case,
    Registry,
)
from streamfactory.conformance.expectations import Excluded, HarnessFailed
from streamfactory.conformance.limits import SECONDS, Stuck, run_within
from streamfactory.conformance.workbench import Workbench

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streamfactory.conformance.bench import Bench
    from streamfactory.conformance.decoders import DecoderBench
    from streamfactory.conformance.patience import Waits
    from streamfactory.conformance.schemes import SchemeBench

_TIDY: Final = "unused_objects_leave_nothing_open"

_LETTERS: Final = "RMWDPCH"
"""The chapters of the rules, in their order; C of configurations, H of harnesses."""

_ANYTHING: Final = (Exception, SystemExit)
"""Whatever a stranger's code raises is a result, and ends no run."""


class Outcome(Enum):
    """The result of a case."""

    PASSED = "passed"
    FAILED = "failed"
    NARROWED = "narrowed"
    """Passed, but a part could not be examined: the reason names it."""
    SKIPPED = "skipped"
    """Not claimed, not within the abilities, or left out: the reason names which."""
    WAIVED = "waived"
    """Failed, and accepted by the author: the waiver has the reason and a last day."""


@dataclass(frozen=True, slots=True)
class Result:
    """One case's outcome, with everything that a report says of it."""

    case: Case[Any]
    outcome: Outcome
    seconds: float = 0.0
    reason: str = ""
    """Why it was skipped or narrowed, or what happened."""
    script: tuple[str, ...] = ()
    """What was done before it failed."""
    trace: str = ""
    waiver: str = ""
    """What a waiver says of it."""
    by_harness: bool = False
    """The harness failed, not the plug-in: nothing is known of the case."""


class Provable(Protocol[B]):
    """What cases are run on: `Subject`, `DecoderSubject` or `SchemeSubject`."""

    @property
    def name(self) -> str:
        """What is proved."""

    @property
    def registry(self) -> Registry[B]:
        """The cases of its kind."""

    @property
    def waits(self) -> Waits:
        """How long cases wait."""

    def prepare(self) -> None:
        """Start what is shared between cases."""

    def open(self, folder: Path, seed: int = 0) -> B:
        """The environment of a case: a `Workbench`."""


def all_cases() -> list[Case[Bench]]:
    """Every case of backends, in the order of the rules, behind what it builds on."""
    return _ordered(CASES)


def decoder_cases() -> list[Case[DecoderBench]]:
    """Every case of decoders."""
    return _ordered(DECODER_CASES)


def scheme_cases() -> list[Case[SchemeBench]]:
    """Every case of schemes of references."""
    return _ordered(SCHEME_CASES)


def _ordered(registry: Registry[B]) -> list[Case[B]]:
    for module in pkgutil.iter_modules(chapters.__path__):
        importlib.import_module(f"{chapters.__name__}.{module.name}")
    placed: dict[str, Case[B]] = {}

    def place(case: Case[B]) -> None:
        for name in case.needs:
            place(registry[name])
        placed.setdefault(case.name, case)

    for case in sorted(registry.values(), key=_place):
        place(case)
    return list(placed.values())


def _place(case: Case[Any]) -> tuple[bool, bool, int, int, str]:
    letter, number = case.rule[:1], case.rule[1:]
    known = _LETTERS.find(letter) if letter in _LETTERS else len(_LETTERS)
    number_of = int(number) if number.isdecimal() else 0
    return case.whole, not case.first, known, number_of, case.rule


def run(
    subject: Provable[B],
    *,
    cases: Iterable[Case[B]] | None = None,
    quick: bool = False,
    seed: int = 0,
    time_limit: float = SECONDS,
) -> Iterator[Result]:
    """Run cases, one after the other; yields each result when the case has ended.

    Args:
        subject: Under test, with its harness.
        cases: All of its kind, where not given.
        quick: Skip slow cases.
        seed: Seed of the random choices.
        time_limit: Seconds that a case may take. One that takes longer has failed; its
            thread is left behind.
    """
    unshown: set[str] = set()
    for case in _ordered(subject.registry) if cases is None else cases:
        if quick and case.slow:
            yield Result(case, Outcome.SKIPPED, reason="slow: left out by --quick")
            continue
        # What a case builds on and did not pass: it would only say so again.
        missing = next((name for name in case.needs if name in unshown), None)
        if missing is not None:
            unshown.add(case.name)
            reason = f"not run: it builds on {missing}, which has not passed"
            yield Result(case, Outcome.SKIPPED, reason=reason)
            continue
        result = run_case(
            case,
            subject,
            seed=seed,
            # Where unused objects leave something open, every case would say so.
            tidy=_TIDY not in unshown,
            time_limit=time_limit,
        )
        if result.outcome is Outcome.FAILED:
            unshown.add(case.name)
        yield result


def run_case(
    case: Case[B],
    subject: Provable[B],
    *,
    seed: int = 0,
    tidy: bool = True,
    time_limit: float = SECONDS,
) -> Result:
    """Run one case in a fresh folder, and look for what it left open.

    It runs in a separate thread, which is abandoned when the time limit passes.

    A case that left something open runs again: other users of the process open files
    and start threads at any time, only a leak that repeats is reported.
    """
    started = time.monotonic()
    others = leaks.take()

    def once() -> tuple[Result, list[str]]:
        return _run_once(case, subject, seed, others, tidy=tidy)

    try:
        subject.prepare()
        result, left = run_within(time_limit, once)
        if left:
            result, left = run_within(time_limit, once)
    except HarnessFailed as error:
        result, left = _failed(case, None, error), []
    except Stuck as stuck:
        result = Result(case, Outcome.FAILED, reason=stuck.what, trace=stuck.trace)
        left = []
    if left:
        reason = f"rule R10: left open: {'; '.join(left)}"
        result = replace(result, outcome=Outcome.FAILED, reason=reason)
    if result.outcome is Outcome.SKIPPED:
        return result
    if result.outcome is not Outcome.FAILED:
        result = replace(result, script=())
    return replace(result, seconds=time.monotonic() - started)


def _run_once(
    case: Case[B],
    subject: Provable[B],
    seed: int,
    others: leaks.Inventory,
    *,
    tidy: bool,
) -> tuple[Result, list[str]]:
    """The result of one run, and descriptions of what it left open.

    ``others`` is the inventory before the first run.
    """
    # What a case could not close may still write while the folder is removed.
    with tempfile.TemporaryDirectory(
        prefix="conformance-", ignore_cleanup_errors=True
    ) as folder:
        before = leaks.take()
        bench = subject.open(Path(folder), seed)
        assert isinstance(bench, Workbench)
        result = _judged(case, bench)
        try:
            bench.close()
        except _ANYTHING as error:
            if result.outcome is not Outcome.FAILED:
                result = _failed(case, bench, error)
        if result.outcome in (Outcome.FAILED, Outcome.SKIPPED):
            return result, []
        return result, leaks.left_since(before, others, subject.waits) if tidy else []


def _judged(case: Case[Any], bench: Workbench[Any]) -> Result:
    try:
        bench.excluded(case)
        case.body(bench)
    except Excluded as error:
        return Result(case, Outcome.SKIPPED, reason=str(error))
    except _ANYTHING as error:
        return _failed(case, bench, error)
    outcome = Outcome.NARROWED if bench.narrowed else Outcome.PASSED
    reason = "; ".join(bench.narrowed)
    return Result(case, outcome, reason=reason, script=tuple(bench.script))


def _failed(
    case: Case[Any], bench: Workbench[Any] | None, error: BaseException
) -> Result:
    happened = str(error) or type(error).__name__
    by_harness = isinstance(error, HarnessFailed)
    if by_harness:
        happened = f"the harness failed, not the backend: {happened}"
    elif not isinstance(error, AssertionError):
        happened = f"{type(error).__name__}: {happened}"
    texts = [happened, traceback.format_exc(), *(bench.script if bench else ())]
    if bench is not None:
        # Where the configuration is what fails, its error is masked already.
        with contextlib.suppress(*_ANYTHING):
            texts = list(map(bench.mask(), texts))
    reason, trace, *script = texts
    return Result(
        case,
        Outcome.FAILED,
        reason=reason,
        script=tuple(script),
        trace=trace,
        by_harness=by_harness,
    )
