"""Producer factory and topic administration of ``shm``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from streamfactory.arrowlog import LogProducerFactory, LogTopicAdmin
from streamfactory.backends.shm.reading import CLAIMS
from streamfactory.backends.shm.store import StoreHandle

if TYPE_CHECKING:
    from streamfactory.arrowlog import LogStore
    from streamfactory.spi import StreamConfig


class ShmProducerFactory(LogProducerFactory):
    """Writes one topic, which the first writer creates."""

    CLAIMS: ClassVar = CLAIMS

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        self._handle = StoreHandle(config)

    def store(self) -> LogStore:
        return self._handle.get()

    def close(self) -> None:
        self._handle.close()


class ShmTopicAdmin(LogTopicAdmin):
    """Administration of the topics of one folder."""

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        self._handle = StoreHandle(config)

    def store(self) -> LogStore:
        return self._handle.get()

    def close(self) -> None:
        self._handle.close()
