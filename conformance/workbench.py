"""What the environments of all cases share: a harness, and a record of the steps."""

from __future__ import annotations

import random
from contextlib import ExitStack
from functools import wraps
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast, final

from streamfactory.conformance.expectations import Excluded, HarnessFailed, Mismatch
from streamfactory.conformance.harness import Traits, lacking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from streamfactory.conformance.harness import Ability


class Closeable(Protocol):
    """Anything that can be closed."""

    def close(self) -> None:
        """Close it."""


class Requirements(Protocol):
    """What a `Case` needs of the plug-in and of its harness."""

    @property
    def claims(self) -> tuple[str, ...]:
        """Claims of the backend."""

    @property
    def abilities(self) -> tuple[Ability, ...]:
        """Protocols of the harness."""

    @property
    def overrides(self) -> tuple[Callable[..., Any], ...]:
        """Methods of ``spi`` that are overridden."""

    @property
    def writing(self) -> bool:
        """Whether the backend has to be written."""


A = TypeVar("A")
"""An ability of a harness."""
C = TypeVar("C", bound=Closeable)
"""A type of object that is closed after the case."""
H = TypeVar("H")
"""The methods that each harness of its kind has."""


class Workbench(Generic[H]):
    """The environment of a case. Closes everything that it opened.

    Args:
        harness: The author's.
        seed: Seed of the random choices of a case.
    """

    def __init__(self, harness: Any, seed: int = 0) -> None:
        self.harness = cast("H", GuardedHarness(harness))
        self.traits = Traits.of(harness)
        self.seed = seed
        self.script: list[str] = []
        """The steps so far, as a short script: shown when the case fails."""
        self.narrowed: list[str] = []
        """What the case could not examine, each with the reason."""
        self._stack = ExitStack()

    def chance(self) -> random.Random:
        """The beginning of the random choices, which repeat themselves."""
        return random.Random(self.seed)  # noqa: S311 - it has to repeat itself

    def has(self, ability: Ability) -> bool:
        """Whether the harness has an ability."""
        return not lacking(self.harness, ability)

    def use(self, ability: Callable[..., A]) -> A:
        """The harness, as one that has an ability.

        Raises:
            Excluded: It lacks the ability; the case is skipped.
        """
        self._require(lacking(self.harness, ability))
        return cast("A", self.harness)

    def excluded(self, case: Requirements) -> None:
        """Raise `Excluded` where a case does not apply here."""
        self._require(self.missing(case))

    def missing(self, case: Requirements) -> list[str]:
        """The methods that a case needs and that are missing."""
        return [n for ability in case.abilities for n in lacking(self.harness, ability)]

    def _require(self, missing: list[str]) -> None:
        if missing:
            msg = f"no ability: {', '.join(missing)}{self.reason(missing)}"
            raise Excluded(msg)

    def reason(self, names: Iterable[str]) -> str:
        """Why the medium lacks these, as far as the harness says so, in brackets."""
        reasons = self.traits.reasons
        known = [reasons[name] for name in names if name in reasons]
        return f" ({'; '.join(known)})" if known else ""

    def narrow(self, what: str, *names: str) -> None:
        """Record that the case examines less than it could.

        Args:
            what: The part that is left out.
            names: Of the harness, whose reasons are added.
        """
        self.narrowed.append(f"{what}{self.reason(names)}")

    def mask(self) -> Callable[[str], str]:
        """Takes the secrets of the configuration out of a text."""
        return str

    def closing(self, thing: C) -> C:
        """Close something after the case; a second close is fine."""
        self._stack.callback(thing.close)
        return thing

    def note(self, step: str) -> None:
        """Add a line to the script."""
        self.script.append(step)

    def close(self) -> None:
        """Close all that was opened."""
        self._stack.close()


@final
class GuardedHarness:
    """A harness whose methods raise `HarnessFailed` for whatever they raise.

    Attributes that are no methods are passed through, and so is the absence of one: an
    ability of the harness is an ability of this object.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return guarded(found, self._inner, name) if callable(found) else found


def guarded(method: Callable[..., Any], owner: Any, name: str) -> Callable[..., Any]:
    """A method of a harness, or its class, whose errors name the harness."""
    kind = owner if isinstance(owner, type) else type(owner)

    @wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return method(*arguments, **named)
        except (Mismatch, Excluded, HarnessFailed):
            raise
        except (Exception, SystemExit) as error:
            what = f"{type(error).__name__}: {error}"
            msg = f"{kind.__qualname__}.{name} raised {what}"
            raise HarnessFailed(msg) from error

    return call
