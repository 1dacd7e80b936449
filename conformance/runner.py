"""Runs cases: each with a separate harness, followed by a check for leaks."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streamfactory.conformance import cases as chapters
from streamfactory.conformance import leaks
from streamfactory.conformance.bench import Bench
from streamfactory.conformance.case import CASES, Case
from streamfactory.conformance.expectations import Excluded, HarnessFailed
from streamfactory.conformance.guarding import guarded
from streamfactory.conformance.limits import SECONDS, Stuck, run_within
from streamfactory.spi import (
    ConsumerFactory,
    EpochVisibility,
    MetadataProvider,
    PartitionLevelConsumer,
)

if TYPE_CHECKING:
    from streamfactory.spi import Backend, Claims
    from streamfactory.wiring.plugins.manager import PluginManager

_TIDY: Final = "unused_objects_leave_nothing_open"

_LETTERS: Final = "RMWDPH"
"""The chapters of the rules, in their order; H are the harness's own."""

_ANYTHING: Final = (Exception, SystemExit)
"""Whatever a stranger's code raises is a result, and ends no run."""

HarnessFactory = Callable[[Path], Any]


class Outcome(Enum):
    """The result of a case."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """Not claimed, not within the abilities, or left out: the reason names which."""
    WAIVED = "waived"
    """Failed, and accepted by the author: the waiver has the reason and a last day."""


@dataclass(frozen=True, slots=True)
class Result:
    """One case's outcome, with everything that a report says of it."""

    case: Case
    outcome: Outcome
    seconds: float = 0.0
    reason: str = ""
    """Why it was skipped, or what happened."""
    script: tuple[str, ...] = ()
    """What was done before it failed."""
    trace: str = ""
    waiver: str = ""
    """What a waiver says of it."""
    by_harness: bool = False
    """The harness failed, not the backend: nothing is known of the case."""


def all_cases() -> list[Case]:
    """Every case of the kit, in the order of the rules, behind what it builds on."""
    for module in pkgutil.iter_modules(chapters.__path__):
        importlib.import_module(f"{chapters.__name__}.{module.name}")
    placed: dict[str, Case] = {}

    def place(case: Case) -> None:
        for name in case.needs:
            place(CASES[name])
        placed.setdefault(case.name, case)

    for case in sorted(CASES.values(), key=_place):
        place(case)
    return list(placed.values())


def _place(case: Case) -> tuple[bool, bool, int, int, str]:
    letter, number = case.rule[:1], case.rule[1:]
    known = _LETTERS.find(letter) if letter in _LETTERS else len(_LETTERS)
    number_of = int(number) if number.isdecimal() else 0
    return case.whole, not case.first, known, number_of, case.rule


def run(
    backend: Backend,
    harness: HarnessFactory,
    plugins: PluginManager,
    *,
    cases: Iterable[Case] | None = None,
    overrides: Mapping[str, str] | None = None,
    quick: bool = False,
    seed: int = 0,
    time_limit: float = SECONDS,
) -> Iterator[Result]:
    """Run cases, one after the other; yields each result when the case has ended.

    Args:
        backend: Under test.
        harness: Called with a fresh folder for each case.
        plugins: Where the backend is found.
        cases: All, where not given.
        overrides: Properties over those of the harness.
        quick: Skip slow cases.
        seed: Seed of the random choices.
        time_limit: Seconds that a case may take. One that takes longer has failed; its
            thread is left behind.
    """
    unshown: set[str] = set()
    for case in cases if cases is not None else all_cases():
        if quick and case.slow:
            yield Result(case, Outcome.SKIPPED, reason="slow: left out by --quick")
            continue
        missing = _missing(case, unshown)
        if missing is not None:
            unshown.add(case.name)
            reason = f"not run: it builds on {missing}, which has not passed"
            yield Result(case, Outcome.SKIPPED, reason=reason)
            continue
        result = run_case(
            case,
            backend,
            harness,
            plugins,
            overrides or {},
            seed=seed,
            # Where unused objects leave something open, every case would say so.
            tidy=_TIDY not in unshown,
            time_limit=time_limit,
        )
        if result.outcome is Outcome.FAILED:
            unshown.add(case.name)
        yield result


def _missing(case: Case, unshown: Collection[str]) -> str | None:
    """What a case builds on and did not pass: then it would only say so again."""
    return next((name for name in case.needs if name in unshown), None)


def run_case(
    case: Case,
    backend: Backend,
    harness: HarnessFactory,
    plugins: PluginManager,
    overrides: Mapping[str, str],
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
        return _run_once(
            case, backend, harness, plugins, overrides, seed, others, tidy=tidy
        )

    try:
        prepare = getattr(harness, "prepare", None)
        if prepare is not None:
            guarded(prepare, harness, "prepare")()
        result, left = run_within(time_limit, once)
        if left:
            result, left = run_within(time_limit, once)
    except HarnessFailed as error:
        return _failed(case, None, started, error)
    except Stuck as stuck:
        seconds = time.monotonic() - started
        return Result(case, Outcome.FAILED, seconds, stuck.what, trace=stuck.trace)
    if result.outcome is not Outcome.PASSED:
        return result
    seconds = time.monotonic() - started
    if left:
        reason = f"rule R10: left open: {'; '.join(left)}"
        return replace(result, outcome=Outcome.FAILED, seconds=seconds, reason=reason)
    return Result(case, Outcome.PASSED, seconds)


def _run_once(
    case: Case,
    backend: Backend,
    harness: HarnessFactory,
    plugins: PluginManager,
    overrides: Mapping[str, str],
    seed: int,
    others: leaks.Inventory,
    *,
    tidy: bool,
) -> tuple[Result, list[str]]:
    """The result of one run, and descriptions of what it left open.

    ``others`` is the inventory before the first run.
    """
    started = time.monotonic()
    # What a case could not close may still write while the folder is removed.
    with tempfile.TemporaryDirectory(
        prefix="conformance-", ignore_cleanup_errors=True
    ) as folder:
        try:
            before = leaks.take()
            made = guarded(harness, harness, "__init__")(Path(folder))
        except HarnessFailed as error:
            return _failed(case, None, started, error), []
        bench = Bench(backend, made, plugins, overrides, seed)
        result = _judged(case, bench, started)
        try:
            bench.close()
        except _ANYTHING as error:
            if result.outcome is not Outcome.FAILED:
                result = _failed(case, bench, started, error)
        if result.outcome is not Outcome.PASSED:
            return result, []
        result = replace(result, script=tuple(bench.script))
        return result, leaks.left_since(before, others) if tidy else []


def _judged(case: Case, bench: Bench, started: float) -> Result:
    try:
        reason = _excluded(case, bench)
        if reason is not None:
            return Result(case, Outcome.SKIPPED, reason=reason)
        case.body(bench)
    except Excluded as error:
        return Result(case, Outcome.SKIPPED, reason=str(error))
    except _ANYTHING as error:
        return _failed(case, bench, started, error)
    return Result(case, Outcome.PASSED)


def _failed(
    case: Case, bench: Bench | None, started: float, error: BaseException
) -> Result:
    happened = str(error) or type(error).__name__
    by_harness = isinstance(error, HarnessFailed)
    if by_harness:
        happened = f"the harness failed, not the backend: {happened}"
    elif not isinstance(error, AssertionError):
        happened = f"{type(error).__name__}: {happened}"
    mask = _mask(bench)
    return Result(
        case,
        Outcome.FAILED,
        time.monotonic() - started,
        mask(happened),
        () if bench is None else tuple(map(mask, bench.script)),
        mask(traceback.format_exc()),
        by_harness=by_harness,
    )


def _mask(bench: Bench | None) -> Callable[[str], str]:
    """Takes the secrets of the configuration out of a text."""
    if bench is not None:
        # Where the configuration is what fails, its error is masked already.
        with contextlib.suppress(*_ANYTHING):
            return bench.configured().config.mask
    return str


def _excluded(case: Case, bench: Bench) -> str | None:
    backend = bench.backend
    factory = backend.producer_factory if case.writing else backend.consumer_factory
    if factory is None:
        return f"the type cannot be {'written' if case.writing else 'read'}"
    bench.harness.create(1)
    used = bench.configured("write" if case.writing else "read")
    # The one that is used: with a spool, streams are read by another factory.
    made = used.backend
    factory = made.producer_factory if case.writing else made.consumer_factory
    assert factory is not None
    claims = factory(used.config).claims()
    for name in case.claims:
        if not _is_claimed(claims, name):
            return f"not claimed: {name}"
    missing = [name for name in case.abilities if not _able(name, bench)]
    return f"no ability: {', '.join(missing)}" if missing else None


def _is_claimed(claims: Claims, name: str) -> bool:
    wanted, _, value = name.partition("=")
    claimed = getattr(claims, wanted)
    if isinstance(claimed, EpochVisibility):
        if value:
            return claimed.value == value
        return claimed is not EpochVisibility.NONE
    return bool(claimed)


def _able(name: str, bench: Bench) -> bool:
    """An ability is a method of the harness, or an overridden one of the backend."""
    if callable(getattr(bench.harness, name, None)):
        return True
    if bench.backend.consumer_factory is None:
        return False
    factory = bench.configured().backend.consumer_factory
    if hasattr(ConsumerFactory, name):
        return getattr(factory, name) is not getattr(ConsumerFactory, name)
    if hasattr(MetadataProvider, name):
        kind: type[Any] = type(bench.provider())
        return getattr(kind, name) is not getattr(MetadataProvider, name)
    if hasattr(PartitionLevelConsumer, name):
        kind = type(bench.consumer(bench.harness.partitions()[0]))
        return getattr(kind, name) is not getattr(PartitionLevelConsumer, name)
    return False
