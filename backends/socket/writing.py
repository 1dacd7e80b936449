"""The writing half of ``socket``."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, ClassVar

from streamfactory.backends.socket.connections import Port
from streamfactory.backends.socket.options import Settings
from streamfactory.backends.socket.sending import OutLane
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
    """Sends the rows of one attempt, which can be read as they are written."""

    def __init__(self, lanes: Sequence[OutLane]) -> None:
        self._lanes = lanes
        self._wrote: set[int] = set()
        self._wake = Wake()

    def write(self, outgoing: Outgoing) -> None:
        self._wrote.add(outgoing.partition)
        self._lanes[outgoing.partition].send(outgoing.rows, self._wake)

    def wake(self) -> None:
        self._wake.set()

    def commit(self) -> Any:
        """Hand what was written to the system; no reader of a raw stream answers."""
        for number in self._wrote:
            self._lanes[number].flush(self._wake)
        return {"partitions": sorted(self._wrote)}

    def abort(self) -> None:
        """Break off what this attempt has written to: rows cannot be taken back."""
        for number in self._wrote:
            self._lanes[number].break_off()

    @property
    def end(self) -> End | None:
        return ReaderFinished() if all(lane.is_left for lane in self._lanes) else None

    def close(self) -> None:
        self._wake.close()


class SocketCommitter(StreamCommitter):
    """Has nothing to decide: there are no epochs."""

    def __init__(self, lanes: Sequence[OutLane]) -> None:
        self._lanes = lanes

    def commit(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        return None

    def abort(self, epoch: int, messages: Sequence[CommitMessage]) -> None:
        """Break off what the tasks of this process have written to."""
        wrote = {number for m in messages for number in m.payload["partitions"]}
        for number in wrote:
            self._lanes[number].break_off()


class SocketProducerFactory(ProducerFactory):
    """Writes to the readers of some addresses. It claims nothing."""

    CLAIMS: ClassVar = Claims()

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        self.settings = Settings.of(config)
        # By process: what a fork inherited stays referenced, and untouched.
        self._lanes: dict[int, list[OutLane]] = {}
        self._schema: pa.Schema | None = None

    @property
    def lanes(self) -> list[OutLane]:
        """The partitions, as this process writes them. Opens nothing."""
        process = os.getpid()
        if process not in self._lanes:
            made = [
                OutLane(
                    Port(address, self.settings, self.config),
                    self.settings,
                    self.config["readers"],
                    self.config["compression"],
                )
                for address in self.settings.addresses
            ]
            self._lanes.setdefault(process, made)
        return self._lanes[process]

    def create_writer(self, context: WriteContext) -> StreamWriter:
        if any(lane.is_finished for lane in self.lanes):
            msg = "the stream has been finished"
            raise MisuseError(msg, remedy="open it again for a stream of its own")
        for lane in self.lanes:
            lane.open()
        self._schema = self._schema or context.schema
        return SocketWriter(self.lanes)

    def create_committer(self, writer_id: str | None) -> StreamCommitter:
        return SocketCommitter(self.lanes)

    def fetch_partition_count(self, topic: str) -> int:
        return len(self.settings.addresses)

    def fetch_schema(self, topic: str) -> pa.Schema | None:
        return self._schema

    def end_stream(self, end: End) -> None:
        """End every partition, also those that no row went to."""
        if not isinstance(end, Finished):
            for lane in self.lanes:
                lane.break_off()
            return
        if self._schema is None:
            msg = "the stream has no schema yet, and cannot end without"
            raise MisuseError(msg, remedy="make a writer first; it need not write rows")
        deadline = time.monotonic() + self.settings.timeout
        for lane in self.lanes:
            lane.finish(self._schema)
        for lane in self.lanes:
            lane.confirm(deadline)

    def close(self) -> None:
        for lane in self._lanes.get(os.getpid(), ()):
            lane.close()
