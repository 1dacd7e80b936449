"""``debezium``: change events of databases, decoded to rows with their kind of change.

Reads what Debezium writes, as JSON with or without its schema, or as Avro with a
Schema Registry. Needs the extra ``json``, and ``avro`` and ``registry`` for Avro.
"""

from __future__ import annotations

from streamfactory.decoders.debezium.options import OPTIONS
from streamfactory.spi import Decoder, hookimpl
from streamfactory.spi.hooks import import_later, require_installed

__all__ = ["streamfactory_decoder"]

require_installed("msgspec")


@hookimpl
def streamfactory_decoder() -> Decoder:
    """The descriptor."""
    return Decoder(
        name="debezium",
        doc=(
            "Change events of Debezium, as JSON or Avro, to rows with the column "
            "_change. Python runs for the envelope of each JSON message; rows are "
            "decoded as by json and avro."
        ),
        spi_level=1,
        options=OPTIONS,
        decoder=import_later(f"{__name__}.decoder", "DebeziumDecoder"),
    )
