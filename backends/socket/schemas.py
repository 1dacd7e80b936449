"""One schema for all writers of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from streamfactory.spi import SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Iterable


class SchemaHolder:
    """The schema that all writers of a stream have to have."""

    def __init__(self) -> None:
        self.schema: pa.Schema | None = None

    def meet(self, schema: pa.Schema) -> None:
        """Take note of a writer's schema.

        Raises:
            SchemaMismatch: permanent; it is another one.
        """
        if self.schema is None:
            self.schema = schema
        elif not schema.equals(self.schema):
            what = _difference(schema, self.schema)
            msg = f"a writer came with another schema: {what}"
            remedy = "all writers, and later connections, need the first one's schema"
            raise SchemaMismatch(msg, remedy=remedy)


def _difference(found: pa.Schema, wanted: pa.Schema) -> str:
    """The first column that differs, with both types."""
    for one, other in zip(found, wanted, strict=False):
        if not one.equals(other):
            return f"column {_shown(one)}, where the first had {_shown(other)}"
    return f"{len(found)} columns, where the first had {len(wanted)}"


def _shown(field: pa.Field) -> str:
    return f"{field.name!r} {field.type}{'' if field.nullable else ' not null'}"


def has_dictionary(fields: Iterable[pa.Field]) -> bool:
    """Whether values of a column, or within one, are in a dictionary."""
    return any(
        pa.types.is_dictionary(field.type) or has_dictionary(_children(field.type))
        for field in fields
    )


def _children(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return [kind.field(number) for number in range(kind.num_fields)]
