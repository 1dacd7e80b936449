"""Writers, committer and factory of a live transport, over a backend's partitions."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, final

from streamfactory.live.options import seconds
from streamfactory.live.processes import PerProcess
from streamfactory.spi import (
    ClosedError,
    Finished,
    MisuseError,
    ProducerFactory,
    ReaderFinished,
    StreamCommitter,
    StreamWriter,
)
from streamfactory.spi.waking import Wake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

    from streamfactory.spi import (
        CommitMessage,
        End,
        LastCommit,
        Outgoing,
        Position,
        StreamConfig,
        WriteContext,
    )

_ONCE_MORE = "open the stream again to write another one"


class PartitionWriter(ABC):
    """Writes one partition in one process. Thread-safe. Recalls no sent rows."""

    is_finished = False
    """Whether the stream was ended."""

    @property
    def has_no_reader(self) -> bool:
        """Whether every reader has disconnected, if that is known. Never blocks."""
        return False

    @abstractmethod
    def open(self) -> None:
        """Listen for readers, or connect. May be called twice."""

    def begin(self, epoch: int) -> None:  # noqa: B027 - an ability
        """Begin an epoch."""

    @abstractmethod
    def send(self, outgoing: Outgoing, wake: Wake) -> None:
        """Send rows; blocks while readers accept none.

        Raises:
            ClosedError: misuse; woken.
            StreamTimeout: transient; readers did not connect, or one has stalled.
            StreamError: A peer cannot be used.
        """

    @abstractmethod
    def flush(self, wake: Wake) -> None:
        """Block until rows are as safe as the transport allows.

        Raises:
            StreamError: As `send`.
        """

    @abstractmethod
    def break_off(self) -> None:
        """Abort the stream of the partition; the next write begins another one."""

    @abstractmethod
    def finish(self, schema: pa.Schema, deadline: float) -> None:
        """End the stream of the partition. May be called twice.

        Raises:
            StreamError: As `send`.
        """

    def confirm(self, deadline: float) -> int:
        """Wait until every reader has received the end, if the transport shows it.

        Returns:
            Number of readers that disconnected before, and so may lack rows.

        Raises:
            StreamTimeout: transient; a reader has not received the end.
        """
        return 0

    @abstractmethod
    def close(self) -> None:
        """Close all connections. May be called twice."""


def check_woken(wake: Wake | None) -> None:
    """Raise if the wait of a writer was ended by `wake`.

    Raises:
        ClosedError: misuse.
    """
    if wake is not None and wake.is_set:
        msg = "the writer was closed while it waited for readers"
        raise ClosedError(msg)


class PartitionWriters:
    """The writers of all partitions of a stream in one process. Opens nothing.

    Args:
        each: By partition.
        close: Closes what the writers share, after them.
    """

    def __init__(
        self, each: Sequence[PartitionWriter], close: Callable[[], object] = bool
    ) -> None:
        self.each = each
        self._close = close

    def break_off(self, numbers: Iterable[int]) -> None:
        """Abort some partitions: sent rows cannot be recalled."""
        for number in numbers:
            self.each[number].break_off()

    def confirm(self, deadline: float) -> int:
        """See `PartitionWriter`; of all partitions."""
        return sum(partition.confirm(deadline) for partition in self.each)

    def close(self) -> None:
        """Close all of them."""
        for partition in self.each:
            partition.close()
        self._close()


@final
class LiveWriter(StreamWriter):
    """Sends the rows of one attempt. They are visible at once."""

    def __init__(self, writers: PartitionWriters) -> None:
        self._writers = writers
        self._wrote: set[int] = set()
        self._wake = Wake()

    def write(self, outgoing: Outgoing) -> None:
        self._wrote.add(outgoing.partition)
        self._writers.each[outgoing.partition].send(outgoing, self._wake)

    def wake(self) -> None:
        self._wake.set()

    def commit(self) -> Any:
        for number in self._wrote:
            self._writers.each[number].flush(self._wake)
        return {"partitions": sorted(self._wrote)}

    def abort(self) -> None:
        self._writers.break_off(self._wrote)

    @property
    def end(self) -> End | None:
        gone = all(partition.has_no_reader for partition in self._writers.each)
        return ReaderFinished() if gone else None

    def close(self) -> None:
        self._wake.close()


@final
class LiveCommitter(StreamCommitter):
    """Commits nothing: there are no epochs."""

    def __init__(self, writers: PartitionWriters) -> None:
        self._writers = writers

    def commit(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        return None

    def abort(self, epoch: int, messages: Sequence[CommitMessage]) -> None:
        """Abort the partitions that tasks of this process have written to."""
        self._writers.break_off({n for m in messages for n in m.payload["partitions"]})


class LiveProducerFactory(ProducerFactory):
    """Writes the partitions of a live transport. A backend's subclass makes writers."""

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        self._writers = PerProcess(self.make_writers)
        self._schema: pa.Schema | None = None

    @abstractmethod
    def make_writers(self) -> PartitionWriters:
        """Create the writers of a process. Opens nothing."""

    @property
    def writers(self) -> PartitionWriters:
        """The partition writers of this process."""
        return self._writers.get()

    def create_writer(self, context: WriteContext) -> StreamWriter:
        writers = self.writers
        if any(partition.is_finished for partition in writers.each):
            raise stream_finished()
        for partition in writers.each:
            partition.open()
            partition.begin(context.epoch)
        self._schema = self._schema or context.schema
        return LiveWriter(writers)

    def create_committer(self, writer_id: str | None) -> StreamCommitter:
        return LiveCommitter(self.writers)

    def fetch_partition_count(self, topic: str) -> int:
        return len(self.writers.each)

    def fetch_schema(self, topic: str) -> pa.Schema | None:
        return self._schema

    def end_stream(self, end: End) -> End | None:
        """End every partition, including those without rows."""
        writers = self.writers
        if not isinstance(end, Finished):
            writers.break_off(range(len(writers.each)))
            return None
        if self._schema is None:
            msg = "the stream cannot be ended: it has no schema yet"
            raise MisuseError(
                msg, remedy="create a writer first; it need not write rows"
            )
        deadline = time.monotonic() + seconds(self.config, "connection.timeout.millis")
        for partition in writers.each:
            partition.finish(self._schema, deadline)
        return ReaderFinished() if writers.confirm(deadline) else None

    def close(self) -> None:
        writers = self._writers.existing()
        if writers is not None:
            writers.close()


def stream_finished() -> MisuseError:
    """The error for a write after the end of the stream."""
    msg = "the stream is finished: no more rows can be written"
    return MisuseError(msg, remedy=_ONCE_MORE)
