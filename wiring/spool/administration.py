"""Topic administration of a spool, for ``streamfactory topics``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.arrowlog.administration import LogTopicAdmin
from streamfactory.arrowlog.disk.sharing import disk_handle
from streamfactory.arrowlog.writing import retention_of
from streamfactory.spi import Unsupported
from streamfactory.wiring.options.spool import store_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.arrowlog.log import LogStore
    from streamfactory.spi import StreamConfig


class SpoolTopicAdmin(LogTopicAdmin):
    """The logs under one ``spool.path``; the transport is not opened.

    Raises:
        Unsupported: misuse; topics are created, and grow, by their receivers.
    """

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        self._handle = disk_handle(store_config(config))

    def store(self) -> LogStore:
        """See `LogTopicAdmin.store`."""
        return self._handle.get()

    def create(self, topic: str, *_: object) -> None:
        """Refused: the receiver creates the topic.

        Raises:
            Unsupported: misuse.
        """
        raise self._refused(topic, "is created")

    def grow(self, topic: str, *_: object) -> None:
        """Refused: the receiver has as many partitions as the transport.

        Raises:
            Unsupported: misuse.
        """
        raise self._refused(topic, "grows")

    def retain(self, topic: str, hold: Mapping[int, int]) -> None:
        """See `TopicAdmin.retain`; applies ``spool.retention.*``."""
        retention = retention_of(store_config(self.config))
        self.store().open(topic).retain(retention, hold)

    def close(self) -> None:
        """See `TopicAdmin.close`."""
        self._handle.close()

    def _refused(self, topic: str, verb: str) -> Unsupported:
        msg = f"topic {topic!r} of a spool {verb} by its receiver only"
        remedy = f"start one: `streamfactory spool {self.config.name}`"
        return Unsupported(msg, remedy=remedy)
