"""Converts pushed objects to batches of the table's schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import pyarrow as pa

from streamfactory.spi import CorruptData, MisuseError, SchemaMismatch
from streamfactory.spi.ddl import type_text
from streamfactory.spi.soundness.nullability import Required

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_REMEDY: Final = "push rows of the table's schema, or pass cast=True for safe casts"


@final
class RowFitter:
    """Checks rows against one schema. Thread-safe.

    Args:
        schema: Of the table.
        cast: Whether columns of other types are cast where no value can be lost.
    """

    def __init__(self, schema: pa.Schema, *, cast: bool) -> None:
        self.schema = schema
        self._cast = cast
        required = Required(schema)
        self._required = required if required.fields else None

    def batches(self, data: Any) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a pushed object.

        Args:
            data: A record batch, a table, or any object with Arrow's C interface for
                arrays or streams. A stream is read as its batches are taken.

        Raises:
            MisuseError: misuse; the object has no Arrow C interface.
            SchemaMismatch: permanent; names the column by its dotted path, and both
                types. Metadata of the schema is not compared.
        """
        for rows in _read(data):
            yield self.fit(rows)

    def fit(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """A batch, checked. Raises as `batches` does."""
        schema, is_same = self.schema, False
        if rows.schema.equals(schema, check_metadata=True):
            is_same = True
        elif not rows.schema.equals(schema):
            found = difference(rows.schema, schema)
            if not self._cast or rows.schema.names != schema.names:
                raise SchemaMismatch(found, remedy=_REMEDY)
            try:
                rows = rows.cast(schema)
            except (ValueError, pa.ArrowNotImplementedError) as error:
                msg = f"{found}: {error}"
                raise SchemaMismatch(msg) from error
        if self._required is not None:
            try:
                self._required.run(rows)
            except CorruptData as error:
                raise SchemaMismatch(error.what, remedy=_REMEDY) from None
        if is_same:
            return rows
        if not schema.names:  # without columns, only this keeps the number of rows
            return rows.replace_schema_metadata(schema.metadata)
        return pa.RecordBatch.from_arrays(rows.columns, schema=schema)


def difference(have: pa.Schema, want: pa.Schema) -> str:
    """Return the first difference between two different schemas.

    Columns are named by their dotted path: ``order.items.element.price``.
    """
    return _fields_differ(have, want, "") or f"the schema is {have}, not {want}"


def _read(data: Any) -> Iterable[pa.RecordBatch]:
    if isinstance(data, pa.RecordBatch):
        return (data,)
    if isinstance(data, pa.Table):
        empty = pa.RecordBatch.from_arrays(
            [pa.array([], field.type) for field in data.schema], schema=data.schema
        )
        found: list[pa.RecordBatch] = data.to_batches()
        return found or (empty,)  # its schema is checked, too
    if hasattr(data, "__arrow_c_stream__"):
        reader: Iterable[pa.RecordBatch] = pa.RecordBatchReader.from_stream(data)
        return reader
    if hasattr(data, "__arrow_c_array__"):
        return (pa.record_batch(data),)
    msg = f"{type(data).__name__!r} has no Arrow C interface"
    raise MisuseError(msg, remedy="push record batches, tables or data frames")


def _fields_differ(
    have: Iterable[pa.Field], want: Iterable[pa.Field], path: str
) -> str | None:
    found, wanted = list(have), list(want)
    names = [field.name for field in found]
    for field in wanted:
        if field.name not in names:
            return f"column {path + field.name!r} is missing"
    known = [field.name for field in wanted]
    for name in names:
        if name not in known:
            return f"column {path + name!r} is not in the table"
    if names != known:
        where = f" of {path.rstrip('.')!r}" if path else ""
        return f"the columns{where} are in the order {names}, not {known}"
    for one, other in zip(found, wanted, strict=True):
        if text := _field_differs(one, other, path + one.name):
            return text
    return None


def _field_differs(have: pa.Field, want: pa.Field, path: str) -> str | None:
    if have.equals(want):
        return None
    if have.nullable != want.nullable:
        words = {True: "nullable", False: "required"}
        return f"column {path!r} is {words[have.nullable]}, not {words[want.nullable]}"
    if have.type.id == want.type.id and have.type.num_fields == want.type.num_fields:
        one, other = _children(have.type), _children(want.type)
        if pa.types.is_struct(have.type):
            found = _fields_differ(one, other, path + ".")
        else:
            # Names of the children of lists and maps carry no meaning.
            pairs = zip(one, other, strict=True)
            differing = (_field_differs(a, b, f"{path}.{b.name}") for a, b in pairs)
            found = next(filter(None, differing), None)
        if found:
            return found
    return f"column {path!r} is {type_text(have.type)}, not {type_text(want.type)}"


def _children(kind: pa.DataType) -> list[pa.Field]:
    count = 0 if pa.types.is_dictionary(kind) else kind.num_fields
    return [kind.field(number) for number in range(count)]
