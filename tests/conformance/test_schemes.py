"""The kit finds what is wrong with a scheme of references."""

from __future__ import annotations

import itertools
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.proving.schemes import remote_scheme

from streamfactory.conformance.harness import SCHEME
from streamfactory.conformance.runner import Outcome, run, scheme_cases
from streamfactory.conformance.subject import SchemeSubject, find_scheme
from streamfactory.spi import (
    ConfigError,
    ConnectionFailed,
    NotAuthorized,
    ReferenceScheme,
    ResolvedReference,
    StreamTimeout,
    hookimpl,
)
from streamfactory.spi.hooks import REFERENCES
from streamfactory.wiring.plugins.manager import default_manager

if TYPE_CHECKING:
    from collections.abc import Iterator

STORE: dict[str, str] = {}
STALLED = threading.Event()
NUMBERS = itertools.count()


class Good:
    """The scheme, remote; defects override parts of it."""

    def find(self, what: str) -> str:
        if what not in STORE:
            msg = "there is no such value"
            raise ConfigError(msg)
        return STORE[what]

    def wait(self, seconds: float) -> None:
        if STALLED.is_set():
            time.sleep(seconds)
            msg = "no answer"
            raise StreamTimeout(msg)

    def look_up(self, what: str, seconds: float) -> ResolvedReference:
        self.wait(seconds)
        return ResolvedReference(self.find(what), 60.0)

    @hookimpl
    def streamfactory_reference(self) -> ReferenceScheme:
        return remote_scheme("kit", self.look_up)


class Trims(Good):
    def find(self, what: str) -> str:
        return super().find(what).strip()


class Caches(Good):
    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def find(self, what: str) -> str:
        return self._known.setdefault(what, super().find(what))


class FindsNothing(Good):
    def find(self, what: str) -> str:
        return STORE.get(what, "")


class MissingIsTransient(Good):
    def find(self, what: str) -> str:
        if what not in STORE:
            msg = "try later"
            raise ConnectionFailed(msg)
        return STORE[what]


class MissingIsRefused(Good):
    def find(self, what: str) -> str:
        if what not in STORE:
            msg = "no"
            raise NotAuthorized(msg)
        return STORE[what]


class Shows(Good):
    def find(self, what: str) -> str:
        if what not in STORE:
            msg = f"not one of {sorted(STORE.values())}"
            raise ConfigError(msg)
        return STORE[what]


class Shares(Good):
    def find(self, what: str) -> str:
        self._what = what
        time.sleep(0.005)
        return super().find(self._what)


class Hangs(Good):
    def wait(self, seconds: float) -> None:
        if STALLED.is_set():
            time.sleep(4)
            msg = "no answer"
            raise StreamTimeout(msg)


class Harness:
    def __init__(self) -> None:
        STORE.clear()

    def store(self, value: str) -> str:
        what = f"value-{next(NUMBERS)}"
        STORE[what] = value
        return what

    def replace(self, what: str, value: str) -> None:
        STORE[what] = value

    def missing(self) -> list[str]:
        return ["missing"]

    def close(self) -> None:
        STALLED.clear()

    @contextmanager
    def stalled(self) -> Iterator[None]:
        STALLED.set()
        try:
            yield
        finally:
            STALLED.clear()


def failed(plugin: Good) -> set[str]:
    default_manager().register(plugin)
    try:
        subject = SchemeSubject(default_manager().scheme("kit"), Harness)
        results = [*run(subject, cases=scheme_cases())]
    finally:
        default_manager().unregister(REFERENCES, "kit")
    assert {r.outcome for r in results} <= {Outcome.PASSED, Outcome.FAILED}
    assert len(results) == 6
    return {r.case.name for r in results if r.outcome is Outcome.FAILED}


@pytest.mark.parametrize(
    ("plugin", "case"),
    [
        (Good(), None),
        (Trims(), "values_are_resolved_as_they_are_stored"),
        (Caches(), "replaced_value_is_found"),
        (FindsNothing(), "missing_value_is_a_mistake_of_the_configuration"),
        (MissingIsRefused(), "missing_value_is_a_mistake_of_the_configuration"),
        (MissingIsTransient(), "hostile_names_are_refused"),
        (Shows(), "hostile_names_are_refused"),
        (Shares(), "lookups_of_many_threads_do_not_disturb_each_other"),
        (Hangs(), "lookup_ends_at_its_deadline"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Good) else "",
)
def test_defect_is_found_by_the_case_that_is_meant_for_it(
    plugin: Good, case: str | None
) -> None:
    found = failed(plugin)
    assert case in found if case else not found


@pytest.mark.parametrize("name", ["env", "file"])
def test_schemes_of_the_framework_pass(name: str) -> None:
    outcomes = {
        result.case.name: result.outcome
        for result in run(find_scheme(name), cases=scheme_cases())
    }
    assert outcomes.pop("lookup_ends_at_its_deadline") is Outcome.SKIPPED
    assert set(outcomes.values()) == {Outcome.PASSED}


class Supplied:
    """A harness of a scheme that no entry point names."""

    def store(self, value: str) -> str:
        raise NotImplementedError

    def replace(self, what: str, value: str) -> None:
        raise NotImplementedError

    def missing(self) -> list[str]:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    @staticmethod
    def plugin() -> object:
        return Good()


def test_plugin_of_a_harness_is_registered() -> None:
    """Of a plug-in that was changed since, as in a notebook, the newest is proved."""
    proved = []
    try:
        for _ in range(2):
            found = find_scheme("kit", f"{__name__}:Supplied")
            assert found.scheme.name == "kit"
            assert default_manager().scheme("kit") is found.scheme
            proved.append(found.scheme)
        assert proved[0] is not proved[1]
    finally:
        default_manager().unregister(REFERENCES, "kit")


def test_harness_without_its_methods_is_refused() -> None:
    class Empty:
        pass

    assert any("store" in one for one in SCHEME.problems(Empty))
