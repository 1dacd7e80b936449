"""Plug-ins that users ask for by name, each with the way to get it."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_UNWRITTEN: Final = "no plug-in is known; docs/spi.md shows how to write one"

KNOWN_BACKENDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "kafka": "install streamfactory[kafka]",
        "kinesis": _UNWRITTEN,
        "pulsar": _UNWRITTEN,
        "zeromq": "install streamfactory[zeromq]",
    }
)
"""Stream types, each with one clause on how to get it."""

KNOWN_DECODERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "avro": "install streamfactory[avro]",
        "bson": _UNWRITTEN,
        "clplog": _UNWRITTEN,
        "json": "install streamfactory[json]",
        "protobuf": "install streamfactory[protobuf]",
    }
)
"""Decoders, each with one clause on how to get it."""
