"""The streams and pipelines of the overview, in the order that is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamfactory.ui.lookups import Answer
    from streamfactory.ui.runs import Run


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


@dataclass(frozen=True, slots=True)
class ShownPipeline:
    """One pipeline of the overview."""

    name: str
    definition: Answer
    progress: Answer
    lag: Answer
    run: Run | None
    """Its last run by this server."""
    changed: bool
    """Whether its files changed since the run began that uses its checkpoint."""

    @property
    def problem(self) -> bool:
        """Whether something is wrong with it. One that has not run is no problem."""
        facts = self.definition.value or {}
        errors = [one for one in facts.get("problems", ()) if one["level"] == "error"]
        failed = self.run is not None and self.run.state == "failed"
        unread = self.progress.value is not None and _is_failure(self.lag)
        return bool(errors or self.definition.error or failed or unread)


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


def ordered_pipelines(
    pipelines: Sequence[ShownPipeline], order: str
) -> list[ShownPipeline]:
    """Pipelines by name; those with problems first, unless streams are by name."""
    if order == "name":
        return sorted(pipelines, key=lambda one: one.name)
    return sorted(pipelines, key=lambda one: (not one.problem, one.name))
