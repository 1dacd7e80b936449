"""Consumer factory of ``socket``."""

from __future__ import annotations

from typing import ClassVar, Final

from streamfactory.backends.socket.merging import SocketReader
from streamfactory.backends.socket.options import Settings
from streamfactory.backends.socket.ports import Port
from streamfactory.live.messages import Limits
from streamfactory.live.reading import LiveConsumerFactory, PartitionReaders
from streamfactory.live.schemas import SharedSchema
from streamfactory.spi import Claims, Partition

_REMEDY: Final = (
    "check that the peer sends an Arrow stream and uses the same TLS setting"
)


class SocketConsumerFactory(LiveConsumerFactory):
    """Reads from the writers of some addresses.

    No claims: rows cannot be read again.
    """

    CLAIMS: ClassVar = Claims()

    def make_readers(self) -> PartitionReaders:
        config, holder = self.config, SharedSchema()
        settings, limits = Settings(config), Limits.of(config, _REMEDY)
        readers = [
            SocketReader(
                Partition(config.topic, number),
                Port(address, settings, config),
                settings,
                limits,
                config["writers"],
                holder,
            )
            for number, address in enumerate(settings.addresses)
        ]
        return PartitionReaders(readers, holder)
