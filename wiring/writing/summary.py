"""Summaries of written rows, independent of their order and the number of tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.spi import Summary
from streamfactory.wiring.writing.digests import ALGORITHM, MODULUS, digest_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa


class Summing:
    """Summarises the rows of one attempt.

    Args:
        content: Whether the content is compared, so a digest is computed; otherwise
            rows are only counted.
        without: Columns to ignore.
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
            beside: The framework's columns of these rows (``_key``, ...), by name.
        """
        self._rows += rows.num_rows
        if self._content:
            columns = dict(zip(rows.schema.names, rows.columns, strict=True))
            kept = {n: c for n, c in columns.items() if n not in self._without}
            digest = digest_columns({**kept, **beside})
            self._digest = (self._digest + digest) % MODULUS

    def total(self) -> Summary:
        """The summary of all rows so far."""
        return Summary(self._rows, {ALGORITHM: self._digest} if self._content else {})


def difference(again: Summary, held: Summary) -> str | None:
    """Return how a repeated epoch differs from the committed one; None if it does not.

    The content is compared if both have a digest of the same algorithm.
    """
    if again.rows != held.rows:
        return f"{again.rows} rows instead of {held.rows}"
    common = again.sums.keys() & held.sums.keys()
    if any(again.sums[name] != held.sums[name] for name in common):
        return "other content in as many rows"
    return None


def incomparable(again: Summary, held: Summary) -> bool:
    """Whether the content should be compared but the committed epoch has no digest."""
    return bool(again.rows and again.sums and not again.sums.keys() & held.sums.keys())
