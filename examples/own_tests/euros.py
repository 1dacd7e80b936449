"""The program under test: converts orders to euros, each order exactly once.

Each epoch is committed together with the position up to which orders were read. A run
that is killed is continued by the next one. `test_euros.py` tests it.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

import streamfactory

if TYPE_CHECKING:
    from collections.abc import Mapping

RATES = pa.table({"currency": ["EUR", "SEK", "USD"], "rate": [1.0, 0.09, 0.86]})
WRITER = "euros"
ATTEMPTS = 30


def in_euros(orders: pa.RecordBatch) -> pa.Table:
    """Return orders with their amount in euros; unknown currencies are left out."""
    known = pa.table(orders).join(RATES, "currency", join_type="inner").sort_by("id")
    euros = pc.round(pc.multiply(known["amount"], known["rate"]), 2)
    return pa.table({"id": known["id"], "euros": euros})


def convert(
    orders: Mapping[str, str],
    euros: Mapping[str, str],
    faults: streamfactory.Faults | None = None,
) -> int:
    """Convert the orders that no earlier run has converted; return how many it read."""
    read = 0
    with streamfactory.open_sink(euros, faults=faults) as sink:
        with closing(sink.committer(writer_id=WRITER)) as committer:
            last = committer.last()
        first = 0 if last is None else last.epoch + 1
        start = None if last is None else last.source_position
        with streamfactory.open(orders, start=start, faults=faults) as stream:
            for epoch, batch in enumerate(stream, start=first):
                put(sink, in_euros(batch.rows), epoch, stream.position)
                read += batch.num_rows
    return read


def put(
    sink: Any, rows: pa.Table, epoch: int, position: streamfactory.Position
) -> None:
    """Commit an epoch. It is safe to repeat: only the first commit has an effect."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            sink.put(rows, writer_id=WRITER, epoch=epoch, source_position=position)
        except streamfactory.TransientError:  # perhaps only the answer was lost
            if attempt == ATTEMPTS:
                raise
        else:
            return
