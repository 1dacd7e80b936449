"""``protobuf``: Protocol Buffers, plain or framed for a Schema Registry.

Needs the extra ``protobuf``, and ``registry`` for a Schema Registry. ptars decodes
whole columns. Messages for which ptars returns other columns than declared here are
decoded row by row with protobuf itself. Unknown fields are ignored, as protobuf
specifies.
"""

from __future__ import annotations

from streamfactory.decoders.protobuf.options import OPTIONS
from streamfactory.spi import Decoder, hookimpl
from streamfactory.spi.hooks import import_later, require_installed

__all__ = ["streamfactory_decoder"]

require_installed("google.protobuf", "ptars")


@hookimpl
def streamfactory_decoder() -> Decoder:
    """The descriptor."""
    return Decoder(
        name="protobuf",
        doc=(
            "Protocol Buffers, plain or framed for a registry; one row per message. "
            "Decodes row by row in Python where a message has required fields or more "
            "than 4,096 bytes."
        ),
        spi_level=1,
        options=OPTIONS,
        decoder=import_later(f"{__name__}.decoder", "ProtobufDecoder"),
        encoder=import_later(f"{__name__}.decoder", "ProtobufEncoder"),
    )
