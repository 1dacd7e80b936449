"""Rows that the compiled part passes from Arrow buffers to the client of a producer."""

from __future__ import annotations

from ctypes import byref
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from streamfactory.backends.kafka.native_library import Failure, RawRows, Values
from streamfactory.backends.kafka.sending import SLICE, MessageSender, refusal
from streamfactory.spi import ClosedError, CorruptData, PermanentError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from streamfactory.backends.kafka.native_library import Library
    from streamfactory.backends.kafka.sending import Refusal

_CHUNK: Final = 8192
"""Messages between two polls for events of the client."""
_NO_MEMORY: Final = 1


class NativeSender(MessageSender):
    """Sends rows without Python's lock; delivery reports are counted in C.

    Args:
        library: The compiled part.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._address: int | None = None
        self._queued = 0

    def connect(self, settings: Mapping[str, Any]) -> Producer:
        producer = Producer(self._library.add_to(dict(settings)))
        self._address = self._library.take_client()
        if self._address is None:
            msg = "the Kafka client did not pass itself to its plug-in"
            raise PermanentError(msg)
        return producer

    @property
    def _client(self) -> int:
        """The address of the client, which is freed with the producer."""
        if self._address is None:
            msg = "the producer is closed"
            raise ClosedError(msg)
        return self._address

    def send(self, topic: str, partition: int, rows: pa.RecordBatch) -> Iterator[None]:
        raw, name = _raw(rows), topic.encode()
        while raw.next < raw.count:
            before = raw.next
            status = self._library.send(
                self._client, name, partition, byref(raw), _CHUNK, int(1000 * SLICE)
            )
            self._queued += raw.next - before
            if status == _NO_MEMORY:
                msg = f"no memory for messages of {topic}-{partition}"
                raise MemoryError(msg)
            if status:
                msg = f"rows for {topic}-{partition} have offsets outside of their data"
                raise CorruptData(msg)
            if raw.error:
                # As the Python client words it.
                reason = f"Unable to produce message: {KafkaError(raw.error).str()}"
                error = KafkaException(KafkaError(raw.error, reason))
                value = rows.column("value")[raw.next].as_py()
                raise refusal(error, topic, partition, len(value or b""))
            yield

    def forget(self) -> None:
        self._queued = 0
        self._library.reset_reports(self._client)

    @property
    def failure(self) -> Refusal | None:
        found = Failure()
        if not self._library.first_failure(self._client, byref(found)):
            return None
        error = KafkaException(KafkaError(found.error))
        return refusal(error, found.topic.decode(), found.partition, found.size)

    def close(self) -> None:
        self._address = None

    def check_delivered(self) -> None:
        missing = self._queued - self._library.delivered(self._client)
        if missing:
            msg = f"{missing} of {self._queued} messages were not acknowledged"
            raise KafkaException(KafkaError(KafkaError._FAIL, msg))


def _raw(rows: pa.RecordBatch) -> RawRows:
    """Addresses of the buffers, which live as long as the rows."""
    key, value, timestamp, headers = (
        rows.column(name) for name in ("key", "value", "timestamp", "headers")
    )
    raw = RawRows(count=rows.num_rows, keys=_values(key), values=_values(value))
    if timestamp.null_count < len(timestamp):
        valid, micros = timestamp.buffers()
        raw.times_valid, raw.micros = _start(valid), micros.address
        raw.times_first = timestamp.offset
    if headers.null_count < len(headers):
        pairs = headers.values
        valid, offsets = headers.buffers()[:2]
        raw.headers = Values(
            _start(valid), offsets.address, None, len(pairs), headers.offset
        )
        raw.header_keys = _values(pairs.field("key"))
        raw.header_values = _values(pairs.field("value"))
    return raw


def _values(column: pa.Array) -> Values:
    if column.null_count == len(column):
        return Values()  # all are null
    valid, offsets, data = column.buffers()
    size = 0 if data is None else data.size
    return Values(_start(valid), offsets.address, _start(data), size, column.offset)


def _start(buffer: pa.Buffer | None) -> int | None:
    return None if buffer is None else int(buffer.address)
