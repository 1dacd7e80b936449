"""Servers of streams in this process: settings, the server, its metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.spi import Problem, StreamConfig, Unsupported
from streamfactory.wiring.config.configure import resolve_settings
from streamfactory.wiring.core.guard import log_warnings
from streamfactory.wiring.metrics.endpoint import (
    SERVER_OPTIONS,
    MetricsEndpoint,
    ProcessMonitor,
    metrics_problems,
)
from streamfactory.wiring.plugins.manager import PluginManager, default_manager

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.spi import StreamServer
    from streamfactory.wiring.config.definition import Property


def configure_server(
    kind: str, server: type[StreamServer], properties: Sequence[Property]
) -> StreamConfig:
    """Validated settings of a server.

    Raises:
        ConfigError: config; every problem at once.
    """

    def check(config: StreamConfig) -> Iterator[Problem]:
        yield from server.check_options(config)
        yield from metrics_problems(config)

    options = (*server.OPTIONS, *SERVER_OPTIONS)
    return resolve_settings(f"the {kind} server", kind, options, properties, check)


def open_server(
    kind: str,
    properties: Sequence[Property],
    *,
    plugins: PluginManager | None = None,
) -> StreamServer:
    """Start a server in this process; it listens when this returns.

    Args:
        kind: Name of the server's stream type: ``flight``.
        properties: Its settings, by the keys of its ``OPTIONS``.
        plugins: Finds types; by default those of the process.

    Raises:
        ConfigError: config; every problem at once.
        PluginError: plugin; the type is not installed, or broken.
        Unsupported: misuse; the type has no server.
    """
    backend = (plugins or default_manager()).backend(kind)
    if backend.server is None:
        msg = f"stream type {kind!r} has no server"
        raise Unsupported(msg)
    config = configure_server(kind, backend.server, properties)
    log_warnings(config)
    return backend.server(config)


def open_metrics(server: StreamServer) -> MetricsEndpoint | None:
    """Start the HTTP endpoint of a server; None where none is configured.

    Raises:
        ConfigError: config; the address cannot be used.
        NotInstalled: plugin; prometheus-client is missing.
    """
    if "metrics.address" not in server.config:
        return None
    monitor = ProcessMonitor(server)
    return MetricsEndpoint(monitor, server.config["metrics.address"])
