"""Encoding of rows as Avro, one message per row."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyruhvro

from streamfactory.decoders.avro.columns import to_wire
from streamfactory.decoders.avro.rows import writer
from streamfactory.decoders.avro.wire import wire
from streamfactory.decoders.columns.writing import fitted
from streamfactory.spi import SchemaMismatch
from streamfactory.spi.causes import is_failure

if TYPE_CHECKING:
    from streamfactory.decoders.avro.schemas import Node


def derived(schema: pa.Schema) -> str:
    """An Avro schema, as JSON, for the columns.

    Raises:
        SchemaMismatch: permanent; Avro has no type for a column.
    """
    return json.dumps(_SchemaBuilder().record("row", list(schema)))


_SIMPLE: Final = {
    pa.null(): "null",
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.uint8(): "int",
    pa.uint16(): "int",
    pa.int64(): "long",
    pa.uint32(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "bytes",
    pa.large_binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.time32("ms"): {"type": "int", "logicalType": "time-millis"},
    pa.time64("us"): {"type": "long", "logicalType": "time-micros"},
}
_UNITS: Final = {"ms": "millis", "us": "micros", "ns": "nanos"}


class _SchemaBuilder:
    def __init__(self) -> None:
        self._names = 0

    def record(self, name: str, fields: list[pa.Field]) -> dict[str, Any]:
        columns = []
        for field in fields:
            column = {"name": field.name, "type": self._field(field)}
            if isinstance(column["type"], list):
                column["default"] = None
            columns.append(column)
        return {"type": "record", "name": name, "fields": columns}

    def _field(self, field: pa.Field) -> Any:
        kind = self._type(field.type, field.name)
        return ["null", kind] if field.nullable and kind != "null" else kind

    def _type(self, kind: pa.DataType, where: str) -> Any:
        if kind in _SIMPLE:
            return _SIMPLE[kind]
        if pa.types.is_timestamp(kind) and kind.unit in _UNITS:
            word = "timestamp" if kind.tz else "local-timestamp"
            return {"type": "long", "logicalType": f"{word}-{_UNITS[kind.unit]}"}
        if pa.types.is_decimal(kind):
            digits = {"precision": kind.precision, "scale": kind.scale}
            return {"type": "bytes", "logicalType": "decimal", **digits}
        if pa.types.is_dictionary(kind):
            return self._type(kind.value_type, where)
        self._names += 1
        name = f"t{self._names}"
        if pa.types.is_fixed_size_binary(kind):
            return {"type": "fixed", "name": name, "size": kind.byte_width}
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return {"type": "array", "items": self._field(kind.value_field)}
        if pa.types.is_map(kind) and kind.key_type == pa.string():
            return {"type": "map", "values": self._field(kind.item_field)}
        if pa.types.is_struct(kind):
            return self.record(name, [kind.field(i) for i in range(kind.num_fields)])
        msg = f"column {where!r} has the type {kind}, which Avro does not support"
        raise SchemaMismatch(msg, remedy="cast or drop the column")


class AvroBatchEncoder:
    """Encodes rows with one schema.

    Args:
        node: The schema.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        pairs = zip(node.names, node.children, strict=True)
        self._schema = pa.schema([child.field(name) for name, child in pairs])
        schema = wire(node)
        self._wire = None if schema is None else json.dumps(schema)
        self._write = writer(node)

    def run(self, rows: pa.RecordBatch) -> pa.Array:
        """One message per row.

        Raises:
            SchemaMismatch: permanent; the rows do not fit the schema.
        """
        columns = fitted(rows, self._schema)
        if not rows.num_rows:
            return pa.array([], pa.binary())
        if columns:
            whole = pa.StructArray.from_arrays(columns, fields=list(self._schema))
        else:
            whole = pa.array([{}] * rows.num_rows, pa.struct([]))
        if self._wire is None:
            found = to_wire(whole, self._node).to_pylist()
            return pa.array([self._write(row) for row in found], pa.binary())
        batch = pa.RecordBatch.from_struct_array(
            to_wire(whole, self._node, bytes_type=pa.string())
        )
        try:
            parts = pyruhvro.serialize_record_batch(batch, self._wire, 1)
        except BaseException as error:
            if not is_failure(error):
                raise
            msg = "rows cannot be encoded as Avro with this schema"
            raise SchemaMismatch(msg) from error
        return pa.concat_arrays([part.cast(pa.binary()) for part in parts])
