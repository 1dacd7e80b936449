"""``raw``: undecoded messages as they are, columns as in `envelope_schema`."""

from __future__ import annotations

from streamfactory.spi import Decoder, hookimpl


@hookimpl
def streamfactory_decoder() -> Decoder:
    """The descriptor."""
    return Decoder(
        name="raw",
        doc="Messages as they are: key, value, offset, timestamp, headers.",
        spi_level=1,
    )
