"""Rows of one partition, copied by the compiled part from librdkafka's queue."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from confluent_kafka import KafkaError

from streamfactory.backends.kafka.clients import OF_TOPICS
from streamfactory.backends.kafka.columns import (
    CHUNK,
    Polled,
    PolledRows,
    bad_header,
    envelopes,
    too_large,
)
from streamfactory.backends.kafka.native_library import (
    BAD_HEADER,
    NO_MEMORY,
    TOO_LARGE,
)
from streamfactory.spi import PermanentError, headers_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Consumer

    from streamfactory.backends.kafka.clients import Watch
    from streamfactory.backends.kafka.native_library import Library
    from streamfactory.compiled import kafka
    from streamfactory.compiled.buffers import Bytes
    from streamfactory.spi import Partition

_PASSING: Final = OF_TOPICS - {KafkaError.TOPIC_AUTHORIZATION_FAILED}
"""Errors of a partition that librdkafka reports to a callback and survives."""
_TIME: Final = pa.timestamp("us", tz="UTC")


class PartitionQueue:
    """The queue of the partition to which a client is assigned. For one thread.

    It contains messages, ends and errors of the partition. Events with callbacks stay
    in the client's own queue, which `serve` empties: confluent-kafka can handle them
    only within its own calls.

    Args:
        library: The compiled part.
        consumer: The client that this thread created last, with `Library.add_to`.
        watch: Receives errors of the topic, as it does from the client's callback.
    """

    def __init__(self, library: Library, consumer: Consumer, watch: Watch) -> None:
        self.library = library
        self.watch = watch
        self._consumer = consumer
        self.queue: kafka.Queue | None = None
        client = library.core.take_client()
        if client is None:
            consumer.close()
            msg = "the Kafka client did not pass itself to its plug-in"
            raise PermanentError(msg)
        self._client = client

    def open(self, partition: Partition) -> None:
        """Before the client is assigned: the queue takes the partition's messages."""
        self.close()
        self.queue = self._client.partition_queue(partition.topic, partition.id)
        if self.queue is None:
            msg = f"partition {partition} cannot be read: the client has no queue"
            raise PermanentError(msg)

    def close(self) -> None:
        """After the client is unassigned, and before it is closed."""
        queue, self.queue = self.queue, None
        if queue is not None:
            queue.purge()
            queue.close()

    def serve(self) -> KafkaError | None:
        """Run the client's callbacks; returns an error of the client, if any."""
        for message in self._consumer.consume(1, 0):
            error = message.error()
            if error is None:
                msg = f"offset {message.offset()} of {message.topic()} was delivered "
                msg += "outside of the queue of its partition"
                raise PermanentError(msg)
            return error
        return None


class NativeRows(PolledRows):
    """Rows in buffers of the compiled part.

    Args:
        queue: An open queue.
        partition: Its partition.
        headers: Whether headers are needed.
    """

    def __init__(
        self, queue: PartitionQueue, partition: Partition, *, headers: bool
    ) -> None:
        self._queue = queue
        self._partition = partition
        self._columns = queue.library.core.Columns(headers)

    @property
    def rows(self) -> int:
        return self._columns.rows

    @property
    def size(self) -> int:
        return self._columns.size

    @property
    def next_offset(self) -> int:
        return self._columns.next_offset

    def poll(self, wanted: int, most: int, wait: float) -> Polled:
        columns, queue = self._columns, self._queue
        error = None if columns.rows else queue.serve()
        if error is not None:
            return Polled(1, 0, None, error)
        assert queue.queue is not None
        status = columns.fill(queue.queue, wanted, most, math.ceil(1000 * wait))
        if status:
            raise failure_of(status, self._partition, self.next_offset)
        received, added, end, failure = columns.filled()
        if failure is not None:
            error = error_of(failure, queue.watch)
        elif not received and wait:
            error = queue.serve()
        return Polled(received, added, end, error)

    def drain(self, most: int, release: Callable[[], None]) -> None:
        while self.size < most:
            polled = self.poll(CHUNK, most, 0)
            if polled.received < CHUNK or polled.error or polled.end is not None:
                break  # messages after an event are fetched again
        release()

    def batch(self) -> pa.RecordBatch:
        return batch_of(self._columns, self._partition)


def batch_of(columns: kafka.Columns, partition: Partition) -> pa.RecordBatch:
    """All rows of a partition, as envelopes, whose buffers are those of the columns."""
    rows = columns.rows
    keys, values, offsets, times, kinds, headers = columns.take()
    return envelopes(
        partition,
        keys=_binary(keys, pa.binary(), rows),
        values=_binary(values, pa.binary(), rows),
        offsets=_array(pa.int64(), rows, None, offsets),
        times=_array(_TIME, rows, *times),
        kinds=_array(pa.int32(), rows, None, kinds),
        headers=None if headers is None else _lists(headers, rows),
    )


def _lists(headers: kafka.Headers, rows: int) -> pa.Array:
    count, valid, ends, names, values = headers
    pairs = [_binary(names, pa.string(), count), _binary(values, pa.binary(), count)]
    fields = list(headers_type().value_type)
    structs = pa.StructArray.from_arrays(pairs, fields=fields)
    buffers = [None if valid is None else pa.py_buffer(valid), pa.py_buffer(ends)]
    return pa.Array.from_buffers(headers_type(), rows, buffers, children=[structs])


def _binary(column: kafka.Binary, kind: pa.DataType, rows: int) -> pa.Array:
    return _array(kind, rows, *column)


def _array(kind: pa.DataType, rows: int, valid: Bytes | None, *rest: Bytes) -> pa.Array:
    buffers = [None if valid is None else pa.py_buffer(valid)]
    return pa.Array.from_buffers(kind, rows, [*buffers, *map(pa.py_buffer, rest)])


def error_of(failure: kafka.Failure, watch: Watch) -> KafkaError | None:
    """The error of the last call; None if it went to ``watch`` and may pass."""
    code, text = failure
    error = KafkaError(code, text or None)
    if code not in _PASSING:
        return error
    watch(error)
    return None


def failure_of(status: int, partition: Partition, offset: int) -> Exception:
    """The error for a status other than 0, which the compiled part returned."""
    where = f"partition {partition}, offset {offset}"
    if status == BAD_HEADER:
        return bad_header(partition, offset)
    if status == NO_MEMORY:
        return MemoryError(f"no memory for the messages of {where}")
    if status == TOO_LARGE:
        return too_large(partition, offset)
    return PermanentError(f"{where}: the compiled part failed ({status})")
