"""How a configuration names a server, and what a server promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.backends.flight.client.connection import Connection
from streamfactory.spi import Claims, EpochVisibility

if TYPE_CHECKING:
    from streamfactory.spi import StreamConfig

CLAIMS: Final = Claims(
    replayable=True,
    durable=True,
    shared=True,
    idempotent=True,
    epoch_visibility=EpochVisibility.WHOLE,
)


def connect(config: StreamConfig) -> Connection:
    """The connection of one factory; opened on first use."""
    return Connection(
        config["location"],
        config["connection.timeout.millis"] / 1000,
        config["upload.timeout.millis"] / 1000,
    )
