"""Consumer factory of ``memory``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from streamfactory.arrowlog import LogConsumerFactory
from streamfactory.backends.memory.stores import CLAIMS, store

if TYPE_CHECKING:
    from streamfactory.arrowlog import LogStore


class MemoryConsumerFactory(LogConsumerFactory):
    """Reads topics of one store."""

    CLAIMS: ClassVar = CLAIMS

    def store(self) -> LogStore:
        return store(self.config["store"])
