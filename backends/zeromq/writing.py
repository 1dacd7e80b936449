"""Producer factory of ``zeromq``."""

from __future__ import annotations

import os
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, ClassVar, Final

from streamfactory.backends.zeromq.keeping import AcknowledgedWriter
from streamfactory.backends.zeromq.options import DEALER_ROUTER, Settings
from streamfactory.backends.zeromq.sending import PartitionWriter
from streamfactory.backends.zeromq.transport import SocketContext
from streamfactory.spi import (
    Claims,
    CommitMessage,
    End,
    Finished,
    LastCommit,
    MisuseError,
    Outgoing,
    Position,
    ProducerFactory,
    StreamCommitter,
    StreamConfig,
    StreamWriter,
    WriteContext,
    envelope_schema,
)
from streamfactory.spi.waking import Wake

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

_NAMES: Final = uuid.UUID("5a2f6f0e-5a3d-4c55-9a8f-6b1d3c0e7f41")
"""Namespace of stream ids with a sender id, which are stable across restarts."""


class ZeromqWriter(StreamWriter):
    """Sends the rows of one attempt. They are visible at once."""

    def __init__(self, partitions: Sequence[PartitionWriter]) -> None:
        self._partitions = partitions
        self._wrote: set[int] = set()
        self._wake = Wake()

    def write(self, outgoing: Outgoing) -> None:
        self._wrote.add(outgoing.partition)
        self._partitions[outgoing.partition].send(outgoing, self._wake)

    def wake(self) -> None:
        self._wake.set()

    def commit(self) -> Any:
        """With dealer-router, block until the reader has stored the rows."""
        for number in self._wrote:
            self._partitions[number].flush(self._wake)
        return {"partitions": sorted(self._wrote)}

    def abort(self) -> None:
        """Abort the partitions that were written to: sent rows cannot be recalled."""
        for number in self._wrote:
            self._partitions[number].break_off()

    def close(self) -> None:
        self._wake.close()


class ZeromqCommitter(StreamCommitter):
    """Commits nothing: there are no epochs."""

    def __init__(self, factory: ZeromqProducerFactory) -> None:
        self._factory = factory

    def commit(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        return None

    def abort(self, epoch: int, messages: Sequence[CommitMessage]) -> None:
        """Abort the partitions that tasks of this process have written to."""
        wrote = {number for m in messages for number in m.payload["partitions"]}
        for partition in self._factory.partitions():
            if partition.number in wrote:
                partition.break_off()


class ZeromqProducerFactory(ProducerFactory):
    """Writes to the readers at some endpoints. No claims."""

    CLAIMS: ClassVar = Claims()
    CARRIES: ClassVar = frozenset({"_key", "_headers", "_timestamp"})

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        self.settings = Settings.of(config)
        self._lock = threading.Lock()
        # By process id: inherited sockets are kept open, but not used after a fork.
        self._places: dict[int, SocketContext] = {}
        self._partitions: dict[int, list[PartitionWriter]] = {}
        self._schema: pa.Schema | None = None

    def partitions(self) -> list[PartitionWriter]:
        """The partition writers of this process; empty before the first writer."""
        with self._lock:
            return self._partitions.get(os.getpid(), [])

    def create_writer(self, context: WriteContext) -> StreamWriter:
        partitions = self._writers_of(context)
        if any(partition.is_finished for partition in partitions):
            msg = "the stream is finished: no more rows can be written"
            raise MisuseError(msg, remedy="open the stream again to write another one")
        for partition in partitions:
            partition.open()
            partition.begin(context.epoch)
        self._schema = self._schema or context.schema
        return ZeromqWriter(partitions)

    def create_committer(self, writer_id: str | None) -> StreamCommitter:
        return ZeromqCommitter(self)

    def fetch_partition_count(self, topic: str) -> int:
        return len(self.settings.endpoints)

    def fetch_schema(self, topic: str) -> pa.Schema | None:
        return envelope_schema() if self.settings.is_raw else self._schema

    def end_stream(self, end: End) -> None:
        """End every partition, including those without rows."""
        if not isinstance(end, Finished):
            for partition in self.partitions():
                partition.break_off()
            return
        if self._schema is None:
            msg = "the stream cannot be ended: it has no schema yet"
            raise MisuseError(
                msg, remedy="create a writer first; it need not write rows"
            )
        deadline = time.monotonic() + self.settings.timeout
        for partition in self.partitions():
            partition.finish(self._schema, deadline)

    def close(self) -> None:
        for partition in self.partitions():
            partition.close()
        place = self._places.pop(os.getpid(), None)
        if place is not None:
            place.close()

    def _writers_of(self, context: WriteContext) -> list[PartitionWriter]:
        """The partition writers of this process."""
        is_kept = self.settings.pattern == DEALER_ROUTER
        if "sender.id" in self.config and context.task:
            msg = f"task {context.task} has the same sender.id as another task"
            remedy = "remove sender.id if an epoch has several tasks"
            raise MisuseError(msg, remedy=remedy)
        process = os.getpid()
        with self._lock:
            if process not in self._partitions:
                kind = AcknowledgedWriter if is_kept else PartitionWriter
                self._partitions[process] = [
                    kind(
                        number,
                        self._place,
                        endpoints,
                        self.config,
                        self.settings,
                        self._stream_of(number),
                    )
                    for number, endpoints in enumerate(self.settings.endpoints)
                ]
            return self._partitions[process]

    def _stream_of(self, number: int) -> bytes | None:
        if "sender.id" not in self.config:
            return None
        name = f"{self.config.topic}/{number}/{self.config['sender.id']}"
        return uuid.uuid5(_NAMES, name).bytes

    def _place(self) -> SocketContext:
        process = os.getpid()
        if process not in self._places:
            self._places[process] = SocketContext(self.config, self.settings)
        return self._places[process]
