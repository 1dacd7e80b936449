"""Writes rows as JSON lines, CSV or Parquet to a stream of bytes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, BinaryIO, Final, final

import pyarrow as pa

from streamfactory.conversion.required import fill_required
from streamfactory.engines.search.columns import json_text
from streamfactory.spi import Unsupported
from streamfactory.spi.causes import first_line
from streamfactory.wiring.core.closing import Closing
from streamfactory.wiring.core.values import encode_base64, plain_members

if TYPE_CHECKING:
    from collections.abc import Iterator

FORMATS: Final = ("json", "csv", "parquet")


def json_lines(rows: pa.RecordBatch) -> Iterator[str]:
    """One JSON object a row; `plain_values` says what stands for which value."""
    names, columns = rows.schema.names, rows.columns
    for row in plain_members(names, columns, rows.num_rows, encode_base64):
        yield json.dumps(row, ensure_ascii=False, allow_nan=False)


@final
class RowWriter(Closing):
    """Writes batches of one schema. A context manager.

    A Parquet file is complete when this is closed. Values of CSV that are neither
    numbers, text nor times are text in JSON.

    Args:
        format: One of `FORMATS`.
        sink: Where it is written; it is not closed.
        schema: Of the batches.

    Raises:
        Unsupported: misuse; the format has no such columns.
    """

    def __init__(self, format: str, sink: BinaryIO, schema: pa.Schema) -> None:
        self._format, self._sink, self._schema = format, sink, schema
        self._writer: Any = None
        if format == "json":
            return
        flat = pa.schema([_flat_field(one) for one in schema])
        try:
            if format == "csv":
                from pyarrow import csv

                self._writer = csv.CSVWriter(sink, flat)
            else:
                from pyarrow import parquet

                self._writer = parquet.ParquetWriter(sink, schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise _unsupported(format, error) from error

    def write(self, rows: pa.RecordBatch) -> None:
        """Write a batch.

        Raises:
            Unsupported: misuse; the format has no such values.
        """
        if self._format == "json":
            text = "".join(f"{line}\n" for line in json_lines(rows))
            self._sink.write(text.encode("utf-8", "backslashreplace"))
            return
        if self._format == "csv":
            columns = [
                json_text(column) if _is_nested(column.type) else column
                for column in rows.columns
            ]
            rows = pa.RecordBatch.from_arrays(columns, rows.schema.names)
        try:
            self._writer.write_batch(fill_required(rows))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise _unsupported(self._format, error) from error

    def close(self) -> None:
        """Write the end. Twice is allowed."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


def _flat_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, pa.string() if _is_nested(field.type) else field.type)


def _is_nested(kind: pa.DataType) -> bool:
    """Whether CSV has no values of a type."""
    types = pa.types
    return not (
        types.is_integer(kind)
        or types.is_boolean(kind)
        or types.is_floating(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_timestamp(kind)
        or types.is_date32(kind)
        or types.is_null(kind)
    )


def _unsupported(format: str, error: Exception) -> Unsupported:
    msg = f"format {format} does not support these columns: {first_line(error)}"
    return Unsupported(msg, remedy="use json")
