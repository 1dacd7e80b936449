"""Fits rows to the columns of their topic, by ``schema.contract``."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import numpy as np
import pyarrow as pa

from streamfactory.conversion.conform import Conformer
from streamfactory.wiring.core.guard import log
from streamfactory.wiring.decoding.contracts import Contract, discards

if TYPE_CHECKING:
    from streamfactory.wiring.writing.routing import Parcel


@final
class RowFitting:
    """Converts the rows of one attempt to the columns of its topic. One thread.

    Args:
        schema: The columns.
        contract: Mode of ``schema.contract``, or None. ``discard_value`` leaves out
            columns that the topic lacks, and replaces values that do not fit by null,
            each with a warning; ``discard_row`` drops such rows. Otherwise they are
            refused.
    """

    def __init__(self, schema: pa.Schema, contract: str | None) -> None:
        self._conformer = Conformer(schema)
        self._contract: Contract | None = None
        if discards(contract):
            required = [field.name for field in schema if not field.nullable]
            self._contract = Contract(schema, contract, None, required)
        self._warned = False

    def fit(self, parcel: Parcel) -> Parcel:
        """Return the rows that fit, with the columns of the topic.

        Raises:
            SchemaMismatch: permanent; some do not fit, and are not to be dropped.
        """
        if self._contract is None:
            fitting = self._conformer.conform(parcel.rows)
            return parcel if fitting is parcel.rows else parcel._replace(rows=fitting)
        rows, wrong = self._contract.fit(parcel.rows)
        if not wrong:
            return parcel._replace(rows=rows)
        if not self._warned:
            self._warned = True
            text = "rows are dropped, by schema.contract=discard_row; the first one: %s"
            log.warning(text, wrong[min(wrong)])
        mask = np.ones(rows.num_rows, bool)
        mask[list(wrong)] = False
        return parcel._replace(rows=rows).filter(pa.array(mask))
