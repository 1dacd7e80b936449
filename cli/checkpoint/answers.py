"""Parts that the answers of the commands share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from streamfactory.spi import Position


@dataclass(frozen=True, slots=True)
class OffsetLine:
    """One partition of a position."""

    topic: str
    partition: int
    offset: int
    """The next one to read."""
    incarnation: str | None


def offset_lines(position: Position) -> list[OffsetLine]:
    """A position as lines."""
    lives = position.incarnations
    return [OffsetLine(p.topic, p.id, o, lives.get(p)) for p, o in position.items()]


def moment(when: datetime | None) -> str | None:
    """A time as text, to the millisecond."""
    if when is None:
        return None
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def span(seconds: float) -> str:
    """How long ago, as people say it: ``42 s``, ``3 min``, ``5 h``, ``2 d``."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def number(value: int | None, unknown: str = "unknown") -> str:
    """A number as text."""
    return unknown if value is None else str(value)


def total(values: Iterable[int | None]) -> int | None:
    """The sum; None where one is not known."""
    summed = 0
    for value in values:
        if value is None:
            return None
        summed += value
    return summed


def source_title(index: int, name: str | None) -> str:
    """How a source is called: by its name, else by its place in the query."""
    return f"source {index}" if name is None else f"source {name}"
