"""Partition specs of Iceberg tables: of the option, and as rows are divided by them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionSpec
from pyiceberg.partitioning import PartitionField as SpecField
from pyiceberg.transforms import BucketTransform, TruncateTransform, parse_transform
from pyiceberg.typedef import Record

from streamfactory.backends.iceberg.transforms import computed, texts, value_of
from streamfactory.spi import ConfigError, Unsupported
from streamfactory.tables.datafiles import PartitionField

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from pyiceberg.schema import Schema

_FIELD: Final = re.compile(
    r"(?:(?P<transform>year|month|day|hour|(?:bucket|truncate)\[[1-9][0-9]{0,8}\])"
    r"\((?P<of>[^()]+)\)|(?P<column>[^()]+))"
)
_SUFFIXES: Final[Mapping[type[Any], str]] = {
    BucketTransform: "bucket",
    TruncateTransform: "trunc",
}
"""Of names of fields, as in Iceberg's own library; of others it is the transform."""


def spec_of(fields: Sequence[str], schema: Schema, rows: pa.Schema) -> PartitionSpec:
    """The partition spec of a new table.

    Args:
        fields: Of the option ``partition.by``.
        schema: Of the table.
        rows: The same, of Arrow.

    Raises:
        ConfigError: config; one is no field of the table, or has another syntax.
        Unsupported: misuse; a transform is not of the type of its column.
    """
    found = []
    for number, text in enumerate(fields):
        match = _FIELD.fullmatch(text)
        column = "" if match is None else match["of"] or match["column"]
        if match is None or column not in rows.names:
            what = f"partition.by has {text!r}, which is no column of the rows, and no "
            what += "transform of one"
            remedy = "write day(at), bucket[16](id), truncate[4](name), or a column"
            raise ConfigError(what, remedy=remedy)
        transform: Any = parse_transform(match["transform"] or "identity")
        computed(transform, rows.field(column).type)
        suffix = _SUFFIXES.get(type(transform), str(transform))
        name = f"{column}_{suffix}" if match["transform"] else column
        source = schema.find_field(column).field_id
        found.append(
            SpecField(source, PARTITION_FIELD_ID_START + number, transform, name)
        )
    return PartitionSpec(*found)


def partition_fields(spec: PartitionSpec, schema: Schema) -> list[PartitionField]:
    """How rows are divided among files by a spec.

    Raises:
        Unsupported: misuse; a field is not of a column of its own, or has a transform
            that is not known.
    """
    found = []
    for field in spec.fields:
        column = schema.find_column_name(field.source_id) or str(field.source_id)
        if column not in schema.column_names or "." in column:
            what = f"the table has a partition field {field.name!r} of {column!r}, "
            what += "which is within another column: it is not written"
            raise Unsupported(what, remedy="write the table with Spark")
        found.append(
            PartitionField(str(field.field_id), column, _texts_by(field.transform))
        )
    return found


def _texts_by(transform: Any) -> Callable[[pa.Array], pa.Array]:
    return lambda column: texts(computed(transform, column.type)(column))


def record_of(
    values: Mapping[str, str | None], spec: PartitionSpec, schema: Schema
) -> Record:
    """The partition of a data file, as manifests have it.

    Args:
        values: Of `partition_fields`.
        spec: Of the table.
        schema: Of the table.
    """
    fields = spec.partition_type(schema).fields
    return Record(*(value_of(values[str(f.field_id)], f.field_type) for f in fields))
