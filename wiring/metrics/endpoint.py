"""The HTTP endpoint of a process: metrics for Prometheus, statistics and health.

``GET /metrics`` returns the Prometheus exposition, ``/statistics`` the same values as
JSON, ``/health`` status 200 or 503 with the reasons.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from streamfactory.spi import (
    BOOLEAN,
    ConfigError,
    MetricKind,
    NotInstalled,
    Option,
    Problem,
    StreamError,
    UntranslatedError,
)
from streamfactory.spi.addresses import is_loopback, parse_address
from streamfactory.spi.arguments import CALLABLE, FLAG, TEXT, takes
from streamfactory.wiring.core.closing import Closing
from streamfactory.wiring.metrics.registry import registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType

    from streamfactory.spi import Metric, Sample, StreamConfig

SERVER_OPTIONS: Final = (
    Option(
        "metrics.address",
        "Host and port of the HTTP endpoint with /metrics (Prometheus), /statistics "
        "(JSON) and /health; port 0 selects a free one. Without it there is no "
        "endpoint.",
        example="127.0.0.1:9815",
    ),
    Option(
        "metrics.allow.remote",
        "Listen on another address than loopback with the HTTP endpoint: it shows the "
        "names of topics to every client that can connect, without TLS.",
        BOOLEAN,
        default="false",
    ),
)
"""Settings that all servers share."""

_TIMEOUT: Final = 10.0
"""Seconds that a client may take to send its request."""
_MOST_CONNECTIONS: Final = 16

_logger = logging.getLogger("streamfactory.metrics")


def metrics_problems(config: StreamConfig) -> Iterator[Problem]:
    """Yield problems with the address of the endpoint."""
    if "metrics.address" not in config:
        if config.given("metrics.allow.remote"):
            what = "has no effect without metrics.address"
            yield config.problem("metrics.allow.remote", what, level="warning")
        return
    address: str = config["metrics.address"]
    allowing = "set metrics.allow.remote=true"
    found = _address_problem(address, config["metrics.allow.remote"], allowing)
    if found is not None:
        yield config.problem("metrics.address", *found)


def _address_problem(
    address: str, remote: bool, allowing: str
) -> tuple[str, str] | None:
    """Why an address cannot be used, and the remedy; None if it can.

    Args:
        address: ``host:port``.
        remote: Whether another address than loopback is allowed.
        allowing: How that is allowed.
    """
    try:
        host, _ = parse_address(address)
    except ValueError as error:
        return str(error), "write for example 127.0.0.1:9815"
    if is_loopback(host) or remote:
        return None
    return f"{address!r} is open to the network", f"use 127.0.0.1, or {allowing}"


class Monitored(Protocol):
    """What an endpoint shows. A `StreamServer` is one."""

    @property
    def METRICS(self) -> Sequence[Metric]:  # noqa: N802 - as `StreamServer` names it
        """What `statistics` has samples of."""

    def statistics(self) -> Sequence[Sample]:
        """One sample for each metric and each set of its labels."""

    def problems(self) -> Sequence[str]:
        """Why the process is not healthy, one line each."""


@final
class ProcessMonitor:
    """The metrics of this process, and of a server in it.

    Args:
        server: Its metrics come first; None where there is none.
        problems: Called at each health check.
    """

    def __init__(
        self,
        server: Monitored | None = None,
        problems: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._server = server
        self._problems = problems
        own = () if server is None else server.METRICS
        self.METRICS: Sequence[Metric] = (*own, *registry.metrics)

    def statistics(self) -> Sequence[Sample]:
        """See `Monitored`."""
        own = () if self._server is None else self._server.statistics()
        return [*own, *registry.samples()]

    def problems(self) -> Sequence[str]:
        """See `Monitored`."""
        own = () if self._server is None else self._server.problems()
        return [*own, *self._problems()]


@takes(address=TEXT, allow_remote=FLAG, problems=CALLABLE)
def serve_metrics(
    address: str,
    *,
    allow_remote: bool = False,
    problems: Callable[[], Sequence[str]] = tuple,
) -> MetricsEndpoint:
    """Serve the metrics of this process over HTTP, until the endpoint is closed.

    Args:
        address: ``host:port``; port 0 takes a free one.
        allow_remote: Whether another address than loopback is allowed. The endpoint has
            neither TLS nor authentication.
        problems: Called at each health check: why the process is not healthy.

    Returns:
        The endpoint: its ``location`` is the URL of the metrics, ``close`` ends it.

    Raises:
        ConfigError: config; the address cannot be used.
        NotInstalled: plugin; prometheus-client is missing.
    """
    allowing = "allow it: allow_remote=True"
    found = _address_problem(address, allow_remote, allowing)
    if found is not None:
        msg = f"the metrics cannot be served: the address {found[0]}"
        raise ConfigError(msg, remedy=found[1])
    return MetricsEndpoint(ProcessMonitor(problems=problems), address)


@final
class MetricsEndpoint(Closing):
    """Serves metrics over HTTP, from its construction on. A context manager.

    Args:
        monitored: Asked at each request, from threads of the endpoint.
        address: ``host:port``.

    Raises:
        ConfigError: config; the address cannot be used.
        NotInstalled: plugin; prometheus-client is missing.
    """

    def __init__(self, monitored: Monitored, address: str) -> None:
        handler = _handler(monitored, _exposition(_prometheus_client(), monitored))
        host, port = parse_address(address)
        try:
            self._http = _Http(host, port, handler)
        except OSError as error:
            msg = f"the metrics cannot be served on {address}: {error.strerror}"
            raise ConfigError(msg, remedy="choose another address") from error
        self._thread = threading.Thread(
            target=self._http.serve_forever, name="metrics", daemon=True
        )
        self._thread.start()

    @property
    def location(self) -> str:
        """Of the metrics, with the port that was chosen."""
        host, port = self._http.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{shown}:{port}/metrics"

    def close(self) -> None:
        """Stop listening. Twice is allowed."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Http(ThreadingMixIn, HTTPServer):
    """One thread for each connection, of which there are few."""

    daemon_threads = True
    block_on_close = False

    def __init__(
        self, host: str, port: int, handler: type[BaseHTTPRequestHandler]
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        super().__init__((host, port), handler)

    def server_bind(self) -> None:
        # Connections of a server that was killed keep the port in TIME_WAIT.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # HTTPServer would look the host up in the DNS, which may take long.
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        _logger.debug("a client disconnected")


def _handler(
    monitored: Monitored, exposition: Callable[[], bytes]
) -> type[BaseHTTPRequestHandler]:
    def health() -> tuple[int, bytes]:
        problems = list(monitored.problems())
        answer = {"ready": not problems, "problems": problems}
        return (503 if problems else 200), _json(answer)

    answers: dict[str, Callable[[], tuple[int, bytes]]] = {
        "/metrics": lambda: (200, exposition()),
        "/statistics": lambda: (200, _json(plain_samples(monitored.statistics()))),
        "/health": health,
    }

    class Handler(BaseHTTPRequestHandler):
        timeout = _TIMEOUT
        server_version, sys_version = "streamfactory", ""

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path not in answers:
                self.send_error(404)
                return
            try:
                status, body = answers[path]()
            except StreamError as error:
                _logger.warning("%s: %s", path, error)
                status, body = 503, _json({"code": error.code})
            except Exception:
                _logger.exception("%s failed", path)
                status, body = 500, _json({"code": UntranslatedError.code})
            kind = "text/plain; version=0.0.4; charset=utf-8"
            self.send_response(status)
            self.send_header(
                "Content-Type", kind if path == "/metrics" else "application/json"
            )
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            _logger.debug(format, *args)

    return Handler


def plain_samples(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """Samples as plain values: name, labels, value."""
    return [
        {
            "name": metric.name,
            "labels": dict(zip(metric.labels, sample.labels, strict=True)),
            "value": sample.number,
        }
        for sample in samples
        for metric in [sample.metric]
    ]


def _exposition(client: ModuleType, monitored: Monitored) -> Callable[[], bytes]:
    """Return a function that returns the metrics in Prometheus's format."""

    class Collector:
        def collect(self) -> Iterator[Any]:
            families: dict[str, Any] = {}
            for metric in monitored.METRICS:
                kind = (
                    client.core.CounterMetricFamily
                    if metric.kind is MetricKind.COUNTER
                    else client.core.GaugeMetricFamily
                )
                name = metric.prometheus_name.removesuffix("_total")
                families[metric.name] = kind(name, metric.doc, labels=metric.labels)
            for sample in monitored.statistics():
                families[sample.metric.name].add_metric(sample.labels, sample.value)
            yield from families.values()

        def describe(self) -> list[Any]:
            return []

    registry = client.CollectorRegistry(auto_describe=False)
    registry.register(Collector())
    return lambda: bytes(client.generate_latest(registry))


def _prometheus_client() -> ModuleType:
    try:
        import prometheus_client
        import prometheus_client.core
    except ImportError as error:
        msg = "the metrics endpoint needs prometheus-client, which is not installed"
        remedy = "run: pip install 'streamfactory[metrics]'"
        raise NotInstalled(msg, remedy=remedy) from error
    return prometheus_client


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
