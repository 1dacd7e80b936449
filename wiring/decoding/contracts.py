"""What becomes of rows that do not fit the declared schema (rule D4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.spi import BadMessage, Decoded, SchemaMismatch
from streamfactory.wiring.core.conform import conform, empty_rows
from streamfactory.wiring.core.guard import log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spi import Misfit

MODES: Final = ("evolve", "freeze", "discard_row", "discard_value")


def agreed(declared: pa.Schema | None, found: pa.Schema, mode: str | None) -> pa.Schema:
    """The schema of a stream that is opened, every column nullable.

    Tombstones are rows of nulls, whatever a decoder says (rule D2).

    Args:
        declared: By the option ``schema``; None where nobody did.
        found: What the decoder answers now.
        mode: Of `MODES`, or None. ``evolve`` takes columns that are new behind the
            declared.

    Raises:
        SchemaMismatch: permanent; the decoder's columns do not fit the declared ones.
    """
    fields = list(found)
    if declared is not None:
        fields = list(declared)
        if mode == "evolve":
            fields += [f for f in found if f.name not in declared.names]
    schema = pa.schema([field.with_nullable(True) for field in fields])
    if declared is not None and not _discards(mode):
        conform(empty_rows(found), schema)
    return schema


def _discards(mode: str | None) -> bool:
    return mode in ("discard_row", "discard_value")


def refused(decoded: Decoded) -> Decoded:
    """A decoder's answer in which messages with a row that does not fit are bad."""
    source = decoded.source
    if source is None:
        source = pa.arange(0, decoded.rows.num_rows).cast(pa.int32())
    of_row, errors = source.to_numpy(), {e.message: e for e in decoded.errors}
    for misfit in decoded.misfits:
        for message in of_row[misfit.rows.to_numpy()].tolist():
            errors.setdefault(message, BadMessage(message, "schema", misfit.what))
    kept = pa.array(~np.isin(of_row, list(errors)))
    return Decoded(
        decoded.rows.filter(kept), source.filter(kept), list(errors.values())
    )


@final
class Contract:
    """Fits the rows of one decoder. One thread at a time.

    Args:
        schema: The declared one: `agreed`.
        mode: Of `MODES`, or None.
        fields: Columns wanted; None means all.
        required: Columns that no row may lack under ``discard_row``.
    """

    def __init__(
        self,
        schema: pa.Schema,
        mode: str | None,
        fields: Sequence[str] | None,
        required: Sequence[str],
    ) -> None:
        self._known = frozenset(schema.names)
        self._mode = mode
        # What nobody wants is not even looked at; unknown names are told elsewhere.
        names = [n for n in schema.names if fields is None or n in fields]
        self._wanted = pa.schema([schema.field(name) for name in names])
        self._required = [name for name in required if name in names]
        self._told: set[str | None] = set()
        self._lookalikes: set[str] = set()
        self.salvages = _discards(mode)
        """Whether decoders are to make values null that do not fit."""
        self.refuses = not _discards(mode) and mode != "evolve"
        """Whether a row that does not fit makes its message bad."""

    @property
    def undeclared(self) -> bool | None:
        """What decoders do with fields that the schema lacks: `DecodeContext`.

        Where they are left out, looking for them ends with the first: it costs time.
        """
        if self._mode is None:
            return None
        return self._mode in ("freeze", "discard_row") or None not in self._told

    def warn_of_case(self, columns: Sequence[str]) -> None:
        """Warn, once for each, of columns whose name messages write in another case."""
        for name in columns:
            if name not in self._lookalikes:
                self._lookalikes.add(name)
                msg = "column %r: messages have a field whose name differs only in the "
                msg += "case of its letters; it is not read"
                log.warning(msg, name)

    def fit(
        self, rows: pa.RecordBatch, misfits: Sequence[Misfit] = ()
    ) -> tuple[pa.RecordBatch, dict[int, str]]:
        """Rows of the wanted columns, and what is wrong with some of them.

        Only ``discard_row`` finds rows wrong: they are there still, for the caller to
        drop.

        Args:
            rows: The decoder's.
            misfits: Those that the decoder reported of them.

        Raises:
            SchemaMismatch: permanent; under ``freeze`` and ``evolve``.
        """
        wrong: dict[int, str] = {}
        for misfit in misfits:
            self._judge(misfit, wrong)
        if rows.schema is not self._wanted:
            rows = self._known_columns(rows, wrong)
        if self._mode == "discard_row":
            for name in self._required:
                if name in rows.schema.names:
                    missing = rows.column(name).is_null()
                    _mark(wrong, missing, f"column {name!r} is null")
        try:
            return conform(rows, self._wanted), wrong
        except SchemaMismatch:
            if not self.salvages:
                raise
        return self._cast_each(rows, wrong), wrong

    def _judge(self, misfit: Misfit, wrong: dict[int, str]) -> None:
        name = misfit.column
        if name is not None and name not in self._wanted.names:
            return
        if self._mode == "discard_row":
            for row in misfit.rows.to_pylist():
                wrong.setdefault(row, misfit.what)
        elif name is not None:
            kind = self._wanted.field(name).type
            self._tell(name, f"has values that are no {kind}: now null")
        elif None not in self._told:
            self._told.add(None)
            msg = "messages have fields that are not in the declared schema: left out"
            log.warning(msg)

    def _known_columns(
        self, rows: pa.RecordBatch, wrong: dict[int, str]
    ) -> pa.RecordBatch:
        names = rows.schema.names
        unknown = [name for name in names if name not in self._known]
        if unknown and self.refuses:
            return rows  # `conform` names the column
        for name in unknown:
            if self._mode == "discard_row":
                what = f"column {name!r} is not in the declared schema"
                _mark(wrong, rows.column(name).is_valid(), what)
            else:
                self._tell(name, "is not in the schema of the stream: left out")
        wanted = self._wanted.names
        kept = [index for index, name in enumerate(names) if name in wanted]
        return rows if len(kept) == len(names) else rows.select(kept)

    def _cast_each(self, rows: pa.RecordBatch, wrong: dict[int, str]) -> pa.RecordBatch:
        """Cast value by value: one that does not fit is null."""
        columns = []
        for field in self._wanted:
            index = rows.schema.get_field_index(field.name)
            if index < 0:
                columns.append(pa.nulls(rows.num_rows, field.type))
                continue
            found = rows.column(index)
            column = pa.concat_arrays(
                [part.cast(field.type) for part in _parts(found, field)]
            )
            lost = pc.and_(found.is_valid(), column.is_null())
            if self._mode == "discard_row":
                what = f"column {field.name!r} is {found.type}, declared {field.type}"
                _mark(wrong, lost, what)
            elif pc.any(lost).as_py():
                self._tell(field.name, f"has values that are no {field.type}: now null")
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self._wanted)

    def _tell(self, name: str, what: str) -> None:
        if name not in self._told:
            self._told.add(name)
            log.warning("column %r %s", name, what)


def _mark(wrong: dict[int, str], mask: pa.Array, what: str) -> None:
    for index in pc.indices_nonzero(mask).to_pylist():
        wrong.setdefault(index, what)


def _parts(column: pa.Array, field: pa.Field) -> list[pa.Array]:
    """The values as they can be cast, in order; what cannot is null.

    Halves what does not fit: each value that is wrong costs its own few casts.
    """
    schema = pa.schema([field])
    try:
        rows = pa.RecordBatch.from_arrays([column], names=[field.name])
        return [conform(rows, schema).column(0)]
    except SchemaMismatch:
        if len(column) <= 1 or _hopeless(column, field):
            return [pa.nulls(len(column), field.type)]
    half = len(column) // 2
    return _parts(column[:half], field) + _parts(column[half:], field)


def _hopeless(column: pa.Array, field: pa.Field) -> bool:
    """Whether no value but null has a meaning there, so that halving is in vain."""
    try:
        nothing = pa.RecordBatch.from_arrays([column[:0]], names=[field.name])
        conform(nothing, pa.schema([field]))
    except SchemaMismatch:
        return True
    return False
