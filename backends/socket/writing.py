"""Producer factory of ``socket``."""

from __future__ import annotations

from typing import ClassVar

from streamfactory.backends.socket.options import Settings
from streamfactory.backends.socket.ports import Port
from streamfactory.backends.socket.sending import SocketWriter
from streamfactory.live.writing import LiveProducerFactory, PartitionWriters
from streamfactory.spi import Claims


class SocketProducerFactory(LiveProducerFactory):
    """Writes to the readers of some addresses. No claims.

    Readers of a raw stream acknowledge nothing: a commit passes rows to the system.
    """

    CLAIMS: ClassVar = Claims()

    def make_writers(self) -> PartitionWriters:
        settings = Settings(self.config)
        return PartitionWriters(
            [
                SocketWriter(
                    Port(address, settings, self.config),
                    settings,
                    self.config["readers"],
                    self.config["compression"],
                )
                for address in settings.addresses
            ]
        )
