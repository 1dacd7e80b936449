"""``csv``: any number of records per message, decoded to columns of a declared schema.

Arrow's CSV reader splits whole batches into texts, which are cast to the schema.
"""

from __future__ import annotations

from streamfactory.decoders.csv.decoder import CsvDecoder
from streamfactory.decoders.csv.encoder import CsvEncoder
from streamfactory.decoders.csv.options import OPTIONS
from streamfactory.spi import Decoder, hookimpl

__all__ = ["CsvDecoder", "CsvEncoder", "streamfactory_decoder"]


@hookimpl
def streamfactory_decoder() -> Decoder:
    """The descriptor."""
    return Decoder(
        name="csv",
        doc="Records of delimited text, of a declared schema.",
        spi_level=1,
        options=OPTIONS,
        decoder=CsvDecoder,
        encoder=CsvEncoder,
    )
