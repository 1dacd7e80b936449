"""The HTTP endpoint of a server: its metrics for Prometheus, statistics and health.

``GET /metrics`` answers the Prometheus exposition, ``/statistics`` the same values as
JSON, ``/health`` status 200 or 503 with the reasons.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final, final

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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType

    from streamfactory.spi import Sample, StreamConfig, StreamServer

SERVER_OPTIONS: Final = (
    Option(
        "metrics.address",
        "Host and port of the HTTP endpoint with /metrics (Prometheus), /statistics "
        "(JSON) and /health; port 0 takes a free one. Without it there is none.",
        example="127.0.0.1:9815",
    ),
    Option(
        "metrics.allow.remote",
        "Listen on another address than loopback with the HTTP endpoint: it shows the "
        "names of topics to everybody who can connect, without TLS.",
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
    """What is wrong with the address of the endpoint."""
    if "metrics.address" not in config:
        if config.given("metrics.allow.remote"):
            what = "has no effect without metrics.address"
            yield config.problem("metrics.allow.remote", what, level="warning")
        return
    address: str = config["metrics.address"]
    try:
        host, _ = parse_address(address)
    except ValueError as error:
        hint = "write for instance 127.0.0.1:9815"
        yield config.problem("metrics.address", str(error), hint)
        return
    if not is_loopback(host) and not config["metrics.allow.remote"]:
        what = f"{address!r} is open to the network"
        hint = "use 127.0.0.1, or set metrics.allow.remote=true"
        yield config.problem("metrics.address", what, hint)


@final
class MetricsEndpoint:
    """Serves the metrics of a server over HTTP, from its construction on.

    Args:
        server: Asked at each request, from threads of the endpoint.
        address: ``host:port``.

    Raises:
        ConfigError: config; the address cannot be used.
        NotInstalled: plugin; prometheus-client is missing.
    """

    def __init__(self, server: StreamServer, address: str) -> None:
        handler = _handler(server, _exposition(_prometheus_client(), server))
        host, port = parse_address(address)
        try:
            self._http = _Http(host, port, handler)
        except OSError as error:
            msg = f"metrics.address: cannot listen on {address}: {error.strerror}"
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
        _logger.debug("a client broke off")


def _handler(
    server: StreamServer, exposition: Callable[[], bytes]
) -> type[BaseHTTPRequestHandler]:
    def health() -> tuple[int, bytes]:
        problems = list(server.problems())
        answer = {"ready": not problems, "problems": problems}
        return (503 if problems else 200), _json(answer)

    answers: dict[str, Callable[[], tuple[int, bytes]]] = {
        "/metrics": lambda: (200, exposition()),
        "/statistics": lambda: (200, _json(plain_samples(server.statistics()))),
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


def _exposition(client: ModuleType, server: StreamServer) -> Callable[[], bytes]:
    """A function that answers the metrics as Prometheus reads them."""

    class Collector:
        def collect(self) -> Iterator[Any]:
            families: dict[str, Any] = {}
            for metric in server.METRICS:
                kind = (
                    client.core.CounterMetricFamily
                    if metric.kind is MetricKind.COUNTER
                    else client.core.GaugeMetricFamily
                )
                name = metric.prometheus_name.removesuffix("_total")
                families[metric.name] = kind(name, metric.doc, labels=metric.labels)
            for sample in server.statistics():
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
        msg = "metrics.address needs prometheus-client, which is not installed"
        remedy = "run: pip install 'streamfactory[metrics]'"
        raise NotInstalled(msg, remedy=remedy) from error
    return prometheus_client


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
