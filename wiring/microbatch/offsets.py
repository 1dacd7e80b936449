"""The offset of a micro-batch query: text to whoever keeps it, and compared as text."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, final

from streamfactory.spi import Position, PositionRefused


@final
@dataclass(frozen=True, slots=True)
class BatchOffset:
    """Where a batch ends, and where partitions that are new to it begin.

    Mostly a position. Where partitions are new, or begun again after a loss, their
    starts travel along: whatever replays the batch finds them there, and asks nobody.
    So the start of a new query is pinned by its first batch, to which all are new.
    """

    at: Position | None
    """Where the next batch begins. None in an initial offset, which no end equals: so
    the first batch is always logged, rows or not."""
    begun: Position = field(default_factory=Position)
    """The starts of partitions that the offset before has not, or has otherwise."""

    def to_plain(self) -> dict[str, Any]:
        """Nested maps in canonical order: equal offsets are equal text."""
        at = None if self.at is None else json.loads(self.at.to_json())
        if self.begun or at is None:
            return {"at": at, "begun": json.loads(self.begun.to_json())}
        return dict(at)

    def to_text(self) -> str:
        """One canonical line."""
        return json.dumps(self.to_plain(), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_plain(cls, plain: Any) -> BatchOffset:
        """Read `to_plain` back.

        Raises:
            PositionRefused: permanent; it is something else.
        """
        if not isinstance(plain, dict):
            msg = f"not an offset of this source: {str(plain)[:100]!r}"
            raise PositionRefused(msg)
        if set(plain) != {"at", "begun"}:
            return cls(_position(plain))
        at = None if plain["at"] is None else _position(plain["at"])
        return cls(at, _position(plain["begun"]))

    @classmethod
    def parse(cls, text: str) -> BatchOffset:
        """Read `to_text` back.

        Raises:
            PositionRefused: permanent; it is something else.
        """
        try:
            plain = json.loads(text)
        except (ValueError, RecursionError) as error:
            msg = f"not an offset: {text[:100]!r} is not JSON"
            raise PositionRefused(msg) from error
        return cls.from_plain(plain)


def _position(plain: Any) -> Position:
    return Position.from_json(json.dumps(plain))
