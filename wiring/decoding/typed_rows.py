"""Fits the rows of streams without decoder to the schema, by ``schema.contract``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import numpy as np
import pyarrow as pa

from streamfactory.wiring.decoding.budgets import Budget
from streamfactory.wiring.decoding.contracts import Contract

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spi import Partition
    from streamfactory.wiring.decoding.stage import DecodePolicy

REMEDY: Final = (
    "if the source changed its schema, open the stream again; or set "
    "schema.contract=evolve to leave out new columns, or discard_value to replace "
    "values of another type by null"
)
"""For rows that do not fit, and were written after the stream was opened."""
OLDER_REMEDY: Final = (
    "the rows are older than the schema of the source: start behind them, or set "
    "schema.contract=discard_value to replace values of another type by null, or "
    "evolve to leave out columns"
)
"""For rows that do not fit, and were there when the stream was opened."""


@final
class TypedRows:
    """Fits typed rows whose schema is not that of the stream when it was opened.

    A table may gain a column, or widen one, while a reader follows it. Not thread-safe.

    Args:
        schema: The source's schema when the stream was opened.
        policy: Has the contract, and the error budget of discarded rows.
        partition: For errors.
        fields: Columns to return; None means all.
    """

    def __init__(
        self,
        schema: pa.Schema,
        policy: DecodePolicy,
        partition: Partition,
        fields: Sequence[str] | None,
    ) -> None:
        required = [field.name for field in schema if not field.nullable]
        self._contract = Contract(schema, policy.contract, fields, required)
        self._budget = Budget(policy.max_errors, policy.max_ratio)
        self._partition = partition
        self.bad = 0
        """Rows that were discarded, so far."""

    def begin_range(self) -> None:
        """Begin a planned range: reset the error budget."""
        self._budget.begin()

    def fit(
        self, rows: pa.RecordBatch, offsets: pa.Int64Array | None, start: int
    ) -> tuple[pa.RecordBatch, pa.Int64Array | None]:
        """Return the rows of the selected columns, and their offsets.

        Args:
            rows: Of the consumer.
            offsets: Of each row; None means consecutive ones from ``start``.
            start: See ``offsets``.

        Raises:
            SchemaMismatch: permanent; a column has another type, under ``evolve``.
            ErrorBudgetExceeded: decode.
        """
        if self._contract.refuses:
            return rows, offsets  # a difference is an error of the next step
        self._budget.saw(rows.num_rows)
        rows, wrong = self._contract.fit(rows)
        if not wrong:
            return rows, offsets
        if offsets is None:
            offsets = pa.arange(start, start + rows.num_rows)
        self.bad += len(wrong)
        where = {"partition": self._partition, "offset": offsets[min(wrong)].as_py()}
        causes = [(offsets[row].as_py(), what) for row, what in wrong.items()]
        self._budget.spend(causes, where)
        mask = np.ones(rows.num_rows, bool)
        mask[list(wrong)] = False
        kept = pa.array(mask)
        return rows.filter(kept), offsets.filter(kept)
