"""``csv``: any number of records per message, decoded to columns of a declared schema.

Arrow's CSV reader splits whole batches into texts, which are cast to the schema.
"""

from __future__ import annotations

from streamfactory.decoders.csv.options import OPTIONS
from streamfactory.spi import Decoder, hookimpl
from streamfactory.spi.hooks import import_later

__all__ = ["streamfactory_decoder"]


@hookimpl
def streamfactory_decoder() -> Decoder:
    """The descriptor."""
    return Decoder(
        name="csv",
        doc="Records of delimited text, of a declared schema.",
        spi_level=1,
        options=OPTIONS,
        decoder=import_later(f"{__name__}.decoder", "CsvDecoder"),
        encoder=import_later(f"{__name__}.encoder", "CsvEncoder"),
    )
