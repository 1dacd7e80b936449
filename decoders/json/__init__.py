"""``json``: one JSON object a message, decoded to columns of a declared schema.

msgspec, of the extra ``json``, decodes in C and says what is bad.
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
            "One JSON object a message, of a declared schema. Python lists each member "
            "of the objects that msgspec makes."
        ),
        spi_level=1,
        options=OPTIONS,
        decoder=JsonDecoder,
        encoder=JsonEncoder,
    )
