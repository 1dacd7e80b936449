"""``json``: one JSON object per message, decoded to columns of a declared schema.

Needs msgspec, from the extra ``json``, which decodes and validates in C.
"""

from __future__ import annotations

from streamfactory.decoders.json.decoder import JsonDecoder
from streamfactory.decoders.json.encoder import JsonEncoder
from streamfactory.decoders.json.options import OPTIONS
from streamfactory.spi import Decoder, hookimpl

__all__ = ["JsonDecoder", "JsonEncoder", "streamfactory_decoder"]


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
        decoder=JsonDecoder,
        encoder=JsonEncoder,
    )
