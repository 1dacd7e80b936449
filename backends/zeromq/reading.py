"""Consumer factory of ``zeromq``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from streamfactory.arrowlog.messages import envelopes, message_schema
from streamfactory.backends.zeromq.options import DEALER_ROUTER, Settings
from streamfactory.backends.zeromq.receiving import ReceivingReader
from streamfactory.backends.zeromq.transport import SocketContext
from streamfactory.live.reading import LiveConsumerFactory, PartitionReaders
from streamfactory.live.schemas import SharedSchema
from streamfactory.spi import Claims, Partition, envelope_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.spi import Position, StreamConfig


class ZeromqConsumerFactory(LiveConsumerFactory):
    """Reads the senders at some endpoints.

    ZeroMQ stores nothing. With dealer-router, senders keep unacknowledged rows.
    """

    CLAIMS: ClassVar = Claims(redelivers=True)

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        self._settings = Settings(config)
        self._is_packed = self._settings.is_raw and not self._settings.is_plain

    def make_readers(self) -> PartitionReaders:
        place = SocketContext(self.config)
        holder = SharedSchema(message_schema() if self._is_packed else None)
        readers = [
            ReceivingReader(
                Partition(self.config.topic, number), place, endpoints, holder
            )
            for number, endpoints in enumerate(self._settings.addresses)
        ]
        return PartitionReaders(readers, holder, place.close)

    def fixed_schema(self) -> pa.Schema | None:
        return envelope_schema() if self._settings.is_raw else None

    def shape(
        self, rows: pa.RecordBatch, partition: Partition, first: int
    ) -> pa.RecordBatch:
        return envelopes(rows, partition, first) if self._is_packed else rows

    def acknowledge(self, position: Position) -> None:
        if self.config.get("acknowledge") != "stored":
            return
        readers = cast("list[ReceivingReader]", self.readers.each)
        for partition, offset in position.items():
            if partition.topic == self.config.topic and partition.id < len(readers):
                incarnation = position.incarnations.get(partition)
                readers[partition.id].acknowledge(incarnation, offset)

    def claims(self) -> Claims:
        is_kept = self._settings.pattern == DEALER_ROUTER
        stored = self.config.get("acknowledge") == "stored"
        return Claims(redelivers=is_kept and stored and self.config["senders"] == 1)
