"""Values of partition columns, as the log of a Delta table has them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from streamfactory.spi import SchemaMismatch
from streamfactory.spi.computing import pc
from streamfactory.tables.datafiles import PartitionField

if TYPE_CHECKING:
    from collections.abc import Sequence


def partition_fields(names: Sequence[str]) -> list[PartitionField]:
    """The partitions by these columns, which files do not have."""
    return [
        PartitionField(name, name, partial(partition_texts, name=name), is_stored=False)
        for name in names
    ]


def check_partitions(schema: pa.Schema, names: Sequence[str]) -> None:
    """Refuse partition columns that a table with these columns cannot have.

    Raises:
        SchemaMismatch: permanent; one is missing, repeated, or of a type without text,
            or none is left for data files.
    """
    missing = [name for name in names if name not in schema.names]
    if missing:
        what = f"partition.by names {missing[0]!r}, which is no column of the rows"
        raise SchemaMismatch(what)
    if len({*names}) < len(names) or len(names) == len(schema):
        what = f"a Delta table with the columns {', '.join(schema.names)} cannot be "
        what += f"partitioned by {', '.join(names)}"
        raise SchemaMismatch(what, remedy="name some of its columns, each once")
    for name in names:
        partition_texts(pa.array([], schema.field(name).type), name)


def partition_texts(column: pa.Array, name: str) -> pa.Array:
    """The values of a partition column as text, as Delta's protocol and Hive have it.

    Raises:
        SchemaMismatch: permanent; empty text would be read as null, or the type is none
            that a partition column has.
    """
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp(kind.unit)).cast(pa.string())
    if pa.types.is_string(kind):
        if pc.any(pc.equal(column, "")).as_py():
            what = f"partition column {name!r} has empty text, which is read as null"
            raise SchemaMismatch(what, remedy="write null, or other text")
        return column
    if pa.types.is_decimal(kind):
        found = column.dictionary_encode()
        # Arrow's cast writes small ones with an exponent, which other readers refuse.
        texts = [format(value, "f") for value in found.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(found.indices)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date(kind):
        return column.cast(pa.string())
    what = f"partition column {name!r} is {kind}: its values are not written as text"
    raise SchemaMismatch(what, remedy="partition the table by another column")
