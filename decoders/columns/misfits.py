"""Collects rows that do not fit the schema, for decoders of whole batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import numpy as np
import pyarrow as pa

from streamfactory.spi import Misfit
from streamfactory.spi.decoder import UNDECLARED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spi import DecodeContext

Part = tuple[str | None, str]
"""A column, or None for an undeclared field, and the reason."""


@final
class Misfits:
    """The misfits of one ``decode`` call.

    Args:
        context: Context of the call; None if misfits are not collected.
    """

    def __init__(self, context: DecodeContext | None = None) -> None:
        self.undeclared = context is not None and context.undeclared is True
        """Whether messages with undeclared fields are reported."""
        self.salvage = context is not None and context.salvage
        """Whether values that do not fit become null and are reported."""
        self.lookalikes: set[str] = set()
        """Columns whose name a message spells in another case: `Decoded.lookalikes`."""
        self._messages: dict[Part, list[np.ndarray]] = {}
        self._rows: dict[Part, list[np.ndarray]] = {}

    def add_undeclared(self, messages: Sequence[int] | np.ndarray) -> None:
        """Add messages with an undeclared field, if they are to be reported."""
        if self.undeclared:
            self.add(messages, None, UNDECLARED)

    def add(
        self, messages: Sequence[int] | np.ndarray, column: str | None, what: str
    ) -> None:
        """Add messages of which no row fits."""
        found = np.asarray(messages, np.int64)
        if len(found):
            self._messages.setdefault((column, what), []).append(found)

    def add_rows(self, rows: np.ndarray, column: str, what: str) -> None:
        """Add rows, by their index before bad messages are dropped."""
        if len(rows):
            self._rows.setdefault((column, what), []).append(rows)

    def reported(
        self, source: np.ndarray, kept: np.ndarray | None = None
    ) -> list[Misfit]:
        """The misfits, by row.

        Args:
            source: Message index of each row.
            kept: Mask of the rows that are kept; None for all.
        """
        found = []
        for part in {**self._messages, **self._rows}:
            odd = np.zeros(len(source), bool)
            for messages in self._messages.get(part, ()):
                odd |= np.isin(source, messages)
            for rows in self._rows.get(part, ()):
                odd[rows] = True
            indices = np.flatnonzero(odd if kept is None else odd[kept])
            if len(indices):
                found.append(Misfit(pa.array(indices, pa.int32()), *part))
        return found


def without(column: pa.Array, rows: np.ndarray) -> pa.Array:
    """The column with the values of some rows set to null."""
    index = np.arange(len(column))
    mask = np.zeros(len(column), bool)
    mask[rows] = True
    return column.take(pa.array(index, mask=mask))
