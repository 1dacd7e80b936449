"""Options of commands that run for long: metrics by HTTP, and OpenTelemetry."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streamfactory.cli.printing import Printer
    from streamfactory.wiring.metrics.endpoint import Monitored

metrics_option = click.option(
    "--metrics",
    metavar="ADDRESS",
    help="Serve metrics, statistics and health by HTTP: 127.0.0.1:9815.",
)

remote_option = click.option(
    "--metrics-allow-remote",
    "metrics_remote",
    is_flag=True,
    help="Allow --metrics on another address than loopback.",
)

telemetry_option = click.option(
    "--opentelemetry",
    is_flag=True,
    help="Export metrics and traces by OTLP; the variables OTEL_* say where to.",
)


@contextmanager
def telemetry(
    exported: bool, monitored: Callable[[], Monitored] | None = None
) -> Iterator[None]:
    """Export metrics and traces by OpenTelemetry within the block, if asked to.

    Args:
        exported: Whether ``--opentelemetry`` was given.
        monitored: Answers what the metrics are read from; this process by default.

    Raises:
        ConfigError: config; a variable ``OTEL_*`` has a value that is not supported.
        NotInstalled: plugin; the packages of OpenTelemetry are missing.
    """
    if not exported:
        yield
        return
    from streamfactory.wiring.metrics.opentelemetry import export_opentelemetry

    with export_opentelemetry(monitored=None if monitored is None else monitored()):
        yield


@contextmanager
def metrics_endpoint(
    address: str | None,
    printer: Printer,
    *,
    allow_remote: bool,
    problems: Callable[[], Sequence[str]] = tuple,
) -> Iterator[None]:
    """Serve the metrics of this process within the block, where an address is given.

    Raises:
        ConfigError: config; the address cannot be used.
        NotInstalled: plugin; prometheus-client is missing.
    """
    if address is None:
        if allow_remote:
            msg = "--metrics-allow-remote has no effect without --metrics."
            raise click.UsageError(msg)
        yield
        return
    from streamfactory.wiring.metrics.endpoint import serve_metrics

    with serve_metrics(
        address, allow_remote=allow_remote, problems=problems
    ) as endpoint:
        printer.note("metrics", endpoint.location)
        yield
