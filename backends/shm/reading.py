"""Consumer factory of ``shm``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from streamfactory.arrowlog import LogConsumer, LogConsumerFactory
from streamfactory.arrowlog.handles import SharesStore
from streamfactory.backends.shm.store import shm_handle
from streamfactory.spi import Claims, EpochVisibility

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.backends.shm.log import ShmLog
    from streamfactory.spi import (
        Fetched,
        FetchLimits,
        Partition,
        PartitionLevelConsumer,
    )

CLAIMS: Final = Claims(
    replayable=True,
    shared=True,
    idempotent=True,
    epoch_visibility=EpochVisibility.WHOLE,
)


class ShmConsumer(LogConsumer):
    """Reads one ring, and tells writers how far where they wait for readers."""

    def __init__(
        self, log: ShmLog, partition: Partition, fields: Sequence[str] | None
    ) -> None:
        super().__init__(log, partition, fields)
        self._shm = log
        self._entry = log.begin_reading(partition.id)

    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        if self._entry is not None:
            self._shm.move_reading(self._entry, self._partition.id, start)
        return super().fetch_messages(start, end, limits)

    def close(self) -> None:
        entry, self._entry = self._entry, None
        if entry is not None:
            self._shm.end_reading(entry)


class ShmConsumerFactory(SharesStore, LogConsumerFactory):
    """Reads topics of one folder."""

    CLAIMS: ClassVar = CLAIMS
    handle = staticmethod(shm_handle)

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> PartitionLevelConsumer:
        log = self.store().open(partition.topic)
        return ShmConsumer(log, partition, fields_to_read)
