"""Consumer factory of ``file``: topics, and files of other programs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from streamfactory.arrowlog import LogConsumerFactory
from streamfactory.arrowlog.disk.sharing import disk_handle
from streamfactory.arrowlog.handles import SharesStore
from streamfactory.backends.file.foreign_options import CLAIMS as FOREIGN_CLAIMS
from streamfactory.backends.file.options import LOG
from streamfactory.spi import Claims, EpochVisibility

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spi import (
        MetadataProvider,
        Partition,
        PartitionLevelConsumer,
        StreamConfig,
    )

CLAIMS = Claims(
    replayable=True,
    durable=True,
    shared=True,
    idempotent=True,
    epoch_visibility=EpochVisibility.WHOLE,
)


def log_claims(config: StreamConfig) -> Claims:
    """The claims of topics. Without fsync, a power failure can lose epochs."""
    return replace(CLAIMS, durable=config["fsync"] == "always")


class FileConsumerFactory(SharesStore, LogConsumerFactory):
    """Reads topics or files of other programs, depending on ``format``."""

    CLAIMS: ClassVar = CLAIMS
    handle = staticmethod(disk_handle)

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> PartitionLevelConsumer:
        if self.config["format"] == LOG:
            return super().create_partition_level_consumer(
                client_id, partition, fields_to_read
            )
        # Imported here: topics need none of it.
        from streamfactory.backends.file.foreign import create_consumer

        return create_consumer(self.config, partition, fields_to_read)

    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        if self.config["format"] == LOG:
            return super().create_metadata_provider(client_id)
        from streamfactory.backends.file.foreign import create_metadata

        return create_metadata(self.config)

    def claims(self) -> Claims:
        if self.config["format"] == LOG:
            return CLAIMS
        return FOREIGN_CLAIMS
