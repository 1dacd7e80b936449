"""Schemas of the peers of a live transport."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from streamfactory.spi import SchemaMismatch
from streamfactory.spi.ddl import columns_text, type_text

if TYPE_CHECKING:
    from collections.abc import Iterable


class SharedSchema:
    """The schema that all senders of a stream have.

    Args:
        schema: The expected schema; None to use that of the first sender.
    """

    def __init__(self, schema: pa.Schema | None = None) -> None:
        self.schema = schema

    def meet(self, schema: pa.Schema) -> None:
        """Compare a sender's schema with the common one; the first one sets it.

        Raises:
            SchemaMismatch: permanent; the schemas differ.
        """
        if self.schema is None:
            self.schema = schema
        elif not schema.equals(self.schema):
            what = f"a sender has another schema: {_difference(schema, self.schema)}"
            remedy = "use one schema in all senders of a stream; restart the reader to "
            raise SchemaMismatch(what, remedy=remedy + "begin with a new one")


def check_rows(schema: pa.Schema, wanted: pa.Schema) -> None:
    """Check that rows have the schema of the stream that they are written to.

    Raises:
        SchemaMismatch: permanent; they do not.
    """
    if not schema.equals(wanted):
        columns, found = columns_text(wanted), columns_text(schema)
        msg = f"the schema of the stream is {columns}, the rows have {found}"
        raise SchemaMismatch(msg)


def _difference(found: pa.Schema, wanted: pa.Schema) -> str:
    """Describe the first column that differs, with both types."""
    for one, other in zip(found, wanted, strict=False):
        if not one.equals(other):
            return f"column {_shown(one)}, where the stream has {_shown(other)}"
    return f"{len(found)} columns, where the stream has {len(wanted)}"


def _shown(field: pa.Field) -> str:
    return (
        f"{field.name!r} {type_text(field.type)}{'' if field.nullable else ' not null'}"
    )


def has_dictionary(kinds: Iterable[pa.DataType]) -> bool:
    """Whether a type contains a dictionary, at any level."""
    return any(
        pa.types.is_dictionary(kind) or has_dictionary(_children(kind))
        for kind in kinds
    )


def _children(kind: pa.DataType) -> list[pa.DataType]:
    if isinstance(kind, pa.BaseExtensionType):
        return [kind.storage_type]
    if pa.types.is_run_end_encoded(kind):
        return [kind.value_type]
    return [kind.field(number).type for number in range(kind.num_fields)]
