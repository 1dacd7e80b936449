"""The writing half of ``zeromq``."""

from __future__ import annotations

import os
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, ClassVar, Final

from streamfactory.backends.zeromq.keeping import KeepingLane
from streamfactory.backends.zeromq.options import DEALER_ROUTER, Settings
from streamfactory.backends.zeromq.sending import OutLane
from streamfactory.backends.zeromq.transport import Place
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
"""Of streams with a sender id: after a restart the stream is the same."""


class ZeromqWriter(StreamWriter):
    """Sends the rows of one attempt, which can be read as they are written."""

    def __init__(self, lanes: Sequence[OutLane]) -> None:
        self._lanes = lanes
        self._wrote: set[int] = set()
        self._wake = Wake()

    def write(self, outgoing: Outgoing) -> None:
        self._wrote.add(outgoing.partition)
        self._lanes[outgoing.partition].send(outgoing, self._wake)

    def wake(self) -> None:
        self._wake.set()

    def commit(self) -> Any:
        """With dealer-router, return when the reader has stored what was written."""
        for number in self._wrote:
            self._lanes[number].flush(self._wake)
        return {"partitions": sorted(self._wrote)}

    def abort(self) -> None:
        """Break off what this attempt has written to: rows cannot be taken back."""
        for number in self._wrote:
            self._lanes[number].break_off()

    def close(self) -> None:
        self._wake.close()


class ZeromqCommitter(StreamCommitter):
    """Has nothing to decide: there are no epochs."""

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
        """Break off what the tasks of this process have written to."""
        wrote = {number for m in messages for number in m.payload["partitions"]}
        for lane in self._factory.lanes():
            if lane.number in wrote:
                lane.break_off()


class ZeromqProducerFactory(ProducerFactory):
    """Writes to the readers at some endpoints. It claims nothing."""

    CLAIMS: ClassVar = Claims()
    CARRIES: ClassVar = frozenset({"_key", "_headers", "_timestamp"})

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        self.settings = Settings.of(config)
        self._lock = threading.Lock()
        # By process: what a fork inherited stays referenced, and untouched.
        self._places: dict[int, Place] = {}
        self._lanes: dict[int, list[OutLane]] = {}
        self._schema: pa.Schema | None = None

    def lanes(self) -> list[OutLane]:
        """The senders that this process has; none before its first writer."""
        with self._lock:
            return self._lanes.get(os.getpid(), [])

    def create_writer(self, context: WriteContext) -> StreamWriter:
        lanes = self._lanes_of(context)
        if any(lane.is_finished for lane in lanes):
            msg = "the stream has been finished"
            raise MisuseError(msg, remedy="open it again for another stream")
        for lane in lanes:
            lane.open()
            lane.begin(context.epoch)
        self._schema = self._schema or context.schema
        return ZeromqWriter(lanes)

    def create_committer(self, writer_id: str | None) -> StreamCommitter:
        return ZeromqCommitter(self)

    def fetch_partition_count(self, topic: str) -> int:
        return len(self.settings.endpoints)

    def fetch_schema(self, topic: str) -> pa.Schema | None:
        return envelope_schema() if self.settings.is_raw else self._schema

    def end_stream(self, end: End) -> None:
        """End every partition, also those that no row went to."""
        if not isinstance(end, Finished):
            for lane in self.lanes():
                lane.break_off()
            return
        if self._schema is None:
            msg = "the stream has no schema yet, and cannot end without"
            raise MisuseError(msg, remedy="make a writer first; it need not write rows")
        deadline = time.monotonic() + self.settings.timeout
        for lane in self.lanes():
            lane.finish(self._schema, deadline)

    def close(self) -> None:
        for lane in self.lanes():
            lane.close()
        place = self._places.pop(os.getpid(), None)
        if place is not None:
            place.close()

    def _lanes_of(self, context: WriteContext) -> list[OutLane]:
        """The senders of this process: one for each partition."""
        is_kept = self.settings.pattern == DEALER_ROUTER
        if "sender.id" in self.config and context.task:
            msg = f"task {context.task} writes with the sender id of another task"
            remedy = "leave sender.id out where an epoch has several tasks"
            raise MisuseError(msg, remedy=remedy)
        process = os.getpid()
        with self._lock:
            if process not in self._lanes:
                kind = KeepingLane if is_kept else OutLane
                self._lanes[process] = [
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
            return self._lanes[process]

    def _stream_of(self, number: int) -> bytes | None:
        if "sender.id" not in self.config:
            return None
        name = f"{self.config.topic}/{number}/{self.config['sender.id']}"
        return uuid.uuid5(_NAMES, name).bytes

    def _place(self) -> Place:
        process = os.getpid()
        if process not in self._places:
            self._places[process] = Place(self.config, self.settings)
        return self._places[process]
