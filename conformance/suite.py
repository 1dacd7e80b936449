"""The kit as pytest tests: one for each case. The only module that needs pytest.

::

    from streamfactory.conformance.suite import ConformanceSuite

    class TestTiny(ConformanceSuite):
        harness = TinyHarness

A case that is not claimed is a pytest skip with the claim's name; a waived one is an
expected failure; neither can be had in another way.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pytest

from streamfactory.conformance.limits import SECONDS
from streamfactory.conformance.report import explain
from streamfactory.conformance.runner import Outcome, Result, all_cases, run_case
from streamfactory.conformance.subject import Subject, subject_of
from streamfactory.conformance.waivers import Waiver, read_waivers, waived

if TYPE_CHECKING:
    from streamfactory.conformance.bench import Bench
    from streamfactory.conformance.case import Case

_CASES: Final = all_cases()
_MARKS: Final = frozenset({"skip", "skipif", "xfail"})
_REDUCING: Final = frozenset({"cases", "only", "skip", "pytest_generate_tests"})
"""Names by which an author might hope to run fewer cases."""
_WAIVE: Final = "a known failure is waived, with a reason and a last day, in `waivers`"


class ConformanceSuite:
    """What an author subclasses, as ``Test...``."""

    harness: ClassVar[type[Any] | None] = None
    """The author's harness, see `streamfactory.conformance.Harness`."""
    plugin: ClassVar[object] = None
    """The module, or object, with the hook, where no entry point names it."""
    waivers: ClassVar[Path | str | None] = None
    """A file of known failures, see `streamfactory.conformance.waivers`."""
    time_limit: ClassVar[float] = SECONDS
    """Seconds that one case may take; more where each commit is slow."""

    _subject: ClassVar[Subject]
    _waivers: ClassVar[dict[str, Waiver]]

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        _guard(cls)

    @pytest.mark.parametrize(
        "case", [pytest.param(case, id=case.name) for case in _CASES]
    )
    def test_conformance(
        self, case: Case[Bench], request: pytest.FixtureRequest
    ) -> None:
        """One case."""
        _refuse_marks(request)
        subject = self._prepared()
        result = run_case(case, subject, time_limit=self.time_limit)
        [result] = waived([result], self._waivers)
        _tell(result, f"pytest '{request.node.nodeid}'")

    def test_every_case_is_there(self, request: pytest.FixtureRequest) -> None:
        """No case was taken away from the run."""
        _refuse_marks(request)
        ran = {
            item.callspec.id
            for item in request.session.items
            if isinstance(item, pytest.Function)
            and item.cls is type(self)
            and item.originalname == "test_conformance"
            and hasattr(item, "callspec")
        }
        missing = [case.name for case in _CASES if case.name not in ran]
        if missing:
            msg = f"deselected: {', '.join(missing)}; {_WAIVE}"
            pytest.fail(msg, pytrace=False)

    @classmethod
    def _prepared(cls) -> Subject:
        """The subject of this class, found once."""
        if "_subject" not in cls.__dict__:
            if cls.harness is None:
                msg = f"{cls.__name__} has no `harness`"
                pytest.fail(msg, pytrace=False)
            names = {case.name for case in _CASES}
            known = (
                {} if cls.waivers is None else read_waivers(Path(cls.waivers), names)
            )
            cls._waivers = known
            cls._subject = subject_of(cls.harness, cls.plugin)
        return cls._subject


_KIT: Final = {
    name: vars(ConformanceSuite)[name]
    for name in ("test_conformance", "test_every_case_is_there", "_prepared")
}


def _guard(cls: type[ConformanceSuite]) -> None:
    """Refuse a subclass that runs less than the kit, or other things by its names."""
    # What a class beside the kit brings counts like what is written in the subclass.
    own = {
        name
        for kind in cls.__mro__
        if kind not in (ConformanceSuite, object)
        for name in vars(kind)
    }
    names = {case.name for case in _CASES}
    replaced = own & _KIT.keys()
    replaced |= {name for name in own if name.removeprefix("test_") in names}
    if replaced:
        raise _refusal(cls, f"overrides {', '.join(sorted(replaced))} of the kit")
    if own & _REDUCING:
        raise _refusal(cls, f"sets {', '.join(sorted(own & _REDUCING))}")
    marks = getattr(cls, "pytestmark", [])
    listed = marks if isinstance(marks, list) else [marks]
    bad = sorted(_MARKS & {mark.name for mark in listed})
    if bad:
        raise _refusal(cls, f"is marked {', '.join(bad)}")


def _refusal(cls: type, what: str) -> TypeError:
    return TypeError(f"{cls.__name__} {what}: all cases run, as they are; {_WAIVE}")


def _refuse_marks(request: pytest.FixtureRequest) -> None:
    """Marks that come from elsewhere: a decorator, a conftest."""
    bad = sorted(_MARKS & {mark.name for mark in request.node.iter_markers()})
    if bad:
        pytest.fail(f"marked {', '.join(bad)}: {_WAIVE}", pytrace=False)


def _tell(result: Result, again: str) -> None:
    if result.outcome is Outcome.SKIPPED:
        pytest.skip(result.reason)
    if result.outcome is Outcome.WAIVED:
        pytest.xfail(f"waived {result.waiver}")
    if result.outcome is Outcome.FAILED:
        lines = [*explain(result, again), "", result.trace]
        pytest.fail("\n".join(lines).rstrip(), pytrace=False)
