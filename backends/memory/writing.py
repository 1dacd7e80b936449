"""Producer factory and topic administration of ``memory``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from streamfactory.arrowlog import LogProducerFactory, LogTopicAdmin
from streamfactory.backends.memory.stores import CLAIMS, store

if TYPE_CHECKING:
    from streamfactory.arrowlog import LogStore


class MemoryProducerFactory(LogProducerFactory):
    """Writes one topic, which the first writer creates."""

    CLAIMS: ClassVar = CLAIMS

    def store(self) -> LogStore:
        return store(self.config["store"])


class MemoryTopicAdmin(LogTopicAdmin):
    """Administration of the topics of one store."""

    def store(self) -> LogStore:
        return store(self.config["store"])
