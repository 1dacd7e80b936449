"""Conversion of the client's messages to envelope columns.

Mapping unbound methods over a list is the fastest way in Python. Messages are converted
in chunks of 500: with more live objects, Python's garbage collector becomes expensive.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, Message

from streamfactory.spi import (
    CorruptData,
    Partition,
    PermanentError,
    envelope_schema,
    headers_type,
)
from streamfactory.spi.envelope import TIMESTAMP_UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from confluent_kafka import Consumer
    from numpy.typing import NDArray

    Numbers = NDArray[Any]

CHUNK: Final = 500
_LARGEST: Final = 2**31 - 1
"""Maximum bytes of a binary column."""
_HEADER: Final = 8
"""Bytes of a header besides its name and value; `HEADER_BYTES` of the
compiled core."""
_TIME: Final = pa.timestamp("us", tz="UTC")
_BINARY: Final = pa.binary()


@dataclass(frozen=True, slots=True)
class Polled:
    """What one poll returned."""

    received: int
    """Messages and events. Fewer than requested: the queue is empty, or the rows have
    as many bytes as were wanted."""
    added: int
    """Rows."""
    end: int | None = None
    """The end of the partition, if it was reached."""
    error: KafkaError | None = None
    """An error after the rows."""


def next_chunk(rows: int, size: int, most: int) -> int:
    """How many messages to poll next, if they are as long as those before.

    The client makes objects of all messages, with their headers, that it returns.

    Args:
        rows: Number of those before.
        size: Their bytes.
        most: Bytes of a batch.
    """
    return max(1, min(CHUNK, (most - size) * rows // max(1, size)))


class PolledRows(ABC):
    """The rows of one batch, of the partition to which a client is assigned."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """Number of rows."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Bytes of keys, values and headers."""

    @property
    @abstractmethod
    def next_offset(self) -> int:
        """After the last row."""

    @abstractmethod
    def poll(self, wanted: int, most: int, wait: float) -> Polled:
        """Add up to ``wanted`` messages, waiting for them for ``wait`` seconds.

        No message is added to rows of ``most`` bytes; the Python client counts after
        each poll, not after each message.
        """

    @abstractmethod
    def drain(self, most: int, release: Callable[[], None]) -> None:
        """Add queued messages of about ``most`` bytes, and release the client.

        The client is released before anything that takes long: it sends its next
        request soon after its queue is empty.
        """

    @abstractmethod
    def batch(self) -> pa.RecordBatch:
        """All rows, as envelopes. Called once, for at least one row."""


class Columns:
    """Collects chunks of messages of one partition.

    Args:
        partition: The partition of the messages.
        headers: Whether headers are needed.
    """

    def __init__(self, partition: Partition, *, headers: bool) -> None:
        self._partition = partition
        self.wants_headers = headers
        self._keys: list[pa.Array] = []
        self._values: list[pa.Array] = []
        self._offsets: list[Numbers] = []
        self._millis: list[Numbers] = []
        self._kinds: list[Numbers] = []
        self._headers: list[pa.Array] = []
        self.rows = 0
        self.size = 0
        """Bytes of keys, values and headers."""
        self.next_offset = 0
        """After the last message."""

    def add(self, messages: Sequence[Message]) -> None:
        """Add messages, without events."""
        count = len(messages)
        keys = self._binary(messages, list(map(Message.key, messages)))
        values = self._binary(messages, list(map(Message.value, messages)))
        offsets = np.fromiter(map(Message.offset, messages), np.int64, count)
        # Alternating kind and milliseconds: building pairs costs three times as much.
        pairs = chain.from_iterable(map(Message.timestamp, messages))
        times = np.fromiter(pairs, np.int64, 2 * count)
        self._keys.append(keys)
        self._values.append(values)
        self._offsets.append(offsets)
        self._millis.append(times[1::2])
        self._kinds.append(times[::2])
        self.size += _data_size(keys) + _data_size(values)
        if self.wants_headers:
            headers = _headers(messages, self._partition)
            self._headers.append(headers)
            self.size += _headers_size(headers)
        if self.size > _LARGEST:
            raise too_large(self._partition, int(offsets[0]))
        self.rows += count
        self.next_offset = int(offsets[-1]) + 1

    def _binary(
        self, messages: Sequence[Message], values: list[bytes | None]
    ) -> pa.Array:
        column = pa.array(values, _BINARY)
        if isinstance(column, pa.ChunkedArray):  # it did not fit into one array
            first = messages[len(column.chunk(0))]
            raise too_large(self._partition, first.offset() or 0)
        return column

    def batch(self) -> pa.RecordBatch:
        """All added messages, as envelopes."""
        # The client's numbers start with 0 for unknown.
        kinds = (np.concatenate(self._kinds) - 1).astype(np.int32)
        unknown = kinds == TIMESTAMP_UNKNOWN
        micros = np.concatenate(self._millis) * 1000
        times = pa.array(micros, mask=unknown if unknown.any() else None)
        return envelopes(
            self._partition,
            keys=pa.concat_arrays(self._keys),
            values=pa.concat_arrays(self._values),
            offsets=pa.array(np.concatenate(self._offsets)),
            times=times.view(_TIME),
            kinds=pa.array(kinds),
            headers=pa.concat_arrays(self._headers) if self._headers else None,
        )


class ConsumedRows(PolledRows):
    """Rows of messages that a client's ``consume`` returns.

    Args:
        consumer: The client.
        partition: The partition to which it is assigned.
        headers: Whether headers are needed.
    """

    def __init__(
        self, consumer: Consumer, partition: Partition, *, headers: bool
    ) -> None:
        self._consumer = consumer
        self._columns = Columns(partition, headers=headers)

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
        messages = self._consumer.consume(wanted, wait)
        received, end, error = len(messages), None, None
        if any(map(Message.error, messages)):
            messages, end, error = _without_events(messages)
        if messages:
            self._columns.add(messages)
        return Polled(received, len(messages), end, error)

    def drain(self, most: int, release: Callable[[], None]) -> None:
        queued, count, size = [], 0, 0
        while max(size, self.size) < most:
            wanted = next_chunk(max(count, self.rows), max(size, self.size), most)
            messages = self._consumer.consume(wanted, 0)
            if any(map(Message.error, messages)):
                break  # messages after an event are fetched again
            if messages and self._columns.wants_headers:
                self._columns.add(messages)  # only columns have the size of headers
            elif messages:
                queued.append(messages)
                count += len(messages)
                size += sum(map(len, messages))
            if len(messages) < wanted:
                break
        release()
        for messages in queued:
            self._columns.add(messages)

    def batch(self) -> pa.RecordBatch:
        return self._columns.batch()


def _without_events(
    messages: list[Message],
) -> tuple[list[Message], int | None, KafkaError | None]:
    """The messages before an error, the end of the partition, and the error."""
    kept, end = [], None
    for message in messages:
        error = message.error()
        if error is None:
            kept.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            # After control records and aborted rows, which are not returned.
            end = message.offset()
        elif not error.retriable():
            return kept, end, error
    return kept, end, None


def envelopes(
    partition: Partition,
    *,
    keys: pa.Array,
    values: pa.Array,
    offsets: pa.Array,
    times: pa.Array,
    kinds: pa.Array,
    headers: pa.Array | None,
) -> pa.RecordBatch:
    """A batch of envelopes of one partition, from the columns that differ by row."""
    rows = len(offsets)
    columns = [
        keys,
        values,
        pa.repeat(partition.topic, rows),
        pa.array(np.full(rows, partition.id, np.int32)),
        offsets,
        times,
        kinds,
        pa.nulls(rows, headers_type()) if headers is None else headers,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=envelope_schema())


@dataclass(slots=True)
class Kept:
    """Rows fetched beyond a range: all rows from ``start`` to ``end``."""

    rows: pa.RecordBatch
    """Envelopes."""
    start: int
    end: int
    """Exclusive. There is no other row between the last one and this offset."""

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return int(self.rows.nbytes)

    def holds(self, offset: int) -> bool:
        """Whether all rows from an offset to `end` are contained."""
        return self.start <= offset < self.end

    def split(
        self, start: int, end: int | None, most: int
    ) -> tuple[pa.RecordBatch, int, Kept | None]:
        """The rows from ``start`` to ``end``, the offset after them, and the rest.

        Args:
            start: A contained offset.
            end: Exclusive; None for no end.
            most: Maximum number of rows.
        """
        offsets = self.rows.column("offset").to_numpy()
        first = int(np.searchsorted(offsets, start))
        stop = len(offsets) if end is None else int(np.searchsorted(offsets, end))
        after = self.end if end is None else min(self.end, end)
        if stop - first > most:
            stop = first + most
            after = int(offsets[stop - 1]) + 1
        rest = None
        if after < self.end:
            rest = Kept(self.rows.slice(stop), after, self.end)
        return self.rows.slice(first, stop - first), after, rest


def payload_size(rows: pa.RecordBatch) -> int:
    """Bytes of the keys, values and headers of envelopes."""
    lengths = (pc.sum(pc.binary_length(rows.column(name))) for name in ("key", "value"))
    size = sum(length.as_py() or 0 for length in lengths)
    return size + _headers_size(rows.column("headers"))


def _headers_size(column: pa.Array) -> int:
    """Bytes of the names, values, and ends of both, of a column of headers."""
    if column.null_count == len(column):
        return 0
    pairs = column.flatten()
    lengths = (pc.sum(pc.binary_length(part)) for part in pairs.flatten())
    sizes = sum(length.as_py() or 0 for length in lengths)
    return int(sizes + _HEADER * len(pairs))


def _data_size(column: pa.Array) -> int:
    """Bytes of the values of a new column; ``nbytes`` takes ten times as long."""
    data = column.buffers()[2]
    return 0 if data is None else int(data.size)


def bad_header(partition: Partition, offset: int) -> CorruptData:
    """The error for a message with a header whose name is not UTF-8."""
    msg = f"partition {partition}, offset {offset}: the name of a header is not UTF-8"
    remedy = "start after this offset, or use a decoder without headers"
    return CorruptData(msg, remedy=remedy)


def too_large(partition: Partition, offset: int) -> PermanentError:
    """The error for a message that does not fit into a batch."""
    msg = f"partition {partition}, offset {offset}: the message makes a batch larger "
    msg += "than 2 GiB, with its key and headers"
    remedy = "lower batch.bytes and consumer.prop.queued.max.messages.kbytes; if the "
    remedy += "message alone is larger, start after this offset"
    return PermanentError(msg, remedy=remedy)


def _headers(messages: Sequence[Message], partition: Partition) -> pa.Array:
    """Headers, flattened: a list of pairs each, or None."""
    each: list[Any] = []
    try:
        each.extend(map(Message.headers, messages))
    except SystemError as error:
        # confluent-kafka 2.16 returns a result with the error of the decoding set.
        raise bad_header(partition, messages[len(each)].offset() or 0) from error
    if not any(each):
        return pa.nulls(len(each), headers_type())
    lengths = np.fromiter((len(h) if h else 0 for h in each), np.int32, len(each))
    ends = np.cumsum(lengths, dtype=np.int32)
    pairs = list(chain.from_iterable(filter(None, each)))
    keys, values = zip(*pairs, strict=True)
    structs = pa.StructArray.from_arrays(
        [pa.array(keys, pa.string()), pa.array(values, pa.binary())],
        fields=list(headers_type().value_type),
    )
    starts = np.concatenate(([np.int32(0)], ends))
    missing = np.fromiter((not h for h in each), np.bool_, len(each))
    return pa.ListArray.from_arrays(
        pa.array(starts, pa.int32()),
        structs,
        type=headers_type(),
        mask=pa.array(missing),
    )
