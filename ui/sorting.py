"""The streams of the overview: those that are searched for, in the order asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamfactory.ui.lookups import Answer


@dataclass(frozen=True, slots=True)
class Shown:
    """One stream of the overview."""

    name: str
    configuration: Answer
    state: Answer
    facts: Answer

    @property
    def problem(self) -> bool:
        """Whether something is wrong with it."""
        facts = self.configuration.value or {}
        errors = [one for one in facts.get("problems", ()) if one["level"] == "error"]
        return bool(errors or self.configuration.error or _is_failure(self.state))

    @property
    def held(self) -> int | None:
        """Offsets that it holds."""
        return None if self.state.value is None else self.state.value["held"]

    @property
    def partitions(self) -> int | None:
        """How many it has."""
        return None if self.state.value is None else len(self.state.value["partitions"])

    @property
    def size(self) -> int | None:
        """Bytes that it holds."""
        found = (self.facts.value or {}).get("bytes")
        return found if isinstance(found, int) else None


def _is_failure(answer: Answer) -> bool:
    """Whether a look-up failed; what is not looked up is no failure."""
    return answer.error is not None and answer.error["error"] != "unsupported"


ORDERS: Final[dict[str, Callable[[Shown], Any]]] = {
    "problems": lambda one: (not one.problem, one.name),
    "name": lambda one: one.name,
    "type": lambda one: ((one.configuration.value or {}).get("type") or "", one.name),
    "partitions": lambda one: _largest(one.partitions),
    "offsets": lambda one: _largest(one.held),
    "size": lambda one: _largest(one.size),
}
"""What streams can be sorted by; numbers from the largest on."""


def _largest(value: int | None) -> tuple[bool, int]:
    return value is None, -(value or 0)


def searched(names: Sequence[str], text: str) -> list[str]:
    """The names that contain a text, in upper or lower case."""
    wanted = text.casefold()
    return [name for name in names if wanted in name.casefold()]


def ordered(streams: Sequence[Shown], order: str) -> list[Shown]:
    """Streams in an order; of an unknown one, those with problems first."""
    return sorted(streams, key=ORDERS.get(order, ORDERS["problems"]))
