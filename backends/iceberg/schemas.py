"""Arrow schemas of Iceberg tables, and which columns of a file are theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow

from streamfactory.spi import FormatRefused
from streamfactory.tables import file_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.schema import Schema

    from streamfactory.tables import TableFiles

_ID = b"PARQUET:field_id"


def arrow_schema(schema: Schema) -> pa.Schema:
    """The columns of a table as Arrow has them, with 32-bit offsets."""
    found = schema_to_pyarrow(schema, include_field_ids=False)
    return pa.schema([_small(field) for field in found])


@final
class FileSchema:
    """The columns wanted of the files of a table.

    Args:
        schema: Of the table, as of the commit.
        fields: Names wanted; None means all.
    """

    def __init__(self, schema: Schema, fields: Sequence[str] | None) -> None:
        whole = arrow_schema(schema)
        names = [n for n in whole.names if fields is None or n in fields]
        self.wanted = pa.schema([whole.field(name) for name in names])
        self._ids = {f.field_id: f for f in schema.fields if f.name in names}
        self._nested = schema_to_pyarrow(schema, include_field_ids=True)

    def columns(self, files: TableFiles, path: str) -> dict[str, str]:
        """Columns of a file by their name there, each with its name in the table.

        Raises:
            FormatRefused: permanent; the file has no field ids, or a field within a
                column had another name when it was written.
        """
        found = file_schema(files, path)
        columns = {}
        for field in found:
            number = _id(field)
            if number is None:
                what = f"column {field.name!r} of {path!r} has no field id"
                raise FormatRefused(what, remedy="rewrite the data files of the table")
            if number in self._ids:
                name = self._ids[number].name
                _check_nested(field, self._nested.field(name), path)
                columns[field.name] = name
        return columns


def _id(field: pa.Field) -> int | None:
    text = (field.metadata or {}).get(_ID)
    return None if text is None or not text.isdigit() else int(text)


def _check_nested(file: pa.Field, table: pa.Field, path: str) -> None:
    """Refuse fields of structs that were renamed: values are matched by name."""
    if pa.types.is_struct(file.type) and pa.types.is_struct(table.type):
        by_id = {_id(child): child for child in table.type}
        for child in file.type:
            known = by_id.get(_id(child))
            if known is not None and known.name != child.name:
                what = f"field {child.name!r} of column {file.name!r} in {path!r} is "
                what += f"{known.name!r} in the table"
                raise FormatRefused(what, remedy="rewrite the data files of the table")
            if known is not None:
                _check_nested(child, known, path)


def _small(field: pa.Field) -> pa.Field:
    return field.with_type(_small_type(field.type)).remove_metadata()


def _small_type(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_large_string(kind):
        return pa.string()
    if types.is_large_binary(kind):
        return pa.binary()
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(_small(kind.value_field))
    if types.is_struct(kind):
        return pa.struct([_small(child) for child in kind])
    if types.is_map(kind):
        return pa.map_(_small(kind.key_field), _small(kind.item_field))
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type
    return kind
