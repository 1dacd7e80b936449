"""Rows of any kind as Arrow batches, for writers and push tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple

import pyarrow as pa

from streamfactory.conversion.records import array_of, columns_of_records
from streamfactory.spi import MessageBatch, MisuseError, SchemaMismatch

_ROWS: Final = 65_536
"""Maximum rows of a batch that is made of Python objects."""
_TAKEN: Final = (
    "pass an Arrow table, batch or reader, a data frame of pandas or Polars, a "
    "relation of DuckDB, a dictionary of columns, or a list or generator of batches, "
    "dictionaries, dataclasses or pydantic models"
)


class Rows(NamedTuple):
    """Rows, batch by batch."""

    schema: pa.Schema
    """Of the first batch; those of a list of tables may differ."""
    batches: Iterable[pa.RecordBatch]
    inferred: frozenset[str] = frozenset()
    """Columns whose type Arrow inferred from their values."""
    foreign: bool = False
    """Whether another library made the memory: Arrow does not know who may change it,
    as that of a numpy array below a frame."""

    @property
    def is_read_once(self) -> bool:
        """Whether the batches are gone after they were read."""
        return isinstance(self.batches, Iterator)


def rows_of(data: object) -> Rows:
    """Return the rows of an object.

    What is in Arrow already, or has its C interface, is neither copied nor read before
    its batches are; rows that are Python objects are collected. Their types are those
    that Arrow infers from all of them, and a value that Arrow would change is refused.

    Raises:
        MisuseError: misuse; the object has no rows. Names what is taken instead.
        SchemaMismatch: permanent; values of a column have no common Arrow type.
    """
    found = _arrow_rows(data)
    if found is not None:
        inferred = _objects_of(data)
        return found._replace(inferred=inferred) if inferred else found
    names = getattr(getattr(data, "dtype", None), "names", None)
    if names is not None:  # a structured array of numpy
        return _table_rows({name: data[name] for name in names})  # type: ignore[index]
    if isinstance(data, Mapping):
        return _table_rows(data)
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | bytearray):
        return _rows_of_items(data)
    raise _refusal(data)


def _arrow_rows(data: Any) -> Rows | None:
    """Return the rows of what is in Arrow or has its C interface; None of others."""
    if isinstance(data, MessageBatch):
        data = data.rows
    if isinstance(data, pa.RecordBatch):
        return Rows(data.schema, (data,))
    if isinstance(data, pa.Table):
        return Rows(data.schema, data.to_batches())
    if hasattr(data, "__arrow_c_stream__"):
        read = pa.RecordBatchReader.from_stream
    elif hasattr(data, "__arrow_c_array__"):
        read = pa.record_batch
    elif hasattr(data, "scanner"):  # a dataset
        return _arrow_rows(data.scanner())
    elif hasattr(data, "to_reader"):
        return _arrow_rows(data.to_reader())
    else:
        return None
    _refuse_pointers(data)
    try:
        found = read(data)
    except (pa.ArrowException, TypeError, ValueError) as error:
        msg = f"{type(data).__name__!r} cannot be read as rows: {error}"
        raise SchemaMismatch(msg, remedy=_TAKEN) from error
    batches = (found,) if isinstance(found, pa.RecordBatch) else found
    return Rows(found.schema, batches, foreign=True)


def _library(data: object) -> str:
    return type(data).__module__.partition(".")[0]


def _refuse_pointers(data: Any) -> None:
    """Refuse Python objects in a frame of Polars, which exports their addresses."""
    if _library(data) != "polars" or not hasattr(data, "columns"):
        return
    for name, dtype in zip(data.columns, data.dtypes, strict=True):
        if "Object" in str(dtype):
            msg = f"column {name!r} has Python objects, the type {dtype} of Polars"
            error = SchemaMismatch(msg, remedy="cast it to a type with values")
            error.column = name
            raise error


def _objects_of(data: Any) -> frozenset[str]:
    """Return the columns of a pandas frame whose values are Python objects."""
    if _library(data) != "pandas":
        return frozenset()
    return frozenset(
        str(name) for name, dtype in data.dtypes.items() if str(dtype) == "object"
    )


def _rows_of_items(data: Iterable[Any]) -> Rows:
    """Return the rows of batches, or of an object for each row."""
    items = iter(data)
    for first in items:
        found = _arrow_rows(first)
        if found is not None:
            rest = (batch for item in items for batch in _batches_of(item))
            return Rows(found.schema, chain(found.batches, rest), foreign=True)
        records = columns_of_records(chain([first], items))
        if records is None:
            raise _refusal(first)
        return _table_rows(records)
    msg = f"an empty {type(data).__name__!r} has neither rows nor columns"
    raise MisuseError(msg, remedy="pass an empty Arrow table, or write nothing")


def _batches_of(item: Any) -> Iterable[pa.RecordBatch]:
    found = _arrow_rows(item)
    if found is None:
        raise _refusal(item)
    return found.batches


def _table_rows(columns: Mapping[Any, Any]) -> Rows:
    """Return the rows of columns by name."""
    arrays = {}
    for name, values in columns.items():
        if not isinstance(name, str):
            msg = f"the column name {name!r} is a {type(name).__name__}"
            raise MisuseError(msg, remedy="use text for the names of columns")
        arrays[name] = array_of(name, values)
    sizes = {name: len(column) for name, column in arrays.items()}
    if len(set(sizes.values())) > 1:
        shown = ", ".join(f"{name!r} {size}" for name, size in sizes.items())
        msg = f"the columns have different numbers of rows: {shown}"
        raise SchemaMismatch(msg)
    table = pa.table(arrays)
    given = (name for name, values in columns.items() if not _is_arrow(values))
    owned = (list, tuple, pa.Array, pa.ChunkedArray)
    return Rows(
        table.schema,
        table.to_batches(max_chunksize=_ROWS),
        frozenset(map(str, given)),
        foreign=not all(isinstance(values, owned) for values in columns.values()),
    )


def _is_arrow(values: object) -> bool:
    return isinstance(values, pa.Array | pa.ChunkedArray) or hasattr(
        values, "__arrow_c_stream__"
    )


def _refusal(data: object) -> MisuseError:
    kind = type(data).__name__
    if hasattr(data, "collect"):  # a lazy frame
        return MisuseError(f"{kind!r} has no rows yet", remedy="pass what it collects")
    return MisuseError(f"{kind!r} has no rows", remedy=_TAKEN)
