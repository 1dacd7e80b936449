"""The writing half of ``file``, and the operator's: topics of ours."""

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
    """Writes one topic, which its first writer creates.

    Raises:
        Unsupported: misuse; the configuration names files of others.
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
    """Topics under one path.

    Raises:
        Unsupported: misuse; the configuration names files of others.
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
        msg = f"files of others (format {config['format']}) are read, never written"
        remedy = (
            "write to a topic (stream.file.format=log); `streamfactory topics export` "
            "makes plain files of it"
        )
        raise Unsupported(msg, remedy=remedy)
