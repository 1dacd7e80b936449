"""Options of ``protobuf``."""

from __future__ import annotations

from typing import Final

from streamfactory.decoders.registry import REGISTRY_OPTIONS
from streamfactory.spi import PATH, Option, choice

OPTIONS: Final = (
    Option(
        "descriptor.file",
        "Descriptor set, written by protoc --include_imports --descriptor_set_out.",
        PATH,
        aliases=("descriptorFile",),
    ),
    Option(
        "message",
        "Name of the message type; by default the first one of the file.",
        aliases=("protoClassName",),
        example="shop.Order",
    ),
    Option(
        "enums",
        "Whether enums are decoded to names or to numbers.",
        choice("text", "number"),
        default="text",
    ),
    Option(
        "jarFile",
        "Option of Pinot's decoder of generated classes.",
        no_effect="Java classes cannot be used here: set descriptor.file",
    ),
    *REGISTRY_OPTIONS,
)
