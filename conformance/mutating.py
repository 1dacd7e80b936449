"""Whether the kit, with an author's harness, notices small defects of the backend.

The backend's package is copied, and one place of the copy is changed at a time. A
separate process runs the kit on each such mutant until a case fails. A mutant that
passes every case has survived: it changes nothing that can be observed, or the harness
lacks an ability, or the kit a case.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streamfactory.conformance.mutant import LOADING
from streamfactory.conformance.mutations import Mutation, mutations_of
from streamfactory.spi import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streamfactory.conformance.case import Case
    from streamfactory.conformance.subject import Subject

_START: Final = 60.0
"""Seconds for a process to start, beside its cases."""
_LEAST: Final = 30.0
"""Seconds that each case has with a mutant, beside ten times what it takes without."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A backend with one change."""

    module: str
    """Path of the module in its package: ``streamfactory_redis/reading.py``."""
    mutation: Mutation
    reached_by: int = 0
    """Cases that execute its line."""

    def __str__(self) -> str:
        where = f" {self.mutation.where}" if self.mutation.where else ""
        place = f"{self.module}:{self.mutation.line}{where}"
        return f"{place}: {self.mutation.kind}, {self.mutation}"


@dataclass(frozen=True, slots=True)
class Tried:
    """A mutant, and the case that caught it."""

    mutant: Mutant
    caught_by: str | None = None
    """None where it survived."""
    reason: str = ""
    seconds: float = 0.0


@dataclass(slots=True)
class Mutated:
    """What became of the mutants of a run."""

    possible: int
    """Mutants that the package can have, without those that are named equivalent."""
    equivalent: int
    tried: list[Tried] = field(default_factory=list)
    left_out: int = 0
    """Chosen, but the time was over."""

    @property
    def survivors(self) -> list[Tried]:
        """Mutants that no case caught; first those whose line most cases execute."""
        found = [one for one in self.tried if one.caught_by is None]
        return sorted(found, key=lambda one: -one.mutant.reached_by)


@dataclass(frozen=True, slots=True)
class Equivalent:
    """A mutant that changes nothing that can be observed, by its author's judgement."""

    module: str
    where: str
    before: str
    after: str
    reason: str
    line: str = ""
    """The text of its line, where the function has the text before twice."""

    def names(self, module: str, mutation: Mutation) -> bool:
        """Whether it is this one, wherever its line is."""
        found = (module, mutation.where, mutation.before, mutation.after)
        named = found == (self.module, self.where, self.before, self.after)
        return named and self.line in ("", mutation.text)


def read_equivalents(path: Path) -> list[Equivalent]:
    """The mutants of a TOML file, each ``[[equivalent]]`` with the fields of the class.

    Raises:
        ConfigError: config; it cannot be read, or an entry lacks something.
    """
    try:
        body = tomllib.loads(path.read_text(encoding="utf-8"))
        return [Equivalent(**entry) for entry in body.pop("equivalent", [])]
    except (OSError, ValueError, TypeError) as error:
        msg = f"the equivalent mutants {str(path)!r} cannot be read: {error}"
        raise ConfigError(msg) from error


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run tries."""

    subject: Subject
    cases: Sequence[Case[Any]]
    harness_path: str | None = None
    """As the command has it; the registered one where it is None."""
    count: int = 50
    seed: int = 0
    time_limit: float = 120.0
    """Seconds that a case may take."""
    seconds: float = 3600.0
    """Seconds after which no further mutant is tried."""
    equivalents: Sequence[Equivalent] = ()
    more: Mapping[str, Subject] = field(default_factory=dict)
    """The same type with other harnesses of the author's, by their paths: a mutant has
    survived when the cases of all of them pass."""


def mutate(plan: Plan, progress: Callable[[str], None]) -> Mutated:
    """Try so many mutants, each in a process of its own.

    Args:
        plan: What to try.
        progress: Is called with a line of text before each step.

    Raises:
        ConfigError: config; the backend does not pass its kit as it is, or has no
            source, or an equivalent mutant is named that the package has not.
    """
    ends = time.monotonic() + plan.seconds
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = PackageCopy(plan, Path(folder))
        progress("the backend as it is")
        examined = [copy.examine(path) for path in (plan.harness_path, *plan.more)]
        every = copy.mutants(*examined)
        found = _without(plan.equivalents, every)
        chance = random.Random(plan.seed)  # noqa: S311 - nothing is secret
        chosen = chance.sample(found, min(plan.count, len(found)))
        result = Mutated(len(found), len(every) - len(found))
        for number, mutant in enumerate(chosen):
            if time.monotonic() > ends:
                result.left_out = len(chosen) - number
                break
            progress(f"[{number + 1}/{len(chosen)}] {mutant}")
            result.tried.append(copy.attempt(mutant, *examined))
    return result


def _without(equivalents: Sequence[Equivalent], found: list[Mutant]) -> list[Mutant]:
    for one in equivalents:
        count = sum(one.names(m.module, m.mutation) for m in found)
        if count != 1:
            what = f"{one.module} {one.where}: {one.before!r} -> {one.after!r}"
            msg = f"the package has {count or 'no'} mutant{'s' * (count > 1)} {what}"
            remedy = "state its line" if count else "take the entry out of the file"
            raise ConfigError(msg, remedy=remedy)
    return [
        m
        for m in found
        if not any(one.names(m.module, m.mutation) for one in equivalents)
    ]


@dataclass(frozen=True, slots=True)
class Examined:
    """What the cases do with the backend as it is."""

    seconds: Mapping[str, float]
    reached: Mapping[str, Mapping[str, list[str]]]
    """Cases by module and line."""
    with_children: Sequence[str]
    """Cases that start processes: which lines those reach is not known."""
    narrowed: Sequence[str] = ()
    """Cases that could not examine everything."""
    harness: str | None = None
    """The path of the harness; the registered one where it is None."""

    def cases_at(self, module: str, mutation: Mutation) -> set[str]:
        """The cases that execute a statement; all, where loading does."""
        lines = self.reached.get(module, {})
        first, last = mutation.lines
        found = {case for n in range(first, last + 1) for case in lines.get(str(n), ())}
        return set(self.seconds) if LOADING in found else found

    def order(self, mutant: Mutant) -> list[str]:
        """Cases that may notice a mutant, those that most likely do first."""
        near = self.cases_at(mutant.module, mutant.mutation)
        return sorted(
            near | set(self.with_children),
            key=lambda name: (name not in near, self.seconds[name]),
        )


class PackageCopy:
    """A copy of the package of a backend, in which one place is changed at a time."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan = plan
        self._root = folder
        modules = _modules(plan.subject)
        top = modules[0].partition(".")[0]
        source = _source(top)
        target = folder / source.name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, target, ignore=ignored)
        else:
            shutil.copy(source, target)
        self._harnesses = [s.harness for s in (plan.subject, *plan.more.values())]
        self._files = sorted({file for name in modules for file in self._of(name)})

    def mutants(self, *examined: Examined) -> list[Mutant]:
        """All that the copy can have."""
        return [
            self._mutant(file, mutation, examined)
            for file in self._files
            for mutation in mutations_of(file.read_text(encoding="utf-8"))
            if not self._of_harness(file, mutation)
        ]

    def examine(self, harness: str | None = None) -> Examined:
        """Run every case on the backend as it is, with a harness of the plan."""
        limits = {case.name: self._plan.time_limit for case in self._plan.cases}
        every = Examined({}, {}, (), harness=harness or self._plan.harness_path)
        seconds = _START + sum(limits.values())
        answer = self._run(every, limits, seconds, count=True)
        if isinstance(answer, str):
            msg = f"the kit did not end on the backend as it is: {answer}"
            raise ConfigError(msg)
        if answer["failed"]:
            case, why = answer["failed"]
            msg = f"mutants say nothing of a backend that fails {case}: {why}"
            raise ConfigError(msg, remedy="run the kit, and mend what it finds")
        del answer["failed"]
        return replace(every, **answer)

    def attempt(self, mutant: Mutant, *examined: Examined) -> Tried:
        """Run the cases of each harness on a mutant until one fails."""
        path = self._root / mutant.module
        whole = path.read_text(encoding="utf-8")
        begun = time.monotonic()
        path.write_text(mutant.mutation.apply(whole), encoding="utf-8")
        try:
            found = (self._caught(mutant, one) for one in examined)
            case, why = next(filter(None, found), (None, ""))
        finally:
            path.write_text(whole, encoding="utf-8")
        return Tried(mutant, case, why, time.monotonic() - begun)

    def _caught(self, mutant: Mutant, examined: Examined) -> tuple[str, str] | None:
        """The case that fails on a mutant that is in place, and why."""
        usual = {name: examined.seconds[name] for name in examined.order(mutant)}
        longest = self._plan.time_limit
        limits = {case: min(longest, _LEAST + 10 * t) for case, t in usual.items()}
        answer = self._run(examined, limits, _START + 10 * sum(usual.values()))
        if isinstance(answer, str):
            return "the process", answer
        return tuple(answer["failed"]) if answer["failed"] else None

    def _run(
        self,
        examined: Examined,
        limits: Mapping[str, float],
        seconds: float,
        *,
        count: bool = False,
    ) -> Any:
        """The answer of a process that runs cases; text that says how it ended."""
        asked = {
            "type": self._plan.subject.name,
            "harness": examined.harness,
            "overrides": dict(self._plan.subject.overrides),
            "cases": limits,
            "narrowed": [*examined.narrowed],
            "seed": self._plan.seed,
            "count": count,
            "root": str(self._root),
            "path": [str(Path.cwd())] if examined.harness else [],
        }
        paths = [str(self._root), *filter(None, [os.environ.get("PYTHONPATH")])]
        process = subprocess.Popen(
            [sys.executable, "-m", "streamfactory.conformance.mutant"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            # Its servers end with it.
            start_new_session=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(paths),
                # The copy is found before the folder that the command runs in, and no
                # compiled file of another mutant is used.
                "PYTHONSAFEPATH": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
            },
        )
        try:
            text, _ = process.communicate(json.dumps(asked), seconds)
        except subprocess.TimeoutExpired:
            return f"no end within {seconds:.0f} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        try:
            return json.loads(text)
        except ValueError:
            return f"the process ended with status {process.returncode}"

    def _of(self, module: str) -> list[Path]:
        """Files with the modules of the package around a module."""
        path = self._root.joinpath(*module.split("."))
        package = path if path.is_dir() else path.parent
        if package == self._root:
            return [path.with_suffix(".py")]
        return sorted(package.rglob("*.py"))

    def _of_harness(self, file: Path, mutation: Mutation) -> bool:
        """Whether a change is one of a harness, which is not under test."""
        path = file.relative_to(self._root).with_suffix("")
        module = ".".join(path.parts).removesuffix(".__init__")
        names = [h.__name__ for h in self._harnesses if h.__module__ == module]
        shared = module == _modules(self._plan.subject)[0]
        return mutation.where.split(".")[0] in names if shared else bool(names)

    def _mutant(
        self, file: Path, mutation: Mutation, examined: Sequence[Examined]
    ) -> Mutant:
        module = file.relative_to(self._root).as_posix()
        reached = sum(len(one.cases_at(module, mutation)) for one in examined)
        return Mutant(module, mutation, reached)


def _modules(subject: Subject) -> list[str]:
    """Names of the modules with the backend's factories."""
    backend = subject.backend
    made = (backend.consumer_factory, backend.producer_factory, backend.topic_admin)
    return [factory.__module__ for factory in made if factory is not None]


def _source(top: str) -> Path:
    """The folder of a package, or the file of a module."""
    module = sys.modules[top]
    for found in (*getattr(module, "__path__", ()), module.__file__):
        if found is not None and Path(found).exists():
            return Path(found)
    msg = f"{top} has no source"
    raise ConfigError(msg)
