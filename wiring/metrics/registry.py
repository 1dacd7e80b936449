"""The metrics of this process: what counts registers itself, and endpoints read it.

Readers, writers and committers count in plain attributes of their own. Nothing is
locked or looked up while they work: their counts are read at each scrape.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol, final

from streamfactory.spi import Metric, MetricKind, Sample
from streamfactory.wiring.metrics.vocabulary import METRICS, PROCESS_STARTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MOST_SERIES: Final = 1000
"""Sets of labels, at the most, for each metric and each value of its first label; and
values of the first label. What comes later is counted under `OTHER`."""
OTHER: Final = "other"
"""Value of labels beyond `MOST_SERIES`."""

_COUNTER: Final = MetricKind.COUNTER
"""To look a member up in its class takes longer than the rest of a merge."""
_Key = tuple[str, tuple[str, ...]]
"""Name of a metric, whose hash is cheap, and values of its labels."""


class Tally(Protocol):
    """Something that counts. Called from any thread."""

    def counters(self) -> Iterable[Sample]:
        """Its counters at this moment. Does not block."""

    def gauges(self) -> Iterable[Sample]:
        """Its gauges at this moment; may block. Not called once it has ended."""


@final
class Registry:
    """The metrics of one process. Thread-safe.

    Args:
        metrics: What samples may be of.
    """

    def __init__(self, metrics: Sequence[Metric] = METRICS) -> None:
        self.metrics = tuple(metrics)
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.RLock()
        self._numbers = 0
        self._live: dict[int, Tally] = {}
        # Finalisers run at any point of any thread: they only append here.
        self._ended: deque[int] = deque()
        self._totals: dict[_Key, float] = {}
        # By names of labels.
        self._admitted: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
        self._counts: dict[tuple[str, ...], dict[str, int]] = {}
        self._started = time.time()

    def track(self, owner: object, tally: Tally) -> Callable[[], object]:
        """Read a tally from now on, until its owner is collected.

        Args:
            owner: What counts. Not kept alive.
            tally: Its counts; does not refer to the owner.

        Returns:
            Ends it: counters keep their value, gauges disappear. Twice is allowed.
        """
        with self._lock:
            self._fold()
            self._numbers += 1
            number = self._numbers
            self._live[number] = tally
        end = weakref.finalize(owner, self._ended.append, number)
        end.atexit = False
        return end

    def samples(self) -> list[Sample]:
        """All values at this moment, by the order of the metrics and by labels."""
        with self._lock:
            self._fold()
            merged = dict(self._totals)
            live = list(self._live.values())
        found = [[*tally.counters(), *tally.gauges()] for tally in live]
        with self._lock:
            for samples in found:
                self._merge(merged, samples)
        merged[PROCESS_STARTED.name, ()] = self._started
        place = {metric.name: index for index, metric in enumerate(self.metrics)}
        ordered = sorted(merged.items(), key=lambda one: (place[one[0][0]], one[0][1]))
        return [
            Sample(self.metrics[place[name]], labels, value)
            for (name, labels), value in ordered
        ]

    def clear(self) -> None:
        """Forget all values: for a child after a fork, and for tests."""
        self._reset()

    def _fold(self) -> None:
        """Add what has ended to the totals."""
        while self._ended:
            tally = self._live.pop(self._ended.popleft(), None)
            if tally is not None:
                self._merge(self._totals, tally.counters())

    def _merge(self, into: dict[_Key, float], samples: Iterable[Sample]) -> None:
        for metric, labels, value in samples:
            key = metric.name, labels
            if key not in into:
                key = metric.name, self._admit(metric, labels)
            if key not in into:
                into[key] = value
            elif metric.kind is not _COUNTER:
                into[key] = max(into[key], value)
            elif value:  # most counters of a writer stay at 0
                into[key] += value

    def _admit(self, metric: Metric, labels: tuple[str, ...]) -> tuple[str, ...]:
        """The labels, or those of all that is beyond the bound."""
        admitted = self._admitted.setdefault(metric.labels, set())
        if not labels or labels in admitted:
            return labels
        first, others = labels[0], (OTHER,) * (len(labels) - 1)
        counts = self._counts.setdefault(metric.labels, {})
        if first not in counts and len(counts) >= MOST_SERIES:
            return (OTHER, *others)
        if counts.get(first, 0) >= MOST_SERIES:
            return (first, *others)
        counts[first] = counts.get(first, 0) + 1
        admitted.add(labels)
        return labels


registry: Final = Registry()
"""Of this process."""
os.register_at_fork(after_in_child=registry.clear)
