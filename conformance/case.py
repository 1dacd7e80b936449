"""Cases: one behaviour each, tied to the rule that it serves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from streamfactory.conformance.bench import Bench

Body = Callable[["Bench"], None]

_WHOLES: Final = ("model", "spark", "spark_tasks", "spark_writing")
"""Modules whose cases combine many behaviours."""
SEES_WHAT_IT_WRITES: Final = "the_harness_sees_what_it_writes"
"""The case that all cases need which compare with ``Harness.visible``."""


@dataclass(frozen=True, slots=True)
class Case:
    """One behaviour that a backend has to show."""

    name: str
    """The behaviour that it proves: ``a_range_read_twice_is_identical``."""
    rule: str
    """The rule that it proves: ``R2``."""
    body: Body = field(repr=False)
    claims: tuple[str, ...] = ()
    """Claims without which it is skipped: ``replayable``, ``epoch_visibility=whole``;
    ``epoch_visibility`` alone is any but none."""
    abilities: tuple[str, ...] = ()
    """Methods of the harness, or overridden ones of the backend, without which it is
    skipped."""
    writing: bool = False
    """True for cases of the writing half."""
    hint: str = ""
    """What usually causes a failure."""
    slow: bool = False
    """True where ``--quick`` leaves it out."""
    first: bool = False
    """True for cases that nearly all other cases need: they run first."""
    needs: tuple[str, ...] = ()
    """Cases that this one builds on: it is not run where one of them failed or was
    itself not run for that reason."""

    @property
    def whole(self) -> bool:
        """True if it combines many behaviours: it runs last."""
        return self.body.__module__.rsplit(".", 1)[-1] in _WHOLES

    @property
    def doc(self) -> str:
        """What is expected: the first sentence of the body's docstring."""
        return (self.body.__doc__ or self.name.replace("_", " ")).strip().split("\n")[0]


CASES: Final[dict[str, Case]] = {}
"""All cases, by name, in the order of their definition."""


def case(
    rule: str,
    *,
    claims: tuple[str, ...] = (),
    abilities: tuple[str, ...] = (),
    writing: bool = False,
    hint: str = "",
    slow: bool = False,
    first: bool = False,
    needs: tuple[str, ...] = (),
) -> Callable[[Body], Body]:
    """Register a function as a case; its name is the case's."""

    def register(body: Body) -> Body:
        name = body.__name__
        if name in CASES:
            msg = f"there are two cases {name!r}"
            raise ValueError(msg)
        sees = (SEES_WHAT_IT_WRITES,) * ("visible" in abilities)
        built_on = (*needs, *(name_ for name_ in sees if name_ != name))
        CASES[name] = Case(
            name, rule, body, claims, abilities, writing, hint, slow, first, built_on
        )
        return body

    return register
