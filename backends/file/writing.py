"""Producer factory and topic administration of ``file``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from streamfactory.arrowlog import LogProducerFactory, LogTopicAdmin
from streamfactory.arrowlog.disk.sharing import disk_handle
from streamfactory.arrowlog.handles import SharesStore
from streamfactory.backends.file.options import LOG
from streamfactory.backends.file.reading import CLAIMS, log_claims
from streamfactory.spi import Unsupported

if TYPE_CHECKING:
    from streamfactory.spi import Claims, StreamConfig


class FileProducerFactory(SharesStore, LogProducerFactory):
    """Writes one topic, which the first writer creates.

    Raises:
        Unsupported: misuse; the configuration has a read-only format.
    """

    CLAIMS: ClassVar = CLAIMS
    handle = staticmethod(disk_handle)

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        _refuse_foreign(config)

    def claims(self) -> Claims:
        return log_claims(self.config)


class FileTopicAdmin(SharesStore, LogTopicAdmin):
    """Administration of the topics under one path.

    Raises:
        Unsupported: misuse; the configuration has a read-only format.
    """

    handle = staticmethod(disk_handle)

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        _refuse_foreign(config)


def _refuse_foreign(config: StreamConfig) -> None:
    if config["format"] != LOG:
        msg = f"format={config['format']} is read-only"
        remedy = (
            "write to a topic with stream.file.format=log; `streamfactory topics "
            "export` creates plain files of it"
        )
        raise Unsupported(msg, remedy=remedy)
