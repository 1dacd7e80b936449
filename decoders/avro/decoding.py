"""Decoding of batches of Avro: by columns with pyruhvro where possible, else by row."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyruhvro

from streamfactory.decoders import isolation
from streamfactory.decoders.avro import columns
from streamfactory.decoders.avro.reading import Malformed, read_all, reader
from streamfactory.decoders.avro.scanning import suspects
from streamfactory.decoders.avro.schemas import Node, same
from streamfactory.decoders.avro.wire import raw, wire
from streamfactory.decoders.columns.messages import joined
from streamfactory.spi.causes import is_panic
from streamfactory.spi.decoder import find_lookalikes

if TYPE_CHECKING:
    from streamfactory.decoders.isolation import DecodedParts, Refusal


def schema_of(node: Node) -> pa.Schema:
    """The columns of a record."""
    pairs = zip(node.names, node.children, strict=True)
    return pa.schema([child.field(name) for name, child in pairs])


class AvroBatchDecoder:
    """Decodes messages of one writer schema into rows of a reader schema.

    Args:
        writer: The schema that the messages were written with.
        wanted: The schema of the rows.

    Raises:
        SchemaRefused: The two schemas cannot be resolved.
    """

    def __init__(self, writer: Node, wanted: Node) -> None:
        self.schema = schema_of(wanted)
        self._writer, self._wanted = writer, wanted
        self.undeclared = _has_more(writer, wanted)
        """Whether messages have fields that the rows do not have."""
        self.lookalikes = find_lookalikes(writer.names, wanted.names)
        self._raw = raw(wanted)
        self._doubtful = False
        self._read = reader(writer, wanted)
        sources = _sources(writer, wanted)
        schema = wire(writer)
        self._columns = None
        if sources and schema is not None:
            self._columns = _Columns(schema, sources, wanted)

    @property
    def columnar(self) -> bool:
        """Whether whole batches are decoded by columns."""
        return self._columns is not None

    def run(self, values: pa.Array, messages: np.ndarray, result: DecodedParts) -> None:
        """Decode values; ``messages`` contains the message index of each."""
        self._doubtful = isolation.decode_isolating(
            values, messages, result, self, doubtful=self._doubtful
        )

    def batch(self, values: pa.Array) -> pa.RecordBatch | None:
        """Rows, or None where a message is bad."""
        try:
            if self._columns is not None:
                return self._columns.read(values)
            rows = [read_all(self._read, value) for value in values.to_pylist()]
            return self._made(rows)
        except (Malformed, pa.ArrowException, OverflowError):
            return None

    def suspects(self, values: pa.Array, fields: int) -> np.ndarray:
        """The messages that are bad within their first fields."""
        return suspects(values, self._writer, fields)

    def check(self, value: pa.Array) -> Refusal | None:
        """Why a message is bad, or None."""
        try:
            self._made([read_all(self._read, value[0].as_py())])
        except Malformed as error:
            return isolation.MALFORMED, str(error)
        except (pa.ArrowException, OverflowError):
            return "range", "a number does not fit the type of its column"
        return None

    def _made(self, rows: list[Any]) -> pa.RecordBatch:
        array = pa.array(rows, self._raw)
        parts = [
            columns.to_arrow(array.field(at), child)
            for at, child in enumerate(self._wanted.children)
        ]
        return _record_batch(parts, self.schema, len(rows))


def _record_batch(
    parts: list[pa.Array], schema: pa.Schema, count: int
) -> pa.RecordBatch:
    if parts:
        return pa.RecordBatch.from_arrays(parts, schema=schema)
    return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))


def _has_more(writer: Node, wanted: Node) -> bool:
    """Whether a record, at any depth, has fields that the reader schema lacks."""
    if writer.kind != wanted.kind:
        return False
    if writer.kind == "option":
        one, other = (n.children[1 - n.null_at] for n in (writer, wanted))
        return _has_more(one, other)
    if writer.kind != "record":
        pairs = zip(writer.children, wanted.children, strict=False)
        return any(_has_more(one, other) for one, other in pairs)
    read: dict[str, Node] = {}
    for name, aliases, child in zip(
        wanted.names, wanted.aliases, wanted.children, strict=True
    ):
        read |= dict.fromkeys((name, *aliases), child)
    return any(
        name not in read or _has_more(child, read[name])
        for name, child in zip(writer.names, writer.children, strict=True)
    )


def _sources(writer: Node, wanted: Node) -> list[int | None] | None:
    """The writer's field for each column; None for a column filled with its default.

    Returns None if a column needs type promotion: then rows are decoded one by one.
    """
    found: list[int | None] = []
    for name, aliases, child in zip(
        wanted.names, wanted.aliases, wanted.children, strict=True
    ):
        names = [other for other in (name, *aliases) if other in writer.names]
        at = writer.names.index(names[0]) if names else None
        if at is not None and (at in found or not same(writer.children[at], child)):
            return None
        found.append(at)
    return found


class _Columns:
    """Decodes a batch in one call, as one Avro array of records.

    No message is handled in Python. A random number is appended to each payload and
    decoded as an extra last field. If every row returns that number, every record ended
    exactly at the end of its payload. Producers cannot know the number.
    """

    def __init__(
        self, schema: dict[str, Any], sources: list[int | None], wanted: Node
    ) -> None:
        fields = [
            {"name": f"f{at}", "type": field["type"]}
            for at, field in enumerate(schema["fields"])
        ]
        row = {**schema, "fields": [*fields, {"name": "seal", "type": "double"}]}
        rows = {"name": "rows", "type": {"type": "array", "items": row}}
        self._schema = json.dumps({"type": "record", "name": "batch", "fields": [rows]})
        self._target = schema_of(wanted)
        self._wanted = wanted
        self._sources = sources
        self._seal_at = len(fields)
        self._suffix = secrets.token_bytes(7) + b"\x3f"  # never a NaN
        self._seal = np.frombuffer(self._suffix, "<i8")

    def read(self, values: pa.Array) -> pa.RecordBatch | None:
        """Rows, or None where a message is bad.

        Raises:
            pyarrow.ArrowInvalid: A message is bad.
        """
        count = len(values)
        # An Avro array: the item count, the items, and a zero.
        head, tail = isolation.varint(2 * count), self._suffix + b"\0"
        whole = b"".join((head, joined(values, self._suffix), tail))
        try:
            found = pyruhvro.deserialize_array([whole], self._schema)
        except ValueError:
            return None
        except BaseException as error:
            if is_panic(error):
                return None
            raise
        rows = found.column(0).values
        seals = np.asarray(rows.field(self._seal_at)).view("<i8")
        if len(rows) != count or (seals != self._seal).any():
            return None
        parts = [
            pa.array([default[0]] * count, raw(child)) if at is None else rows.field(at)
            for at, child, default in zip(
                self._sources, self._wanted.children, self._wanted.defaults, strict=True
            )
        ]
        finished = [
            columns.to_arrow(part, child)
            for part, child in zip(parts, self._wanted.children, strict=True)
        ]
        return pa.RecordBatch.from_arrays(finished, schema=self._target)
