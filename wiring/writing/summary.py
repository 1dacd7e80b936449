"""What was written, in a form that no order and no number of tasks can change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.spi import Summary
from streamfactory.wiring.writing.digests import ALGORITHM, MODULUS, digest_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa


class Summing:
    """Sums up the rows of one attempt.

    Args:
        content: Whether somebody will compare the content: a digest of it is made.
            Otherwise rows are counted only.
        without: Columns that are no content.
    """

    def __init__(self, *, content: bool, without: frozenset[str] = frozenset()) -> None:
        self._content = content
        self._without = without
        self._rows = 0
        self._digest = 0

    def add(self, rows: pa.RecordBatch, beside: Mapping[str, pa.Array]) -> None:
        """Add rows.

        Args:
            rows: The rows.
            beside: Columns that are stored beside them (``_key``, ...), by name.
        """
        self._rows += rows.num_rows
        if self._content:
            columns = dict(zip(rows.schema.names, rows.columns, strict=True))
            kept = {n: c for n, c in columns.items() if n not in self._without}
            digest = digest_columns({**kept, **beside})
            self._digest = (self._digest + digest) % MODULUS

    def total(self) -> Summary:
        """Of all rows so far."""
        return Summary(self._rows, {ALGORITHM: self._digest} if self._content else {})


def difference(again: Summary, held: Summary) -> str | None:
    """How a repeated epoch differs from the committed one; None where it does not.

    The content is compared where both have a digest of the same algorithm.
    """
    if again.rows != held.rows:
        return f"{again.rows} rows instead of {held.rows}"
    common = again.sums.keys() & held.sums.keys()
    if any(again.sums[name] != held.sums[name] for name in common):
        return "other content in as many rows"
    return None


def incomparable(again: Summary, held: Summary) -> bool:
    """Whether the content should be compared and the committed one has no digest."""
    return bool(again.rows and again.sums and not again.sums.keys() & held.sums.keys())
