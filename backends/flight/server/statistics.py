"""The state of the server: samples of its metrics, and its health."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from streamfactory.backends.flight.server import metrics
from streamfactory.spi import Sample, StreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streamfactory.arrowlog import PartitionBounds
    from streamfactory.backends.flight.server.checkpoints import CheckpointKeeper
    from streamfactory.backends.flight.server.limits import Limits
    from streamfactory.backends.flight.server.redaction import ServedStore
    from streamfactory.backends.flight.server.uploads import Uploads

_MOST_PARTITIONS: Final = 10_000
"""Maximum partitions with separate samples."""
_MOST_GROUPS: Final = 1_000
_FRESH_SECONDS: Final = 1.0
"""Seconds for which data of the store is cached."""


@final
@dataclass(frozen=True, slots=True)
class _Survey:
    """Snapshot of the store."""

    names: Sequence[str] = ()
    """Number of all topics."""
    groups: Sequence[str] = ()
    """Number of all groups of readers."""
    bounds: Mapping[str, Mapping[int, PartitionBounds]] = field(default_factory=dict)
    """By topic and partition, of the topics that samples are taken of."""
    lags: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Lag of the checkpoints, by group and topic."""


@final
class Statistics:
    """Samples of all metrics of a server. Thread-safe.

    Args:
        store: The topics.
        checkpoints: Those of groups of readers.
        uploads: With what calls record.
        limits: Counts open calls.
        stopping: Set when the server shuts down.
        stalled_after: Seconds without activity after which a reader is stalled.
    """

    def __init__(
        self,
        store: ServedStore,
        checkpoints: CheckpointKeeper,
        uploads: Uploads,
        limits: Limits,
        stopping: threading.Event,
        stalled_after: float,
    ) -> None:
        self._store, self._checkpoints = store, checkpoints
        self._uploads, self._limits = uploads, limits
        self._meters = uploads.meters
        self._stopping = stopping
        self._stalled_after = stalled_after
        self._lock = threading.Lock()
        self._found = _Survey()
        self._surveyed = -_FRESH_SECONDS

    def samples(
        self,
        readable: Callable[[str], bool] = lambda _: True,
        readable_group: Callable[[str], bool] = lambda _: True,
    ) -> list[Sample]:
        """One sample for each metric and each set of its labels.

        Args:
            readable: Whether the caller may see a topic.
            readable_group: Whether the caller may see a group.

        Raises:
            StreamError: The store cannot be read.
        """
        survey = self._survey()
        visible = {"topic": readable, "group": readable_group}
        return [
            sample
            for part in (self._server, self._topics, self._readers, self._groups)
            for sample in part(survey)
            if all(
                visible[label](value)
                for label, value in zip(
                    sample.metric.labels, sample.labels, strict=True
                )
                if label in visible
            )
        ]

    def problems(self) -> list[str]:
        """Why the server cannot serve, one line each; empty when it can."""
        found = []
        if self._stopping.is_set():
            found.append("the server is shutting down")
        try:
            self._store.names()
        except StreamError as error:
            found.append(self._store.redactor.public(f"{error.code}: {error.what}"))
        return found

    def _server(self, survey: _Survey) -> Iterator[Sample]:
        limits, names = self._limits, survey.names
        self._meters.recorder.keep("topic", frozenset(names))
        for metric, value in (
            (metrics.STARTED, self._meters.started),
            (metrics.DRAINING, self._stopping.is_set()),
            (metrics.CLIENTS, limits.clients),
            (metrics.CALLS_OPEN, limits.open_calls),
            (metrics.CALLS_REFUSED, limits.refused),
            (metrics.STAGED_BYTES, self._uploads.staged.total),
            (metrics.TOPICS, len(names)),
            (metrics.TOPICS_OMITTED, len(names) - len(survey.bounds)),
            (metrics.GROUPS, len(survey.groups)),
        ):
            yield Sample(metric, (), float(value))
        yield from self._meters.recorder.samples()

    def _topics(self, survey: _Survey) -> Iterator[Sample]:
        for topic, partitions in survey.bounds.items():
            yield Sample(metrics.PARTITIONS, (topic,), len(partitions))
            for partition in partitions.values():
                labels = (topic, str(partition.id))
                yield Sample(metrics.EARLIEST, labels, partition.earliest)
                yield Sample(metrics.LATEST, labels, partition.latest)

    def _readers(self, survey: _Survey) -> Iterator[Sample]:
        now = time.monotonic()
        open_calls = dict.fromkeys(survey.bounds, 0)
        stalled, lags = dict(open_calls), dict(open_calls)
        for reader in self._meters.readers():
            partition = survey.bounds.get(reader.topic, {}).get(reader.partition)
            if partition is None:
                continue
            behind = max(0, partition.latest - reader.next)
            open_calls[reader.topic] += 1
            lags[reader.topic] = max(lags[reader.topic], behind)
            if behind and now - reader.touched >= self._stalled_after:
                stalled[reader.topic] += 1
        for topic in survey.bounds:
            yield Sample(metrics.READERS, (topic,), open_calls[topic])
            yield Sample(metrics.READERS_STALLED, (topic,), stalled[topic])
            yield Sample(metrics.READERS_LAG, (topic,), lags[topic])

    def _groups(self, survey: _Survey) -> Iterator[Sample]:
        for labels, lag in survey.lags.items():
            yield Sample(metrics.CHECKPOINT_LAG, labels, lag)

    def _survey(self) -> _Survey:
        with self._lock:
            if time.monotonic() - self._surveyed >= _FRESH_SECONDS:
                self._found = self._read()
                self._surveyed = time.monotonic()
            return self._found

    def _read(self) -> _Survey:
        names, groups = self._store.names(), self._checkpoints.groups()
        bounds: dict[str, Mapping[int, PartitionBounds]] = {}
        incarnations: dict[str, str] = {}
        left = _MOST_PARTITIONS
        for name in names:
            try:
                log = self._store.open(name)
                edges = {edge.id: edge for edge in log.bounds()}
            except (
                StreamError
            ):  # deleted meanwhile, or corrupt: opening it reports the error
                continue
            if len(edges) <= left:
                bounds[name], incarnations[name] = edges, log.incarnation
                left -= len(edges)
        lags: dict[tuple[str, str], int] = {}
        for group in groups[:_MOST_GROUPS]:
            try:
                offsets = self._checkpoints.offsets(group)
            except StreamError:
                continue
            for (partition, incarnation), offset in offsets.items():
                topic = partition.topic
                edge = bounds.get(topic, {}).get(partition.id)
                # Offsets of an earlier topic of the name count other rows.
                if edge is not None and incarnation in {None, incarnations[topic]}:
                    behind = max(0, edge.latest - offset)
                    lags[group, topic] = lags.get((group, topic), 0) + behind
        return _Survey(names, groups, bounds, lags)
