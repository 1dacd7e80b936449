"""Running cases: each in a world of its own, with a leak check behind it."""

from __future__ import annotations

import importlib
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streamfactory.conformance import leaks
from streamfactory.conformance.bench import Bench
from streamfactory.conformance.case import CASES, Case
from streamfactory.spi import ConsumerFactory, MetadataProvider, PartitionLevelConsumer

if TYPE_CHECKING:
    from streamfactory.spi import Backend
    from streamfactory.wiring.plugins import PluginManager

_MODULES: Final = ("reading", "metadata", "lifecycle", "writing")

HarnessFactory = Callable[[Path], Any]


class Outcome(Enum):
    """What came of a case."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """Not claimed, or not within the harness's abilities: the reason names which."""


@dataclass(frozen=True, slots=True)
class Result:
    """One case's outcome, with everything that a report says of it."""

    case: Case
    outcome: Outcome
    seconds: float = 0.0
    reason: str = ""
    """Why it was skipped, or what happened."""
    script: tuple[str, ...] = field(default=())
    """What was done before it failed."""
    trace: str = ""


def all_cases() -> list[Case]:
    """Every case of the kit, in order."""
    for module in _MODULES:
        importlib.import_module(f"streamfactory.conformance.cases.{module}")
    return list(CASES.values())


def run(
    backend: Backend,
    harness: HarnessFactory,
    plugins: PluginManager,
    *,
    cases: Iterable[Case] | None = None,
    overrides: Mapping[str, str] | None = None,
) -> Iterator[Result]:
    """Run cases, one after the other; answers each result when it is there."""
    for case in cases if cases is not None else all_cases():
        yield run_case(case, backend, harness, plugins, overrides or {})


def run_case(
    case: Case,
    backend: Backend,
    harness: HarnessFactory,
    plugins: PluginManager,
    overrides: Mapping[str, str],
) -> Result:
    """Run one case in a fresh folder, and look for what it left open."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        before = leaks.take()
        bench = Bench(backend, harness(Path(folder)), plugins, overrides)
        try:
            reason = _excluded(case, bench)
            if reason is not None:
                return Result(case, Outcome.SKIPPED, reason=reason)
            case.body(bench)
        except Exception as error:  # noqa: BLE001 - whatever happens is the result
            return _failed(case, bench, started, error)
        finally:
            bench.close()
        left = leaks.left_since(before)
    seconds = time.monotonic() - started
    if left:
        reason = f"rule R10: left open: {'; '.join(left)}"
        return Result(case, Outcome.FAILED, seconds, reason, tuple(bench.script))
    return Result(case, Outcome.PASSED, seconds)


def _failed(case: Case, bench: Bench, started: float, error: Exception) -> Result:
    happened = str(error) or type(error).__name__
    if not isinstance(error, AssertionError):
        happened = f"{type(error).__name__}: {happened}"
    return Result(
        case,
        Outcome.FAILED,
        time.monotonic() - started,
        happened,
        tuple(bench.script),
        traceback.format_exc(),
    )


def _excluded(case: Case, bench: Bench) -> str | None:
    backend = bench.backend
    factory = backend.producer_factory if case.writing else backend.consumer_factory
    if factory is None:
        return f"the type cannot be {'written' if case.writing else 'read'}"
    bench.harness.create(1)
    used = bench.configured("write" if case.writing else "read")
    claims = factory(used.config).claims()
    for name in case.claims:
        wanted, _, value = name.partition("=")
        claimed = getattr(claims, wanted)
        if (claimed.value != value) if value else not claimed:
            return f"not claimed: {name}"
    missing = [name for name in case.abilities if not _able(name, bench)]
    return f"no ability: {', '.join(missing)}" if missing else None


def _able(name: str, bench: Bench) -> bool:
    """An ability is a method of the harness, or an overridden one of the backend."""
    if callable(getattr(bench.harness, name, None)):
        return True
    factory: type[ConsumerFactory] | None = bench.backend.consumer_factory
    if factory is None:
        return False
    if hasattr(MetadataProvider, name):
        kind: type[Any] = type(bench.provider())
        return getattr(kind, name) is not getattr(MetadataProvider, name)
    if hasattr(PartitionLevelConsumer, name):
        kind = type(bench.consumer(bench.harness.partitions()[0]))
        return getattr(kind, name) is not getattr(PartitionLevelConsumer, name)
    return False
