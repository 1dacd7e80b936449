"""Whether every value of a batch lies where it says, as cheaply as can be told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable

_SMALL: Final = 2048
"""Rows below which pyarrow's own validation is the cheaper one."""
_OFFSET: Final = np.dtype(np.int32).itemsize


class Checks:
    """As ``rows.validate(full=True)``, but faster for long columns of ASCII text.

    What is to be looked at is decided once for a schema.
    """

    def __init__(self, schema: pa.Schema) -> None:
        kinds = list(enumerate(schema.types))
        self._texts = [
            (number, pa.types.is_string(kind))
            for number, kind in kinds
            if pa.types.is_string(kind) or pa.types.is_binary(kind)
        ]
        texts = {number for number, _ in self._texts}
        self._others = [
            number
            for number, kind in kinds
            if number not in texts and not _takes_any_bits(kind)
        ]

    def run(self, rows: pa.RecordBatch) -> None:
        """Look at a batch.

        Raises:
            pyarrow.ArrowInvalid: A value is outside of the batch, or is none.
        """
        if rows.num_rows < _SMALL:
            rows.validate(full=True)
            return
        rows.validate()
        for number, is_text in self._texts:
            column = rows.column(number)
            if not _is_plain(column, is_text=is_text):
                column.validate(full=True)  # and pyarrow says what is wrong
        for number in self._others:
            rows.column(number).validate(full=True)


def _takes_any_bits(kind: pa.DataType) -> bool:
    """Whether every pattern of bits is a value."""
    if not pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
        return False
    # Times of day have a range of their own.
    return not (pa.types.is_time(kind) or pa.types.is_date64(kind))


def _is_plain(column: pa.Array, *, is_text: bool) -> bool:
    """Whether a column of text or bytes is sound at a glance."""
    _, offsets, data = column.buffers()
    places = np.frombuffer(offsets, np.int32, len(column) + 1, column.offset * _OFFSET)
    if places[0] < 0 or (places[1:] < places[:-1]).any():
        return False
    if not is_text or data is None or not data.size:
        return True
    text = np.frombuffer(data, np.int8)[places[0] : places[-1]]
    return not len(text) or bool(text.min() >= 0)


def check_names(fields: Iterable[pa.Field]) -> None:
    """Look whether every name is text, also where pyarrow looks only when it is asked.

    Raises:
        ValueError: One is not.
    """
    for field in fields:
        kind = field.type
        _ = field.name, getattr(kind, "tz", None)
        check_names(_children(kind))


def has_dictionary(fields: Iterable[pa.Field]) -> bool:
    """Whether values of a column, or within one, are kept in a dictionary."""
    return any(
        pa.types.is_dictionary(field.type) or has_dictionary(_children(field.type))
        for field in fields
    )


def _children(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return [kind.field(number) for number in range(kind.num_fields)]
