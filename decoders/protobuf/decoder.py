"""Decodes and encodes messages: Protocol Buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from streamfactory.decoders import framing
from streamfactory.decoders.columns.buffers import lengths_of
from streamfactory.decoders.columns.misfits import Misfits
from streamfactory.decoders.isolation import SCHEMA, DecodedParts, plain, varint
from streamfactory.decoders.protobuf.decoding import ProtobufBatchDecoder
from streamfactory.decoders.protobuf.descriptors import (
    DescriptorRefused,
    index_path,
    of_file,
    of_registry,
    serialized,
)
from streamfactory.decoders.protobuf.encoding import ProtobufBatchEncoder
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

    from google.protobuf.descriptor import Descriptor

_REMEDY: Final = (
    "give decoder.prop.descriptor.file, or "
    "decoder.prop.schema.registry.rest.url with a subject that exists"
)


class _Source:
    """The origin of the descriptor: a file, or a Schema Registry."""

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        self.registry: Registry | None = None
        self.number: int | None = None
        self.name = options.get("message")
        self.text = options.get("enums", "text") == "text"
        path = options.get("descriptor.file")
        self._path = path
        if options.get("schema.registry.rest.url") is not None:
            self.registry = Registry(options, topic)
            self.registry.record = self.registry.record or self.name
        elif path is None:
            msg = f"the message type of topic {topic!r} is unknown"
            raise SchemaUnknown(msg, remedy=_REMEDY)

    def message(self) -> Descriptor:
        """The descriptor."""
        try:
            if self._path is not None:
                return of_file(self._path, self.name)
            assert self.registry is not None
            latest = self.registry.latest("PROTOBUF", "serialized")
            self.number = latest.schema_id
            return of_registry(self.registry, latest.schema, self.name)
        except DescriptorRefused as error:
            msg = f"the protobuf descriptor cannot be used: {error}"
            raise ConfigError(msg) from error
        except UnknownId as error:
            assert self.registry is not None
            msg = f"the Schema Registry has no subject {self.registry.subject!r}"
            raise SchemaUnknown(msg, remedy=_REMEDY) from error

    def close(self) -> None:
        """Close the registry."""
        if self.registry is not None:
            self.registry.close()


class ProtobufDecoder(MessageDecoder):
    """Decodes protobuf messages of one row each."""

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        super().__init__(options, topic)
        self._source = _Source(options, topic)
        self._message: Descriptor | None = None
        self._reading: ProtobufBatchDecoder | None = None
        self._heads: dict[int, list[bytes] | tuple[str, str]] = {}

    def schema(self) -> pa.Schema:
        return self._made().schema

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        count, values = len(values), plain(values)
        reading, messages = self._made(), np.arange(len(values))
        result = DecodedParts(reading.schema, misfits=Misfits(context))
        if self._source.registry is None:
            if count:
                reading.run(values, messages, result)
            return result.decoded(count)
        groups = framing.by_schema(values, messages, result.refuse)
        for number, framed, which in groups:
            self._framed(number, framed, which, result)
        return result.decoded(count)

    def close(self) -> None:
        self._source.close()

    def _made(self) -> ProtobufBatchDecoder:
        if self._reading is None:
            self._message = self._source.message()
            try:
                self._reading = ProtobufBatchDecoder(
                    self._message, text=self._source.text
                )
            except DescriptorRefused as error:
                msg = f"the message type cannot be converted to columns: {error}"
                raise ConfigError(msg) from error
        return self._reading

    def _framed(
        self, number: int, values: pa.Array, messages: np.ndarray, result: DecodedParts
    ) -> None:
        heads = self._heads.get(number)
        if heads is None:
            try:
                heads = self._heads[number] = self._heads_of(number)
            except UnknownId:
                # Not cached: the schema may be registered later.
                why = f"the Schema Registry has no protobuf schema with the id {number}"
                result.refuse(messages, ("unknown_schema_id", why))
                return
        if isinstance(heads, tuple):
            result.refuse(messages, heads)
            return
        unmatched = np.ones(len(values), bool)
        for head in heads:
            start = framing.HEADER
            length = start + len(head)
            first = framing.heads(values, length)[:, start:]
            fits = unmatched & (first == np.frombuffer(head, np.uint8)).all(axis=1)
            fits &= lengths_of(values) >= length
            unmatched &= ~fits
            if fits.any():
                at = pa.array(np.flatnonzero(fits))
                part = values if fits.all() else values.take(at)
                payloads = framing.stripped(part, length)
                self._made().run(payloads, messages[fits], result)
        if unmatched.any():
            assert self._message is not None
            why = f"the type of the message is not {self._message.full_name}"
            result.refuse(messages[unmatched], (SCHEMA, why))

    def _heads_of(self, number: int) -> list[bytes] | tuple[str, str]:
        """The encodings of the message type in frames of a schema."""
        assert self._source.registry is not None
        assert self._message is not None
        schema = self._source.registry.by_id(number, "PROTOBUF", "serialized")
        wanted = self._message.full_name
        try:
            written = of_registry(self._source.registry, schema, wanted)
        except DescriptorRefused as error:
            return SCHEMA, f"schema {number} has no message type {wanted!r}: {error}"
        return _heads(index_path(written))


def _heads(path: list[int]) -> list[bytes]:
    """Encodings of a message index; that of a first message has a short form too."""
    whole = b"".join(varint(2 * place) for place in (len(path), *path))
    return [b"\0", whole] if path == [0] else [whole]


class ProtobufEncoder(MessageEncoder):
    """Encodes each row as one protobuf message."""

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        super().__init__(options, topic)
        self._source = _Source(options, topic)
        self._writing: ProtobufBatchEncoder | None = None
        self._head = b""

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        if self._writing is None:
            self._prepare()
        assert self._writing is not None
        payloads = self._writing.run(rows)
        return framing.framed(payloads, self._head) if self._head else payloads

    def close(self) -> None:
        self._source.close()

    def _prepare(self) -> None:
        message = self._source.message()
        try:
            writing = ProtobufBatchEncoder(message, text=self._source.text)
            if self._source.registry is not None:
                number = self._number(message, self._source.registry)
                place = _heads(index_path(message))[0]
                self._head = framing.head(number) + place
        except DescriptorRefused as error:
            msg = f"the protobuf descriptor cannot be used: {error}"
            raise ConfigError(msg) from error
        self._writing = writing

    def _number(self, message: Descriptor, registry: Registry) -> int:
        if self._source.number is not None:  # the schema is the registry's own
            return self._source.number
        new = self.options.get("schema.registry.auto.register", True)
        registry.record = registry.record or message.full_name
        try:
            return registry.register(serialized(message), "PROTOBUF", new=new)
        except UnknownId as error:
            msg = f"the schema is not registered under subject {registry.subject!r}"
            remedy = "register it, or set schema.registry.auto.register to true"
            raise ConfigError(msg, remedy=remedy) from error
