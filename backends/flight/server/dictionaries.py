"""Rows without dictionaries, for clients that read with ``DoGet`` alone.

pyarrow's ``GeneratorStream`` sends no dictionaries, and its ``RecordBatchStream`` sends
those of the first batch only (pyarrow 26): values are sent in their place. Our own
clients read by ``DoExchange``, which sends dictionaries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from streamfactory.conversion.conform import Conformer
from streamfactory.spi.soundness import BatchValidator

if TYPE_CHECKING:
    from collections.abc import Iterator

_types = pa.types


def without_dictionaries(schema: pa.Schema) -> pa.Schema:
    """A schema with the types of values in place of dictionaries, at every depth."""
    fields = [_field(field) for field in schema]
    return pa.schema(fields, metadata=schema.metadata)


class DictionaryRemover:
    """Replaces the dictionaries in batches of one schema. Thread-safe.

    Args:
        schema: Of the batches.
        max_bytes: Of the values of a slice: a dictionary repeats its values.
    """

    def __init__(self, schema: pa.Schema, max_bytes: int) -> None:
        self.schema = without_dictionaries(schema)
        self._max_bytes = max_bytes
        self._validator = BatchValidator(schema)
        self._conformer = None if self.schema == schema else Conformer(self.schema)

    def slices(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """All rows of a sound batch, in order.

        Raises:
            MessageTooLarge: permanent; one row is too large without its dictionaries.
        """
        if self._conformer is None:
            yield rows
            return
        for part in self._validator.split(rows, self._max_bytes):
            yield self._conformer.conform(part)


def _field(field: pa.Field) -> pa.Field:
    kind = _type(field.type)
    return field if kind == field.type else field.with_type(kind)


def _type(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        storage = _type(kind.storage_type)
        return kind if storage == kind.storage_type else storage
    if _types.is_dictionary(kind):
        return _type(kind.value_type)
    if _types.is_run_end_encoded(kind):
        return pa.run_end_encoded(kind.run_end_type, _type(kind.value_type))
    if _types.is_map(kind):
        pair = _field(kind.key_field), _field(kind.item_field)
        return pa.map_(*pair, keys_sorted=kind.keys_sorted)
    if _types.is_struct(kind):
        return pa.struct([_field(field) for field in kind])
    if _types.is_union(kind):
        return pa.union([_field(f) for f in kind], kind.mode, kind.type_codes)
    if _types.is_fixed_size_list(kind):
        return pa.list_(_field(kind.value_field), kind.list_size)
    for belongs, made in _LISTS:
        if belongs(kind):
            return made(_field(kind.value_field))
    return kind


_LISTS = (
    (_types.is_list, pa.list_),
    (_types.is_large_list, pa.large_list),
    (_types.is_list_view, pa.list_view),
    (_types.is_large_list_view, pa.large_list_view),
)
