"""Cases: one behaviour each, tied to the rule that it serves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, final

from streamfactory.conformance.harness import Ability, WritesRows

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.conformance.bench import Bench
    from streamfactory.conformance.decoders import DecoderBench
    from streamfactory.conformance.schemes import SchemeBench

B = TypeVar("B")
"""The environment of a case: `Bench` for backends, `DecoderBench` for decoders,
`SchemeBench` for schemes of references."""

_WHOLES: Final = ("model", "spark", "spark_tasks", "spark_writing")
"""Modules whose cases combine many behaviours."""
SEES_WHAT_IT_WRITES: Final = "the_harness_sees_what_it_writes"
"""The case that all cases need which compare with `WritesRows.visible`."""


@dataclass(frozen=True, slots=True)
class Case(Generic[B]):
    """One behaviour that a plug-in has to show."""

    name: str
    """The behaviour that it proves: ``a_range_read_twice_is_identical``."""
    rule: str
    """The rule that it proves: ``R2``."""
    body: Callable[[B], None] = field(repr=False)
    claims: tuple[str, ...] = ()
    """Claims without which it is skipped: ``replayable``, ``epoch_visibility=whole``;
    ``epoch_visibility`` alone is any but none."""
    abilities: tuple[Ability, ...] = ()
    """Protocols of harnesses without which it is skipped."""
    overrides: tuple[Callable[..., Any], ...] = ()
    """Methods of ``spi`` that the backend has to override, else it is skipped."""
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


@final
class Registry(dict[str, "Case[B]"], Generic[B]):
    """Cases by name, in the order of their definition."""

    def register(
        self,
        rule: str,
        *,
        claims: tuple[str, ...] = (),
        abilities: tuple[Ability, ...] = (),
        overrides: tuple[Callable[..., Any], ...] = (),
        writing: bool = False,
        hint: str = "",
        slow: bool = False,
        first: bool = False,
        needs: tuple[str, ...] = (),
    ) -> Callable[[Callable[[B], None]], Callable[[B], None]]:
        """Register a function as a case; its name is the case's."""

        def add(body: Callable[[B], None]) -> Callable[[B], None]:
            name = body.__name__
            if name in self:
                msg = f"there are two cases {name!r}"
                raise ValueError(msg)
            sees = WritesRows in abilities and name != SEES_WHAT_IT_WRITES
            self[name] = Case(
                name,
                rule,
                body,
                claims,
                abilities,
                overrides,
                writing,
                hint,
                slow,
                first,
                (*needs, *[SEES_WHAT_IT_WRITES] * sees),
            )
            return body

        return add


CASES: Final[Registry[Bench]] = Registry()
"""All cases of backends."""
DECODER_CASES: Final[Registry[DecoderBench]] = Registry()
"""All cases of decoders."""
SCHEME_CASES: Final[Registry[SchemeBench]] = Registry()
"""All cases of schemes of references."""
case = CASES.register
decoder_case = DECODER_CASES.register
scheme_case = SCHEME_CASES.register
