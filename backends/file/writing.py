"""Producer factory and topic administration of ``file``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from streamfactory.arrowlog import LogProducerFactory, LogTopicAdmin
from streamfactory.arrowlog.disk.sharing import StoreHandle
from streamfactory.backends.file.options import LOG
from streamfactory.backends.file.reading import CLAIMS, log_claims
from streamfactory.spi import Unsupported

if TYPE_CHECKING:
    from streamfactory.arrowlog import LogStore
    from streamfactory.spi import Claims, StreamConfig


class FileProducerFactory(LogProducerFactory):
    """Writes one topic, which the first writer creates.

    Raises:
        Unsupported: misuse; the configuration has a read-only format.
    """

    CLAIMS: ClassVar = CLAIMS

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        _refuse_foreign(config)
        self._handle = StoreHandle(config)

    def store(self) -> LogStore:
        return self._handle.get()

    def claims(self) -> Claims:
        return log_claims(self.config)

    def close(self) -> None:
        self._handle.close()


class FileTopicAdmin(LogTopicAdmin):
    """Administration of the topics under one path.

    Raises:
        Unsupported: misuse; the configuration has a read-only format.
    """

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        _refuse_foreign(config)
        self._handle = StoreHandle(config)

    def store(self) -> LogStore:
        return self._handle.get()

    def close(self) -> None:
        self._handle.close()


def _refuse_foreign(config: StreamConfig) -> None:
    if config["format"] != LOG:
        msg = f"format={config['format']} is read-only"
        remedy = (
            "write to a topic with stream.file.format=log; `streamfactory topics "
            "export` creates plain files of it"
        )
        raise Unsupported(msg, remedy=remedy)
