"""Decodes and encodes messages: Avro."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from streamfactory.decoders import framing
from streamfactory.decoders.avro.decoding import AvroBatchDecoder, schema_of
from streamfactory.decoders.avro.encoding import AvroBatchEncoder, derived
from streamfactory.decoders.avro.schemas import Node, SchemaRefused, parse
from streamfactory.decoders.columns.buffers import lengths_of
from streamfactory.decoders.columns.misfits import Misfits
from streamfactory.decoders.isolation import SCHEMA, DecodedParts, plain
from streamfactory.decoders.registry import Registry, UnknownId
from streamfactory.spi import (
    ConfigError,
    DecodeContext,
    Decoded,
    MessageDecoder,
    MessageEncoder,
    SchemaUnknown,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_REMEDY: Final = (
    "give decoder.prop.schema, decoder.prop.schema.file, or "
    "decoder.prop.schema.registry.rest.url with a subject that exists"
)


def _given(options: Mapping[str, Any]) -> str | None:
    """The text of the declared schema; None if there is none."""
    text, path = options.get("schema"), options.get("schema.file")
    if path is None:
        return text
    if text is not None:
        msg = "schema and schema.file are both given"
        raise ConfigError(msg, remedy="give one of them")
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = (
            error.strerror if isinstance(error, OSError) else "the file is not UTF-8"
        )
        msg = f"schema.file {path!r} cannot be read: {reason}"
        raise ConfigError(msg) from error


def _parsed(text: str, references: list[str], options: Mapping[str, Any]) -> Node:
    try:
        return parse(text, references, raw_times=bool(options.get("times.as.numbers")))
    except SchemaRefused as error:
        msg = f"the Avro schema cannot be used: {error}"
        raise ConfigError(msg) from error


def references_of(registry: Registry, schema: Any) -> list[str]:
    """The schemas that a schema of the registry refers to, deepest first."""
    found: dict[tuple[str, int], str] = {}

    def visit(refers: Any, depth: int) -> None:
        for reference in refers.references or ():
            key = (reference.subject, reference.version)
            if key in found:
                continue
            if depth > 64 or len(found) > 1000:
                msg = "the schema has too many references"
                raise SchemaRefused(msg)
            other = registry.version(*key)
            visit(other, depth + 1)
            found[key] = other.schema_str

    visit(schema, 0)
    return list(found.values())


class AvroDecoder(MessageDecoder):
    """Decodes Avro messages of one row each."""

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        super().__init__(options, topic)
        self._registry: Registry | None = None
        self._wanted: Node | None = None
        self._schema: pa.Schema | None = None
        self._readings: dict[int | None, AvroBatchDecoder | tuple[str, str]] = {}
        self._strip = options.get("leading.bytes.to.strip", 0)
        text = _given(options)
        if text is not None:
            self._wanted = _parsed(text, [], options)
        if options.get("schema.registry.rest.url") is not None:
            self._registry = Registry(options, topic)
        elif text is None:
            msg = f"the schema of topic {topic!r} is unknown"
            raise SchemaUnknown(msg, remedy=_REMEDY)

    def schema(self) -> pa.Schema:
        if self._schema is None:
            self._schema = schema_of(self._node())
        return self._schema

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        count = len(values)
        values, messages = plain(values), np.arange(count)
        result = DecodedParts(self.schema(), misfits=Misfits(context))
        if self._strip:
            long_enough = lengths_of(values) >= self._strip
            if not long_enough.all():
                why = f"the message has fewer than {self._strip} leading bytes"
                result.refuse(messages[~long_enough], ("framing", why))
                messages = messages[long_enough]
                values = values.take(pa.array(messages))
            values = framing.stripped(values, self._strip)
        if self._registry is None:
            self._read(None, values, messages, result)
            return result.decoded(count)
        groups = framing.by_schema(values, messages, result.refuse)
        for number, framed, which in groups:
            payloads = framing.stripped(framed, framing.HEADER)
            self._read(number, payloads, which, result)
        return result.decoded(count)

    def close(self) -> None:
        if self._registry is not None:
            self._registry.close()

    def _node(self) -> Node:
        """The reader schema: the declared one, else the latest of the registry."""
        if self._wanted is None:
            assert self._registry is not None
            try:
                latest = self._registry.latest("AVRO")
                references = references_of(self._registry, latest.schema)
            except UnknownId as error:
                msg = f"the Schema Registry has no subject {self._registry.subject!r}"
                raise SchemaUnknown(msg, remedy=_REMEDY) from error
            except SchemaRefused as error:
                msg = f"the Avro schema cannot be used: {error}"
                raise ConfigError(msg) from error
            self._wanted = _parsed(latest.schema.schema_str, references, self.options)
        return self._wanted

    def _read(
        self,
        number: int | None,
        values: pa.Array,
        messages: np.ndarray,
        result: DecodedParts,
    ) -> None:
        if not len(values):
            return
        reading = self._readings.get(number)
        if reading is None:
            try:
                reading = self._reading(number)
            except UnknownId:
                # Not cached: the schema may be registered later.
                why = f"the Schema Registry has no Avro schema with the id {number}"
                result.refuse(messages, ("unknown_schema_id", why))
                return
            self._readings[number] = reading
        if isinstance(reading, tuple):
            result.refuse(messages, reading)
        else:
            result.misfits.lookalikes |= reading.lookalikes
            if reading.undeclared and result.misfits.undeclared:
                result.misfits.add_undeclared(messages)
            reading.run(values, messages, result)

    def _reading(self, number: int | None) -> AvroBatchDecoder | tuple[str, str]:
        wanted = self._node()
        if number is None:
            return AvroBatchDecoder(wanted, wanted)
        assert self._registry is not None
        schema = self._registry.by_id(number, "AVRO")
        raw_times = bool(self.options.get("times.as.numbers"))
        try:
            references = references_of(self._registry, schema)
            writer = parse(schema.schema_str, references, raw_times=raw_times)
            return AvroBatchDecoder(writer, wanted)
        except SchemaRefused as error:
            return (
                SCHEMA,
                f"schema {number} cannot be resolved to the declared schema: {error}",
            )


class AvroEncoder(MessageEncoder):
    """Encodes each row as one Avro message."""

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        super().__init__(options, topic)
        self._text = _given(options)
        self._writing: AvroBatchEncoder | None = None
        self._head = b""
        self._registry: Registry | None = None
        if options.get("schema.registry.rest.url") is not None:
            self._registry = Registry(options, topic)

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        if self._writing is None:
            self._prepare(rows.schema)
        assert self._writing is not None
        payloads = self._writing.run(rows)
        return framing.framed(payloads, self._head) if self._head else payloads

    def close(self) -> None:
        if self._registry is not None:
            self._registry.close()

    def _prepare(self, schema: pa.Schema) -> None:
        text = derived(schema) if self._text is None else self._text
        node = _parsed(text, [], self.options)
        writing = AvroBatchEncoder(node)
        if self._registry is not None:
            self._registry.record = self._registry.record or node.name
            new = self.options.get("schema.registry.auto.register", True)
            try:
                number = self._registry.register(text, "AVRO", new=new)
            except UnknownId as error:
                msg = (
                    "the schema is not registered under subject "
                    f"{self._registry.subject!r}"
                )
                remedy = "register it, or set schema.registry.auto.register to true"
                raise ConfigError(msg, remedy=remedy) from error
            self._head = framing.head(number)
        self._writing = writing
