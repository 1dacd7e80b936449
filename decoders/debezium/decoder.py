"""The decoder of ``debezium``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamfactory.decoders.columns.options import declared_schema
from streamfactory.decoders.debezium.json_events import JsonEvents
from streamfactory.decoders.debezium.layout import Layout
from streamfactory.spi import DecodeContext, Decoded, MessageDecoder

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa


class DebeziumDecoder(MessageDecoder):
    """Decodes change events: one row, or two for an update with both states."""

    MESSAGE_BY_MESSAGE = True

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        super().__init__(options, topic)
        self._layout = Layout.of(declared_schema(options, topic, "JSON"))
        self._events = JsonEvents(self._layout, options)

    def schema(self) -> pa.Schema:
        return self._layout.schema

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        return self._events.decode(values, context)
