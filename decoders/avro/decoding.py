"""Whole batches of Avro: columns at once where pyruhvro can, else row by row."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyruhvro

from streamfactory.decoders import arrow_batches as batches
from streamfactory.decoders.avro import columns
from streamfactory.decoders.avro.reading import Malformed, read_all, reader
from streamfactory.decoders.avro.scanning import suspects
from streamfactory.decoders.avro.schemas import Node, raw, same, wire

if TYPE_CHECKING:
    import numpy as np

    from streamfactory.decoders.arrow_batches import Refusal, Sieve

_SEAL: Final = "seal"


def schema_of(node: Node) -> pa.Schema:
    """The columns of a record."""
    pairs = zip(node.names, node.children, strict=True)
    return pa.schema([child.field(name) for name, child in pairs])


class Reading:
    """Messages that were written with one schema, read as another.

    Args:
        writer: What is on the wire.
        wanted: What rows are to be.

    Raises:
        SchemaRefused: What was written cannot be read so.
    """

    def __init__(self, writer: Node, wanted: Node) -> None:
        self.schema = schema_of(wanted)
        self._writer, self._wanted = writer, wanted
        self._raw = raw(wanted)
        self._read = reader(writer, wanted)
        sources = _sources(writer, wanted)
        schema = wire(writer)
        self._columns = None
        if sources and schema is not None:
            self._columns = _Columns(schema, sources, wanted)

    @property
    def columnar(self) -> bool:
        """Whether a batch is read at once."""
        return self._columns is not None

    def run(self, values: pa.Array, messages: np.ndarray, sieve: Sieve) -> None:
        """Decode; ``messages`` has the message of each value."""
        batches.sift(values, messages, sieve, self._batch, self._judge, self._suspects)

    def _batch(self, values: pa.Array) -> pa.RecordBatch | None:
        try:
            if self._columns is not None:
                return self._columns.read(values)
            rows = [read_all(self._read, value) for value in values.to_pylist()]
            return self._made(rows)
        except (Malformed, pa.ArrowException, OverflowError):
            return None

    def _suspects(self, values: pa.Array) -> np.ndarray:
        return suspects(values, self._writer)

    def _judge(self, value: bytes) -> Refusal | None:
        try:
            self._made([read_all(self._read, value)])
        except Malformed as error:
            return batches.MALFORMED, str(error)
        except (pa.ArrowException, OverflowError):
            return "range", "a number does not fit its column"
        return None

    def _made(self, rows: list[Any]) -> pa.RecordBatch:
        array = pa.array(rows, self._raw)
        parts = [
            columns.finish(array.field(at), child)
            for at, child in enumerate(self._wanted.children)
        ]
        return _record_batch(parts, self.schema, len(rows))


def _record_batch(
    parts: list[pa.Array], schema: pa.Schema, count: int
) -> pa.RecordBatch:
    if parts:
        return pa.RecordBatch.from_arrays(parts, schema=schema)
    return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))


def _sources(writer: Node, wanted: Node) -> list[int | None] | None:
    """Which of the writer's fields each column is, or None for its default.

    None in place of all where one has to be read as another type: row by row.
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
    """The way of whole columns.

    A random number follows each payload, and is read as its last field: it comes out
    only where the fields before it end where the payload does. Nobody who writes
    messages knows it.
    """

    def __init__(
        self, schema: dict[str, Any], sources: list[int | None], wanted: Node
    ) -> None:
        schema["fields"] = [
            {"name": f"f{at}", "type": field["type"]}
            for at, field in enumerate(schema["fields"])
        ] + [{"name": _SEAL, "type": "long"}]
        self._schema = json.dumps(schema)
        self._target = schema_of(wanted)
        self._wanted = wanted
        self._sources = sources
        number = secrets.randbits(63) | 1 << 63  # of all ten bytes
        self._seal = pa.scalar((number >> 1) ^ -(number & 1), pa.int64())
        self._suffix = pa.scalar(batches.varint(number), pa.binary())

    def read(self, values: pa.Array) -> pa.RecordBatch | None:
        """Rows, or None where a message is bad.

        Raises:
            pyarrow.ArrowInvalid: A message is bad.
        """
        count = len(values)
        sealed = pc.binary_join_element_wise(values, self._suffix, b"")
        try:
            found = pyruhvro.deserialize_array(sealed.to_pylist(), self._schema)
        except ValueError:
            return None
        except BaseException as error:
            if batches.is_panic(error):
                return None
            raise
        if not pc.all(pc.equal(found.column(_SEAL), self._seal)).as_py() and count:
            return None
        parts = [
            pa.array([default[0]] * count, raw(child))
            if at is None
            else found.column(at)
            for at, child, default in zip(
                self._sources, self._wanted.children, self._wanted.defaults, strict=True
            )
        ]
        finished = [
            columns.finish(part, child)
            for part, child in zip(parts, self._wanted.children, strict=True)
        ]
        return pa.RecordBatch.from_arrays(finished, schema=self._target)
