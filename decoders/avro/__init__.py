"""``avro``: Apache Avro without a container file, plain or in a Schema Registry frame.

Needs the extra ``avro``, and ``registry`` for a Schema Registry. pyruhvro decodes and
encodes whole columns. Types that it does not support (fixed, unions of several types)
are decoded row by row in `reading`. Both paths accept exactly the same messages.
"""

from __future__ import annotations

from streamfactory.decoders.avro.options import OPTIONS
from streamfactory.spi import Decoder, hookimpl
from streamfactory.spi.hooks import import_later, require_installed

__all__ = ["streamfactory_decoder"]

require_installed("fastavro", "pyruhvro")


@hookimpl
def streamfactory_decoder() -> Decoder:
    """The descriptor."""
    return Decoder(
        name="avro",
        doc=(
            "Apache Avro, plain or framed for a Schema Registry; one row per message. "
            "Decodes row by row in Python where the schema has a fixed, a union of "
            "several types or an empty record, or differs from the writer's schema."
        ),
        spi_level=1,
        options=OPTIONS,
        decoder=import_later(f"{__name__}.decoder", "AvroDecoder"),
        encoder=import_later(f"{__name__}.decoder", "AvroEncoder"),
    )
