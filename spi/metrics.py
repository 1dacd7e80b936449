"""Metrics: declared once, like options, and recorded by name.

The Prometheus exposition, the JSON statistics of servers and the reference page come
from the declarations.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(\.[a-z][a-z0-9]*)*")

LABELS: Final[Mapping[str, str]] = {
    "stream": "Name of the stream, as it is configured.",
    "pipeline": "Name of the pipeline.",
    "sink": "Name of a sink within its pipeline.",
    "expectation": "Name of an expectation of the pipeline.",
    "job": "A job of the process: pipeline/NAME, copy/FROM/TO or spool/STREAM.",
    "topic": "Name of the topic.",
    "partition": "Id of the partition.",
    "group": "Name of the group of readers.",
    "method": "Kind of the call: list, info, schema, action, get, exchange, put.",
    "code": "Stable code of the error.",
}
"""Every label that a metric may have. The number of label values is bounded by the
streams, pipelines, jobs, topics, partitions and groups that exist and by the code;
client addresses, writer ids and other text that clients choose are not labels."""


class MetricKind(Enum):
    """Counter or gauge."""

    COUNTER = "counter"
    """A counter: only increases; starts at 0 with the process."""
    GAUGE = "gauge"
    """A gauge: the current value."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Args:
        name: Lower case, dotted, with the unit as its last word:
            ``server.received.bytes``.
        doc: One line, ending in a full stop.
        kind: Counter or gauge.
        unit: Plural: ``rows``, ``bytes``, ``seconds``; empty for a plain count.
        labels: Keys of `LABELS`.

    Raises:
        ValueError: The declaration is invalid.
    """

    name: str
    doc: str
    kind: MetricKind
    unit: str = ""
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            msg = f"metric name {self.name!r} is not a dotted name"
            raise ValueError(msg)
        if self.unit and self.name.rpartition(".")[2] != self.unit:
            msg = f"metric {self.name!r} does not end with its unit {self.unit!r}"
            raise ValueError(msg)
        if not self.doc.endswith(".") or "\n" in self.doc:
            msg = f"metric {self.name!r}: doc must be one line ending in a full stop"
            raise ValueError(msg)
        if unknown := set(self.labels) - LABELS.keys():
            msg = f"metric {self.name!r} has the unknown label {min(unknown)!r}"
            raise ValueError(msg)

    @property
    def prometheus_name(self) -> str:
        """The Prometheus name: ``streamfactory_server_received_bytes_total``."""
        total = "_total" if self.kind is MetricKind.COUNTER else ""
        return f"streamfactory_{self.name.replace('.', '_')}{total}"


class Sample(NamedTuple):
    """The value of a metric for one set of labels.

    Args:
        metric: The metric that is reported.
        labels: In the order of ``metric.labels``.
        value: Its value, in the unit of the metric.
    """

    metric: Metric
    labels: tuple[str, ...]
    value: float

    @property
    def number(self) -> int | float:
        """The value, as an integer if it is whole."""
        return int(self.value) if float(self.value).is_integer() else self.value


@final
class Recorder:
    """Counters of one process. Thread-safe.

    A counter with labels has a sample after its first increment; one without labels
    always has one.

    Args:
        metrics: The counters to record.
    """

    def __init__(self, metrics: Collection[Metric]) -> None:
        self._metrics = {metric.name: metric for metric in metrics}
        self._lock = threading.Lock()
        self._values: dict[tuple[str, tuple[str, ...]], float] = {
            (metric.name, ()): 0 for metric in metrics if not metric.labels
        }

    def add(self, metric: Metric, *labels: str, amount: float = 1) -> None:
        """Increase a counter.

        Args:
            metric: One of the recorded counters.
            labels: Values of its labels, in order.
            amount: Not negative.
        """
        key = (metric.name, labels)
        with self._lock:
            self._values[key] = self._values.get(key, 0) + amount

    def keep(self, label: str, values: Collection[str]) -> None:
        """Remove samples whose label has none of these values."""
        with self._lock:
            for name, labels in list(self._values):
                given = dict(zip(self._metrics[name].labels, labels, strict=True))
                if label in given and given[label] not in values:
                    del self._values[name, labels]

    def samples(self) -> list[Sample]:
        """Return the current values, by metric and labels."""
        with self._lock:
            found = sorted(self._values.items())
        return [
            Sample(self._metrics[name], labels, value)
            for (name, labels), value in found
        ]
