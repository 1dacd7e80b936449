"""From columns of a batch of messages to `Decoded` (rules D1 and D2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.decoders.columns.buffers import is_ascii
from streamfactory.decoders.columns.casting import isolated
from streamfactory.decoders.columns.misfits import Misfits, without
from streamfactory.spi import BadMessage, Decoded

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streamfactory.decoders.columns.casting import Casting
    from streamfactory.spi import DecodeContext


@final
class BadMessages:
    """Collects the bad messages of one ``decode`` call; keeps the first error of each.

    Args:
        context: Context of the call; None if misfits are not collected.
    """

    def __init__(self, context: DecodeContext | None = None) -> None:
        self._found: dict[int, BadMessage] = {}
        self.misfits = Misfits(context)

    def add(self, messages: Iterable[int], code: str, what: str) -> None:
        """Report messages as bad; the first report of a message wins."""
        for message in messages:
            index = int(message)
            self._found.setdefault(index, BadMessage(index, code, what))

    @property
    def errors(self) -> Sequence[BadMessage]:
        """The errors, in the order of their messages."""
        return [self._found[index] for index in sorted(self._found)]

    @property
    def messages(self) -> np.ndarray:
        """Indices of the bad messages, ascending."""
        return np.array(sorted(self._found), np.int64)


def as_texts(values: pa.Array, findings: BadMessages) -> pa.StringArray:
    """Messages as text; a bad one is null."""
    values = values.cast(pa.binary())
    if is_ascii(values):
        return values.view(pa.string())
    texts, bad = isolated(values, lambda piece: piece.cast(pa.string()), pa.string())
    if len(bad):
        findings.add(bad, "encoding", "the message is not UTF-8")
    return texts


def joined(values: pa.Array, separator: str | bytes) -> pa.Buffer:
    """All values, joined by a separator of the same type."""
    listed = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    return pc.binary_join(listed, separator)[0].as_buffer()


def answer(
    columns: Sequence[pa.Array],
    schema: pa.Schema,
    casting: Casting,
    findings: BadMessages,
    source: np.ndarray | None = None,
) -> Decoded:
    """Cast the columns and drop the rows of bad messages.

    Args:
        columns: Uncast columns, in the order of the schema.
        schema: The decoder's schema.
        casting: How to cast.
        findings: Known bad messages; this function adds more.
        source: Message index of each row, ascending; None if row i is message i.
    """
    arrays, misfits = [], findings.misfits
    for column, field in zip(columns, schema, strict=True):
        array, faults = casting.cast(column, field)
        for fault in faults:
            if misfits.salvage:
                array = without(array, fault.rows)
                misfits.add_rows(fault.rows, field.name, fault.what)
                continue
            rows = fault.rows if source is None else source[fault.rows]
            findings.add(rows, fault.code, fault.what)
        arrays.append(array)
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
    errors, lookalikes = findings.errors, sorted(misfits.lookalikes)
    of_row = np.arange(rows.num_rows) if source is None else source
    if not errors:
        reported = misfits.reported(of_row)
        index = None if source is None else pa.array(source, pa.int32())
        return Decoded(rows, index, (), reported, lookalikes)
    kept = ~np.isin(of_row, findings.messages)
    reported = misfits.reported(of_row, kept)
    rows, index = rows.filter(pa.array(kept)), pa.array(of_row[kept], pa.int32())
    return Decoded(rows, index, errors, reported, lookalikes)
