"""The decoder of ``debezium``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from streamfactory.decoders.columns.options import declared_schema
from streamfactory.decoders.debezium.json_events import JsonEvents
from streamfactory.decoders.debezium.layout import Layout
from streamfactory.spi import (
    ConfigError,
    DecodeContext,
    Decoded,
    MessageDecoder,
    NotInstalled,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa


class Events(Protocol):
    """Decodes the events of one format."""

    @property
    def layout(self) -> Layout:
        """Of the rows."""

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        """Return the rows of messages (see `MessageDecoder.decode`)."""

    def close(self) -> None:
        """Release all resources."""


class DebeziumDecoder(MessageDecoder):
    """Decodes change events: one row, or two for an update with both states."""

    MESSAGE_BY_MESSAGE = True

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        super().__init__(options, topic)
        self._events: Events
        if options["format"] == "avro":
            self._events = _avro(options, topic)
        else:
            layout = Layout.of(declared_schema(options, topic, "JSON"))
            self._events = JsonEvents(layout, options)

    def schema(self) -> pa.Schema:
        return self._events.layout.schema

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        return self._events.decode(values, context)

    def close(self) -> None:
        self._events.close()


def _avro(options: Mapping[str, Any], topic: str) -> Events:
    if options.get("schema.registry.rest.url") is None:
        msg = "format avro requires a Schema Registry, whose schemas messages name"
        raise ConfigError(msg, remedy="set decoder.prop.schema.registry.rest.url")
    try:
        from streamfactory.decoders.debezium.avro_events import AvroEvents
    except ImportError as error:
        msg = f"format avro requires the package {error.name}"
        remedy = "run: pip install 'streamfactory[avro,registry]'"
        raise NotInstalled(msg, remedy=remedy) from error
    return AvroEvents(options, topic)
