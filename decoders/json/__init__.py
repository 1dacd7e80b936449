"""``json``: one JSON object a message, decoded to columns of a declared schema.

msgspec, of the extra ``json``, decodes message by message in C and is the arbiter of
what is bad; Arrow's own reader takes larger batches whole where it means the same.
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
        doc="One JSON object a message, of a declared schema.",
        spi_level=1,
        options=OPTIONS,
        decoder=JsonDecoder,
        encoder=JsonEncoder,
    )
