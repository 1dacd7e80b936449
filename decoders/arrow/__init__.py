"""``arrow``: a message is an Arrow IPC stream, or one record batch without its schema.

A message contains any number of rows. A record batch alone needs a third of the bytes
of a stream, which repeats its schema. One topic may contain both; the decoder detects
the form of each message.
"""

from __future__ import annotations

from streamfactory.decoders.arrow.options import OPTIONS
from streamfactory.spi import Decoder, hookimpl
from streamfactory.spi.hooks import import_later

__all__ = ["streamfactory_decoder"]


@hookimpl
def streamfactory_decoder() -> Decoder:
    """The descriptor."""
    return Decoder(
        name="arrow",
        doc=(
            "Arrow IPC: each message is a stream, or a record batch without schema. "
            "Python runs for each message, not for each row."
        ),
        spi_level=1,
        options=OPTIONS,
        decoder=import_later(f"{__name__}.decoder", "ArrowDecoder"),
        encoder=import_later(f"{__name__}.decoder", "ArrowEncoder"),
    )
