"""The metrics of this process at one moment, for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from streamfactory.spi import Metric, MetricKind, MisuseError, Sample
from streamfactory.spi.arguments import TEXT, takes
from streamfactory.spi.notebook import html_of, one_line
from streamfactory.wiring.core.nearest import nearest
from streamfactory.wiring.metrics.registry import registry

if TYPE_CHECKING:
    from collections.abc import Sequence


@final
class MetricsSnapshot:
    """The metrics of this process at one moment. Immutable.

    Args:
        metrics: What there can be samples of.
        samples: The values.
    """

    def __init__(self, metrics: Sequence[Metric], samples: Sequence[Sample]) -> None:
        self.metrics = tuple(metrics)
        self.samples = tuple(samples)

    def __repr__(self) -> str:
        count = len(self.samples)
        return f"<MetricsSnapshot of {count} sample{'' if count == 1 else 's'}>"

    def _repr_html_(self) -> str:
        table = [("metric", "labels", "value")]
        for sample in self.samples:
            labels = zip(sample.metric.labels, sample.labels, strict=True)
            text = one_line(", ".join(f"{name}={value}" for name, value in labels))
            table.append((sample.metric.name, text, str(sample.number)))
        return html_of(f"{len(self.samples)} metrics of this process", (), (table,))

    @takes(name=TEXT)
    def select(self, name: str, **labels: str) -> list[Sample]:
        """Samples of one metric.

        Args:
            name: ``read.rows``, or its name in Prometheus.
            labels: Only samples with these labels, ``stream="clicks"``.

        Raises:
            MisuseError: misuse; there is no such metric, or it has no such label.
        """
        metric = self._metric(name)
        for label in labels:
            if label not in metric.labels:
                known = ", ".join(metric.labels) or "none"
                msg = f"the metric {metric.name!r} has no label {label!r}"
                raise MisuseError(msg, remedy=f"its labels are: {known}")
        return [
            sample
            for sample in self.samples
            if sample.metric == metric
            and all(
                sample.labels[metric.labels.index(label)] == value
                for label, value in labels.items()
            )
        ]

    @takes(name=TEXT)
    def value(self, name: str, **labels: str) -> float | None:
        """One number for a metric: the sum of a counter, the largest value of a gauge.

        Args:
            name: As of `select`.
            labels: As of `select`.

        Returns:
            The number; 0 for a counter without samples, None for a gauge.

        Raises:
            MisuseError: misuse; as `select`.
        """
        values = [sample.number for sample in self.select(name, **labels)]
        if self._metric(name).kind is MetricKind.COUNTER:
            return sum(values)
        return max(values, default=None)

    def _metric(self, name: str) -> Metric:
        for metric in self.metrics:
            if name in (metric.name, metric.prometheus_name):
                return metric
        near = nearest(name, [m.name for m in self.metrics])
        msg = f"there is no metric {name!r}"
        remedy = f"did you mean {near!r}?" if near else "docs/metrics.md lists them"
        raise MisuseError(msg, remedy=remedy)


def metrics() -> MetricsSnapshot:
    """The metrics of this process: what it has read, written and committed so far.

    Returns:
        The values at this moment; nothing is reset.

    Example:
        >>> import streamfactory
        >>> streamfactory.metrics().value("read.rows", stream="no-such-stream")
        0
    """
    return MetricsSnapshot(registry.metrics, registry.samples())
