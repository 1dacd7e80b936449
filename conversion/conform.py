"""Casts rows to exactly the declared schema, or reports the column (rule D4)."""

from __future__ import annotations

from typing import final

import pyarrow as pa

from streamfactory.conversion.plans import LISTED, Planner, apply
from streamfactory.spi import SchemaMismatch
from streamfactory.spi.ddl import type_text
from streamfactory.spi.soundness.nullability import Required


def check_names(schema: pa.Schema) -> None:
    """Refuse columns of the same name.

    Raises:
        SchemaMismatch: permanent; two columns have the same name.
    """
    names = schema.names
    if len(set(names)) == len(names):
        return
    twice = next(name for name in names if names.count(name) > 1)
    msg = f"the rows have {names.count(twice)} columns named {twice!r}"
    raise SchemaMismatch(msg, remedy="give each column its own name")


def check_columns(schema: pa.Schema) -> None:
    """Refuse rows without columns, or with columns of the same name.

    Raises:
        SchemaMismatch: permanent.
    """
    check_names(schema)
    if not schema.names:
        msg = "the rows have no columns"
        raise SchemaMismatch(msg, remedy="write at least one column")


def columns_of(schema: pa.Schema) -> str:
    """Return names and types of the first columns, for messages."""
    texts = [f"{field.name} {type_text(field.type)}" for field in schema]
    more = len(texts) - LISTED
    return ", ".join([*texts[:LISTED], *([f"{more} more"] if more > 0 else [])])


def empty_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Return an empty batch of any schema.

    ``RecordBatch.from_pylist`` refuses unions and dictionaries of times, and
    ``pa.nulls`` run-end encoded values within others (pyarrow 26).
    """
    columns = [_empty(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _empty(kind: pa.DataType) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _empty(kind.storage_type))
    if not kind.num_fields or pa.types.is_dictionary(kind):
        return pa.nulls(0, kind)
    children = [_empty(kind.field(at).type) for at in range(kind.num_fields)]
    # All buffers but the first are offsets, sizes or types: one value of any width
    # fits.
    buffers = [None, *[pa.py_buffer(bytes(8))] * (kind.num_buffers - 1)]
    return pa.Array.from_buffers(kind, 0, buffers, children=children)


def conform(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return ``rows`` with the names, order, types and nullability of ``schema``.

    Columns, and children of structs at every depth, are matched by name, and cast if
    the cast is lossless.

    Raises:
        SchemaMismatch: permanent; a column or a child is missing, unknown, of another
            type, or has nulls though it is not nullable. Names its dotted path, and has
            the first row if some rows of this schema fit.
    """
    return Conformer(schema).conform(rows)


@final
class Conformer:
    """Converts many batches to one schema. Thread-safe.

    Args:
        schema: The declared schema.
        drops: Whether columns and children that are not declared are dropped; otherwise
            they are errors.
    """

    def __init__(self, schema: pa.Schema, *, drops: bool = False) -> None:
        self.schema = schema
        """The schema of every result."""
        self._planner = Planner(drops=drops)
        required = Required(schema)
        self._required = required if required.fields else None
        self._fitting: _Fitting | None = None

    def conform(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Do as `conform`. Costs one comparison if the schemas are equal."""
        try:
            return self._conform(rows)
        except SchemaMismatch as error:
            error.row = self._first_refused(rows, error.column)
            raise

    def _first_refused(self, rows: pa.RecordBatch, column: str | None) -> int | None:
        """Return the first row whose value of a column does not fit; None if unknown.

        It is searched for by halving: a conversion does not report rows, and values
        within others have none.
        """

        def is_refused(first: int, count: int) -> bool:
            try:
                self._conform(rows.slice(first, count))
            except SchemaMismatch as error:
                return error.column == column
            return False

        first, count = 0, rows.num_rows
        if is_refused(0, 0):
            return None
        while count > 1:
            half = count // 2
            if not is_refused(first, half):
                first, half = first + half, count - half
            count = half
        # Some values do not fit together only.
        return first if is_refused(first, count) else None

    def _conform(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        given = rows.schema
        if not given.equals(self.schema, check_metadata=True):
            # That of the last batch: another thread may exchange it.
            fitting = self._fitting
            if fitting is None or not fitting.given.equals(given, check_metadata=True):
                fitting = _Fitting(given, self.schema, self._planner)
                self._fitting = fitting
            rows = fitting.apply(rows)
        if self._required is not None:
            missing = self._required.find(rows)
            if missing is not None:
                path, count = missing
                msg = f"column {path!r} is not nullable, but has {count} nulls"
                error = SchemaMismatch(msg)
                error.column = path
                raise error
        return rows


class _Fitting:
    """How batches of one schema are converted to another.

    Raises:
        SchemaMismatch: permanent; no batch of this schema can be.
    """

    def __init__(self, given: pa.Schema, wanted: pa.Schema, planner: Planner) -> None:
        self.given = given
        self._wanted = wanted
        found = planner.match(given.names, list(wanted))
        self._columns = [
            (
                field,
                index,
                None
                if index is None
                else planner.plan(field.name, given.field(index).type, field.type),
            )
            for index, field in zip(found, wanted, strict=True)
        ]
        self._ordered = given.names == wanted.names
        self._differing = [
            (index, field, step)
            for index, (field, _, step) in enumerate(self._columns)
            if self._ordered
            and not field.equals(given.field(index), check_metadata=True)
        ]

    def apply(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if not self._ordered:
            columns = [
                pa.nulls(rows.num_rows, field.type)
                if index is None
                else apply(step, rows.column(index))
                for field, index, step in self._columns
            ]
            return pa.RecordBatch.from_arrays(columns, schema=self._wanted)
        # To replace a few columns takes a fraction of what building a batch takes.
        for index, field, step in self._differing:
            rows = rows.set_column(index, field, apply(step, rows.column(index)))
        if rows.schema.metadata != self._wanted.metadata:
            rows = rows.replace_schema_metadata(self._wanted.metadata)
        return rows
