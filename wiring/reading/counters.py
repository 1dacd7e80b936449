"""What a reader has done so far: plain numbers, cheap to keep."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from streamfactory.spi import Loss


@dataclass(slots=True)
class Counters:
    """Counts of one reader, or the sum over several."""

    rows: int = 0
    """Rows handed out."""
    messages: int = 0
    """Messages received, those included that became no row."""
    bytes: int = 0
    batches: int = 0
    """Batches with rows."""
    fetches: int = 0
    """Calls of the author's fetch."""
    retries: int = 0
    """Failures in passing that were tried again."""
    recreated: int = 0
    """Consumers made anew, after an error or long idleness."""
    bad_messages: int = 0
    """Messages that could not be decoded and were skipped or made null."""
    losses: list[Loss] = field(default_factory=list)
    """What is known to be missing."""

    def __add__(self, other: Counters) -> Counters:
        return Counters(
            *(getattr(self, f.name) + getattr(other, f.name) for f in fields(self))
        )

    def to_dict(self) -> dict[str, Any]:
        """As plain values; losses by partition, range and cause."""
        plain = asdict(self)
        plain["losses"] = [loss.to_dict() for loss in self.losses]
        return plain
