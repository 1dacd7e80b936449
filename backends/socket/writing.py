"""Producer factory of ``socket``."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, ClassVar

from streamfactory.backends.socket.options import Settings
from streamfactory.backends.socket.ports import Port
from streamfactory.backends.socket.sending import PartitionWriter
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
    ReaderFinished,
    StreamCommitter,
    StreamConfig,
    StreamWriter,
    WriteContext,
)
from streamfactory.spi.waking import Wake

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa


class SocketWriter(StreamWriter):
    """Sends the rows of one attempt. They are visible at once."""

    def __init__(self, partitions: Sequence[PartitionWriter]) -> None:
        self._partitions = partitions
        self._wrote: set[int] = set()
        self._wake = Wake()

    def write(self, outgoing: Outgoing) -> None:
        self._wrote.add(outgoing.partition)
        self._partitions[outgoing.partition].send(outgoing.rows, self._wake)

    def wake(self) -> None:
        self._wake.set()

    def commit(self) -> Any:
        """Pass the rows to the system. Readers of a raw stream acknowledge nothing."""
        for number in self._wrote:
            self._partitions[number].flush(self._wake)
        return {"partitions": sorted(self._wrote)}

    def abort(self) -> None:
        """Abort the connections that were written to: sent rows cannot be recalled."""
        for number in self._wrote:
            self._partitions[number].break_off()

    @property
    def end(self) -> End | None:
        return (
            ReaderFinished()
            if all(partition.has_no_reader for partition in self._partitions)
            else None
        )

    def close(self) -> None:
        self._wake.close()


class SocketCommitter(StreamCommitter):
    """Commits nothing: there are no epochs."""

    def __init__(self, partitions: Sequence[PartitionWriter]) -> None:
        self._partitions = partitions

    def commit(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        return None

    def abort(self, epoch: int, messages: Sequence[CommitMessage]) -> None:
        """Abort the connections that tasks of this process have written to."""
        wrote = {number for m in messages for number in m.payload["partitions"]}
        for number in wrote:
            self._partitions[number].break_off()


class SocketProducerFactory(ProducerFactory):
    """Writes to the readers of some addresses. No claims."""

    CLAIMS: ClassVar = Claims()

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        self.settings = Settings.of(config)
        # By process id: inherited connections are kept open, but not used after a fork.
        self._partitions: dict[int, list[PartitionWriter]] = {}
        self._schema: pa.Schema | None = None

    @property
    def partitions(self) -> list[PartitionWriter]:
        """The partition writers of this process. Opens no connection."""
        process = os.getpid()
        if process not in self._partitions:
            made = [
                PartitionWriter(
                    Port(address, self.settings, self.config),
                    self.settings,
                    self.config["readers"],
                    self.config["compression"],
                )
                for address in self.settings.addresses
            ]
            self._partitions.setdefault(process, made)
        return self._partitions[process]

    def create_writer(self, context: WriteContext) -> StreamWriter:
        if any(partition.is_finished for partition in self.partitions):
            msg = "the stream is finished: no more rows can be written"
            raise MisuseError(msg, remedy="open the stream again to write another one")
        for partition in self.partitions:
            partition.open()
        self._schema = self._schema or context.schema
        return SocketWriter(self.partitions)

    def create_committer(self, writer_id: str | None) -> StreamCommitter:
        return SocketCommitter(self.partitions)

    def fetch_partition_count(self, topic: str) -> int:
        return len(self.settings.addresses)

    def fetch_schema(self, topic: str) -> pa.Schema | None:
        return self._schema

    def end_stream(self, end: End) -> None:
        """End every partition, including those without rows."""
        if not isinstance(end, Finished):
            for partition in self.partitions:
                partition.break_off()
            return
        if self._schema is None:
            msg = "the stream cannot be ended: it has no schema yet"
            raise MisuseError(
                msg, remedy="create a writer first; it need not write rows"
            )
        deadline = time.monotonic() + self.settings.timeout
        for partition in self.partitions:
            partition.finish(self._schema)
        for partition in self.partitions:
            partition.confirm(deadline)

    def close(self) -> None:
        for partition in self._partitions.get(os.getpid(), ()):
            partition.close()
