"""What a table keeps of a writer: its last epoch, and the instance that claimed it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from streamfactory.arrowlog.decoding import (
    InvalidValue,
    list_of,
    mapping_of,
    members_of,
    optional,
    text,
    whole,
)
from streamfactory.spi import CorruptData, LastCommit, Position, Summary


@dataclass(frozen=True, slots=True)
class Marker:
    """What a table keeps of a writer."""

    instance: str
    """The instance that has claimed the writer."""
    epoch: int | None = None
    """Its last epoch; None before the first one."""
    position: str | None = None
    rows: int = 0
    sums: dict[str, int] | None = None
    attempts: tuple[str, ...] = ()
    """Those whose rows the last epoch has."""

    def last(self) -> LastCommit | None:
        """The last commit; None before the first one."""
        if self.epoch is None:
            return None
        position = None if self.position is None else Position.from_json(self.position)
        return LastCommit(self.epoch, position, Summary(self.rows, self.sums or {}))

    def to_json(self) -> str:
        """As text of one line."""
        found = {
            "version": _VERSION,
            "instance": self.instance,
            "epoch": self.epoch,
            "position": self.position,
            "rows": self.rows,
            "sums": {name: str(value) for name, value in (self.sums or {}).items()},
            "attempts": list(self.attempts),
        }
        return json.dumps(found, separators=(",", ":"))

    @classmethod
    def from_json(cls, content: str | bytes) -> Marker:
        """Parse a marker.

        Raises:
            CorruptData: data_loss; it is none.
        """
        try:
            found = _MARKER(json.loads(content))
            found["sums"] = {k: int(v) for k, v in found["sums"].items()}
        except (InvalidValue, ValueError, RecursionError) as error:
            what = f"what the table keeps of a writer is damaged: {error}"
            raise CorruptData(what) from None
        del found["version"]
        return cls(**{**found, "attempts": tuple(found["attempts"])})


_VERSION: Final = 1
_MARKER: Final = members_of(
    {
        "version": whole(_VERSION, _VERSION),
        "instance": text,
        "epoch": optional(whole()),
        "position": optional(text),
        "rows": whole(),
        "sums": mapping_of(text, text),
        "attempts": list_of(text),
    }
)
