"""``text``: messages of text, whole or by the named groups of a regular expression.

Arrow's RE2 matches whole batches, in time linear in the length of the text.
"""

from __future__ import annotations

from streamfactory.decoders.text.options import OPTIONS
from streamfactory.spi import Decoder, hookimpl
from streamfactory.spi.hooks import import_later

__all__ = ["streamfactory_decoder"]


@hookimpl
def streamfactory_decoder() -> Decoder:
    """The descriptor."""
    return Decoder(
        name="text",
        doc="Text: one column, or the named groups of a regular expression.",
        spi_level=1,
        options=OPTIONS,
        decoder=import_later(f"{__name__}.decoder", "TextDecoder"),
        encoder=import_later(f"{__name__}.encoder", "TextEncoder"),
    )
