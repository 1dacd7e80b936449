"""Export of metrics and traces by OpenTelemetry.

Metrics are observable instruments that read the same registry as the HTTP endpoint.
Each finished batch of a pipeline, copy or spool is one trace.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.spi import ConfigError, MetricKind, MisuseError, NotInstalled
from streamfactory.spi.arguments import having, takes
from streamfactory.wiring.core.closing import Closing
from streamfactory.wiring.metrics.batches import batches
from streamfactory.wiring.metrics.endpoint import ProcessMonitor
from streamfactory.wiring.metrics.vocabulary import ATTRIBUTES, CONVENTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import TracerProvider

    from streamfactory.spi import Metric, Sample
    from streamfactory.wiring.metrics.endpoint import Monitored

_SCOPE: Final = "streamfactory"
_UNITS: Final = {"bytes": "By", "seconds": "s"}
_MOST_SERIES: Final = 100_000
"""Series of one metric; the SDK would keep 2,000."""
_EXPORTERS: Final = ("otlp", "console", "none")
_END_SECONDS: Final = 5.0
"""Longest wait for a collector when the export ends."""

_logger = logging.getLogger("streamfactory.metrics")


METERS: Final = having("get_meter", taken="pass a MeterProvider of opentelemetry")
TRACERS: Final = having("get_tracer", taken="pass a TracerProvider of opentelemetry")
MONITORED: Final = having("statistics", taken="pass a StreamServer, or None")


@final
class OpenTelemetry(Closing):
    """Exports metrics and traces of this process until it is closed.

    Made by `export_opentelemetry`. A context manager.

    Args:
        monitored: What the metrics are read from.
        meters: Takes the metrics; None for none.
        tracers: Takes the traces; None for none.

    Raises:
        MisuseError: misuse; this process exports already.
    """

    def __init__(
        self,
        monitored: Monitored,
        meters: MeterProvider | None,
        tracers: TracerProvider | None,
    ) -> None:
        if _exporting:
            msg = "this process exports to OpenTelemetry already"
            raise MisuseError(msg, remedy="close that export first")
        self._ends = ExitStack()
        self._last: list[Callable[[], Any]] = []
        if meters is not None:
            self._instruments = _Instruments(monitored)
            self._instruments.register(meters)
            self._ends.callback(self._instruments.close)
        if tracers is not None:
            from streamfactory.wiring.metrics.spans import BatchTracer

            batches.subscribe(BatchTracer(tracers.get_tracer(_SCOPE)))
            self._ends.callback(batches.subscribe, None)
        _exporting.append(self)

    def close(self) -> None:
        """Export what is left, and end, within 5 s. May be called twice.

        What a collector does not take in this time is lost, with a warning.
        """
        if self in _exporting:
            _exporting.remove(self)
        with self._ends:
            last, self._last = self._last, []
            for function in last:
                atexit.unregister(function)  # of the SDK, which would wait again
            _call_all(last, _END_SECONDS)

    def also_close(self, function: Callable[[], Any]) -> None:
        """Call a function when this is closed, in a thread that may be left behind."""
        self._last.append(function)


def _call_all(functions: Sequence[Callable[[], Any]], seconds: float) -> None:
    """Call functions concurrently, and wait for all of them until one deadline.

    Threads, as the SDK's own time limits do not hold: its processors ignore them.
    """

    def work(function: Callable[[], Any]) -> None:
        try:
            function()
        except Exception as error:  # noqa: BLE001 - the SDK documents no type
            _logger.warning("the export to OpenTelemetry did not end: %s", error)

    threads = [
        threading.Thread(target=work, args=[one], name="export-end", daemon=True)
        for one in functions
    ]
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        _logger.warning(
            "the collector of OpenTelemetry did not answer within %g s: the last "
            "metrics or traces are lost. Check OTEL_EXPORTER_OTLP_ENDPOINT, and that "
            "the collector can be reached.",
            seconds,
        )


_exporting: Final[list[OpenTelemetry]] = []
"""At most one."""


@takes(meter_provider=METERS, tracer_provider=TRACERS, monitored=MONITORED)
def export_opentelemetry(
    *,
    meter_provider: MeterProvider | None = None,
    tracer_provider: TracerProvider | None = None,
    monitored: Monitored | None = None,
) -> OpenTelemetry:
    """Export the metrics and traces of this process by OpenTelemetry.

    Without providers it creates those of the SDK, with exporters for OTLP over HTTP,
    configured by the standard variables ``OTEL_*``: ``OTEL_EXPORTER_OTLP_ENDPOINT``,
    ``OTEL_SERVICE_NAME``, ``OTEL_METRICS_EXPORTER=none`` and others.

    Args:
        meter_provider: Takes the metrics, and stays open. With either provider given,
            the other signal is exported only where it has one, too.
        tracer_provider: Takes the traces, and stays open.
        monitored: What the metrics are read from; this process by default.

    Returns:
        The export. ``close`` sends what is left, and ends it.

    Raises:
        ConfigError: config; a variable has a value that is not supported.
        NotInstalled: plugin; the packages of OpenTelemetry are missing.
        MisuseError: misuse; this process exports already.
    """
    monitored = monitored or ProcessMonitor()
    if meter_provider is not None or tracer_provider is not None:
        _check_installed()
        return OpenTelemetry(monitored, meter_provider, tracer_provider)
    _check_protocol()
    chosen = {
        signal: _exporter_of(signal) for signal in ("OTEL_METRICS", "OTEL_TRACES")
    }
    _check_installed()
    resource = _resource()
    with ExitStack() as unless_made:
        meters = _meters(chosen["OTEL_METRICS"], resource)
        if meters is not None:
            unless_made.callback(meters.shutdown)
        tracers = _tracers(chosen["OTEL_TRACES"], resource)
        if tracers is not None:
            unless_made.callback(tracers.shutdown)
        export = OpenTelemetry(monitored, meters, tracers)
        unless_made.pop_all()
    for provider in (meters, tracers):
        if provider is not None:
            export.also_close(provider.shutdown)  # exports a last time
    return export


@final
class _Instruments:
    """Observable instruments. Each collection reads the samples once."""

    def __init__(self, monitored: Monitored) -> None:
        self._monitored: Monitored | None = monitored
        self._metrics = tuple(monitored.METRICS)
        self._samples: dict[str, list[Sample]] = {}

    def register(self, provider: MeterProvider) -> None:
        """Create an instrument per metric."""
        meter = provider.get_meter(_SCOPE)
        for metric in self._metrics:
            make = (
                meter.create_observable_counter
                if metric.kind is MetricKind.COUNTER
                else meter.create_observable_gauge
            )
            make(
                CONVENTIONS.get(metric.name, f"{_SCOPE}.{metric.name}"),
                callbacks=[self._observer(metric)],
                unit=_unit(metric),
                description=metric.doc,
            )

    def close(self) -> None:
        """Observe nothing more; instruments cannot be removed from a provider."""
        self._monitored = None

    def _observer(
        self, metric: Metric
    ) -> Callable[[CallbackOptions], Iterator[Observation]]:
        from opentelemetry.metrics import Observation

        names = [ATTRIBUTES.get(one, f"{_SCOPE}.{one}") for one in metric.labels]

        def observe(_: CallbackOptions) -> Iterator[Observation]:
            for sample in self._next(metric):
                labels = dict(zip(names, sample.labels, strict=True))
                yield Observation(sample.number, labels)

        return observe

    def _next(self, metric: Metric) -> Sequence[Sample]:
        """The samples of a metric; read again when it has been answered before."""
        monitored = self._monitored
        if monitored is None:
            return ()
        if metric.name not in self._samples:
            found: dict[str, list[Sample]] = {one.name: [] for one in self._metrics}
            for sample in monitored.statistics():
                found[sample.metric.name].append(sample)
            self._samples = found
        return self._samples.pop(metric.name)


def _unit(metric: Metric) -> str:
    """As UCUM writes it: ``By``, ``s``, ``{rows}``."""
    if metric.name in CONVENTIONS:
        return "{message}"
    return _UNITS.get(metric.unit) or (f"{{{metric.unit}}}" if metric.unit else "1")


def _check_protocol() -> None:
    names = ["OTEL_EXPORTER_OTLP_PROTOCOL"]
    names += [f"OTEL_EXPORTER_OTLP_{one}_PROTOCOL" for one in ("METRICS", "TRACES")]
    for name in names:
        value = os.environ.get(name, "").strip().lower()
        if value not in ("", "http/protobuf"):
            msg = f"the variable {name} is {value!r}, and only http/protobuf is "
            msg += "supported"
            raise ConfigError(msg, remedy="set it to http/protobuf, or unset it")


def _exporter_of(signal: str) -> str:
    name = f"{signal}_EXPORTER"
    value = os.environ.get(name, "").strip().lower() or "otlp"
    if value not in _EXPORTERS:
        msg = f"the variable {name} is {value!r}, which is not supported"
        raise ConfigError(msg, remedy=f"set it to one of {', '.join(_EXPORTERS)}")
    return value


def _check_installed() -> None:
    try:
        import opentelemetry.exporter.otlp.proto.http
        import opentelemetry.sdk  # noqa: F401
    except ImportError as error:
        msg = f"the packages of OpenTelemetry cannot be imported: {error}"
        remedy = "run: pip install 'streamfactory[opentelemetry]'"
        raise NotInstalled(msg, remedy=remedy) from error


def _resource() -> Resource:
    """The resource of the environment, with our name where it has no other."""
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource

    found = Resource.create()
    if str(found.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        found = found.merge(Resource({SERVICE_NAME: _SCOPE}))
    return found


def _meters(kind: str, resource: Resource) -> Any:
    """A provider of the SDK; None where metrics are not exported."""
    if kind == "none":
        return None
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import (
        OTLPMetricExporter,
    )
    from opentelemetry.sdk.metrics import (
        MeterProvider,
        ObservableCounter,
        ObservableGauge,
    )
    from opentelemetry.sdk.metrics.export import (
        ConsoleMetricExporter,
        PeriodicExportingMetricReader,
    )

    exporter: Any = OTLPMetricExporter() if kind == "otlp" else ConsoleMetricExporter()
    limits: Any = dict.fromkeys((ObservableCounter, ObservableGauge), _MOST_SERIES)
    reader = PeriodicExportingMetricReader(exporter, cardinality_limits=limits)
    return MeterProvider([reader], resource)


def _tracers(kind: str, resource: Resource) -> Any:
    """A provider of the SDK; None where traces are not exported."""
    if kind == "none":
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

    exporter = OTLPSpanExporter() if kind == "otlp" else ConsoleSpanExporter()
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider
