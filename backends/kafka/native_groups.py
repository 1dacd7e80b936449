"""Rows of a group member's partitions, copied by the compiled part from its queue."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from streamfactory.backends.kafka.columns import CHUNK
from streamfactory.backends.kafka.group_rows import (
    GroupRows,
    PartitionRows,
    Reported,
    reported,
)
from streamfactory.backends.kafka.native_columns import (
    NativeColumns,
    error_of,
    failure_of,
)
from streamfactory.spi import Partition, PermanentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confluent_kafka import Consumer

    from streamfactory.backends.kafka.clients import Watch
    from streamfactory.backends.kafka.native_library import Library, RawPart


class MemberQueue:
    """A queue for the messages of all partitions of one member. For one thread.

    The client's own queue keeps what has callbacks: rebalances, errors, statistics and
    tokens. confluent-kafka can handle them only within its own calls.

    Args:
        library: The compiled part.
        consumer: The client that this thread created last, with `Library.add_to`.
    """

    def __init__(self, library: Library, consumer: Consumer) -> None:
        self.library = library
        self.consumer = consumer
        self.queue: int | None = None
        self._client = library.take_client()
        if self._client is not None:
            self.queue = library.new_queue(self._client)
        if self.queue is None:
            consumer.close()
            msg = "the Kafka client did not pass itself to its plug-in"
            raise PermanentError(msg)

    def forward(self, partitions: Iterable[Partition]) -> None:
        """Have the messages of partitions added to this queue.

        Called before they are assigned, or they would be added to the client's queue,
        and again after it: librdkafka ends the forwarding when it stops fetching. It
        stops a partition that was unassigned just before when it handles the next
        assignment, at the latest. What is fetched until the second call is not lost.
        """
        for partition in partitions:
            topic = partition.topic.encode()
            forward = self.library.forward
            if not forward(self._client, topic, partition.id, self.queue):
                msg = f"partition {partition} cannot be read: the client has no queue"
                raise PermanentError(msg)

    def close(self) -> None:
        """Before the client is closed. Drops what is queued, now and later."""
        queue, self.queue = self.queue, None
        if queue is not None:
            self.library.close_queue(queue)

    def __del__(self) -> None:
        # Freeing a client waits for the messages in this queue. This object refers to
        # the client, so it is finalized first.
        self.close()


class NativeRowsByPartition(GroupRows):
    """Rows in buffers of the compiled part, which exist as long as a batch uses them.

    Args:
        queue: The member's queue.
        watch: Cleared when a broker responded; receives errors of topics.
        headers: Whether headers are needed.
    """

    def __init__(self, queue: MemberQueue, watch: Watch, *, headers: bool) -> None:
        super().__init__()
        self._queue = queue
        self._watch = watch
        self._memory = _Memory(queue.library, headers=headers)
        self._raw = self._memory.parts.contents

    @property
    def rows(self) -> int:
        return int(self._raw.rows)

    @property
    def size(self) -> int:
        return int(self._raw.size)

    @property
    def ends(self) -> Mapping[Partition, int]:
        reached = (part for part in self._parts() if part.columns.contents.end >= 0)
        return {_partition(part): int(part.columns.contents.end) for part in reached}

    def poll(self, wanted: int, most: int, wait: float) -> int:
        if not self.rows:
            self._serve()
            if self.errors or self.rewinds:
                return 0
        raw, queue = self._raw, self._queue
        status = queue.library.fill_parts(
            self._memory.parts, queue.queue, wanted, most, math.ceil(1000 * wait)
        )
        if status:
            raise self._failure(status)
        if raw.failed >= 0:
            self._report(raw.parts[raw.failed])
        if raw.received > (raw.failed >= 0):
            self._watch.clear()
        return int(raw.received)

    def by_partition(self) -> Iterable[tuple[Partition, PartitionRows]]:
        library = self._queue.library
        for index, part in enumerate(self._parts()):
            if part.columns.contents.rows:
                partition = _partition(part)
                columns = library.take_columns(self._memory.parts, index)
                yield partition, NativeColumns(library, columns, partition)

    def _parts(self) -> list[RawPart]:
        return self._raw.parts[: self._raw.count]  # type: ignore[no-any-return]

    def _serve(self) -> None:
        """Run the client's callbacks; partitions are assigned and revoked here."""
        for message in self._queue.consumer.consume(CHUNK, 0):
            error = message.error()
            if error is not None:
                self.errors.append(reported(message, error))
                continue
            # Fetched before the partition's queue was forwarded. Reading it again from
            # there keeps the order; librdkafka drops what it has of the partition.
            partition = Partition(str(message.topic()), int(message.partition() or 0))
            self.rewinds.setdefault(partition, message.offset() or 0)

    def _report(self, part: RawPart) -> None:
        error = error_of(part.columns.contents, self._watch)
        if error is not None:
            partition = _partition(part) if part.partition >= 0 else None
            self.errors.append(Reported(error, partition))

    def _failure(self, status: int) -> Exception:
        if self._raw.failed < 0:
            return MemoryError("no memory for the messages of a group")
        part = self._raw.parts[self._raw.failed]
        return failure_of(status, _partition(part), part.columns.contents.next_offset)


class _Memory:
    """The columns of all partitions that no batch has, freed with this object."""

    def __init__(self, library: Library, *, headers: bool) -> None:
        self._free = library.free_parts
        self.parts: Any = library.new_parts(headers)
        if not self.parts:
            raise MemoryError

    def __del__(self) -> None:
        self._free(self.parts)


def _partition(part: RawPart) -> Partition:
    return Partition(part.topic.decode(), part.partition)
