"""``json``: one JSON object per message, decoded to columns of a declared schema.

Needs msgspec, from the extra ``json``, which decodes and validates in C; and the extra
``jsonschema`` for JSON Schemas of a Schema Registry.
"""

from __future__ import annotations

from streamfactory.decoders.json.options import OPTIONS
from streamfactory.spi import Decoder, hookimpl
from streamfactory.spi.hooks import import_later, require_installed

__all__ = ["streamfactory_decoder"]

require_installed("msgspec")


@hookimpl
def streamfactory_decoder() -> Decoder:
    """The descriptor."""
    return Decoder(
        name="json",
        doc=(
            "One JSON object per message, of a declared schema. Flat messages that "
            "are written alike are decoded by columns; for others Python lists each "
            "member of the objects that msgspec creates."
        ),
        spi_level=1,
        options=OPTIONS,
        decoder=import_later(f"{__name__}.registered", "RegistryJsonDecoder"),
        encoder=import_later(f"{__name__}.registered", "RegistryJsonEncoder"),
    )
