"""Reading: server-sent events of one endpoint, numbered as they arrive."""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Collection, Sequence
from typing import ClassVar, Final

import httpx
import pyarrow as pa
from streamfactory import spi

from streamfactory_http.client import LATER, interrupt, make_client
from streamfactory_http.events import Event, EventParser, EventTooLong

_AGAIN: Final = 1.0
"""Seconds before a reconnection, unless the server asks for others."""
_SILENCE: Final = 60.0
"""Seconds without a byte after which a connection is made again."""


class Follower:
    """Receives events in a thread of its own, and reconnects at the last id.

    Args:
        config: The stream's configuration.
    """

    def __init__(self, config: spi.StreamConfig) -> None:
        self._config = config
        self.incarnation = uuid.uuid4().hex
        self._changed = threading.Condition()
        self._events: deque[Event] = deque()
        self._bytes = 0
        self._most: int = config["buffer.bytes"]
        self.first = 0
        """Offset of the first event that is held."""
        self._error: spi.StreamError | None = None
        self._connected = self._closed = False
        self._lost: tuple[float, spi.StreamError] | None = None
        """Since when the endpoint cannot be reached, and why; None while it can."""
        self._response: httpx.Response | None = None
        self._client = make_client(config)
        self._thread = threading.Thread(
            target=self._run, daemon=True, name="streamfactory-events"
        )
        self._thread.start()

    @property
    def next(self) -> int:
        """Offset that the next event gets."""
        return self.first + len(self._events)

    def wait_connected(self) -> None:
        """Wait until the endpoint has answered.

        Raises:
            spi.StreamError: It refused, or cannot be reached.
        """
        timeout = self._config["connection.timeout.millis"] / 1000
        with self._changed:
            self._changed.wait_for(lambda: self._connected or self._error, timeout)
            if self._error is not None:
                raise self._error
            if not self._connected:
                msg = "the endpoint does not answer"
                raise spi.StreamTimeout(msg, remedy="correct the url")

    def take(self, start: int, limits: spi.FetchLimits) -> list[Event]:
        """Events at or after an offset; those before it are dropped.

        Raises:
            spi.StreamError: The endpoint refused, sends no events, or is away.
        """
        deadline = time.monotonic() + limits.timeout
        with self._changed:
            while self._events and self.first < start:
                self._bytes -= self._events.popleft().size
                self.first += 1
            self._changed.notify_all()
            while not self._events and self._error is None:
                self._check_presence()
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            if not self._events and self._error is not None:
                raise self._error
            found: list[Event] = []
            size = 0
            for event in self._events:
                size += event.size
                if len(found) >= limits.max_rows or (found and size > limits.max_bytes):
                    break
                found.append(event)
            return found

    def close(self) -> None:
        """Stop receiving."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            answer = self._response
        if answer is not None:
            interrupt(answer)
        # A thread that still connects ends with its deadline.
        self._thread.join(0.5)
        self._client.close()

    def _check_presence(self) -> None:
        """Refuse to wait for an endpoint that has been away for too long.

        The connection is still tried again: the next call may find it.
        """
        if self._lost is None:
            return
        since, error = self._lost
        away = time.monotonic() - since
        if away > self._config["connection.timeout.millis"] / 1000:
            msg = f"the endpoint has not answered for {away:.0f} s: {error.what}"
            raise spi.ConnectionFailed(msg)

    def _run(self) -> None:
        parser = EventParser(self._config["max.event.bytes"])
        while not self._closed:
            try:
                self._follow(parser)
            except Exception as error:  # a thread that ends would leave readers waiting
                self._fail(error)
            with self._changed:
                if self._error is not None and not isinstance(
                    self._error, spi.TransientError
                ):
                    return
                pause = _AGAIN if parser.retry is None else parser.retry
                self._changed.wait_for(lambda: self._closed, pause)

    def _fail(self, error: Exception) -> None:
        match error:
            case spi.StreamError():
                found = error
            case EventTooLong():
                found = spi.MessageTooLarge(str(error), remedy="raise max.event.bytes")
            case httpx.LocalProtocolError():
                msg = f"the last event id cannot be sent in a header: {error}"
                remedy = "send event ids without control characters"
                found = spi.PermanentError(msg, remedy=remedy)
            case httpx.HTTPError() | httpx.StreamError():
                found = spi.ConnectionFailed(f"{type(error).__name__}: {error}")
            case _:
                found = spi.PluginError(f"{type(error).__name__}: {error}")
        with self._changed:
            if not (self._connected and isinstance(found, spi.TransientError)):
                self._error = found
            elif self._lost is None:
                self._lost = time.monotonic(), found
            self._changed.notify_all()

    def _follow(self, parser: EventParser) -> None:
        headers = [(b"accept", b"text/event-stream"), (b"cache-control", b"no-store")]
        if parser.id:
            headers.append((b"last-event-id", parser.id.strip()))
        timeout = self._config["connection.timeout.millis"] / 1000
        with self._client.stream(
            "GET",
            self._config["url"],
            headers=headers,
            timeout=httpx.Timeout(timeout, read=_SILENCE),
        ) as answer:
            _check(answer)
            with self._changed:
                self._connected, self._error, self._lost = True, None, None
                self._response = answer
                self._changed.notify_all()
            for chunk in answer.iter_raw():
                for event in parser.feed(chunk):
                    if not self._put(event):
                        return
                if self._closed:
                    return

    def _put(self, event: Event) -> bool:
        """Add an event, once there is room; False if it is closed."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._closed
                    or not self._events
                    or self._bytes + event.size <= self._most
                )
            )
            self._events.append(event)
            self._bytes += event.size
            self._changed.notify_all()
            return not self._closed


def _check(answer: httpx.Response) -> None:
    """Check that an answer has events.

    Raises:
        spi.StreamError: It has not.
    """
    status = answer.status_code
    if status in (401, 403, 407):
        msg = f"the endpoint refuses the credentials with {status}"
        raise spi.NotAuthorized(msg, remedy="set token")
    if status in LATER:
        msg = f"the endpoint answers {status}"
        raise spi.ConnectionFailed(msg)
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if status == 404:
        msg = "the endpoint does not exist (404)"
        raise spi.TopicNotFound(msg, remedy="correct the url")
    coding = answer.headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        msg = f"the endpoint sends events with content-encoding {coding!r}"
        remedy = "turn compression off for this url: the request asks for none"
        raise spi.PermanentError(msg, remedy=remedy)
    if status != 200 or kind != "text/event-stream":
        msg = f"the endpoint sends no events: status {status}, type {kind!r}"
        raise spi.PermanentError(msg, remedy="correct the url")


class HttpConsumer(spi.PartitionLevelConsumer):
    """Reads the events of a follower."""

    def __init__(self, follower: Follower, partition: spi.Partition) -> None:
        self._follower = follower
        self._partition = partition

    def fetch_messages(
        self, start: int, end: int | None, limits: spi.FetchLimits
    ) -> spi.Fetched:
        events = self._follower.take(start, limits)
        incarnation = self._follower.incarnation
        if not events:
            return spi.Fetched(None, start, incarnation=incarnation)
        first = self._follower.first
        return spi.Fetched(
            envelopes(self._partition, first, events),
            first + len(events),
            incarnation=incarnation,
        )


class HttpMetadata(spi.MetadataProvider):
    """The one partition of an endpoint."""

    def __init__(self, factory: HttpConsumerFactory) -> None:
        self._factory = factory

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[spi.Partition]
    ) -> Sequence[spi.PartitionInfo]:
        follower = self._factory.follower()
        return [
            spi.PartitionInfo(
                self._factory.partition,
                follower.first,
                None,
                incarnation=follower.incarnation,
            )
        ]

    def fetch_schema(self, topic: str) -> pa.Schema:
        return spi.envelope_schema()


class HttpConsumerFactory(spi.ConsumerFactory):
    """Follows one endpoint. No claims: an endpoint need not send anything again."""

    SURVIVES_FORK: ClassVar = False

    def __init__(self, config: spi.StreamConfig) -> None:
        super().__init__(config)
        self.partition = spi.Partition(config.topic, 0)
        self._lock = threading.Lock()
        self._follower: Follower | None = None

    def follower(self) -> Follower:
        """The follower of this factory, connected.

        Raises:
            spi.StreamError: The endpoint cannot be used.
        """
        with self._lock:
            if self._follower is None:
                self._follower = Follower(self.config)
            follower = self._follower
        follower.wait_connected()
        return follower

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: spi.Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> HttpConsumer:
        if partition != self.partition:
            msg = "an endpoint has the partition 0 alone"
            raise spi.TopicNotFound(msg, partition=partition)
        return HttpConsumer(self.follower(), partition)

    def create_metadata_provider(self, client_id: str) -> HttpMetadata:
        return HttpMetadata(self)

    def close(self) -> None:
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.close()


def envelopes(
    partition: spi.Partition, first: int, events: Sequence[Event]
) -> pa.RecordBatch:
    """Events as rows of `envelope_schema`: the key is the id of the event."""
    schema, count = spi.envelope_schema(), len(events)
    columns = {
        "key": [event.id or None for event in events],
        "value": [event.data for event in events],
        "topic": [partition.topic] * count,
        "partition": [partition.id] * count,
        "offset": [*range(first, first + count)],
        "timestamp": [None] * count,
        "timestampType": [-1] * count,
        "headers": [[("event", event.kind.encode())] for event in events],
    }
    arrays = [pa.array(columns[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
