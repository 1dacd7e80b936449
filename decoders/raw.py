"""``raw``: messages without decoding, with the columns of `envelope_schema`."""

from __future__ import annotations

from streamfactory.spi import Decoder, hookimpl


@hookimpl
def streamfactory_decoder() -> Decoder:
    """The descriptor."""
    return Decoder(
        name="raw",
        doc="Messages without decoding: key, value, offset, timestamp, headers.",
        spi_level=1,
    )
