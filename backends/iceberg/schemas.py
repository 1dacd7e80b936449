"""Arrow schemas of Iceberg tables, with the field ids that identify columns."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, final

import pyarrow as pa
from pyiceberg.exceptions import ValidationError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import index_by_id

from streamfactory.conversion.decimals import decimals_of_texts
from streamfactory.spi import CorruptData, FormatRefused
from streamfactory.tables import FIELD_ID, Match, by_id

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.types import NestedField


def arrow_schema(schema: Schema) -> pa.Schema:
    """The columns of a table as Arrow has them, with ids and 32-bit offsets."""
    try:
        found = schema_to_pyarrow(schema, include_field_ids=True)
    except (NotImplementedError, TypeError, ValidationError) as error:
        what = f"the table has a type that is unsupported: {error}"
        raise FormatRefused(what[:300]) from error
    return pa.schema([_small(field) for field in found])


@final
class TableSchemas:
    """The schemas that a table has had, as of one look.

    Args:
        metadata: Of the table.
    """

    def __init__(self, metadata: TableMetadata) -> None:
        self.metadata = metadata
        self._by_number = {one.schema_id: one for one in metadata.schemas}
        schemas = [*metadata.schemas, metadata.schema()]
        # A field keeps its id and its initial default; its type is the last one.
        self._fields = {
            number: field
            for schema in schemas
            for number, field in index_by_id(schema).items()
        }
        self._defaults = {
            number: field.initial_default
            for number, field in self._fields.items()
            if field.initial_default is not None
        }

    def at(self, snapshot: Snapshot) -> Schema:
        """The schema as of a snapshot."""
        number = snapshot.schema_id
        found = None if number is None else self._by_number.get(number)
        return found or self.metadata.schema()

    def matching(self, file: DataFile, path: str) -> Match:
        """How the columns of a data file are those of the table.

        A column that the file does not have has its value of an identity partition, its
        initial default, or null.

        Args:
            file: A data file, or a delete file of the same partition.
            path: Of the file, for messages.

        Raises:
            CorruptData: data_loss; the value of a partition is not of its column's
                type.
        """
        values = dict(self._defaults)
        spec = self.metadata.specs().get(file.spec_id)
        for at, field in enumerate(() if spec is None else spec.fields):
            if str(field.transform) == "identity" and field.source_id in self._fields:
                values[field.source_id] = file.partition[at]
        defaults = {
            number: _scalar(value, self._fields[number], path)
            for number, value in values.items()
        }
        return Match(by_id, by_id, defaults)


def _scalar(value: Any, field: NestedField, path: str) -> pa.Scalar:
    kind = _small_type(schema_to_pyarrow(field.field_type))
    try:
        if value is not None and pa.types.is_temporal(kind) and type(value) is int:
            width = pa.int32() if kind.bit_width == 32 else pa.int64()
            return pa.scalar(value, width).cast(kind)
        if isinstance(value, Decimal):
            return decimals_of_texts(pa.array([str(value)]), kind)[0]
        return pa.scalar(getattr(value, "bytes", value), kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        what = f"column {field.name!r} of {path!r} has the value "
        what += f"{str(value)[:100]!r}, which is no {kind}"
        raise CorruptData(what) from error


def _small(field: pa.Field) -> pa.Field:
    number = by_id(field)
    metadata = None if number is None else {FIELD_ID: str(number).encode()}
    return field.with_type(_small_type(field.type)).with_metadata(metadata)


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
