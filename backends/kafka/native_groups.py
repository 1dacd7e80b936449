"""Rows of a group member's partitions, copied by the compiled part from its queue."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from streamfactory.backends.kafka.columns import CHUNK
from streamfactory.backends.kafka.group_rows import (
    GroupRows,
    PartitionRows,
    Reported,
    reported,
)
from streamfactory.backends.kafka.native_columns import (
    batch_of,
    error_of,
    failure_of,
)
from streamfactory.spi import Partition, PermanentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa
    from confluent_kafka import Consumer

    from streamfactory.backends.kafka.clients import Watch
    from streamfactory.backends.kafka.native_library import Library
    from streamfactory.compiled import kafka


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
        self.queue: kafka.Queue | None = None
        client = library.core.take_client()
        if client is not None:
            self.queue = client.new_queue()
        if client is None or self.queue is None:
            consumer.close()
            msg = "the Kafka client did not pass itself to its plug-in"
            raise PermanentError(msg)
        self._client = client

    def forward(self, partitions: Iterable[Partition]) -> None:
        """Have the messages of partitions added to this queue.

        Called before they are assigned, or they would be added to the client's queue,
        and again after it: librdkafka ends the forwarding when it stops fetching. It
        stops a partition that was unassigned just before when it handles the next
        assignment, at the latest. What is fetched until the second call is not lost.
        """
        for partition in partitions:
            forward = self._client.forward
            if self.queue is None or not forward(
                partition.topic, partition.id, self.queue
            ):
                msg = f"partition {partition} cannot be read: the client has no queue"
                raise PermanentError(msg)

    def close(self) -> None:
        """Before the client is closed. Drops what is queued, now and later."""
        queue, self.queue = self.queue, None
        if queue is not None:
            queue.close()

    def __del__(self) -> None:
        # Freeing a client waits for the messages in this queue. This object refers to
        # the client, so it is finalized first.
        self.close()


class NativeRowsByPartition(GroupRows):
    """Rows in buffers of the compiled part.

    Args:
        queue: The member's queue.
        watch: Cleared when a broker responded; receives errors of topics.
        headers: Whether headers are needed.
    """

    def __init__(self, queue: MemberQueue, watch: Watch, *, headers: bool) -> None:
        super().__init__()
        self._queue = queue
        self._watch = watch
        self._parts = queue.library.core.Parts(headers)

    @property
    def rows(self) -> int:
        return self._parts.rows

    @property
    def size(self) -> int:
        return self._parts.size

    @property
    def ends(self) -> Mapping[Partition, int]:
        return {Partition(topic, id): end for topic, id, end in self._parts.ends()}

    def poll(self, wanted: int, most: int, wait: float) -> int:
        if not self.rows:
            self._serve()
            if self.errors or self.rewinds:
                return 0
        parts, queue = self._parts, self._queue.queue
        assert queue is not None
        status = parts.fill(queue, wanted, most, math.ceil(1000 * wait))
        if status:
            raise self._failure(status)
        failed = parts.failed
        if failed is not None:
            topic, number, _, failure = failed
            self._report(Partition(topic, number) if number >= 0 else None, failure)
        if parts.received > (failed is not None):
            self._watch.clear()
        return parts.received

    def by_partition(self) -> Iterable[tuple[Partition, PartitionRows]]:
        for topic, number, columns in self._parts.take():
            partition = Partition(topic, number)
            yield partition, NativePartitionRows(columns, partition)

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

    def _report(
        self, partition: Partition | None, failure: kafka.Failure | None
    ) -> None:
        assert failure is not None
        error = error_of(failure, self._watch)
        if error is not None:
            self.errors.append(Reported(error, partition))

    def _failure(self, status: int) -> Exception:
        failed = self._parts.failed
        if failed is None:
            return MemoryError("no memory for the messages of a group")
        topic, number, offset, _ = failed
        return failure_of(status, Partition(topic, number), offset)


class NativePartitionRows:
    """Rows of one partition in buffers of the compiled part.

    Args:
        columns: Of at least one row.
        partition: The partition.
    """

    def __init__(self, columns: kafka.Columns, partition: Partition) -> None:
        self._columns = columns
        self._partition = partition
        self.rows = columns.rows
        self.size = columns.size
        self.next_offset = columns.next_offset

    def batch(self) -> pa.RecordBatch:
        """All rows, as envelopes. Called once."""
        return batch_of(self._columns, self._partition)
