"""The offset of a micro-batch query, which Spark stores and compares as text."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, final

from streamfactory.spi import Position, PositionRefused


@final
@dataclass(frozen=True, slots=True)
class BatchOffset:
    """The end of a batch, and the starts of partitions that are new to it.

    Mostly a position. The starts of partitions that are new, or restarted after a loss,
    are included, so that a replay of the batch needs no look-up. Thus the first batch
    pins the start of a new query.
    """

    at: Position | None
    """The start of the next batch. None in an initial offset, which differs from every
    end: so the first batch is always logged, even without rows."""
    begun: Position = field(default_factory=Position)
    """The starts of partitions that the previous offset lacks, or has at another
    offset."""
    earliest: Position | None = None
    """The earliest offsets, in an end that was planned before its start was known."""

    def to_plain(self) -> dict[str, Any]:
        """Return nested maps in canonical order: equal offsets have equal text."""
        at = None if self.at is None else json.loads(self.at.to_json())
        if not self.begun and at is not None and self.earliest is None:
            return dict(at)
        plain = {"at": at, "begun": json.loads(self.begun.to_json())}
        if self.earliest is not None:
            plain["earliest"] = json.loads(self.earliest.to_json())
        return plain

    def to_text(self) -> str:
        """Return one canonical line."""
        return json.dumps(self.to_plain(), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_plain(cls, plain: Any) -> BatchOffset:
        """Parse the result of `to_plain`.

        Raises:
            PositionRefused: permanent; it is not an offset of this form.
        """
        if not isinstance(plain, dict):
            msg = f"not an offset of this source: {str(plain)[:100]!r}"
            raise PositionRefused(msg)
        if set(plain) - {"earliest"} != {"at", "begun"}:
            return cls(_position(plain))
        at = None if plain["at"] is None else _position(plain["at"])
        earliest = _position(plain["earliest"]) if "earliest" in plain else None
        return cls(at, _position(plain["begun"]), earliest)

    @classmethod
    def parse(cls, text: str) -> BatchOffset:
        """Parse the result of `to_text`.

        Raises:
            PositionRefused: permanent; it is not an offset of this form.
        """
        try:
            plain = json.loads(text)
        except (ValueError, RecursionError) as error:
            msg = f"not an offset: {text[:100]!r} is not JSON"
            raise PositionRefused(msg) from error
        return cls.from_plain(plain)


def _position(plain: Any) -> Position:
    return Position.from_json(json.dumps(plain))
