"""Rows that the compiled part passes from Arrow buffers to the client of a producer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from streamfactory.backends.kafka.native_library import NO_MEMORY
from streamfactory.backends.kafka.sending import SLICE, MessageSender, refusal
from streamfactory.spi import ClosedError, CorruptData, PermanentError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from streamfactory.backends.kafka.native_library import Library
    from streamfactory.backends.kafka.sending import Refusal
    from streamfactory.compiled import kafka

_CHUNK: Final = 8192
"""Messages between two polls for events of the client."""


class NativeSender(MessageSender):
    """Sends rows without Python's lock; delivery reports are counted by it.

    Args:
        library: The compiled part.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._connected: kafka.Client | None = None
        self._queued = 0

    def connect(self, settings: Mapping[str, Any]) -> Producer:
        producer = Producer(self._library.add_to(dict(settings)))
        self._connected = self._library.core.take_client()
        if self._connected is None:
            msg = "the Kafka client did not pass itself to its plug-in"
            raise PermanentError(msg)
        return producer

    @property
    def _client(self) -> kafka.Client:
        """The client, which ends with the producer."""
        if self._connected is None:
            msg = "the producer is closed"
            raise ClosedError(msg)
        return self._connected

    def send(self, topic: str, partition: int, rows: pa.RecordBatch) -> Iterator[None]:
        raw = self._rows(rows)
        while raw.next < rows.num_rows:
            before = raw.next
            status = self._client.send(topic, partition, raw, _CHUNK, int(1000 * SLICE))
            self._queued += raw.next - before
            if status == NO_MEMORY:
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
        self._client.reset_reports()

    @property
    def failure(self) -> Refusal | None:
        found = self._client.first_failure()
        if found is None:
            return None
        code, topic, partition, size = found
        return refusal(KafkaException(KafkaError(code)), topic, partition, size)

    def close(self) -> None:
        self._connected = None

    def check_delivered(self) -> None:
        missing = self._queued - self._client.delivered()
        if missing:
            msg = f"{missing} of {self._queued} messages were not acknowledged"
            raise KafkaException(KafkaError(KafkaError._FAIL, msg))

    def _rows(self, rows: pa.RecordBatch) -> kafka.Rows:
        key, value, timestamp, headers = (
            rows.column(name) for name in ("key", "value", "timestamp", "headers")
        )
        pairs = headers.values
        return self._library.core.Rows(
            rows.num_rows,
            _given(key),
            _given(value),
            _given(timestamp),
            _given(headers),
            len(pairs),
            _given(pairs.field("key")),
            _given(pairs.field("value")),
        )


def _given(column: pa.Array) -> kafka.Given:
    if column.null_count == len(column):
        return None
    return column.offset, column.buffers()
