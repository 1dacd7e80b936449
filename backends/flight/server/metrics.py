"""The metrics of a server of topics, and what records them while calls run."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import Metric, MetricKind, Recorder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_COUNTER, _GAUGE = MetricKind.COUNTER, MetricKind.GAUGE

STARTED: Final = Metric(
    "server.started.seconds",
    "When the server started, in seconds since 1970-01-01 UTC.",
    _GAUGE,
    "seconds",
)
DRAINING: Final = Metric(
    "server.draining",
    "1 while the server shuts down and refuses new calls, else 0.",
    _GAUGE,
)
CLIENTS: Final = Metric(
    "server.clients",
    "Users, or without `access.file` addresses, with an open call.",
    _GAUGE,
)
CALLS_OPEN: Final = Metric("server.calls.open", "Open calls.", _GAUGE)
CALLS: Final = Metric(
    "server.calls", "Calls that clients began.", _COUNTER, "", ("method",)
)
CALLS_FAILED: Final = Metric(
    "server.calls.failed",
    "Calls that ended with an error, by its code.",
    _COUNTER,
    "",
    ("method", "code"),
)
CALLS_REFUSED: Final = Metric(
    "server.calls.refused",
    "Calls beyond the limits `calls` and `calls.per.client`.",
    _COUNTER,
)
TOPICS: Final = Metric("server.topics", "Topics of the server.", _GAUGE)
TOPICS_OMITTED: Final = Metric(
    "server.topics.omitted",
    "Topics without metrics of their own: all topics together have more than 10,000 "
    "partitions, or the topic cannot be read.",
    _GAUGE,
)
PARTITIONS: Final = Metric("server.partitions", "Partitions.", _GAUGE, "", ("topic",))
EARLIEST: Final = Metric(
    "server.earliest.offset",
    "Offset of the first row still held.",
    _GAUGE,
    "",
    ("topic", "partition"),
)
LATEST: Final = Metric(
    "server.latest.offset",
    "Offset that the next row will get.",
    _GAUGE,
    "",
    ("topic", "partition"),
)
COMMITS: Final = Metric(
    "server.commits",
    "Epochs and plain puts that were appended through this server.",
    _COUNTER,
    "",
    ("topic",),
)
COMMITS_REPEATED: Final = Metric(
    "server.commits.repeated",
    "Commits without effect: their epoch had been committed before.",
    _COUNTER,
    "",
    ("topic",),
)
RECEIVED_ROWS: Final = Metric(
    "server.received.rows", "Rows that writers uploaded.", _COUNTER, "rows", ("topic",)
)
RECEIVED_BYTES: Final = Metric(
    "server.received.bytes",
    "Bytes that writers uploaded, as rows are in memory.",
    _COUNTER,
    "bytes",
    ("topic",),
)
SENT_ROWS: Final = Metric(
    "server.sent.rows", "Rows that were sent to readers.", _COUNTER, "rows", ("topic",)
)
SENT_BYTES: Final = Metric(
    "server.sent.bytes",
    "Bytes that were sent to readers, as rows are in memory.",
    _COUNTER,
    "bytes",
    ("topic",),
)
READERS: Final = Metric(
    "server.readers", "Open calls that read the topic.", _GAUGE, "", ("topic",)
)
READERS_STALLED: Final = Metric(
    "server.readers.stalled",
    "Open calls that took nothing for `stalled.after.millis` although rows are "
    "available.",
    _GAUGE,
    "",
    ("topic",),
)
READERS_LAG: Final = Metric(
    "server.readers.lag.rows",
    "Rows between the latest offset and the open call furthest behind.",
    _GAUGE,
    "rows",
    ("topic",),
)

GROUPS: Final = Metric(
    "server.groups", "Groups of readers that keep checkpoints here.", _GAUGE
)
CHECKPOINT_LAG: Final = Metric(
    "server.checkpoint.lag.rows",
    "Rows between the latest offsets and the checkpoints of a group, over the "
    "partitions that it has checkpoints of; for the first 1,000 groups by name.",
    _GAUGE,
    "rows",
    ("group", "topic"),
)
STAGED_BYTES: Final = Metric(
    "server.staged.bytes",
    "Bytes that are uploaded and neither committed nor discarded.",
    _GAUGE,
    "bytes",
)
STAGED_EXPIRED: Final = Metric(
    "server.staged.expired",
    "Uploads that were removed after `staged.timeout.millis`.",
    _COUNTER,
)

COUNTERS: Final = (
    CALLS,
    CALLS_FAILED,
    COMMITS,
    COMMITS_REPEATED,
    RECEIVED_ROWS,
    RECEIVED_BYTES,
    SENT_ROWS,
    SENT_BYTES,
    STAGED_EXPIRED,
)
METRICS: Final = (
    STARTED,
    DRAINING,
    CLIENTS,
    CALLS_OPEN,
    CALLS_REFUSED,
    *COUNTERS,
    STAGED_BYTES,
    TOPICS,
    TOPICS_OMITTED,
    PARTITIONS,
    EARLIEST,
    LATEST,
    READERS,
    READERS_STALLED,
    READERS_LAG,
    GROUPS,
    CHECKPOINT_LAG,
)
"""Every metric of the server."""


@final
class ReaderMeter:
    """Progress of one open call that reads a partition."""

    __slots__ = ("_meters", "next", "partition", "topic", "touched")

    def __init__(self, meters: Meters, topic: str, partition: int, start: int) -> None:
        self._meters = meters
        self.topic, self.partition, self.next = topic, partition, start
        self.touch()

    def touch(self) -> None:
        """Record that the client is active: it requests, or it waits for rows."""
        self.touched = time.monotonic()

    def sent(self, start: int, rows: int, size: int) -> None:
        """Record rows that the client has taken."""
        self.next = start + rows
        self.touch()
        self._meters.recorder.add(SENT_ROWS, self.topic, amount=rows)
        self._meters.recorder.add(SENT_BYTES, self.topic, amount=size)


@final
class Meters:
    """Metrics recorded by calls. Thread-safe."""

    def __init__(self) -> None:
        self.recorder = Recorder(COUNTERS)
        self.started = time.time()
        self._lock = threading.Lock()
        self._readers: set[ReaderMeter] = set()

    @contextmanager
    def reading(self, topic: str, partition: int, start: int) -> Iterator[ReaderMeter]:
        """The meter of a call that reads, while it is open."""
        meter = ReaderMeter(self, topic, partition, start)
        with self._lock:
            self._readers.add(meter)
        try:
            yield meter
        finally:
            with self._lock:
                self._readers.discard(meter)

    def readers(self) -> Collection[ReaderMeter]:
        """Of all open calls that read."""
        with self._lock:
            return list(self._readers)

    def received(self, topic: str, rows: int, size: int) -> None:
        """Record rows of a writer."""
        self.recorder.add(RECEIVED_ROWS, topic, amount=rows)
        self.recorder.add(RECEIVED_BYTES, topic, amount=size)

    def committed(self, topic: str, *, repeated: bool) -> None:
        """Record a commit."""
        self.recorder.add(COMMITS_REPEATED if repeated else COMMITS, topic)
