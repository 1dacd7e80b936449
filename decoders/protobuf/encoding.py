"""Encoding of rows as protobuf, one message per row."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor as Field

from streamfactory.decoders.columns.writing import fitted
from streamfactory.decoders.protobuf.decoding import library
from streamfactory.decoders.protobuf.types import Types, times_are_right
from streamfactory.spi import SchemaMismatch
from streamfactory.spi.causes import is_failure

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor


class ProtobufBatchEncoder:
    """Encodes rows as messages of one type.

    Args:
        message: The type.
        text: Enums are names rather than numbers.

    Raises:
        DescriptorRefused: The type cannot be converted to columns.
    """

    def __init__(self, message: Descriptor, *, text: bool) -> None:
        self._schema = Types(message, text=text).schema
        self._handler = library(message, self._schema, text=text)
        self._message = message
        self._make = message_factory.GetMessageClass(message)
        self._enums = text and _enums(message)
        self._one_of = [
            [field.name for field in group.fields]
            for group in message.oneofs
            if len(group.fields) > 1
        ]

    def run(self, rows: pa.RecordBatch) -> pa.Array:
        """One message per row.

        Raises:
            SchemaMismatch: permanent; the rows do not fit the type.
        """
        rows = self._fitted(rows)
        self._check_one_of(rows)
        if self._handler is None or self._enums or not self._schema.names:
            return self._by_row(rows)
        try:
            return self._handler.record_batch_to_array(rows).cast(pa.binary())
        except BaseException as error:
            if is_failure(error):
                msg = f"rows cannot be encoded as {self._message.full_name!r}"
                raise SchemaMismatch(msg) from error
            raise

    def _fitted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = fitted(rows, self._schema)
        if not columns:
            return rows
        for name, column in zip(self._schema.names, columns, strict=True):
            if not times_are_right(column):
                msg = f"column {name!r} has a time outside of protobuf's range"
                raise SchemaMismatch(msg)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _check_one_of(self, rows: pa.RecordBatch) -> None:
        for names in self._one_of:
            valid = [np.asarray(rows.column(name).is_valid()) for name in names]
            if (np.sum(valid, axis=0) > 1).any():
                msg = (
                    "a row has values for more than one of "
                    f"{', '.join(map(repr, names))}"
                )
                raise SchemaMismatch(msg)

    def _by_row(self, rows: pa.RecordBatch) -> pa.Array:
        found = []
        for row in _raw_times(rows).to_pylist():
            message = self._make()
            try:
                _fill(message, row)
            except (KeyError, TypeError, ValueError) as error:
                msg = f"a row cannot be encoded as {self._message.full_name!r}"
                raise SchemaMismatch(msg) from error
            found.append(message.SerializeToString())
        return pa.array(found, pa.binary())


def _enums(message: Descriptor) -> bool:
    """Whether there are enums at any depth: ptars cannot encode names."""
    return any(
        field.type == Field.TYPE_ENUM
        or (
            field.type in (Field.TYPE_MESSAGE, Field.TYPE_GROUP)
            and _enums(field.message_type)
        )
        for field in message.fields
    )


def _raw_times(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Timestamps as integers: Python's datetime has a smaller range."""
    fields = [field.with_type(_raw(field.type)) for field in rows.schema]
    return rows.cast(pa.schema(fields)) if fields else rows


def _raw(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_list(kind):
        item = kind.value_field
        return pa.list_(item.with_type(_raw(item.type)))
    if pa.types.is_map(kind):
        item = kind.item_field
        return pa.map_(kind.key_type, item.with_type(_raw(item.type)))
    if pa.types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        return pa.struct([field.with_type(_raw(field.type)) for field in fields])
    return kind


def _fill(message: Any, row: dict[str, Any]) -> None:
    for field in message.DESCRIPTOR.fields:
        value = row.get(field.name)
        if value is None:
            continue
        target = getattr(message, field.name)
        if field.is_repeated and isinstance(target, MutableMapping):
            _fill_map(target, field.message_type.fields_by_name["value"], value)
        elif field.is_repeated and field.message_type is not None:
            for item in value:
                _fill_message(target.add(), item)
        elif field.is_repeated:
            target.extend([_scalar(field, item) for item in value])
        elif field.message_type is not None:
            target.SetInParent()
            _fill_message(target, value)
        else:
            setattr(message, field.name, _scalar(field, value))


def _fill_map(target: Any, field: Any, pairs: list[tuple[Any, Any]]) -> None:
    for key, value in pairs:
        if field.message_type is None:
            target[key] = _scalar(field, value)
        else:
            _fill_message(target[key], value)


def _fill_message(message: Any, value: Any) -> None:
    if isinstance(value, dict):
        _fill(message, value)
    elif "seconds" in message.DESCRIPTOR.fields_by_name:
        message.seconds, micros = divmod(value, 1_000_000)
        message.nanos = micros * 1000
        if message.seconds < 0 < message.nanos and _is_duration(message):
            message.seconds += 1
            message.nanos -= 1_000_000_000
    else:
        message.value = value


def _is_duration(message: Any) -> bool:
    return bool(message.DESCRIPTOR.name == "Duration")


def _scalar(field: Any, value: Any) -> Any:
    if field.enum_type is None or not isinstance(value, str):
        return value
    known = field.enum_type.values_by_name.get(value)
    return int(value) if known is None else known.number
