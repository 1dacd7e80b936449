"""Schema contracts: how rows that do not fit the declared schema are handled (D4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import numpy as np
import pyarrow as pa

from streamfactory.conversion.conform import Conformer, conform, empty_rows
from streamfactory.conversion.evolution import evolved
from streamfactory.spi import BadMessage, Decoded, SchemaMismatch
from streamfactory.spi.computing import pc
from streamfactory.spi.ddl import type_text
from streamfactory.wiring.core.guard import log
from streamfactory.wiring.decoding.undeclared import Undeclared, undeclared_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamfactory.spi import Misfit

MODES: Final = ("evolve", "freeze", "discard_row", "discard_value")


def agreed(declared: pa.Schema | None, found: pa.Schema, mode: str | None) -> pa.Schema:
    """Return the schema of a stream, with every column nullable.

    Every column is nullable because tombstones are rows of nulls (rule D2).

    Args:
        declared: By the option ``schema``; None if it is not set.
        found: The decoder's schema.
        mode: One of `MODES`, or None. ``evolve`` appends new columns, and new children
            of structs, to the declared ones.

    Raises:
        SchemaMismatch: permanent; the decoder's columns do not fit the declared ones.
    """
    fields = list(found)
    if declared is not None:
        fields = list(declared)
        if mode == "evolve":
            fields = evolved(fields, list(found))
    schema = pa.schema([field.with_nullable(True) for field in fields])
    if declared is not None and not discards(mode):
        conform(empty_rows(found), schema)
    return schema


def discards(mode: str | None) -> bool:
    """Whether a mode drops what does not fit, or the rows that have it."""
    return mode in ("discard_row", "discard_value")


def refused(decoded: Decoded) -> Decoded:
    """Return a decoder's result in which messages with misfits are bad."""
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
    """Fits the rows of one decoder to the schema. Not thread-safe.

    Args:
        schema: The stream's schema, of `agreed`.
        mode: One of `MODES`, or None.
        fields: Columns to return; None means all.
        required: Columns that must not be null under ``discard_row``.
    """

    def __init__(
        self,
        schema: pa.Schema,
        mode: str | None,
        fields: Sequence[str] | None,
        required: Sequence[str],
    ) -> None:
        self._schema = schema
        self._mode = mode
        # Other columns are not processed; unknown names are reported by the caller.
        names = [n for n in schema.names if fields is None or n in fields]
        self._wanted = pa.schema([schema.field(name) for name in names])
        self._required = [name for name in required if name in names]
        self._warned: set[str | None] = set()
        self._lookalikes: set[str] = set()
        self.salvages = discards(mode)
        """Whether decoders replace values that do not fit by null."""
        self.refuses = not discards(mode) and mode != "evolve"
        """Whether a misfit makes its message bad."""
        self._conformer = Conformer(self._wanted, drops=not self.refuses)
        self._undeclared: tuple[pa.Schema, list[Undeclared]] | None = None
        """Of the last rows."""

    @property
    def undeclared(self) -> bool | None:
        """How decoders treat fields that are not in the schema: see `DecodeContext`.

        If such fields are dropped, decoders search only until the first one, as this
        costs time.
        """
        if self._mode is None:
            return None
        return self._mode in ("freeze", "discard_row") or None not in self._warned

    def warn_of_case(self, columns: Sequence[str]) -> None:
        """Warn once per column whose name has another case in messages."""
        for name in columns:
            if name not in self._lookalikes:
                self._lookalikes.add(name)
                msg = "column %r: messages have a field whose name differs only in the "
                msg += "case; the field is not read"
                log.warning(msg, name)

    def fit(
        self, rows: pa.RecordBatch, misfits: Sequence[Misfit] = ()
    ) -> tuple[pa.RecordBatch, dict[int, str]]:
        """Return the rows of the selected columns, and the causes of misfits by row.

        There are misfits under ``discard_row`` only; the caller drops their rows.

        Args:
            rows: Rows of the decoder.
            misfits: Misfits that the decoder reported.

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
            return self._conformer.conform(rows), wrong
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
            self._warn_of_null(self._wanted.field(name))
        elif None not in self._warned:
            self._warned.add(None)
            msg = "messages have fields that are not in the declared schema: dropped"
            log.warning(msg)

    def _known_columns(
        self, rows: pa.RecordBatch, wrong: dict[int, str]
    ) -> pa.RecordBatch:
        names = rows.schema.names
        if self.refuses:
            known, wanted = self._schema.names, self._wanted.names
            # Other unknown ones are kept: the conversion names them.
            kept = [n for n in names if n in wanted or n not in known]
            return rows if len(kept) == len(names) else rows.select(kept)
        for one in self._undeclared_in(rows.schema):
            if self._mode == "discard_row":
                what = f"column {one.path!r} is not in the declared schema"
                _mark(wrong, pa.array(one.mask(rows.column(one.column))), what)
            else:
                what = "is not in the schema of the stream: dropped"
                self._warn_once(one.path, what)
        return rows

    def _undeclared_in(self, schema: pa.Schema) -> list[Undeclared]:
        """Return the fields to report: those of selected columns, and new columns."""
        last = self._undeclared
        if last is None or not last[0].equals(schema):
            left = set(self._schema.names) - set(self._wanted.names)
            found = undeclared_columns(schema, self._schema)
            last = schema, [one for one in found if one.column not in left]
            self._undeclared = last
        return last[1]

    def _cast_each(self, rows: pa.RecordBatch, wrong: dict[int, str]) -> pa.RecordBatch:
        """Cast value by value; replace values that do not fit by null."""
        columns = []
        for field in self._wanted:
            index = rows.schema.get_field_index(field.name)
            if index < 0:
                columns.append(pa.nulls(rows.num_rows, field.type))
                continue
            found = rows.column(index)
            one = Conformer(pa.schema([field]), drops=True)
            column = pa.concat_arrays(_parts(found, field, one))
            lost = pc.and_(found.is_valid(), column.is_null())
            if self._mode == "discard_row":
                what = f"column {field.name!r} is {type_text(found.type)}, "
                what += f"declared {type_text(field.type)}"
                _mark(wrong, lost, what)
            elif pc.any(lost).as_py():
                self._warn_of_null(field)
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self._wanted)

    def _warn_of_null(self, field: pa.Field) -> None:
        kind = type_text(field.type)
        self._warn_once(
            field.name, f"has values that are not of type {kind}: replaced by null"
        )

    def _warn_once(self, name: str, what: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            log.warning("column %r %s", name, what)


def _mark(wrong: dict[int, str], mask: pa.Array, what: str) -> None:
    for index in pc.indices_nonzero(mask).to_pylist():
        wrong.setdefault(index, what)


def _parts(column: pa.Array, field: pa.Field, one: Conformer) -> list[pa.Array]:
    """Return the cast values in order; null for those that cannot be cast.

    Bisects: each bad value costs a logarithmic number of casts.

    Args:
        column: The values.
        field: The declared field.
        one: Converts rows of this column only.
    """

    def cast(part: pa.Array) -> pa.Array:
        rows = pa.RecordBatch.from_arrays([part], names=[field.name])
        return one.conform(rows).column(0)

    try:
        return [cast(column)]
    except SchemaMismatch:
        if len(column) <= 1 or not _fits(cast, column[:0]):
            return [pa.nulls(len(column), field.type)]
    half = len(column) // 2
    return _parts(column[:half], field, one) + _parts(column[half:], field, one)


def _fits(cast: Callable[[pa.Array], pa.Array], part: pa.Array) -> bool:
    """Whether no value hinders the cast; without values, whether any could fit."""
    try:
        cast(part)
    except SchemaMismatch:
        return False
    return True
