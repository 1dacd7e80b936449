"""The state of the server: samples of its metrics, and its health."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, final

from streamfactory.backends.flight.server import metrics
from streamfactory.spi import Sample, StreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streamfactory.arrowlog import LaneBounds
    from streamfactory.backends.flight.server.disclosure import ServedStore
    from streamfactory.backends.flight.server.limits import Limits
    from streamfactory.backends.flight.server.uploads import Uploads

_MOST_PARTITIONS: Final = 10_000
"""That samples are taken of."""
_FRESH_SECONDS: Final = 1.0
"""How long the bounds of all topics are used again: they are read from the store."""


@final
class Statistics:
    """Samples of all metrics of a server. Thread-safe.

    Args:
        store: The topics.
        uploads: With what calls record.
        limits: Counts open calls.
        stopping: Set when the server shuts down.
        stalled_after: Seconds without activity after which a reader is stalled.
    """

    def __init__(
        self,
        store: ServedStore,
        uploads: Uploads,
        limits: Limits,
        stopping: threading.Event,
        stalled_after: float,
    ) -> None:
        self._store = store
        self._uploads, self._limits = uploads, limits
        self._meters = uploads.meters
        self._stopping = stopping
        self._stalled_after = stalled_after
        self._lock = threading.Lock()
        self._bounds: Mapping[str, Sequence[LaneBounds]] = {}
        self._names: Sequence[str] = ()
        self._surveyed = -_FRESH_SECONDS

    def samples(self, readable: Callable[[str], bool] = lambda _: True) -> list[Sample]:
        """One sample for each metric and each set of its labels.

        Args:
            readable: Whether the caller may see a topic.

        Raises:
            StreamError: The store cannot be read.
        """
        names, bounds = self._survey()
        found = [*self._server(names, bounds), *self._topics(bounds)]
        return [sample for sample in found if _visible(sample, readable)]

    def problems(self) -> list[str]:
        """Why the server cannot serve, one line each; empty when it can."""
        found = []
        if self._stopping.is_set():
            found.append("the server is shutting down")
        try:
            self._store.names()
        except StreamError as error:
            found.append(self._store.disclosure.public(f"{error.code}: {error.what}"))
        return found

    def _server(
        self, names: Sequence[str], bounds: Mapping[str, Sequence[LaneBounds]]
    ) -> Iterator[Sample]:
        limits = self._limits
        self._meters.recorder.keep("topic", frozenset(names))
        for metric, value in (
            (metrics.STARTED, self._meters.started),
            (metrics.DRAINING, self._stopping.is_set()),
            (metrics.CLIENTS, limits.clients),
            (metrics.CALLS_OPEN, limits.open_calls),
            (metrics.CALLS_REFUSED, limits.refused),
            (metrics.STAGED_BYTES, self._uploads.staged.total),
            (metrics.TOPICS, len(names)),
            (metrics.TOPICS_OMITTED, len(names) - len(bounds)),
        ):
            yield Sample(metric, (), float(value))
        yield from self._meters.recorder.samples()

    def _topics(self, bounds: Mapping[str, Sequence[LaneBounds]]) -> Iterator[Sample]:
        for topic, lanes in bounds.items():
            yield Sample(metrics.PARTITIONS, (topic,), len(lanes))
            for lane in lanes:
                labels = (topic, str(lane.id))
                yield Sample(metrics.EARLIEST, labels, lane.earliest)
                yield Sample(metrics.LATEST, labels, lane.latest)
        now = time.monotonic()
        open_calls = dict.fromkeys(bounds, 0)
        stalled, lags = dict(open_calls), dict(open_calls)
        for reader in self._meters.readers():
            latest = _latest(bounds.get(reader.topic, ()), reader.partition)
            if latest is None:
                continue
            behind = max(0, latest - reader.next)
            open_calls[reader.topic] += 1
            lags[reader.topic] = max(lags[reader.topic], behind)
            if behind and now - reader.touched >= self._stalled_after:
                stalled[reader.topic] += 1
        for topic in bounds:
            yield Sample(metrics.READERS, (topic,), open_calls[topic])
            yield Sample(metrics.READERS_STALLED, (topic,), stalled[topic])
            yield Sample(metrics.READERS_LAG, (topic,), lags[topic])

    def _survey(self) -> tuple[Sequence[str], Mapping[str, Sequence[LaneBounds]]]:
        """Names of all topics, and the bounds of those that samples are taken of."""
        with self._lock:
            if time.monotonic() - self._surveyed >= _FRESH_SECONDS:
                self._names, self._bounds = self._read()
                self._surveyed = time.monotonic()
            return self._names, self._bounds

    def _read(self) -> tuple[Sequence[str], Mapping[str, Sequence[LaneBounds]]]:
        names = self._store.names()
        found: dict[str, Sequence[LaneBounds]] = {}
        left = _MOST_PARTITIONS
        for name in names:
            try:
                lanes = self._store.open(name).bounds()
            except StreamError:  # deleted meanwhile, or damaged: opening it says so
                continue
            if len(lanes) <= left:
                found[name] = lanes
                left -= len(lanes)
        return names, found


def _latest(lanes: Sequence[LaneBounds], partition: int) -> int | None:
    return next((lane.latest for lane in lanes if lane.id == partition), None)


def _visible(sample: Sample, readable: Callable[[str], bool]) -> bool:
    labels = dict(zip(sample.metric.labels, sample.labels, strict=True))
    return "topic" not in labels or readable(labels["topic"])
