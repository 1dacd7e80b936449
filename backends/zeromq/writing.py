"""Producer factory of ``zeromq``."""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, ClassVar, Final

from streamfactory.backends.zeromq.keeping import AcknowledgedWriter
from streamfactory.backends.zeromq.options import DEALER_ROUTER
from streamfactory.backends.zeromq.sending import SendingWriter
from streamfactory.backends.zeromq.transport import SocketContext
from streamfactory.live.writing import LiveProducerFactory, PartitionWriters
from streamfactory.spi import Claims, MisuseError, envelope_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from streamfactory.live.writing import PartitionWriter
    from streamfactory.spi import StreamWriter, WriteContext

log = logging.getLogger(__name__)

_NAMES: Final = uuid.UUID("5a2f6f0e-5a3d-4c55-9a8f-6b1d3c0e7f41")
"""Namespace of stream ids with a sender id, which are stable across restarts."""


class ZeromqWriters(PartitionWriters):
    """The writers of all partitions, with the context that sends what they queue."""

    def __init__(self, each: Sequence[PartitionWriter], place: SocketContext) -> None:
        super().__init__(each, place.close)
        self._place = place

    def confirm(self, deadline: float) -> int:
        """Send what is queued, and wait for readers; see `PartitionWriter`."""
        left = super().confirm(deadline)
        if self._place.close():
            return left
        text = "stream %r: readers have not received every message within linger.millis"
        log.warning(text, self._place.config.name)
        return left + 1


class ZeromqProducerFactory(LiveProducerFactory):
    """Writes to the readers at some endpoints. No claims.

    With dealer-router a commit blocks until the reader has stored the rows.
    """

    CLAIMS: ClassVar = Claims()
    CARRIES: ClassVar = frozenset({"_key", "_headers", "_timestamp"})

    def make_writers(self) -> PartitionWriters:
        place = SocketContext(self.config)
        is_kept = place.settings.pattern == DEALER_ROUTER
        kind = AcknowledgedWriter if is_kept else SendingWriter
        writers = [
            kind(number, place, endpoints, self._stream_of(number))
            for number, endpoints in enumerate(place.settings.addresses)
        ]
        return ZeromqWriters(writers, place)

    def create_writer(self, context: WriteContext) -> StreamWriter:
        if "sender.id" in self.config and context.task:
            msg = f"task {context.task} has the same sender.id as another task"
            remedy = "remove sender.id if an epoch has several tasks"
            raise MisuseError(msg, remedy=remedy)
        return super().create_writer(context)

    def fetch_schema(self, topic: str) -> pa.Schema | None:
        is_raw = self.config["payload"] == "raw"
        return envelope_schema() if is_raw else super().fetch_schema(topic)

    def _stream_of(self, number: int) -> bytes | None:
        if "sender.id" not in self.config:
            return None
        name = f"{self.config.topic}/{number}/{self.config['sender.id']}"
        return uuid.uuid5(_NAMES, name).bytes
