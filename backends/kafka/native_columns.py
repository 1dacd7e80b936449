"""Rows of one partition, copied by the compiled part from librdkafka's queue."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

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
from streamfactory.spi import PermanentError, headers_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Consumer

    from streamfactory.backends.kafka.clients import Watch
    from streamfactory.backends.kafka.native_library import (
        Binary,
        Buffer,
        Library,
        RawColumns,
    )
    from streamfactory.spi import Partition

_PASSING: Final = OF_TOPICS - {KafkaError.TOPIC_AUTHORIZATION_FAILED}
"""Errors of a partition that librdkafka reports to a callback and survives."""

_NO_MEMORY: Final = 1
_TOO_LARGE: Final = 2
_BAD_HEADER: Final = 3


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
        self._client = library.take_client()
        self.queue: int | None = None
        if self._client is None:
            consumer.close()
            msg = "the Kafka client did not pass itself to its plug-in"
            raise PermanentError(msg)

    def open(self, partition: Partition) -> None:
        """Before the client is assigned: the queue takes the partition's messages."""
        self.close()
        topic = partition.topic.encode()
        self.queue = self.library.open_queue(self._client, topic, partition.id)
        if self.queue is None:
            msg = f"partition {partition} cannot be read: the client has no queue"
            raise PermanentError(msg)

    def close(self) -> None:
        """After the client is unassigned, and before it is closed."""
        queue, self.queue = self.queue, None
        if queue is not None:
            self.library.purge_queue(queue)
            self.library.close_queue(queue)

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
    """Rows in buffers of the compiled part, which exist as long as a batch uses them.

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
        library = queue.library
        columns = library.new_columns(headers)
        self._columns = NativeColumns(library, columns, partition)

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
        raw = self._columns.raw
        error = None if raw.rows else self._queue.serve()
        if error is not None:
            return Polled(1, 0, None, error)
        millis = math.ceil(1000 * wait)
        status = self._queue.library.fill(
            self._columns.address, self._queue.queue, wanted, most, millis
        )
        if status:
            raise failure_of(status, self._partition, self.next_offset)
        if raw.error:
            error = error_of(raw, self._queue.watch)
        elif not raw.received and wait:
            error = self._queue.serve()
        return Polled(raw.received, raw.added, None if raw.end < 0 else raw.end, error)

    def drain(self, most: int, release: Callable[[], None]) -> None:
        while self.size < most:
            polled = self.poll(CHUNK, most, 0)
            if polled.received < CHUNK or polled.error or polled.end is not None:
                break  # messages after an event are fetched again
        release()

    def batch(self) -> pa.RecordBatch:
        return self._columns.batch()


class NativeColumns:
    """Rows of one partition in buffers of the compiled part.

    Args:
        library: The compiled part.
        columns: Address of the columns; freed after the last batch that uses them.
        partition: The partition.
    """

    def __init__(self, library: Library, columns: Any, partition: Partition) -> None:
        self._memory = _Memory(library, columns)
        self._partition = partition
        self.address = columns
        self.raw = self._memory.columns.contents

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.raw.rows)

    @property
    def size(self) -> int:
        """Bytes of keys, values and headers."""
        return int(self.raw.size)

    @property
    def next_offset(self) -> int:
        """After the last row."""
        return int(self.raw.next_offset)

    def batch(self) -> pa.RecordBatch:
        """All rows, as envelopes."""
        raw, rows = self.raw, self.rows
        times = [self._valid(raw.times_valid, raw.times_nulls), self._data(raw.micros)]
        time_type = pa.timestamp("us", tz="UTC")
        return envelopes(
            self._partition,
            keys=self._binary(raw.keys, pa.binary(), rows),
            values=self._binary(raw.values, pa.binary(), rows),
            offsets=pa.Array.from_buffers(
                pa.int64(), rows, [None, self._data(raw.offsets)], 0
            ),
            times=pa.Array.from_buffers(time_type, rows, times, raw.times_nulls),
            kinds=pa.Array.from_buffers(
                pa.int32(), rows, [None, self._data(raw.kinds)], 0
            ),
            headers=self._headers() if raw.header_count else None,
        )

    def _headers(self) -> pa.Array:
        raw, count = self.raw, self.raw.header_count
        header = headers_type().value_type
        pairs = [
            self._binary(raw.header_keys, pa.string(), count),
            self._binary(raw.header_values, pa.binary(), count),
        ]
        structs = pa.StructArray.from_arrays(pairs, fields=list(header))
        lists = [
            self._valid(raw.header_valid, raw.header_nulls),
            self._data(raw.header_lists),
        ]
        return pa.Array.from_buffers(
            headers_type(), self.rows, lists, raw.header_nulls, children=[structs]
        )

    def _binary(self, column: Binary, kind: pa.DataType, count: int) -> pa.Array:
        buffers = [
            self._valid(column.valid, column.nulls),
            self._data(column.offsets),
            self._data(column.data),
        ]
        return pa.Array.from_buffers(kind, count, buffers, column.nulls)

    def _valid(self, bits: Buffer, nulls: int) -> pa.Buffer | None:
        return self._data(bits) if nulls else None

    def _data(self, buffer: Buffer) -> pa.Buffer:
        if not buffer.data:
            return pa.py_buffer(b"")
        return pa.foreign_buffer(buffer.data, buffer.used, self._memory)


def error_of(raw: RawColumns, watch: Watch) -> KafkaError | None:
    """The error of the last call; None if it went to ``watch`` and may pass."""
    error = KafkaError(raw.error, raw.reason.decode(errors="replace") or None)
    if raw.error not in _PASSING:
        return error
    watch(error)
    return None


def failure_of(status: int, partition: Partition, offset: int) -> Exception:
    """The error for a status other than 0, which the compiled part returned."""
    where = f"partition {partition}, offset {offset}"
    if status == _BAD_HEADER:
        return bad_header(partition, offset)
    if status == _NO_MEMORY:
        return MemoryError(f"no memory for the messages of {where}")
    if status == _TOO_LARGE:
        return too_large(partition, offset)
    return PermanentError(f"{where}: the compiled part failed ({status})")


class _Memory:
    """The buffers of one batch, freed with the last object that refers to them."""

    def __init__(self, library: Library, columns: Any) -> None:
        self._free = library.free_columns
        self.columns = columns
        if not self.columns:
            raise MemoryError

    def __del__(self) -> None:
        self._free(self.columns)
