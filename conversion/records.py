"""Python objects as Arrow columns: values that Arrow would change are refused."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Final

import numpy as np
import pyarrow as pa

from streamfactory.spi import MisuseError, SchemaMismatch
from streamfactory.spi.ddl import named_in_ddl, type_text

_EXACT: Final = frozenset({bool, int, float, str, bytes, Decimal})
"""Types whose values Arrow keeps or refuses, where all values of a column have one."""


def columns_of_records(records: Iterable[Any]) -> dict[Any, list[Any]] | None:
    """Return the columns of mappings, dataclasses, pydantic models or named tuples.

    A field that a record lacks is None. None if the first object is no record.

    Raises:
        MisuseError: misuse; a later object is no record.
    """
    found: list[Mapping[Any, Any]] = []
    for number, record in enumerate(records):
        fields = _fields(record)
        if fields is None:
            if not found:
                return None
            msg = f"row {number} is a {type(record).__name__!r}, not a record"
            raise MisuseError(msg, remedy="use one kind of rows")
        found.append(fields)
    names = dict.fromkeys(name for record in found for name in record)
    return {name: [record.get(name) for record in found] for name in names}


def array_of(name: str, values: Any) -> pa.Array | pa.ChunkedArray:
    """Return the values of a column as Arrow infers them.

    Raises:
        MisuseError: misuse; the column is no sequence of values.
        SchemaMismatch: permanent; has the column, and the row of the first value that
            does not fit those before it.
    """
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if hasattr(values, "__arrow_c_stream__"):
        return pa.chunked_array(values)
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        msg = f"column {name!r} is a {type(values).__name__!r}"
        remedy = "pass the list of its values, or a list with one dictionary a row"
        raise MisuseError(msg, remedy=remedy)
    dtype = getattr(values, "dtype", None)
    if dtype is not None and dtype.kind != "O":  # of numpy, or of what is like it
        return _inferred(name, values, values)
    listed = [_plain(value) for value in values]
    array = _inferred(name, listed, listed)
    kinds = set(map(type, listed)) - {type(None)}
    if len(kinds) > 1 or not kinds <= _EXACT:
        _check_kept(name, listed, array)
    return array


def _check_kept(name: str, listed: Sequence[Any], array: pa.Array) -> None:
    for row, (given, kept) in enumerate(zip(listed, array.to_pylist(), strict=True)):
        if not _is_same(given, kept):
            what = f"would change {given!r} to {kept!r}"
            msg = f"column {name!r} as {type_text(array.type)} {what}"
            raise _mismatch(msg, name, row)


def _fields(record: Any) -> Mapping[Any, Any] | None:
    if isinstance(record, Mapping):
        return record
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
    for method in ("model_dump", "_asdict"):  # of pydantic, and of named tuples
        if hasattr(record, method) and not isinstance(record, type):
            fields: Mapping[Any, Any] = getattr(record, method)()
            return fields
    return None


def _plain(value: Any) -> Any:
    """Return a value without classes of the caller, at every depth."""
    if value is None or type(value) in _EXACT:
        return value
    if isinstance(value, Enum):
        return _plain(value.value)
    fields = _fields(value)
    if fields is not None:
        return {name: _plain(inner) for name, inner in fields.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner) for inner in value]
    # NA and NaT of pandas: null, not values of a type
    return None if type(value).__name__ in ("NAType", "NaTType") else value


def _inferred(name: str, values: Any, listed: Any) -> pa.Array:
    error = _refused(values)
    if error is None:
        return pa.array(values)
    # A value is refused for those before it: the shortest refused beginning has it.
    fits, refused = 0, len(listed)
    while refused - fits > 1:
        half = (fits + refused) // 2
        if _refused(listed[:half]) is None:
            fits = half
        else:
            refused = half
    reason = named_in_ddl(str(error))
    msg = f"column {name!r} cannot be converted to Arrow: {reason}"
    raise _mismatch(msg, name, fits) from error


def _refused(values: Any) -> Exception | None:
    try:
        pa.array(values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        return error
    return None


def _mismatch(msg: str, column: str, row: int) -> SchemaMismatch:
    error = SchemaMismatch(msg, remedy="use values of one type")
    error.column, error.row = column, row
    return error


def _is_same(given: Any, kept: Any) -> bool:
    """Whether what Arrow stored is the given value, at every depth."""
    if given is None or kept is None:
        return given is kept
    if isinstance(given, Mapping):
        return all(_is_same(given.get(name), inner) for name, inner in kept.items())
    if isinstance(given, list | np.ndarray):
        return len(given) == len(kept) and all(map(_is_same, given, kept))
    if isinstance(given, bool | np.bool_) != isinstance(kept, bool):
        return False
    if isinstance(given, float) and math.isnan(given):
        return isinstance(kept, float) and math.isnan(kept)
    if isinstance(given, datetime) and getattr(given, "nanosecond", False):
        return False  # of pandas; what is read has microseconds
    return bool(given == kept)
