"""Known plug-ins and how to install them."""

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
"""Stream types, each with a clause on how to install it."""

KNOWN_SCHEMES: Final[Mapping[str, str]] = MappingProxyType(
    {"vault": "install streamfactory-vault"}
)
"""Schemes of references, each with a clause on how to install it."""

KNOWN_DECODERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "avro": "install streamfactory[avro]",
        "bson": _UNWRITTEN,
        "clplog": _UNWRITTEN,
        "cloudevents": "install streamfactory[json]",
        "debezium": "install streamfactory[json]",
        "json": "install streamfactory[json]",
        "protobuf": "install streamfactory[protobuf]",
    }
)
"""Decoders, each with a clause on how to install it."""
