"""The consumer factory of a table format."""

from __future__ import annotations

import threading
from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from streamfactory.arrowlog.values import StoresRows
from streamfactory.spi import Claims, ClosedError, ConsumerFactory
from streamfactory.tables.consumer import TableConsumer
from streamfactory.tables.metadata import TableMetadata
from streamfactory.tables.stored import StoredTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spi import (
        MetadataProvider,
        Partition,
        PartitionLevelConsumer,
        StreamConfig,
    )
    from streamfactory.tables.table import Table


class TableConsumerFactory(ConsumerFactory, StoresRows):
    """Reads one table. A format's subclass opens it.

    The table is opened on first use and shared by consumers and providers. A factory
    pickles by its configuration, and a forked child opens the table again. Rows have
    the columns as of the opening, whatever they are called later.
    """

    CLAIMS: ClassVar = Claims(replayable=True, durable=True, shared=True)
    SPARSE_OFFSETS: ClassVar = True

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        self._lock = threading.Lock()
        self._opened: Table | None = None
        self._closed = False
        self._pinned: bytes | None = None

    @abstractmethod
    def open_table(self) -> Table:
        """Open the table that the configuration names.

        Raises:
            TopicNotFound: permanent; there is none.
            FormatRefused: permanent; it is of another format, or cannot be read.
        """

    def table(self) -> Table:
        """The table, opened by the first call."""
        with self._lock:
            if self._closed:
                what = "the factory is closed"
                raise ClosedError(what)
            if self._opened is None:
                self._opened = self.open_table()
                if self._pinned is not None:
                    self._opened.columns.load(self._pinned)
            return self._opened

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> PartitionLevelConsumer:
        return TableConsumer(
            self.table,
            fields_to_read,
            added=self.config["change.columns"],
            poll=self.config["poll.interval.millis"] / 1000,
            rows=self.config["batch.rows"],
        )

    def stored(self, topic: str) -> StoredTable:
        """See `StoresRows`."""
        return StoredTable(self.table(), added=self.config["change.columns"])

    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        return TableMetadata(self.config, self.table)

    def opening(self) -> bytes:
        return self.table().columns.dump()

    def pin(self, opening: bytes) -> None:
        self._pinned = opening

    def close(self) -> None:
        with self._lock:
            table, self._opened, self._closed = self._opened, None, True
        if table is not None:
            table.close()

    def __reduce__(self) -> tuple[type[TableConsumerFactory], tuple[StreamConfig]]:
        return type(self), (self.config,)
