"""``cloudevents``: events of CloudEvents 1.0 in Kafka's binding, binary and structured.

Needs the extra ``json``.
"""

from __future__ import annotations

from streamfactory.decoders.cloudevents.options import OPTIONS
from streamfactory.spi import Decoder, hookimpl
from streamfactory.spi.hooks import import_later, require_installed

__all__ = ["streamfactory_decoder"]

require_installed("msgspec")


@hookimpl
def streamfactory_decoder() -> Decoder:
    """The descriptor."""
    return Decoder(
        name="cloudevents",
        doc=(
            "CloudEvents 1.0: attributes in headers or in a JSON envelope, which may "
            "be mixed. Python runs for the envelope of each structured event; data is "
            "decoded as by json."
        ),
        spi_level=1,
        options=OPTIONS,
        decoder=import_later(f"{__name__}.decoder", "CloudEventsDecoder"),
        encoder=import_later(f"{__name__}.encoder", "CloudEventsEncoder"),
        reads_headers=True,
    )
